"""A run beside the one that it is compared with: the changes, and what the other's answer was."""

from __future__ import annotations

from pathlib import Path

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.options.quality_limit import QualityLimit
from llm_bench_fixtures.report.changes import Changes, changes_of
from llm_bench_fixtures.report.words.answer import answer_of


def changes_against(comparison: Comparison, quality_limit: QualityLimit) -> Changes:
    """quality_limit: by which the other run's answer is asked for again."""
    return changes_of(comparison, _answer(Path(comparison.base.source), quality_limit))


def _answer(path: Path, quality_limit: QualityLimit) -> str:
    """The answer of the run in that file in one sentence; empty where it can't be read whole."""
    try:
        run = read_saved_run(path)
    except UnreadableResults:
        return ""
    return answer_of(evidence_of(run), quality_limit).sentence
