"""What of two variants' quality can be compared, and how finely."""

from __future__ import annotations

import math

from llm_bench_fixtures.gate.verdicts import paired_margin
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.metrics.choices import OF_CHOICES
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import VariantResult

# Of a variant by itself, whatever the reference is.
BY_ITSELF = (
    *("loss", "perplexity", "bits_per_byte", "word_perplexity", "byte_perplexity", "scored_tokens"),
    *("choice_accuracy", "choice_items"),
)


def questions_obstacle(metric: Metric, base: Provenance, head: Provenance) -> str:
    """Why a metric of answers can't be compared; "" where the same was asked, or the metric is another one."""
    if metric.name not in OF_CHOICES or base.choices == head.choices:
        return ""
    return f"other questions: {head.choices or 'none'}; the baseline's: {base.choices or 'none'}"


def quality_margin(metric: Metric, before: VariantResult, after: VariantResult) -> float:
    """A log ratio within which a quality metric's change can't be told from chance."""
    if metric.name == "perplexity":
        return paired_margin(before.loss_blocks, after.loss_blocks)
    if metric.name == "kld_mean":
        errors = sum(one.quality.get("kld_error", 0.0) for one in (before, after))
        least = min(one.quality.get("kld_mean", 0.0) for one in (before, after))
        return math.log1p(errors / least) if least > 0 else 0.0
    return 0.0
