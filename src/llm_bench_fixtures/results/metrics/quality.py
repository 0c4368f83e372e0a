"""Quality over the corpus, how far the generated texts agree with the reference's, and answers to questions of multiple
choice.

None has a function that computes it: whoever scores or asks a model, or compares its texts, gives the value by name.
"""

from __future__ import annotations

from functools import partial

from llm_bench_fixtures.results.metrics.metric import (
    MLPERF_FLOOR,
    Direction,
    Force,
    Kind,
    Metric,
    ReportTable,
    Tolerance,
    Unit,
)

# What a row does not say.
_row = partial(Metric, unit=Unit.NONE, direction=Direction.LOWER_IS_BETTER, kind=Kind.QUALITY)
_divergence = partial(_row, unit=Unit.NATS_PER_TOKEN, source="llama-perplexity")
_divergence_error = partial(_row, unit=Unit.NATS_PER_TOKEN, direction=Direction.NEITHER)

QUALITY: tuple[Metric, ...] = (
    _row(
        name="loss",
        title="Loss",
        column="loss",
        unit=Unit.NATS_PER_TOKEN,
        formula="summed negative log-likelihood over the corpus / scored tokens",
        source="Hugging Face, perplexity of fixed-length models",
    ),
    _row(
        name="perplexity",
        title="Perplexity",
        column="perplexity",
        formula="exp(loss)",
        source="Hugging Face, perplexity of fixed-length models",
        tolerance=Tolerance(relative=0.005, floor=MLPERF_FLOOR),
    ),
    _row(
        name="bits_per_byte",
        title="Bits per byte",
        column="bits/byte",
        formula="summed negative log-likelihood / ln 2 / UTF-8 bytes of the text that the scored tokens make up",
        source="lm-evaluation-harness",
    ),
    _row(
        name="word_perplexity",
        title="Word perplexity",
        column="word perplexity",
        formula=(
            "exp(summed negative log-likelihood / words, split at whitespace, "
            "of the text that the scored tokens make up)"
        ),
        source="lm-evaluation-harness",
    ),
    _row(
        name="byte_perplexity",
        title="Byte perplexity",
        column="byte perplexity",
        formula="exp(summed negative log-likelihood / UTF-8 bytes of the text that the scored tokens make up)",
        source="lm-evaluation-harness",
    ),
    _row(
        name="ppl_ratio",
        title="Perplexity against the reference's",
        column="ppl ratio",
        formula="perplexity / the reference's, over the same tokens",
        source="llama-perplexity",
    ),
    _row(
        name="ppl_ratio_error",
        title="Standard error of the perplexity ratio",
        column="ppl ratio ±",
        direction=Direction.NEITHER,
        formula="ppl_ratio x standard error of the mean of the tokens' paired differences of log-likelihood",
        source="llama-perplexity",
    ),
    _divergence(
        name="kld_mean",
        title="Mean divergence from the reference",
        column="KLD",
        formula="mean over the scored tokens of sum p ln(p / q): Kullback-Leibler divergence from the reference's p",
        tolerance=Tolerance(relative=0.10, absolute=0.001),
    ),
    _divergence_error(
        name="kld_error",
        title="Error of the mean divergence",
        column="KLD ±",
        formula="half-width of a 95 % interval of kld_mean where the reference's p were sampled; 0 where all were kept",
    ),
    *(
        _divergence(name=f"kld_{part}", title=title, column=column, formula=formula)
        for part, title, column, formula in (
            ("p50", "Median divergence", "KLD p50", "median of the tokens' divergences"),
            (
                *("p99", "99th percentile of the divergence", "KLD p99"),
                "99th percentile of the tokens' divergences; none below 100 tokens",
            ),
            (
                *("p999", "99.9th percentile of the divergence", "KLD p99.9"),
                "99.9th percentile of the tokens' divergences; none below 1000 tokens",
            ),
            ("max", "Largest divergence", "KLD max", "largest of the tokens' divergences"),
        )
    ),
    *(
        _divergence_error(
            name=f"{name}_error",
            title=f"Error of the {what} divergence",
            column=f"{column} ±",
            formula=f"as kld_error, of {name}",
        )
        for name, what, column in (
            ("kld_p50", "median", "KLD p50"),
            ("kld_p99", "99th percentile of the", "KLD p99"),
            ("kld_p999", "99.9th percentile of the", "KLD p99.9"),
            ("kld_max", "largest", "KLD max"),
        )
    ),
    _row(
        name="top1_agreement",
        title="Agreement on the most likely token",
        column="top-1",
        unit=Unit.SHARE,
        direction=Direction.HIGHER_IS_BETTER,
        formula="share of the scored tokens where none is likelier than the reference's most likely one",
        source="llama-perplexity's same top p",
        tolerance=Tolerance(relative=MLPERF_FLOOR),
    ),
    _row(
        name="mean_dp",
        title="Mean change of the true token's probability",
        column="mean Δp",
        direction=Direction.NEITHER,
        formula="mean over the scored tokens of their probability minus that under the reference",
        source="llama-perplexity",
    ),
    _row(
        name="rms_dp",
        title="Root mean square change of the true token's probability",
        column="RMS Δp",
        formula="square root of the mean square of mean_dp's differences",
        source="llama-perplexity",
    ),
    _row(
        name="first_divergent_token",
        title="First divergent token",
        column="first divergent",
        direction=Direction.HIGHER_IS_BETTER,
        formula=(
            "mean over the prompts of the index of the first new token that differs from the reference's on the same "
            "workload; the number of new tokens where none does"
        ),
        source="OpenVINO's who-what-benchmark, FDT",
        tables={ReportTable.TEXTS: 10},
    ),
    _row(
        name="divergent_share",
        title="Divergent share",
        column="divergent",
        unit=Unit.SHARE,
        formula="share of the new tokens that differ from the reference's at the same place",
        source="after OpenVINO's who-what-benchmark, SDT norm",
        tables={ReportTable.TEXTS: 20},
    ),
    _row(
        name="scored_share",
        title="Scored share of the corpus",
        column="scored share",
        unit=Unit.SHARE,
        direction=Direction.NEITHER,
        formula="scored_tokens / tokens of the whole corpus, where a sample of it was scored",
    ),
    _row(
        name="scored_tokens",
        title="Scored tokens",
        column="scored tokens",
        unit=Unit.TOKENS,
        direction=Direction.NEITHER,
        kind=Kind.EXACT,
        formula="tokens of the corpus that the loss is over",
    ),
)


FLIPS = "Dutta et al., Accuracy is not all you need (arXiv 2407.09141)"
POINTS = Tolerance(absolute=0.02, force=Force.ADVISORY)  # the embedded set has 190 items: nearly four of them

# What a row does not say.
_choice = partial(Metric, unit=Unit.SHARE, direction=Direction.LOWER_IS_BETTER, kind=Kind.QUALITY)

CHOICES: tuple[Metric, ...] = (
    _choice(
        name="choice_accuracy",
        title="Right answers",
        column="right",
        direction=Direction.HIGHER_IS_BETTER,
        formula=(
            "share of the multiple-choice questions whose right choice has the largest summed log-likelihood of "
            "its tokens, given the prompt"
        ),
        source="lm-evaluation-harness, acc",
        tolerance=POINTS,
    ),
    _choice(
        name="flips",
        title="Flips",
        column="flips",
        formula="(flips_lost + flips_gained) / choice_items",
        source=FLIPS,
        tolerance=POINTS,
    ),
    *(
        _choice(
            name=f"flips_{end}",
            title=f"Flips, {end} end",
            column=f"flips {sign}",
            direction=Direction.NEITHER,
            formula=f"{end} end of the 95 % interval of flips, exact for a binomial share",
            source="Clopper and Pearson, Biometrika 26 (1934)",
        )
        for end, sign in (("low", "≥"), ("high", "≤"))
    ),
    *(
        _choice(
            name=f"flips_{way}",
            title=title,
            column=column,
            unit=Unit.COUNT,
            direction=Direction.NEITHER,
            formula=f"questions whose answer is {formula}",
            source=FLIPS,
        )
        for way, title, column, formula in (
            ("lost", "Answers lost", "right → wrong", "wrong, and right under the reference"),
            ("gained", "Answers gained", "wrong → right", "right, and wrong under the reference"),
        )
    ),
    _choice(
        name="answers_changed",
        title="Answers changed",
        column="other answer",
        formula="share of the questions with another answer than the reference's: flips, and other wrong answers",
        tolerance=POINTS,
    ),
    _choice(
        name="choice_items",
        title="Questions of multiple choice",
        column="questions",
        unit=Unit.COUNT,
        direction=Direction.NEITHER,
        kind=Kind.EXACT,
        formula="multiple-choice questions asked",
    ),
)

OF_CHOICES = frozenset(metric.name for metric in CHOICES)
