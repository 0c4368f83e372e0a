"""How many answers a model gets right, and how many of them change against a reference's: flips.

Source: Dutta, Krishnan, Kwatra and Ramjee, "Accuracy is not all you need" (arXiv 2407.09141). A flip is an answer that
was right and is wrong, or was wrong and is right. Accuracy alone hides them, because the two directions cancel out.
"""

from __future__ import annotations

from collections.abc import Sequence

from llm_bench_fixtures.measure.choices import AnswerIndex, ChoiceItem

ALPHA = 0.05  # outside of the interval


def accuracy_metrics(items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex]) -> dict[str, float]:
    """Of a model by itself. An item that it gave no answer to counts as wrong."""
    right = _right(items, answers)
    return {"choice_items": len(right), "choice_accuracy": sum(right) / len(right)}


def flip_metrics(
    items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex], was: Sequence[AnswerIndex]
) -> dict[str, float]:
    """Of a model against the reference's answers to the same items, `was`."""
    pairs = list(zip(_right(items, was), _right(items, answers), strict=True))
    lost = sum(before and not after for before, after in pairs)
    gained = sum(after and not before for before, after in pairs)
    low, high = exact_interval(lost + gained, len(pairs))
    return {
        "flips": (lost + gained) / len(pairs),
        "flips_low": low,
        "flips_high": high,
        "flips_lost": lost,
        "flips_gained": gained,
        "answers_changed": sum(one != other for one, other in zip(answers, was, strict=True)) / len(pairs),
    }


def exact_interval(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share: Clopper and Pearson's, which covers it at least as often for every share.

    The low end is the share at which `count` or more have a probability of 2.5 %, the high end that at which `count` or
    fewer have. Both are quantiles of beta distributions. Source: C. J. Clopper and E. S. Pearson, "The use of
    confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    low = float(betaincinv(count, of - count + 1, ALPHA / 2)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - ALPHA / 2)) if count < of else 1.0
    return low, high


def _right(items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex]) -> list[bool]:
    return [answer == item.answer for item, answer in zip(items, answers, strict=True)]
