"""Quality over the corpus, how far the generated texts agree with the reference's, and answers to questions of multiple
choice.

None has a function that computes it: whoever scores or asks a model, or compares its texts, gives the value by name.
"""

from __future__ import annotations

from functools import partial

from llm_bench_fixtures.results.metrics.metric import Direction, Force, Metric, ReportTable, Tolerance, Unit
from llm_bench_fixtures.results.metrics.rows import exact_row, quality_row

MLPERF_FLOOR = 1 / 0.99 - 1  # MLPerf's inference rules: at least 99 % of the reference's quality

_harness_row = partial(quality_row, source="lm-evaluation-harness")
_llama_row = partial(quality_row, source="llama-perplexity")
_divergence_row = partial(_llama_row, unit=Unit.NATS_PER_TOKEN)
_error_row = partial(quality_row, unit=Unit.NATS_PER_TOKEN, direction=Direction.NEITHER)

_DIVERGENCES = (
    _divergence_row("kld_p50", "Median divergence", "KLD p50", formula="median of the tokens' divergences"),
    _divergence_row(
        name="kld_p99",
        title="99th percentile of the divergence",
        column="KLD p99",
        formula="99th percentile of the tokens' divergences; none below 100 tokens",
    ),
    _divergence_row(
        name="kld_p999",
        title="99.9th percentile of the divergence",
        column="KLD p99.9",
        formula="99.9th percentile of the tokens' divergences; none below 1000 tokens",
    ),
    _divergence_row("kld_max", "Largest divergence", "KLD max", formula="largest of the tokens' divergences"),
)

QUALITY: tuple[Metric, ...] = (
    quality_row(
        name="loss",
        title="Loss",
        column="loss",
        unit=Unit.NATS_PER_TOKEN,
        formula="summed negative log-likelihood over the corpus / scored tokens",
        source="Hugging Face, perplexity of fixed-length models",
    ),
    quality_row(
        name="perplexity",
        title="Perplexity",
        column="perplexity",
        formula="exp(loss)",
        source="Hugging Face, perplexity of fixed-length models",
        tolerance=Tolerance(relative=0.005, floor=MLPERF_FLOOR),
    ),
    _harness_row(
        name="bits_per_byte",
        title="Bits per byte",
        column="bits/byte",
        formula="summed negative log-likelihood / ln 2 / UTF-8 bytes of the text that the scored tokens make up",
    ),
    _harness_row(
        name="word_perplexity",
        title="Word perplexity",
        column="word perplexity",
        formula=(
            "exp(summed negative log-likelihood / words, split at whitespace, "
            "of the text that the scored tokens make up)"
        ),
    ),
    _harness_row(
        name="byte_perplexity",
        title="Byte perplexity",
        column="byte perplexity",
        formula="exp(summed negative log-likelihood / UTF-8 bytes of the text that the scored tokens make up)",
    ),
    _llama_row(
        name="ppl_ratio",
        title="Perplexity against the reference's",
        column="ppl ratio",
        formula="perplexity / the reference's, over the same tokens",
    ),
    _llama_row(
        name="ppl_ratio_error",
        title="Standard error of the perplexity ratio",
        column="ppl ratio ±",
        direction=Direction.NEITHER,
        formula="ppl_ratio x standard error of the mean of the tokens' paired differences of log-likelihood",
    ),
    _divergence_row(
        name="kld_mean",
        title="Mean divergence from the reference",
        column="KLD",
        formula="mean over the scored tokens of sum p ln(p / q): Kullback-Leibler divergence from the reference's p",
        tolerance=Tolerance(relative=0.10, absolute=0.001),
    ),
    _error_row(
        name="kld_error",
        title="Error of the mean divergence",
        column="KLD ±",
        formula="half-width of a 95 % interval of kld_mean where the reference's p were sampled; 0 where all were kept",
    ),
    *_DIVERGENCES,
    *(
        _error_row(
            name=f"{one.name}_error",
            title=f"Error of the {one.title_in_sentence}",
            column=f"{one.column} ±",
            formula=f"as kld_error, of {one.name}",
        )
        for one in _DIVERGENCES
    ),
    quality_row(
        name="top1_agreement",
        title="Agreement on the most likely token",
        column="top-1",
        unit=Unit.SHARE,
        direction=Direction.HIGHER_IS_BETTER,
        formula="share of the scored tokens where none is likelier than the reference's most likely one",
        source="llama-perplexity's same top p",
        tolerance=Tolerance(relative=MLPERF_FLOOR),
    ),
    _llama_row(
        name="mean_dp",
        title="Mean change of the true token's probability",
        column="mean Δp",
        direction=Direction.NEITHER,
        formula="mean over the scored tokens of their probability minus that under the reference",
    ),
    _llama_row(
        name="rms_dp",
        title="Root mean square change of the true token's probability",
        column="RMS Δp",
        formula="square root of the mean square of mean_dp's differences",
    ),
    quality_row(
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
    quality_row(
        name="divergent_share",
        title="Divergent share",
        column="divergent",
        unit=Unit.SHARE,
        formula="share of the new tokens that differ from the reference's at the same place",
        source="after OpenVINO's who-what-benchmark, SDT norm",
        tables={ReportTable.TEXTS: 20},
    ),
    quality_row(
        name="scored_share",
        title="Scored share of the corpus",
        column="scored share",
        unit=Unit.SHARE,
        direction=Direction.NEITHER,
        formula="scored_tokens / tokens of the whole corpus, where a sample of it was scored",
    ),
    exact_row(
        name="scored_tokens",
        title="Scored tokens",
        column="scored tokens",
        unit=Unit.TOKENS,
        direction=Direction.NEITHER,
        formula="tokens of the corpus that the loss is over",
    ),
)


FLIPS = "Dutta et al., Accuracy is not all you need (arXiv 2407.09141)"
POINTS = Tolerance(absolute=0.02, force=Force.ADVISORY)  # the embedded set has 190 items: nearly four of them

_choice_row = partial(quality_row, unit=Unit.SHARE, tolerance=POINTS)
_flips_row = partial(quality_row, unit=Unit.COUNT, direction=Direction.NEITHER, source=FLIPS)

CHOICES: tuple[Metric, ...] = (
    _choice_row(
        name="choice_accuracy",
        title="Right answers",
        column="right",
        direction=Direction.HIGHER_IS_BETTER,
        formula=(
            "share of the multiple-choice questions whose right choice has the largest summed log-likelihood of "
            "its tokens, given the prompt"
        ),
        source="lm-evaluation-harness, acc",
    ),
    _choice_row("flips", "Flips", "flips", formula="(flips_lost + flips_gained) / choice_items", source=FLIPS),
    *(
        quality_row(
            name=f"flips_{end}",
            title=f"Flips, {end} end",
            column=f"flips {sign}",
            unit=Unit.SHARE,
            direction=Direction.NEITHER,
            formula=f"{end} end of the 95 % interval of flips, exact for a binomial share",
            source="Clopper and Pearson, Biometrika 26 (1934)",
        )
        for end, sign in (("low", "≥"), ("high", "≤"))
    ),
    _flips_row(
        name="flips_lost",
        title="Answers lost",
        column="right → wrong",
        formula="questions whose answer is wrong, and right under the reference",
    ),
    _flips_row(
        name="flips_gained",
        title="Answers gained",
        column="wrong → right",
        formula="questions whose answer is right, and wrong under the reference",
    ),
    _choice_row(
        name="answers_changed",
        title="Answers changed",
        column="other answer",
        formula="share of the questions with another answer than the reference's: flips, and other wrong answers",
    ),
    exact_row(
        name="choice_items",
        title="Questions of multiple choice",
        column="questions",
        unit=Unit.COUNT,
        direction=Direction.NEITHER,
        formula="multiple-choice questions asked",
    ),
)

OF_CHOICES = frozenset(metric.name for metric in CHOICES)
