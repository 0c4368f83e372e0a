"""What the report says of answers to questions of multiple choice."""

from __future__ import annotations

from typing import Any

from run_factory import make_provenance, make_record, make_run, make_variant
from shown_table import header, rows

from llm_bench_fixtures.report.about import footnotes
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.page.build import all_sections
from llm_bench_fixtures.report.tables.table import Section
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run

OWN = {"perplexity": 20.0, "choice_accuracy": 0.62, "choice_items": 200}
FLIPPED = {
    "flips": 0.04,
    "flips_low": 0.0174,
    "flips_high": 0.0773,
    "flips_lost": 6,
    "flips_gained": 2,
    "answers_changed": 0.055,
}


def asked_run(**bf16: Any) -> Run:
    variants = [
        make_variant(quality=OWN),
        make_variant("bf16", quality={**OWN, **FLIPPED, **bf16}),
        make_variant("ort-fp32"),  # never asked
    ]
    provenance = make_provenance(choices="mine.jsonl (12ab), 200 items, of which guessing gets 33.3 %")
    return make_run([make_record(variant.id) for variant in variants], variants, provenance=provenance)


def sections_of(run: Run, title: str = "Multiple choice") -> list[Section]:
    return [section for section in all_sections(findings_of(run, registry())) if section.title == title]


def notes_of(run: Run) -> list[str]:
    return list(footnotes(findings_of(run, registry())))


def test_flips_stand_with_their_interval_and_both_directions() -> None:
    (section,) = sections_of(asked_run())
    assert section.note == (
        "Of mine.jsonl (12ab), 200 items, of which guessing gets 33.3 %. "
        "Flips are against fp32, each way with its 95 % interval."
    )
    assert header(section.table) == ("variant", "right", "flips", "right → wrong", "wrong → right", "other answer")
    assert rows(section.table) == (
        ("fp32", "62 %", "–", "–", "–", "–"),
        (
            "bf16",
            "62 %",
            "8/200 (1.7–7.7 %)",
            "6/200 (1.1–6.4 %)",
            "2/200 (0.12–3.6 %)",
            "5.5 %",
        ),
    )


def test_what_flips_cannot_tell_stands_beside_them() -> None:
    """Nothing flips in 200 with a probability of 2.5 % where the share is 1 - 0.025 ** (1 / 200) = 1.83 %."""
    notes = notes_of(asked_run())
    assert any(note.startswith("A flip is an answer that turned from right to wrong") for note in notes)
    (told,) = [note for note in notes if note.startswith("No flip in ")]
    assert told.startswith("No flip in 200 questions rules out only shares above 1.83 %. ")


def test_the_table_of_quality_over_the_corpus_has_none_of_it() -> None:
    (quality,) = sections_of(asked_run(), "Quality")
    assert header(quality.table) == ("variant", "loss", "perplexity")


def test_nothing_is_said_where_nothing_was_asked() -> None:
    run = make_run([make_record()])
    assert sections_of(run) == []
    assert not any("flip" in note for note in notes_of(run))


def test_without_flips_nothing_is_said_of_them() -> None:
    run = make_run([make_record()], [make_variant(quality=OWN)])
    (section,) = sections_of(run)
    assert "lips" not in section.note
    assert not any("flip" in note for note in notes_of(run))
