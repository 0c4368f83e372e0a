"""The resolution of a machine: how small a change its pairs detect, from pairs of one and the same version."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.models.artifacts import default_root
from llm_bench_fixtures.paired.result import PairedResult
from llm_bench_fixtures.paired.sequential import alpha_of_analysis
from llm_bench_fixtures.statistics.spread import mean_half_width, minimum_detectable_effect


@dataclass(frozen=True)
class Resolution:
    """How small a change the pairs resolve in one metric; the numbers are shares."""

    metric: str
    deviation: float
    """Standard deviation between pairs, pooled over the tests."""
    half_width: float
    """Half-width of the interval at the first analysis."""
    resolvable: float
    """The minimum detectable effect: the smallest change that the first analysis detects in 95 % of cases."""


class KeptResolutions(msgspec.Struct):
    """The resolutions in a file that resolutions_json wrote."""

    machine: str
    measured: datetime
    threads: int
    metrics: tuple[Resolution, ...]


def resolutions(result: PairedResult) -> tuple[Resolution, ...]:
    """Resolution of each metric with a test that has differences of two or more pairs."""
    count, alpha = result.first_analysis, alpha_of_analysis(1)
    return tuple(
        Resolution(
            metric,
            deviation,
            math.expm1(mean_half_width(deviation, count, 1 - alpha)),
            minimum_detectable_effect(deviation, count, alpha),
        )
        for metric, deviation in result.deviations().items()
    )


def status_of(found: tuple[Resolution, ...], result: PairedResult) -> ExitStatus:
    """The status of `llm-bench aa`, which judges nothing: PASSED if anything was found."""
    without_verdicts = (ExitStatus.INTERRUPTED, ExitStatus.WORKER_FAILED, ExitStatus.NOT_MEASURED)
    if result.status in without_verdicts:
        return result.status
    return ExitStatus.PASSED if found else ExitStatus.NOT_MEASURED


def resolutions_json(found: tuple[Resolution, ...], result: PairedResult) -> dict[str, Any]:
    return {
        "schema": "llm-bench-fixtures/noise-floor",  # as stored files have it
        "version": 1,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.node(),
        "side": result.base,
        "threads": result.threads,
        "cores": result.cores,
        "pairs": result.pairs,
        "tests": len({measurand.test for measurand in result.differences}),
        "metrics": [asdict(row) for row in found],
    }


def coarser_than(threshold: float, pairs: int, threads: int, path: Path) -> tuple[Resolution, datetime] | None:
    """The metric that varies most, if so many pairs of it don't resolve the threshold on this machine: what they
    resolve, and when `llm-bench aa` measured it.

    path: the file that `llm-bench aa` wrote. None if the pairs resolve the threshold, or if the file can't be read or
    is of another machine or number of threads.
    """
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=KeptResolutions)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    coarsest = max(kept.metrics, key=lambda metric: metric.deviation, default=None)
    if (kept.machine, kept.threads) != (platform.node(), threads) or coarsest is None:
        return None
    share = minimum_detectable_effect(coarsest.deviation, pairs, alpha_of_analysis(1))
    return (replace(coarsest, resolvable=share), kept.measured) if share > threshold else None


def default_file() -> Path:
    return default_root() / "noise-floor.json"  # as stored files have it
