"""Hostile text: on no way out does it steer a terminal, a CI runner, a spreadsheet or a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fault_tools import command
from run_factory import make_block_record, make_provenance, make_record, make_run, make_variant
from saved_factory import store

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.decision import Decision, decide
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.judged.changes import gate_report, github_annotations
from llm_bench_fixtures.report.page.build import render_report
from llm_bench_fixtures.report.renderers.latex import render_latex
from llm_bench_fixtures.report.renderers.markdown import judged_markdown, render_markdown
from llm_bench_fixtures.report.renderers.terminal import judged_lines, summary_lines
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import run_to_json
from llm_bench_fixtures.results.table import IDENTITY, for_csv, run_table

HOSTILE = (
    "=cmd() \x1b]52;c;aGk=\x07 \x1b[2J \0 \x9b31m \u202e </script><script>alert(1)</script> ##[error]x ##vso[task]x "
    + "::error::wrapped " * 12
    + "\n::error::line\n##[error]line\r::error::return"
)
SHORT = "::error::wrapped\x1b[2J\n::error::line"  # as a file may be called


def hostile_run(weight_bytes: int = 4_000_000, day: int = 1) -> Run:
    """What a model or a saved run brings along, wherever it goes. day: of January, on which it started."""
    own = make_record(HOSTILE, case=HOSTILE, reason=HOSTILE, outputs=(HOSTILE,))
    where = dict.fromkeys(("model", "hardware", "corpus", "command", "commit", "branch", "device"), HOSTILE)
    return make_run(
        [make_block_record("fp32"), replace(own, test=HOSTILE), make_record("fp32", scenario=HOSTILE)],
        [make_variant(), make_variant(HOSTILE, label=HOSTILE, reason=HOSTILE, weight_bytes=weight_bytes)],
        provenance=make_provenance(passed_over=(HOSTILE,), started=f"2026-01-{day:02}T00:00:00+00:00", **where),
    )


@cache
def found() -> Findings:
    return findings_of(hostile_run(), registry())


@cache
def decision() -> Decision:
    base, head = judged_run(hostile_run()), judged_run(hostile_run(9_000_000))
    return decide(compare_runs(base, head, Rules(()), registry()))


def printed(*arguments: str) -> Callable[[Path, Any], str]:
    def run(folder: Path, capture: Any) -> str:
        store(hostile_run(), folder / ".benchmarks" / "laptop" / "0001_a.json")
        store(hostile_run(9_000_000, day=2), folder / ".benchmarks" / "laptop" / "0002_b.json")
        command(folder / ".benchmarks", *arguments)
        out, err = capture.readouterr()
        assert "Traceback" not in err
        return f"{out}\n{err}"

    return run


def annotations(*_: object) -> str:
    """Without the commands that are ours, of which there is one in each line."""
    lines = list(github_annotations(decision()))
    assert lines
    assert all(line.startswith("::error ") for line in lines)
    return "\n".join(line.partition("::")[2] for line in lines)


WAYS_OUT: tuple[tuple[str, Callable[[Path, Any], str]], ...] = (
    *(
        (
            f"the terminal, {width} columns",
            lambda *_, width=width: "\n".join(summary_lines(found(), Path(HOSTILE), width)),
        )
        for width in (40, 80, 200)
    ),
    ("the gate's lines", lambda *_: "\n".join(judged_lines(gate_report(decision()), 60))),
    ("the gate's Markdown", lambda *_: judged_markdown(gate_report(decision()))),
    ("annotations of GitHub", annotations),
    ("report.md", lambda *_: render_markdown(found())),
    ("results.tex", lambda *_: render_latex(found())),
    ("results.csv", lambda *_: for_csv(run_table(hostile_run()), IDENTITY).to_csv(index=False)),
    ("an error's message", lambda *_: str(LlmBenchError(HOSTILE))),
    ("llm-bench history", printed("history")),
    ("llm-bench history --json", printed("history", "--json")),
    ("llm-bench export", printed("export")),
    ("llm-bench gate", printed("gate")),
    ("llm-bench compare", printed("compare", "1", "2")),
    ("llm-bench gate of no run", printed("gate", SHORT)),
    ("llm-bench with a wrong argument", lambda folder, capture: wrong_argument(capture)),
)
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|##\w*\[|^\s*::", re.MULTILINE)


def wrong_argument(capture: Any) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["gate", "--missing", HOSTILE])
    assert ended.value.code == 4
    return str(capture.readouterr().err)


@pytest.mark.parametrize("way", [row[1] for row in WAYS_OUT], ids=[row[0] for row in WAYS_OUT])
def test_no_text_steers_what_shows_it(way: Callable[[Path, Any], str], tmp_path: Path, capsys: Any) -> None:
    text = way(tmp_path, capsys)
    assert "wrapped" in text
    assert [found.group() for found in STEERS.finditer(text)] == []


def test_no_text_steers_a_page() -> None:
    page = render_report(found())
    assert not set(page) & set("\x00\x07\x1b\x9b\u202e")
    assert page.count("<script") == 3  # plotly, ours, and the data
    assert "alert(1)" in page


@pytest.mark.parametrize("way", [*WAYS_OUT[8][1:], printed("export")], ids=["results.csv", "llm-bench export"])
def test_no_cell_is_a_formula(way: Callable[[Path, Any], str], tmp_path: Path, capsys: Any) -> None:
    assert not re.search(r'(^|,)"?=cmd', way(tmp_path, capsys), re.MULTILINE)


def test_what_programs_read_is_as_it_was(tmp_path: Path, capsys: Any) -> None:
    """results.json and history --json keep the text itself."""
    runs = json.loads(printed("history", "--json")(tmp_path, capsys))["runs"]
    assert {run["model"] for run in runs} == {HOSTILE}
    assert run_to_json(hostile_run())["provenance"]["model"] == HOSTILE
