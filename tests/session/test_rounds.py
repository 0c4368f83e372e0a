"""Which rounds of a case count, and what they measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from case_table import FAST, NOISY, Table, counts, crowd

from llm_bench_fixtures.errors import TimeUp, WorkerDied
from llm_bench_fixtures.measure.timing import Round
from llm_bench_fixtures.session import blocks, waits
from llm_bench_fixtures.session.case import Measured
from llm_bench_fixtures.session.stopping import ENOUGH_ROUNDS


def test_the_reference_rounds_are_those_of_the_same_blocks(table: Table) -> None:
    """The reference takes 1, 2, 3 s in turn, the variant a tenth of that."""
    table.add("fp32", 1.0, 2.0, 3.0)
    table.add("bf16", 0.1, 0.2, 0.3)
    outcome = table.run()
    assert outcome["bf16"].reference_s == (1.0, 2.0, 3.0)
    assert [done.latency_s for done in outcome["bf16"].rounds] == [0.1, 0.2, 0.3]
    assert outcome["bf16"].waited_s == pytest.approx((0.001, 0.002, 0.003))
    assert outcome["bf16"].reference_waited_s == pytest.approx((0.01, 0.02, 0.03))


def test_the_reference_beside_others_is_compared_with_itself(table: Table) -> None:
    table.add("fp32", 1.0, 2.0, 3.0)
    table.add("bf16")
    assert table.run()["fp32"].reference_s == (1.0, 2.0, 3.0)


def test_what_was_measured_beside_a_reference_that_then_dies_is_kept_with_its_speedup(table: Table) -> None:
    """Bug: four blocks were left out for the fifth. Nothing more can come of further ones."""
    table.add("fp32", *NOISY, fails_at=4)
    table.add("bf16", *NOISY[1:])
    outcome = table.run(replace(FAST, max_noise=0.01))
    assert isinstance(outcome.found["fp32"], WorkerDied)
    assert len(outcome["bf16"].rounds) == len(outcome["bf16"].reference_s) == 4
    assert table.turns.count("bf16") <= 5


def test_a_crowded_block_is_run_once_more_and_left_out_for_all(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(table, monkeypatch, 1)
    table.add("fp32", 1.0, 2.0, 3.0, 4.0)
    table.add("bf16", 0.1, 0.2, 0.3, 0.4)
    outcome = table.run(replace(FAST, max_noise=10.0, share_s=7.0))
    assert outcome["bf16"].reference_s == (1.0, 3.0, 4.0)
    assert outcome["bf16"].rounds_s == (0.1, 0.3, 0.4)
    assert outcome["fp32"].rounds_s == (1.0, 3.0, 4.0)
    assert outcome["bf16"].crowded_rounds == outcome["fp32"].crowded_rounds == 1


def test_where_just_the_least_rounds_are_asked_for_a_crowded_block_counts(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(table, monkeypatch, 1)
    table.add("fp32", 1.0, 2.0, 3.0)
    table.add("bf16")
    assert table.run()["bf16"].reference_s == (1.0, 2.0, 3.0)


def test_where_too_few_blocks_are_left_the_least_crowded_ones_count(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 9 s the first four blocks take 10, so that no fifth is run. The first and the third of them are crowded alike,
    so that both count where one is needed."""
    crowd(table, monkeypatch, 0, 2)
    table.add("fp32", 1.0, 1.5, 2.0, 1.5)
    table.add("bf16", 1.0)
    outcome = table.run(replace(FAST, max_noise=10.0, share_s=9.0))
    assert outcome["bf16"].reference_s == (1.0, 1.5, 2.0, 1.5)
    assert outcome["bf16"].crowded_rounds == 0


def test_crowded_rounds_are_not_enough_to_believe_an_interval(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rounds would be believed once there are six; three of these are crowded."""
    crowd(table, monkeypatch, 0, 1, 2)
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS + 3, "bf16": ENOUGH_ROUNDS + 3}


def test_a_round_of_unknown_waiting_makes_all_unknown() -> None:
    """A time for each round or none: they are paired one by one."""
    known = Round(1.0, (), (), waited_s=0.5)
    assert Measured(None, (known, known)).waited_s == (0.5, 0.5)
    assert Measured(None, (known, replace(known, waited_s=None))).waited_s == ()


Look = Callable[..., "list[float]"]


@pytest.fixture
def look(table: Table, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Lets looks find these one after the other, and then the last of them; gives when there was one."""
    for name in ("fp32", "bf16", "int8", "nf4"):
        table.add(name, 1.0)

    def made(*found: float | None) -> list[float]:
        coming, at_s = [*found], list[float]()

        def one() -> float | None:
            at_s.append(table.clock())
            return coming.pop(0) if len(coming) > 1 else coming[0]

        monkeypatch.setattr(blocks, "CoreLooks", lambda: SimpleNamespace(look=one))
        return at_s

    return made


TWO_CORES = replace(FAST, cores=2)


def test_a_round_has_the_mean_of_the_looks_in_its_block(table: Table, look: Look) -> None:
    """There is one before each turn of four variants, of which one tells nothing."""
    at_s = look(1.0, 2.0, 3.0, 2.0, 4.0, None, 4.0, 4.0, 2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == (2.0, 4.0, 2.0)
    assert at_s == [float(second) for second in range(12)]


def test_a_block_with_too_few_looks_tells_nothing_of_any(table: Table, look: Look) -> None:
    """Single looks scatter."""
    look(2.0, 2.0, None, None, 2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == ()


@pytest.mark.parametrize("cores", [0, 1])
def test_what_runs_on_one_core_shares_nothing(cores: int, table: Table, look: Look) -> None:
    at_s = look(2.0)
    assert table.run(replace(FAST, cores=cores))["bf16"].core_to_core == ()
    assert at_s == []


def test_beside_a_server_there_are_no_looks(table: Table, look: Look) -> None:
    """It works meanwhile."""
    table.add("endpoint", 1.0, is_beside=True)
    at_s = look(2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == ()
    assert at_s == []


def test_there_is_no_look_while_other_work_runs(table: Table, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_are_free", lambda _: False)
    at_s = look(2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == ()
    assert at_s == []


def test_where_a_block_is_cut_its_rounds_have_their_looks(table: Table, look: Look) -> None:
    """The third block is cut before its last turn, which isn't the reference's: three variants have three rounds."""
    look(2.0)
    turns = iter(range(4 + 11))  # those that warm up, and the timed ones

    def step(*_: object) -> None:
        if next(turns, None) is None:
            raise TimeUp

    run = table.blocks(TWO_CORES, 1, step)
    with pytest.raises(TimeUp):
        run.measure()
    cut = run.rounds.complete()
    assert len(cut) == 3
    assert {one.core_to_core for one in cut.values()} == {(2.0,) * 3}
