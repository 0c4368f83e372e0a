"""Texts beside the reference's, what is absent, and how to run it again."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from page_runs import MISSING_LIBRARY, chart_findings, chart_run
from run_factory import absent_variant, make_provenance, make_record, make_run, make_variant, skipped_record

from llm_bench_fixtures.report.about import repeat_command
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.page.build import SharedText, prompt_texts
from llm_bench_fixtures.report.tables.scenarios import absent_texts
from llm_bench_fixtures.results.metrics import registry


def written(**texts: str) -> tuple[SharedText, ...]:
    records = [
        make_record(variant, scenario="quantization", case="Once", outputs=(text,)) for variant, text in texts.items()
    ]
    found = prompt_texts(make_run(records))
    assert list(found) == ["Once"]
    return found["Once"]


def test_variants_that_wrote_the_same_stand_together_and_the_reference_first() -> None:
    texts = written(bf16="a cat", fp32="a dog", fp16="a dog")
    assert [(text.variants, text.is_reference) for text in texts] == [(("fp32", "fp16"), True), (("bf16",), False)]


def test_who_wrote_no_text_is_named_with_the_reason() -> None:
    """The text's scenario has four variants; fp16 and fp64 ran, but not in it, and fp8 was skipped in it alone."""
    run = chart_run()
    assert absent_texts(run) == ""
    more = replace(
        run,
        variants=(*run.variants, *map(make_variant, ("fp16", "fp64", "fp8"))),
        records=(*run.records, skipped_record("fp8", "too small", scenario="quantization")),
    )
    assert absent_texts(more) == (
        "Without a text here: fp16, fp64, which did not run “Quantization”, whose texts these are; "
        "fp8, skipped there: too small."
    )
    assert absent_texts(make_run([make_record()])) == ""


def test_a_text_is_cut_at_the_first_character_that_differs() -> None:
    _, other = written(fp32="a dog ran", bf16="a dot ran")
    assert (other.same, other.different, other.ends_early) == ("a do", "t ran", False)


def test_a_text_that_ends_early_says_so() -> None:
    _, other = written(fp32="a dog ran", bf16="a dog")
    assert (other.same, other.different, other.ends_early) == ("a dog", "", True)


def test_a_text_that_goes_on_differs_from_there() -> None:
    _, other = written(fp32="a", bf16="a dog")
    assert (other.same, other.different, other.ends_early) == ("a", " dog", False)


def test_without_a_reference_nothing_is_marked() -> None:
    for text in written(bf16="a cat", fp16="a dog"):
        assert (text.different, text.is_reference, text.ends_early) == ("", False, False)


def test_texts_are_of_the_scenario_that_has_some() -> None:
    """The one for reading first, else where most variants wrote."""
    records = [
        make_record("fp32", scenario="own", case="alone", outputs=("a",)),
        make_record("fp32", scenario="other", case="both", outputs=("a",)),
        make_record("bf16", scenario="other", case="both", outputs=("b",)),
    ]
    assert list(prompt_texts(make_run(records))) == ["both"]
    read = make_record("fp32", scenario="quantization", case="read", outputs=("a",))
    assert list(prompt_texts(make_run([*records, read]))) == ["read"]


def test_a_run_without_texts_has_none() -> None:
    assert prompt_texts(make_run([make_record(outputs=())])) == {}
    assert len(prompt_texts(chart_run())) == 1


def test_what_to_install_stands_apart_from_the_reason() -> None:
    (absence,) = chart_findings().skipped_or_failed
    assert (absence.variant, absence.status, absence.benchmarks) == ("bnb-nf4", "skipped", 1)
    assert absence.cause == "bitsandbytes is not installed"
    assert absence.install == "pip install 'llm-bench-fixtures[bitsandbytes]'"
    assert f"{absence.cause}: {absence.install}" == MISSING_LIBRARY


def test_a_reason_that_no_installation_mends_stays_whole() -> None:
    reason = "float16 autocast needs an accelerator; on CPU use autocast-bf16"
    run = make_run([skipped_record("autocast-fp16", reason)], [absent_variant("autocast-fp16", reason)])
    (absence,) = findings_of(run, registry()).skipped_or_failed
    assert (absence.cause, absence.install) == (reason, "")


def test_the_commands_take_the_commit_the_libraries_and_the_run() -> None:
    provenance = make_provenance(command="pytest 'my suite' -k 'a or b'", dirty=True, libraries={"torch": "2.6.0+cpu"})
    assert repeat_command(make_run(provenance=provenance)).splitlines() == [
        "git switch --detach 0123456789abcdef",
        "# and the changes that were not committed",
        "pip install torch==2.6.0 --extra-index-url https://download.pytorch.org/whl/cpu",
        "pytest 'my suite' -k 'a or b'",
    ]


@pytest.mark.parametrize(
    ("commit", "libraries", "lines"),
    [
        ("abc", {"llm-bench-fixtures": "0.1.0", "torch": "2.6.0+cu126"},
         ["pip install -e .", "pip install torch==2.6.0 --extra-index-url https://download.pytorch.org/whl/cu126"]),
        ("abc", {"llm-bench-fixtures": "0.1.0"}, ["pip install -e ."]),
        ("", {"llm-bench-fixtures": "0.1.0"}, ["pip install llm-bench-fixtures==0.1.0"]),
        ("", {"torch": "2.6.0+cpu/../x", "mine": "1+local"}, ["pip install torch==2.6.0 mine==1"]),
    ],
)  # fmt: skip
def test_what_is_installed_can_be_installed(commit: str, libraries: dict[str, str], lines: list[str]) -> None:
    """Bug: the package that ran from a checkout, and versions with a local tag, were asked of an index."""
    run = make_run(provenance=make_provenance(commit=commit, libraries=libraries, dirty=False))
    assert [line for line in repeat_command(run).splitlines() if line.startswith("pip")] == lines


@pytest.mark.parametrize("hostile", ["x; rm -rf ~", "$(reboot)", "a\nb", "`id`", "it's"])
def test_a_hostile_word_stays_one_word(hostile: str) -> None:
    provenance = make_provenance(
        commit=hostile, libraries={hostile: hostile}, command=f"pytest {shlex.quote(hostile)}", dirty=False
    )
    lines = repeat_command(make_run(provenance=provenance)).splitlines()
    shown = hostile.replace("\n", "\ufffd")
    assert [shlex.split(line) for line in lines] == [
        ["git", "switch", "--detach", shown],
        ["pip", "install", f"{shown}=={shown}"],
        ["pytest", shown],
    ]


def test_a_command_that_no_shell_could_read_is_made_of_what_it_selected() -> None:
    provenance = make_provenance(command="pytest 'unbalanced", commit="", libraries={})
    assert repeat_command(make_run(provenance=provenance, selection=("benchmarks", "-k", "a b"))) == (
        "pytest benchmarks -k 'a b'"
    )
