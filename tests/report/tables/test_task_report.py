"""What the report says of lm-evaluation-harness's tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import make_provenance, make_record, make_run, make_variant
from shown_table import by_column, header, rows

from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.page.build import all_sections
from llm_bench_fixtures.report.page.tables import summary_table
from llm_bench_fixtures.report.renderers.terminal import fitting
from llm_bench_fixtures.report.tables.by_variant import short_table, summary_section, variants_table
from llm_bench_fixtures.report.tables.table import Section
from llm_bench_fixtures.results.metrics import registry

NAME, PERPLEXITY = "task_quiz_acc", "task_quiz_word_perplexity"
QUIZ = TaskFacts(
    "quiz",
    (
        TaskMetric("acc", higher_is_better=True, is_share=True),
        TaskMetric("word_perplexity", higher_is_better=False, is_share=False),
    ),
    items=200,
    of=200,
    shots=5,
    digest="12ab",
    version="1.0",
    harness="0.4.13",
)
COMPARED = {f"{NAME}_change": -0.02, f"{NAME}_change_error": 0.0141, f"{NAME}_lost": 6, f"{NAME}_gained": 2}


def quizzed(task: TaskFacts = QUIZ) -> Findings:
    own = {"perplexity": 20.0, NAME: 0.62, PERPLEXITY: 25.5}
    compared = {**COMPARED, f"{PERPLEXITY}_change": 0.5, f"{PERPLEXITY}_change_error": 0.2}
    variants = [
        make_variant(quality=own),
        make_variant("bf16", quality={"perplexity": 20.1, NAME: 0.6, PERPLEXITY: 26.0, **compared}),
        make_variant("ort-fp32"),  # never asked
    ]
    records = [make_record(variant.id) for variant in variants]
    return findings_of(make_run(records, variants, provenance=make_provenance(tasks=(task,))), registry())


def section_of(findings: Findings, title: str) -> Section:
    (section,) = [one for one in all_sections(findings) if one.title == title]
    return section


def test_a_task_has_a_table_with_errors_and_flips() -> None:
    section = section_of(quizzed(), "Task quiz")
    assert section.note == "By lm-evaluation-harness 0.4.13: 200 items, 5-shot, version 1.0."
    assert header(section.table) == (
        "variant",
        "quiz acc",
        "quiz acc flips",
        "quiz acc right → wrong",
        "quiz acc wrong → right",
        "quiz word_perplexity",
    )
    assert rows(section.table) == (
        ("fp32", "62 %", "–", "–", "–", "25.500"),
        ("bf16", "60 % ± 1.41 %", "8/200 (1.7–7.7 %)", "6/200 (1.1–6.4 %)", "2/200 (0.12–3.6 %)", "26.000 ± 0.2000"),
    )
    said = "±: one standard error of a task's difference from fp32, from pairs of items"
    assert any(line.startswith(said) for line in section.table.legend())


def test_a_sample_of_a_task_says_so() -> None:
    section = section_of(quizzed(replace(QUIZ, items=200, of=2376, version="", shots=0)), "Task quiz")
    assert section.note == "By lm-evaluation-harness 0.4.13: 200 of 2,376 items, 0-shot."


def test_speed_memory_and_a_tasks_accuracy_stand_in_one_row() -> None:
    """In the table of a terminal and a pull request, in the page's first table, and in the whole one below it."""
    findings = quizzed()
    for table in (short_table(findings), summary_table(findings, {}).table, summary_section(findings).table):
        row = by_column(table, "bf16")
        assert (row["quiz acc"], row["quiz acc flips"]) == ("60 % ± 1.41 %", "8/200 (1.7–7.7 %)")
        assert {"variant", "weights, MB", "perplexity"} & row.keys()


def test_a_narrow_terminal_drops_a_tasks_flips_but_not_its_accuracy() -> None:
    """Bug: a terminal of 80 columns said nothing of the tasks that were asked for."""
    shown = fitting(variants_table(quizzed(), quizzed().run.loaded), 60)
    assert "quiz acc" in shown
    assert "quiz acc flips" not in shown


@pytest.mark.parametrize("title", ["Quality", "Precision"])
def test_no_other_table_has_its_figures(title: str) -> None:
    assert not any("quiz" in name for name in header(section_of(quizzed(), title).table))


def test_a_run_without_tasks_has_none_of_it() -> None:
    findings = findings_of(make_run([make_record()]), registry())
    assert not any(one.title.startswith("Task") for one in all_sections(findings))
