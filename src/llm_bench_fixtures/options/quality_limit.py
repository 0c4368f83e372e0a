"""The quality that a variant must keep to be recommended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.errors import InvalidSetting

EXPECTED = "expected ppl_ratio:LIMIT of at least 1, such as ppl_ratio:1.01, or top1_agreement:LIMIT, such as 99%"


class QualityMeasure(StrEnum):
    """The metrics of quality that can be limited, by their names in the registry."""

    PPL_RATIO = "ppl_ratio"
    TOP1_AGREEMENT = "top1_agreement"


@dataclass(frozen=True)
class QualityLimit:
    """How far a variant's quality may be from the reference's."""

    measure: QualityMeasure
    bound: float
    """The largest ratio of the perplexities, or the smallest share of tokens on which the two agree."""

    def __str__(self) -> str:
        if self.measure is QualityMeasure.PPL_RATIO:
            return f"{self.measure} ≤ {self.bound:g}"
        return f"{self.measure} ≥ {self.bound * 100:g} %"

    def words(self, reference: str) -> str:
        """What it asks of a variant, to stand after "with". reference: the id of what the variant is compared with."""
        if self.measure is QualityMeasure.TOP1_AGREEMENT:
            return f"top-1 agreement of at least {self.bound * 100:g} % with {reference}"
        if self.bound == 1:
            return f"perplexity not above {reference}'s"
        return f"perplexity at most {(self.bound - 1) * 100:g} % above {reference}'s"


DEFAULT_QUALITY_LIMIT = QualityLimit(QualityMeasure.PPL_RATIO, 1.01)


def parse_quality_limit(text: str) -> QualityLimit:
    """`ppl_ratio:1.01`, `top1_agreement:0.99` or `top1_agreement:99%`. Raises InvalidSetting that says so."""
    name, _, bound = text.strip().partition(":")
    try:
        limit = QualityLimit(QualityMeasure(name.strip()), _number(bound.strip()))
    except ValueError:
        raise InvalidSetting(f"{EXPECTED}; got {text!r}") from None
    is_ratio = limit.measure is QualityMeasure.PPL_RATIO
    if not (1 <= limit.bound < math.inf if is_ratio else 0 < limit.bound <= 1):
        raise InvalidSetting(f"{EXPECTED}; got {text!r}")
    return limit


def _number(text: str) -> float:
    """Of a percentage, the share. Raises ValueError."""
    return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
