"""What a report says of servers under load."""

from __future__ import annotations

from dataclasses import replace

from run_factory import make_run
from shown_table import header, rows

from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.tables.on_request import load_sections, load_sentences
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run

LIMITS = "within TTFT ≤ 1.00 s and TPOT ≤ 100 ms"
FAILED = Request(0.0, 0.0, failure="429 Too Many Requests")


def point(rate: float, *requests: Request) -> LoadPoint:
    return LoadPoint(f"test_load[{rate:g}]", "endpoint", rate, 10.0, 64, 11, 1.0, 0.1, requests)


def answered(ttft_s: float, lag_s: float = 0.0) -> Request:
    """Eleven tokens, 20 ms apart."""
    return Request(0.0, lag_s, ttft_s, ttft_s + 0.2, 11, 64, 0)


def loaded(*points: LoadPoint) -> Run:
    return replace(make_run(), loads=points)


def test_a_row_tells_all_of_a_rate() -> None:
    (section,) = load_sections(loaded(point(2.0, *[answered(0.25)] * 10, FAILED)))
    row = dict(zip(header(section.table), rows(section.table)[0], strict=True))
    assert (row["variant"], row["rate"], row["requests"], row["failed"]) == ("endpoint", "2/s", "11", "1")
    assert (row["goodput, 1/s"], row["within limits"]) == ("1.00", "90.9 %")
    assert (row["TTFT p50"], row["TTFT p90"], row["TTFT p99"]) == ("250 ms", "250 ms", "–")
    assert (row["TPOT p50"], row["latency p50"]) == ("20.0 ms", "450 ms")
    assert (row["cached"], row["remarks"]) == ("0 %", "1 failed: 429 Too Many Requests")


def test_a_late_client_is_marked() -> None:
    (section,) = load_sections(loaded(point(2.0, answered(0.1, lag_s=0.05))))
    assert rows(section.table)[0][-1].startswith("INVALID: requests were sent up to 50.0 ms after their time")
    (sentence,) = load_sentences(loaded(point(2.0, answered(0.1, lag_s=0.05))))
    assert sentence.startswith(
        "endpoint at 2/s, 64 + 11 tokens: INVALID: requests were sent up to 50.0 ms after their time"
    )


def test_the_sentence_names_the_highest_rate_that_is_sustained_and_the_next() -> None:
    fine, slow = [answered(0.25)] * 4, [answered(3.0)] * 4
    run = loaded(point(4.0, *slow), point(1.0, *fine), point(2.0, *fine))
    assert list(load_sentences(run)) == [
        f"endpoint answers 100 % of 4 requests at 2/s, 64 + 11 tokens, {LIMITS}; at 4/s 0 %."
    ]
    assert list(load_sentences(loaded(point(4.0, *slow)))) == [
        f"endpoint answers 0 % of 4 requests at 4/s, 64 + 11 tokens, {LIMITS}."
    ]


def test_a_rate_beyond_one_that_is_not_sustained_is_not_said_to_be() -> None:
    """Bug: where 2/s failed and 4/s happened to be answered, 4/s was called sustained. The rows go by the rate."""
    fine, slow = [answered(0.25)] * 4, [answered(3.0)] * 4
    run = loaded(point(4.0, *fine), point(2.0, *slow), point(1.0, *fine))
    assert list(load_sentences(run)) == [
        f"endpoint answers 100 % of 4 requests at 1/s, 64 + 11 tokens, {LIMITS}; at 2/s 0 %."
    ]
    (section,) = load_sections(run)
    assert [row[3] for row in rows(section.table)] == ["1/s", "2/s", "4/s"]


def test_a_client_without_file_descriptors_is_marked() -> None:
    run = loaded(point(2.0, answered(0.25), Request(0.0, 0.0, failure="too many open files", is_clients=True)))
    (section,) = load_sections(run)
    said = "INVALID: 1 request failed as this client was short of file descriptors or ports, not by the server"
    assert rows(section.table)[0][-1] == f"{said}; 1 failed: too many open files"
    assert list(load_sentences(run)) == [f"endpoint at 2/s, 64 + 11 tokens: {said}."]


def test_the_share_of_answers_that_ended_early_is_told() -> None:
    run = loaded(point(2.0, answered(0.25), Request(0.0, 0.0, 0.25, 0.3, 4, 64, 0)))
    (section,) = load_sections(run)
    said = "50 % of the answers ended before 11 tokens"
    assert rows(section.table)[0][-1] == said
    assert list(load_sentences(run)) == [
        f"endpoint answers 100 % of 2 requests at 2/s, 64 + 11 tokens, {LIMITS}; {said}.",
    ]


def test_loads_of_unlike_tests_are_not_taken_together() -> None:
    """A server that sustains 4 requests a second of short prompts, and not 2 of long ones, is said to do just that."""
    short = [point(rate, answered(0.25)) for rate in (2.0, 4.0)]
    long = [
        replace(point(rate, answered(3.0)), test=f"m.py::test_long[{rate:g}]", prompt_tokens=900) for rate in (2.0, 4.0)
    ]
    mixed = loaded(short[0], long[0], short[1], long[1])
    assert list(load_sentences(mixed)) == [
        f"endpoint answers 100 % of 1 request at 4/s, 64 + 11 tokens (test_load), {LIMITS}.",
        f"endpoint answers 0 % of 1 request at 2/s, 900 + 11 tokens (test_long), {LIMITS}.",
    ]
    (section,) = load_sections(mixed)
    assert [row[1:4] for row in rows(section.table)] == [
        ("test_load", "64 + 11", "2/s"),
        ("test_load", "64 + 11", "4/s"),
        ("test_long", "900 + 11", "2/s"),
        ("test_long", "900 + 11", "4/s"),
    ]


def test_a_second_load_of_other_lengths_replaces_none() -> None:
    builder = RunBuilder("fp32")
    for load in (point(2.0), replace(point(2.0), prompt_tokens=900), replace(point(2.0), new_tokens=5), point(2.0)):
        builder.add_load(load)
    run = builder.build(make_run().provenance, {})
    assert [(load.prompt_tokens, load.new_tokens) for load in run.loads] == [(64, 11), (900, 11), (64, 5)]


def test_of_many_reasons_the_three_most_frequent_are_told() -> None:
    failed = [Request(0.0, 0.0, failure=f"reason {number}") for number in range(6) for _ in range(7 - number)]
    (section,) = load_sections(loaded(point(2.0, *failed)))
    told = [f"{7 - number} failed: reason {number}" for number in range(3)]
    assert rows(section.table)[0][-1] == "; ".join((*told, "and 9 further for 3 other reasons"))


def test_a_run_of_loads_alone_does_not_say_that_nothing_was_measured() -> None:
    answer = findings_of(loaded(point(2.0, answered(0.25))), registry()).answer
    assert answer.sentence == "Only loads were measured, so there is no answer."


def test_without_loads_nothing_is_said() -> None:
    assert not list(load_sections(make_run()))
    assert not list(load_sentences(make_run()))
