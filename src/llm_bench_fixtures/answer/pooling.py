"""Speed-ups of one variant on several workloads, as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from llm_bench_fixtures.statistics.ratio import LogRatio


def pooled(ratios: Sequence[LogRatio]) -> LogRatio:
    """Their mean, with the degrees of freedom of Welch and Satterthwaite.

    The workloads' rounds are independent of each other. What the processes differ by counts once, since the same ones
    ran all of them. Raises ValueError for none.
    """
    variances = [ratio.standard_error**2 for ratio in ratios]
    parts = sum(variance**2 / ratio.freedom for variance, ratio in zip(variances, ratios, strict=True))
    return LogRatio(
        fmean(ratio.centre for ratio in ratios),
        math.sqrt(sum(variances)) / len(ratios),
        sum(variances) ** 2 / parts if parts else sum(ratio.freedom for ratio in ratios),
        max(ratio.process_variance for ratio in ratios),
    )
