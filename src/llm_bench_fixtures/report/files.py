"""The report of one run: a folder with a page, its Markdown, the data and the plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.options.quality_limit import DEFAULT_QUALITY_LIMIT, QualityLimit
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.html import render_html
from llm_bench_fixtures.report.latex import render_latex
from llm_bench_fixtures.report.page.build import build_page
from llm_bench_fixtures.report.plots import write_plots
from llm_bench_fixtures.report.pull_request import render_markdown
from llm_bench_fixtures.report.sections import build_document
from llm_bench_fixtures.results.storage import RESULTS_FILE, write_run
from llm_bench_fixtures.results.table import IDENTITY, for_csv, run_table

if TYPE_CHECKING:
    from llm_bench_fixtures.report.changes import Changes
    from llm_bench_fixtures.results.metrics import Metric
    from llm_bench_fixtures.results.record import Run


def write_report(
    run: Run,
    metrics: Mapping[str, Metric],
    folder: Path,
    quality_limit: QualityLimit = DEFAULT_QUALITY_LIMIT,
    changes: Changes | None = None,
    *,
    has_results: bool = False,
) -> Findings:
    """Write results.json, results.csv, plots/*.png, report.md, results.tex and report.html; the data first, so that
    it is kept whatever happens to the rest. Returns what the report says of the run.

    metrics: the registry, with what a project added to it. quality_limit: what a recommended variant must keep.
    changes: what the run changed against another. has_results: its results.json was read from there, and stays."""
    folder.mkdir(parents=True, exist_ok=True)
    if not has_results:
        write_run(run, folder / RESULTS_FILE)
    for_csv(run_table(run), IDENTITY).to_csv(folder / "results.csv", index=False)
    findings = findings_of(run, metrics, quality_limit, changes)
    plots = write_plots(findings, folder / "plots")
    document = build_document(findings)
    page = render_html(build_page(findings, document, plots))
    (folder / "report.md").write_text(render_markdown(findings), encoding="utf-8")
    (folder / "results.tex").write_text(render_latex(findings), encoding="utf-8")
    (folder / "report.html").write_text(page, encoding="utf-8", newline="\n")  # the policy has its scripts' digests
    return findings
