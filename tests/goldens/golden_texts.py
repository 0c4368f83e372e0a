"""What is shown of the golden runs, as files: their names within this folder, and their texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import golden_runs
from html_page import Page

from llm_bench_fixtures.answer.need import DEFAULT_NEED
from llm_bench_fixtures.cli.console import write_json
from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.decision import Decision, decide_run
from llm_bench_fixtures.gate.options import NOTHING
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.baseline import Baseline
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.judged.changes import (
    Changes,
    comparison_json,
    comparison_report,
    decision_json,
    failures,
    gate_report,
    github_annotations,
)
from llm_bench_fixtures.report.judged.pair import pair_json, pair_report
from llm_bench_fixtures.report.page.build import page_values, render_report, render_runs
from llm_bench_fixtures.report.renderers.latex import render_latex, render_runs_latex
from llm_bench_fixtures.report.renderers.markdown import judged_markdown, render_markdown, render_runs_markdown
from llm_bench_fixtures.report.renderers.terminal import judged_lines, summary_lines
from llm_bench_fixtures.report.runs import runs_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import write_run
from llm_bench_fixtures.results.table import IDENTITY, for_csv, run_table

WIDTHS = (80, 120)
REPORT = Path("llm-bench-report")
METRICS = registry((golden_runs.OWN_METRIC,))
SIGNIFICANT = 6  # digits of a float in JSON: the last few depend on the libraries that computed it
SHORT = 240  # letters of a JSON value that stands on one line
UNSHOWN = ("style", "script")
SPACED = ("small", "button", "option", "output", "span", "mark", "a", "b")
HEADINGS = {"h1": "# ", "h2": "## ", "h3": "### "}
PARTS = ("div", "section", "article", "summary", "caption", "figcaption")
BLOCKS = (*HEADINGS, *PARTS, "p", "li", "tr", "dt", "dd", "pre")


@dataclass
class PageText(Page):
    """The texts of a page: a line for each block and for each row of a table."""

    shown: list[str] = field(default_factory=lambda: [""])
    hidden: list[str] = field(default_factory=lambda: [""])
    """Texts that wait to be asked for: the glossary, and the answers under other quality limits."""
    _hides_from: int | None = None
    """Number of tags that were open where hidden texts began."""

    @property
    def _lines(self) -> list[str]:
        return self.shown if self._hides_from is None else self.hidden

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hides_from is None and (tag == "template" or "popover" in dict(attrs)):
            self._hides_from = len(self.open_tags)
        super().handle_starttag(tag, attrs)
        if tag in BLOCKS:
            self._lines.append(HEADINGS.get(tag, ""))
        elif tag in ("td", "th"):
            self._lines[-1] += " | "
        elif tag in SPACED:
            self._lines[-1] += " "

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        if tag in BLOCKS:
            self._lines.append("")
        if len(self.open_tags) == self._hides_from:
            self._hides_from = None

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if not set(UNSHOWN) & set(self.open_tags):
            self._lines[-1] += data


def of_run(run: Run) -> dict[str, str]:
    findings = findings_of(run, METRICS)
    return {"results.json": _written(lambda path: write_run(run, path)), **_of_findings(findings)}


def of_whole() -> dict[str, str]:
    """Everything of `whole`, and what the other runs would repeat: the charts' values, and what the page hides."""
    run = golden_runs.whole()
    findings = findings_of(run, METRICS)
    return {
        **of_run(run),
        "page-hidden.txt": _packed(PageText(render_report(findings)).hidden),
        "charts.json": _shortened(json.dumps(page_values(findings)["figures"])),
    }


def _of_findings(findings: Findings) -> dict[str, str]:
    return {
        "report.md": render_markdown(findings),
        "results.tex": render_latex(findings),
        **{f"terminal-{width}.txt": _text(summary_lines(findings, REPORT, width)) for width in WIDTHS},
        "page.txt": _packed(PageText(render_report(findings)).shown),
    }


def of_change() -> dict[str, str]:
    """The gate, `compare` and the report on `changed`, with `whole` as the baseline; and gates of other endings."""
    run, rules = golden_runs.changed(), Rules(())
    decision = _decide(run, golden_runs.whole())
    comparison = compare_runs(judged_run(golden_runs.whole(), "0001_before.json"), judged_run(run), rules, METRICS)
    against = findings_of(run, METRICS, DEFAULT_NEED, Changes(comparison, "The answer before."))
    return {
        "gate.md": judged_markdown(gate_report(decision)),
        "gate-annotations.txt": _text(github_annotations(decision)),
        "gate-junit.txt": _text(f"{subject}: {message}" for subject, message in failures(decision)),
        "gate-80.txt": _gate_text(decision, 80),
        "gate.json": _written(lambda path: write_json(_short(decision_json(decision), "causes", "values"), path)),
        "compare-120.txt": _text(judged_lines(comparison_report(comparison), 120)),
        "compare-verbose-120.txt": _text(judged_lines(comparison_report(comparison), 120, verbose=True)),
        "compare.json": _written(lambda path: write_json(_short(comparison_json(comparison), "values"), path)),
        "gate-interrupted.txt": _gate_text(_decide(golden_runs.cut_short(), golden_runs.whole())),
        "gate-other-machine.txt": _gate_text(_decide(golden_runs.other_machine(), golden_runs.whole())),
        "gate-no-baseline.txt": _gate_text(_decide(run, None)),
        "gate-unchanged.txt": _gate_text(_decide(golden_runs.whole(), golden_runs.whole())),
        "report.md": render_markdown(against),
        "terminal-80.txt": _text(summary_lines(against, REPORT, 80)),
        "page-changes.txt": _part(_packed(PageText(render_report(against)).shown), "## What changed against"),
    }


def _short(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """JSON with one item in each of the lists of these names."""
    return {**data, **{name: data[name][:1] for name in names}}


def _decide(run: Run, baseline: Run | None) -> Decision:
    before = judged_run(baseline, "0001_before.json") if baseline is not None else None
    found = Baseline(before, "" if before else "no saved run of tiny")
    return decide_run(judged_run(run), found, Rules(()), METRICS, NOTHING)


def _gate_text(decision: Decision, width: int = 120) -> str:
    return _text([*judged_lines(gate_report(decision), width), f"exit status {int(decision.status)}"])


def of_pair() -> dict[str, str]:
    result = golden_runs.pair()
    report = pair_report(result)
    return {
        "pair.json": _written(lambda path: write_json(pair_json(result), path)),
        "pair.md": judged_markdown(report),
        **{f"terminal-{width}.txt": _text(judged_lines(report, width)) for width in WIDTHS},
    }


def of_several() -> dict[str, str]:
    """The report of `whole` and of the same on another machine."""
    runs = runs_of([findings_of(run, METRICS) for run in (golden_runs.whole(), golden_runs.other_machine())])
    return {
        "report.md": render_runs_markdown(runs),
        "results.tex": render_runs_latex(runs),
        "page.txt": _packed(PageText(render_runs(runs)).shown),
    }


def of_interrupted() -> dict[str, str]:
    """Everything of a run with few records, and their table as CSV."""
    run = golden_runs.interrupted()
    table = for_csv(run_table(run), IDENTITY)
    csv = table.to_csv(index=False, float_format=f"%.{SIGNIFICANT}g", lineterminator="\n")
    return {**of_run(run), "results.csv": csv}


# Keyed by the folder that the files are kept in.
GOLDENS: dict[str, Callable[[], dict[str, str]]] = {
    "whole": of_whole,
    "interrupted": of_interrupted,
    "server": lambda: of_run(golden_runs.with_server()),
    "without_blocks": lambda: of_run(golden_runs.without_blocks()),
    "changed": of_change,
    "pair": of_pair,
    "several": of_several,
}


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _packed(lines: Iterable[str]) -> str:
    return _text(filter(None, (" ".join(line.split()) for line in lines)))


def _part(text: str, heading: str) -> str:
    """Lines from one heading of the second level to the next."""
    start = text.index(heading)
    end = text.find("\n## ", start)
    return text[start : end + 1]


def _written(write: Callable[[Path], object]) -> str:
    """Text of the JSON file that a function writes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        write(path)
        return _shortened(path.read_text(encoding="utf-8"))


def _shortened(text: str) -> str:
    """JSON with no more digits than are the same everywhere. Lists of numbers and what is short stand on one line."""
    data = json.loads(text, parse_float=lambda number: float(f"{float(number):.{SIGNIFICANT}g}"))
    return "".join(_json_lines(data, "\n")) + "\n"


def _json_lines(value: object, end: str) -> Iterator[str]:
    """end: the end of a line, with the indent of the next."""
    whole = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(whole) <= SHORT or "{" not in whole:
        yield whole
        return
    parts = [(f"{json.dumps(name)}: ", one) for name, one in value.items()] if isinstance(value, dict) else []
    parts = parts or [("", one) for one in value]
    yield whole[0]
    for number, (name, one) in enumerate(parts):
        yield f"{',' if number else ''}{end} {name}"
        yield from _json_lines(one, f"{end} ")
    yield f"{end}{whole[-1]}"
