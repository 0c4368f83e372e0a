"""What the terminal shows below pytest-benchmark's table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.plugin.distributed import distributed_lines
from llm_bench_fixtures.plugin.finish import PUBLISHED, trouble_lines
from llm_bench_fixtures.plugin.gating import DECISION, gate_summary
from llm_bench_fixtures.plugin.internals import coloured, terminal_width
from llm_bench_fixtures.plugin.terminal_progress import tell

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter

    from llm_bench_fixtures.report.tables.table import Tone


def show_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """What was found, what was not written, and what the gate decided."""
    width = terminal_width(terminalreporter)
    published = config.stash.get(PUBLISHED, None)
    if published is not None and published.findings is not None:
        from llm_bench_fixtures.report.columns import COLOURS
        from llm_bench_fixtures.report.terminal import summary_lines

        def paint(text: str, tone: Tone) -> str:
            return coloured(terminalreporter, text, COLOURS[tone])

        findings = published.findings
        if DECISION in config.stash:
            findings = replace(findings, changes=None)  # the gate tells them below
        tell(terminalreporter, summary_lines(findings, published.folder, width, paint))
    tell(terminalreporter, (*trouble_lines(config), *distributed_lines(config)))
    if DECISION in config.stash:
        tell(terminalreporter, gate_summary(config, width))
