"""results.tex: the short table, in which no text is a command."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from page_runs import wide_run
from run_factory import full_run, make_run

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.renderers.latex import latex, render_latex
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
        ("“Cache”", r"\textquotedblleft{}Cache\textquotedblright{}"),
        ("12 μs … 3 µs", r"12 \textmu{}s \ldots{} 3 \textmu{}s"),
    ],
)
def test_a_text_is_set_as_it_is(text: str, escaped: str) -> None:
    assert latex(text) == escaped


def test_the_table() -> None:
    lines = [line.strip() for line in render(full_run()).splitlines()]
    assert lines[:3] == [r"% \usepackage{booktabs}", r"% \usepackage{graphicx}", r"\begin{table}"]
    assert r"\begin{tabular}{@{}lrrrrrrr@{}}" in lines
    top = lines.index(r"\toprule")
    assert lines[top + 1 : top + 4] == [
        r"{}variant & latency & speed-up & tokens/s & weights & peak & perplexity & top-1 \\",
        r"{} & ms &  &  & MB & MB &  &  \\",
        r"\midrule",
    ]
    assert r"{}bf16 & 80.0 $\pm$ 0.8 & 1.25$\times$ & 200 & 2.00 & 12.0 & +1.0 \% $\pm$ 0.2 \% & 98.5 \% \\" in lines
    assert all(line.count("&") == 7 for line in lines if line.startswith("{}"))


def test_the_caption_names_the_model_and_the_machine() -> None:
    """Two threads of a processor with two cores."""
    run = full_run()
    told = replace(run, provenance=replace(run.provenance, hardware="a processor, 2 cores", threads=2, device="cpu"))
    (caption,) = (line for line in render(told).splitlines() if "caption" in line)
    assert "Text generation of tiny on a processor, 2 cores (2 threads, cpu): one prompt, " in caption


def test_beneath_it_stands_what_its_figures_are_what_ran_and_what_did_not() -> None:
    lines = render(full_run()).splitlines()
    note = lines[lines.index(r"  \par\smallskip") + 1]
    assert (
        r"$\pm$: half the distance between the quartiles of the latency, one standard error of the "
        r"perplexity\textquotesingle{}s change. What ran: fp32 (float32), "
    ) in note
    assert "bf16 (bfloat16)" in note
    assert "Not measured: " in note
    assert "ort-fp32 (error: OutOfMemory: 512 bytes asked for)" in note


def test_the_default_variants_fit_the_text_of_an_article_without_becoming_unreadable() -> None:
    """An article's lines are 345 points wide. Of ten points the mean letter is 5 wide, and 12 are between two columns;
    scaled to 0.65, the letters are still as large as in a footnote of a footnote: 6.5 points."""
    lines = [line.strip().removeprefix("{}") for line in render(wide_run()).splitlines() if "{}fp32" not in line]
    rows = [line.removesuffix(r" \\").split(" & ") for line in lines if line.endswith(r" \\")]
    plain = [[re.sub(r"\$\\(pm|times)\$", "x", cell).replace("\\", "") for cell in row] for row in rows]
    points = sum(5 * max(map(len, column)) for column in zip(*plain, strict=True)) + 12 * (len(plain[0]) - 1)
    assert points * 0.65 < 345
    assert any(line.startswith(r"\resizebox{\ifdim\width>\linewidth") for line in lines)


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
