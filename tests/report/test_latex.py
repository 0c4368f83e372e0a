"""results.tex: the short table, in which no text is a command."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import full_run, make_run

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.latex import latex, render_latex
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run


def render(run: Run) -> str:
    return render_latex(findings_of(run, registry()))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50 % & #1_a {x} $", r"50 \% \& \#1\_a \{x\} \$"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("a~b^c", r"a\textasciitilde{}b\textasciicircum{}c"),
        ("1.0 ± 0.1", r"1.0 $\pm$ 0.1"),
        ("1.38× (1.34–1.41)", r"1.38$\times$ (1.34--1.41)"),
        ("a\nb\x1b", "a b?"),
        ("--llm-rounds ---", r"-{}-llm-rounds -{}-{}-"),  # no dashes
        ("``a'' ,,b,,", r"\textasciigrave{}\textasciigrave{}a\textquotesingle{}\textquotesingle{} ,{},b,{},"),
        ("漢 😀 é", "[U+6F22] [U+1F600] é"),
        ("12 μs … 3 µs", r"12 \textmu{}s \ldots{} 3 \textmu{}s"),
    ],
)
def test_a_text_is_set_as_it_is(text: str, escaped: str) -> None:
    assert latex(text) == escaped


def test_the_table() -> None:
    lines = [line.strip() for line in render(full_run()).splitlines()]
    assert lines[:2] == [r"% \usepackage{booktabs}", r"\begin{table}"]
    assert r"\begin{tabular}{llrrrrrrr}" in lines
    assert lines.index(r"\toprule") < lines.index(r"\midrule") < lines.index(r"\bottomrule")
    assert (
        r"{}bf16 & bfloat16 & 80.0 $\pm$ 0.8 & 1.25$\times$ & 200 & 2.00 & 12.0 & +1.0 \% $\pm$ 0.2 \% & 98.5 \% \\"
        in lines
    )
    assert lines[lines.index(r"\end{tabular}") + 1] == (
        r"\par\smallskip{\footnotesize $\pm$: half the distance between the quartiles of the latency, one standard "
        r"error of the perplexity\textquotesingle{}s change.}"
    )
    assert all(line.count("&") == 8 for line in lines if line.startswith("{}"))


def test_hostile_names_are_no_commands() -> None:
    run = full_run()
    hostile = r"[1ex] \write18{rm} & % \\"
    variants = tuple(replace(one, label=one.label and hostile) for one in run.variants)
    run = replace(run, variants=variants, provenance=replace(run.provenance, model=hostile))
    text = render(run)
    assert r"\write18" not in text
    assert r"[1ex] \textbackslash{}write18\{rm\} \& \% \textbackslash{}\textbackslash{}" in text


def test_a_run_that_measured_nothing() -> None:
    assert "nothing was timed" in render(make_run())
