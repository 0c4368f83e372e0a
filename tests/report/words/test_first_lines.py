"""What somebody reads first: the answer's lines in each situation, and what a noisy machine means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from run_factory import make_block_record, make_record, make_run, make_variant

from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.renderers.markdown import render_markdown
from llm_bench_fixtures.report.renderers.terminal import lines_so_far, summary_lines
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate

pytestmark = pytest.mark.usefixtures("processes_differ_by_one_percent")

NEAR = {"perplexity": 20.0, "ppl_ratio": 1.001, "ppl_ratio_error": 0.001}
UNDECIDED = {"perplexity": 20.2, "ppl_ratio": 1.01, "ppl_ratio_error": 0.002}
WAITED_S = (0.5,) * 9 + (0.0,)


def run_of(
    speedups: Mapping[str, tuple[float, float]],
    qualities: Mapping[str, dict[str, float]] | None = None,
    **changes: object,
) -> Run:
    """By variant its speed-up and spread, and its quality; fp16 ran what fp32 ran."""
    variants = [
        make_variant(
            name,
            quality=(qualities or {}).get(name, NEAR),
            configuration="configuration of fp32" if name == "fp16" else f"configuration of {name}",
        )
        for name in ("fp32", *speedups)
    ]
    others = [make_block_record(name, *found, **changes) for name, found in speedups.items()]
    return make_run([make_block_record(spread=0.0), *others], variants)


def findings(run: Run) -> Findings:
    return findings_of(run, registry())


def first_line(run: Run) -> str:
    return findings(run).answer.lines[0]


def test_a_winner() -> None:
    assert first_line(run_of({"int8": (2.0, 0.01), "bf16": (1.2, 0.01)})) == (
        "Use int8 for the lowest latency: 2.00× (1.94–2.06) as fast as fp32, near-lossless."
    )


def test_a_tie() -> None:
    assert first_line(run_of({"int8": (2.0, 0.01), "int4": (2.01, -0.01)})) == (
        "Use int4 for the lowest latency: 2.01× (1.95–2.07) as fast as fp32, near-lossless. As good for that: int8."
    )


def test_undecided_names_the_likely_winner_and_what_is_certain() -> None:
    """int4's ratios are up and down by a factor of e, so nobody knows whether it beats int8. Its interval is above 1,
    but not once it is widened."""
    assert first_line(run_of({"int8": (2.0, 0.01), "int4": (5.2, 1.0), "bf16": (0.5, 0.01)})) == (
        "Undecided for the lowest latency: probably int4, 5.20× (1.18–22.9) as fast as fp32, near-lossless. Certainly "
        "faster than fp32 (by intervals wide enough for all comparisons and the machine's noise): int8. About 6 pooled "
        "runs in all would decide (llm-bench report RUN RUN ...)."
    )


def test_the_reference_is_kept_where_nothing_can_be_much_faster() -> None:
    assert first_line(run_of({"int8": (0.7, 0.01), "bf16": (1.02, 0.01)})) == (
        "Keep fp32: no other variant is more than 10 % faster or takes measurably less memory."
    )


def test_the_reference_is_never_named_because_nothing_is_proven() -> None:
    """1.2 times as fast, from 0.87 to 1.65."""
    line = first_line(run_of({"int8": (1.2, 0.4)}))
    assert line.startswith("Undecided for the lowest latency: probably int8, 1.20× (0.")
    assert " as fast as fp32, near-lossless. Certainly faster than fp32: none. About 11 pooled runs in " in line


def test_what_takes_many_runs_says_so() -> None:
    """1.05 times as fast, up and down by 0.4: 149 runs."""
    line = first_line(run_of({"int8": (1.05, 0.4)}))
    assert line.endswith(" Deciding would take more than 20 pooled runs in all, fewer on a calmer machine.")


@pytest.mark.parametrize(
    ("speedups", "brief"),
    [
        ({"int8": (1.2, 0.4)}, "probably int8 for the lowest latency (1.20×); keep fp32 for the least memory."),
        ({"int8": (0.9, 0.4)}, "undecided for the lowest latency; keep fp32 for the least memory."),
        ({"int8": (0.7, 0.01)}, "keep fp32 for the lowest latency and the least memory."),
    ],
    ids=["undecided", "undecided and not ahead", "kept"],
)
def test_the_answer_so_far_in_short(speedups: dict[str, tuple[float, float]], brief: str) -> None:
    assert findings(run_of(speedups)).answer.brief == (brief,)


def test_the_fastest_whose_quality_is_undecided_stands_next_to_the_one_that_keeps_the_limit() -> None:
    run = run_of({"int8": (1.4, 0.01), "int4": (1.6, 0.01)}, {"int4": UNDECIDED})
    assert findings(run).answer.lines == (
        (
            "Use int8 for the lowest latency: 1.40× (1.36–1.44) as fast as fp32, near-lossless. int4 is 1.60× "
            "(1.55–1.65) as fast as fp32, but may or may not keep the quality limit (not decided: perplexity +1.0 % "
            "± 0.2 %, limit +1 %)."
        ),
        "Keep fp32 for the least memory: no other variant within the quality limit takes measurably less memory.",
    )


def test_the_fastest_without_a_quality_figure_stands_next_to_the_one_that_keeps_the_limit() -> None:
    """Bug: a run that had scored one of its variants named that one alone, though others were faster."""
    run = run_of({"int8": (1.4, 0.01), "int4": (1.6, 0.01), "bf16": (1.5, 0.01)}, {"int4": {}, "bf16": {}})
    why = "not reached in 10 min"
    run = replace(run, variants=[replace(one, quality_note="" if one.quality else why) for one in run.variants])
    line = (
        "Use int8 for the lowest latency: 1.40× (1.36–1.44) as fast as fp32, near-lossless. int4 is 1.60× (1.55–1.65) "
        "as fast as fp32, quality not measured: not reached in 10 min."
    )
    assert first_line(run) == line
    assert [*lines_so_far(findings(run), 120)] == [
        "llm-bench: so far, : use int8 for the lowest latency (1.40×); keep fp32 for the least memory.",
        "Not shown to keep the quality limit: int4 for the lowest latency (1.60×).",
    ]
    for text in texts_of(run):
        assert line in text
    assert "bf16 is 1.50× (1.45–1.55) as fast as fp32, quality not measured: not reached in 10 min." in texts_of(run)[0]


def test_what_is_only_probably_faster_is_said_so() -> None:
    """int4 is between 1.1 and 23 times as fast as fp32, so that it may be slower than int8."""
    run = run_of({"int8": (1.4, 0.01), "int4": (5.2, 1.0)}, {"int4": {}})
    assert first_line(run) == (
        "Use int8 for the lowest latency: 1.40× (1.36–1.44) as fast as fp32, near-lossless. int4 is probably faster, "
        "5.20× (1.18–22.9) as fast as fp32, quality not measured."
    )


def test_only_quality() -> None:
    run = make_run([], [make_variant(), make_variant("int8", quality=NEAR)])
    found = findings(run).answer
    assert found.lines == ("Nothing was measured, so there is no answer.",)
    assert found.notes[0].startswith("Near-lossless by perplexity: int8. ")


def test_nothing_measured() -> None:
    assert first_line(make_run()) == "Nothing was measured, so there is no answer."


def noisy(**changes: object) -> Run:
    """fp16 came out 1.17 times as fast as the same work of fp32."""
    speedups = {"fp16": (1.17, 0.01), "int8": (1.15, 0.01), "int4": (2.0, 0.01), "nf4": (0.3, 0.01)}
    return run_of(speedups, **changes)


def test_a_noisy_machine_is_said_first_with_what_is_safe_and_what_to_do() -> None:
    found = findings(noisy())
    assert found.noisy == (
        "Noisy machine: identical work mostly came out 1.00 to 1.17 times as fast. Still certain: int4 is faster than "
        "fp32; nf4 is slower than fp32. Memory and quality are unaffected. Measure for longer (--llm-max-noise 1%), "
        "stop other programs, or use another machine."
    )
    assert found.answer.lines[0].startswith("Use int4 for the lowest latency: 2.00× ")


def test_more_rounds_are_no_advice_where_most_are_disturbed() -> None:
    found = findings(noisy(waited_s=WAITED_S)).noisy
    assert "; in 36 of 40 pairs of rounds, threads waited for a core. Still certain: int4 is faster" in found
    assert found.endswith(
        " More rounds won't help: wait until it is calm, stop other programs, or use another machine."
    )
    assert "--llm" not in found


def test_a_host_that_often_kept_cores_apart_is_said_of_a_noisy_machine() -> None:
    """Half of the pairs of four variants; one in ten is not worth a word."""
    told = "; in 20 of 40 pairs of rounds, the CPU cores exchanged data slowly (the host may have moved them apart). "
    assert told in findings(noisy(core_to_core=(1.8,) * 5 + (3.6,) * 5)).noisy
    assert "CPU cores" not in findings(noisy(core_to_core=(1.8,) * 9 + (3.6,))).noisy


def test_variants_that_drift_between_cases_make_a_machine_noisy() -> None:
    """Identical work was no different: the reference is slowed as little as it. More rounds don't help: a case is over
    before the machine's state changes."""
    run = run_of({"fp16": (1.01, 0.01), "int8": (2.0, 0.01)})
    drift = VarianceEstimate(0.0225, 9)
    records = tuple(replace(one, drift=drift) if one.variant == "int8" else one for one in run.records)
    found = findings(replace(run, records=records)).noisy
    assert found.startswith("Noisy machine: int8's speed-up varied by 16 % between similar prompts. Still certain: ")
    assert found.endswith(" Pool several runs (llm-bench report RUN RUN), stop other programs, or use another machine.")


def texts_of(run: Run) -> Sequence[str]:
    """Terminal and Markdown, each as one line without markup."""
    found = findings(run)
    terminal = " ".join(" ".join(summary_lines(found, None, 100)).split())
    return terminal, render_markdown(found).replace("**", "")


def test_noise_stands_before_the_answer_in_every_format() -> None:
    for text in texts_of(noisy()):
        assert text.index("Noisy machine: ") < text.index("Use int4 for the lowest latency")


def test_of_a_calm_machine_nothing_is_said() -> None:
    for text in texts_of(run_of({"fp16": (1.01, 0.01), "int8": (2.0, 0.01)})):
        assert "oisy" not in text
        assert "disturbed" not in text


def test_a_run_without_turns_has_its_own_measure_of_noise() -> None:
    times_s = (1.0, 1.01, 1.02, 1.03, 1.25)
    records: list[Record] = [make_record("fp32", seconds, case=str(seconds)) for seconds in times_s]
    found = findings(make_run([*records, make_record("v0", 0.5)])).noisy
    assert found.startswith("Noisy machine: identical work mostly came out 0.800 to 1.25 times as fast. ")
