"""The noise floor of a machine: how much pairs of one and the same version differ, metric by metric."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.models.artifacts import default_root
from llm_bench_fixtures.paired.result import PairedResult
from llm_bench_fixtures.paired.sequential import alpha_of_look
from llm_bench_fixtures.paired.statistics import resolvable, student_margin

FLOOR_FILE = "noise-floor.json"


@dataclass(frozen=True)
class Floor:
    """One metric's. All but the metric are shares.

    deviation: standard deviation between pairs, pooled over the tests. half_width: of the interval at the first look of
    so many pairs. resolvable: the smallest change that is told from none in 95 % of cases.
    """

    metric: str
    deviation: float
    half_width: float
    resolvable: float


class KeptFloor(msgspec.Struct):
    """Of floor_json what is read again."""

    machine: str
    measured: datetime
    threads: int
    metrics: tuple[Floor, ...]


@dataclass(frozen=True)
class Coarseness:
    """resolvable: the smallest change, as a share, that the pairs tell from none. measured: when that was found."""

    metric: str
    resolvable: float
    measured: datetime


def floors(result: PairedResult) -> tuple[Floor, ...]:
    """Of each metric that has differences of two pairs or more."""
    count, alpha = result.first_look, alpha_of_look(1)
    return tuple(
        Floor(
            metric,
            deviation,
            math.expm1(student_margin(deviation / math.sqrt(count), count - 1, alpha)),
            resolvable(deviation, count, alpha),
        )
        for metric, deviation in result.deviations().items()
    )


def status_of(found: tuple[Floor, ...], result: PairedResult) -> ExitStatus:
    """As of a comparison, except that nothing is judged."""
    without_verdicts = (ExitStatus.INTERRUPTED, ExitStatus.WORKER_FAILED, ExitStatus.NOT_MEASURED)
    if result.status in without_verdicts:
        return result.status
    return ExitStatus.PASSED if found else ExitStatus.NOT_MEASURED


def floor_json(found: tuple[Floor, ...], result: PairedResult) -> dict[str, Any]:
    return {
        "schema": "llm-bench-fixtures/noise-floor",
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


def coarser_than(threshold: float, pairs: int, threads: int, path: Path) -> Coarseness | None:
    """Whether so many pairs don't resolve the threshold, by the floor that was kept of this machine."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=KeptFloor)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    coarsest = max(kept.metrics, key=lambda floor: floor.deviation, default=None)
    if (kept.machine, kept.threads) != (platform.node(), threads) or coarsest is None:
        return None
    share = resolvable(coarsest.deviation, pairs, alpha_of_look(1))
    return Coarseness(coarsest.metric, share, kept.measured) if share > threshold else None


def default_floor_file() -> Path:
    return default_root() / FLOOR_FILE
