"""Answers to questions of multiple choice, and how many of them change against the reference's.

None has a function that computes it: whoever asks a model gives the value by name.
"""

from __future__ import annotations

from functools import partial

from llm_bench_fixtures.results.metrics.metric import Direction, Force, Kind, Metric, Tolerance, Unit

FLIPS = "Dutta et al., Accuracy is not all you need (arXiv 2407.09141)"
POINTS = Tolerance(absolute=0.02, force=Force.ADVISORY)  # the embedded set has 190 items: nearly four of them

# What a row does not say.
_row = partial(Metric, unit=Unit.SHARE, direction=Direction.LOWER_IS_BETTER, kind=Kind.QUALITY)

CHOICES: tuple[Metric, ...] = (
    _row(
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
    _row(
        name="flips",
        title="Flips",
        column="flips",
        formula="(flips_lost + flips_gained) / choice_items",
        source=FLIPS,
        tolerance=POINTS,
    ),
    *(
        _row(
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
        _row(
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
    _row(
        name="answers_changed",
        title="Answers changed",
        column="other answer",
        formula="share of the questions with another answer than the reference's: flips, and other wrong answers",
        source="own",
        tolerance=POINTS,
    ),
    _row(
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
