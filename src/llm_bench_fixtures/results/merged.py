"""Shards of a suite as one run: each record is that of the shard that measured it, with its own reference's rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.results.pooled import joined_fields, pooled_variants
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Record, Run, Status
from llm_bench_fixtures.results.speedup import with_expected_variance

TELLING = (Status.MEASURED, Status.ERROR, Status.SKIPPED)  # most telling first: the status kept of two for one test


def merged_run(shards: Sequence[Run]) -> Run:
    """shards: at least two, which may be put together. The last that began is the run's own session.

    A benchmark of the reference that several shards measured is the one with the most rounds. Raises InvalidSetting
    where several measured another benchmark: these are no shards.
    """
    runs = sorted(shards, key=lambda run: run.provenance.started)
    *before, last = runs
    found = grouped(((record, run) for run in shards for record in run.records), lambda pair: pair[0].test)
    kept = {test: _kept(test, records) for test, records in found.items()}
    limits = [run.time_limit_s for run in runs]
    checks = [pair for run in runs for pair in run.checked.items()]
    sessions = (run.sessions({test for test, (_, shard) in kept.items() if shard is run}) for run in before)
    fields: dict[str, Any] = {
        "provenance": _provenance([run.provenance for run in runs]),
        "variants": tuple(pooled_variants(shards)),
        "records": with_expected_variance(record for record, _ in kept.values()),
        "time_limit_s": None if None in limits else max(filter(None, limits)),
        "instrumentation_ratios": {name: own for run in runs for name, own in run.instrumentation_ratios.items()},
        "loads": tuple(chain.from_iterable(run.loads for run in runs)),
        "selection": last.selection if all(run.selection == last.selection for run in runs) else (),
        "regressed": any(run.regressed for run in runs),
        "refused": "; ".join(dict.fromkeys(run.refused for run in runs if run.refused)),
        "checked": dict(checks) | {test: reason for test, reason in checks if not reason},  # passed before skipped
        "earlier": tuple(chain.from_iterable(sessions)),
        "blessing": None,
    }
    return replace(last, **joined_fields(runs) | fields)


def _kept(test: str, found: Sequence[tuple[Record, Run]]) -> tuple[Record, Run]:
    """The test's record that is kept, with its shard."""
    measured = [(one, run) for one, run in found if one.status is Status.MEASURED]
    if len(measured) > 1 and measured[0][0].variant != measured[0][1].reference:
        sources = " and ".join(run.source for _, run in measured)
        raise InvalidSetting(
            f"{sources} all measured {test}, so they are no shards: `llm-bench report` pools runs of one benchmark"
        )
    return min(found, key=lambda pair: _rank(pair[0]))


def _rank(record: Record) -> tuple[int, int]:
    return TELLING.index(record.status) if record.status in TELLING else len(TELLING), -len(record.rounds_s)


def _provenance(origins: Sequence[Provenance]) -> Provenance:
    """The last, with what only others tell."""
    last = origins[-1]
    by_name = {task.name: task for origin in origins for task in origin.tasks}
    known: dict[str, Any] = {
        name: next((value for origin in reversed(origins) if (value := getattr(origin, name))), getattr(last, name))
        for name in ("read_bytes_per_s", "matmul_flops_per_s", "memory_bytes")
    }
    # One that scored the corpus, or cut the prompts, adds how.
    known |= {name: max((getattr(origin, name) for origin in origins), key=len) for name in ("corpus", "prompts")}
    digests = {part: digest for origin in origins for part, digest in origin.model_digests.items()}
    return replace(last, **known, tasks=tuple(by_name.values()), model_digests=digests)
