"""The end of a pytest run: its results are gathered, judged and reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_bench_fixtures.plugin.gating import changes_of_run, gate_run, is_gated
from llm_bench_fixtures.plugin.stash import FINDINGS, RUN, SESSION, TURNS, metrics_of, selection_of


def write_results(session: pytest.Session, *, interrupted: bool) -> None:
    """Write the report of what this run measured, and show it to the hooks; nothing where no model was asked for, nor
    in a worker of a paired run, which tells its coordinator."""
    config = session.config
    if SESSION not in config.stash or not config.stash[SESSION].results.has_variants or TURNS in config.stash:
        return
    from llm_bench_fixtures.progress import Phase
    from llm_bench_fixtures.report.files import write_report

    bench = config.stash[SESSION]
    run = replace(bench.run(interrupted=interrupted), selection=selection_of(config), failed_tests=session.testsfailed)
    if is_gated(config):
        run = gate_run(config, run)
    with bench.progress.activity(Phase.REPORTING, "writing the report"):
        settings = bench.settings
        changes = changes_of_run(config, run)
        config.stash[FINDINGS] = write_report(run, metrics_of(config), settings.report, settings.quality_limit, changes)
    config.stash[RUN] = run
    config.hook.pytest_llm_bench_finish(run=run, report=bench.settings.report)
