"""What a case waits for, and how long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from case_table import FAST, NOISY, PATIENT, Table, busy, counts, crowd, spent_until

from llm_bench_fixtures.processes.calm import LONGEST_SERVER_FALL_S
from llm_bench_fixtures.session import waits
from llm_bench_fixtures.session.stopping import ENOUGH_ROUNDS


def test_a_wait_that_is_cut_short_is_patience_lost(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it was charged as rounds."""
    monkeypatch.setattr(waits, "SHOWN_WAIT_S", 0.0)
    waited = busy(table, monkeypatch, [*[64] * 2, *[0] * 100])

    def cut(_: str, what: str, __: object) -> None:
        if what == "waiting for other programs" and len(waited) == 8:
            raise KeyboardInterrupt

    table.add("fp32")
    table.add("bf16")
    spent = spent_until(cut, replace(FAST, patience_s=10.0), table)
    assert (spent.rounds_s, spent.found_calm) == (0.0, True)
    assert spent.waited_s == pytest.approx(8 * waits.LOOK_EVERY_S)


def test_a_turn_waits_while_other_work_keeps_too_many_cores_busy(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round needs two cores. What was waited is no time of the rounds."""
    waited = busy(table, monkeypatch, [*[0] * waits.LOOKS, 0, 1, 1, 2])
    table.add("fp32", 1.0)
    outcome = table.run(replace(FAST, patience_s=10.0, cores=2))
    assert len(waited) == 3
    assert outcome.spent.rounds_s == pytest.approx(3.0)
    assert outcome.spent.waited_s == pytest.approx(3 * waits.LOOK_EVERY_S)


def test_only_a_wait_that_lasts_is_shown(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a log said "waiting for other programs" of cases that had waited for 0.2 s in all."""
    shown: list[str] = []
    for looks in (4, 1100):  # of 1 ms each
        waited = busy(table, monkeypatch, [0] * looks)
        table.entries.clear()
        table.add("fp32")
        table.run(replace(FAST, rounds=1, patience_s=10.0), step=lambda _, what, __: shown.append(what))
        assert len(waited) == looks - waits.LOOKS
        assert ("waiting for other programs" in shown) == (looks > 1000)


@pytest.mark.parametrize(("threads", "looked"), [(1, 0), (None, 2)])
def test_a_variant_waits_for_as_many_cores_as_it_has_threads(
    threads: int | None, looked: int, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core is free, which is enough for one thread, and not for the usual two."""
    waited = busy(table, monkeypatch, [1] * 1000)
    table.add("fp32", 1.0)
    table.entries["fp32"].cores = threads
    table.run(replace(FAST, patience_s=2 * waits.LOOK_EVERY_S, cores=2))
    assert len(waited) == looked


def test_patience_is_one_for_the_whole_case(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cores are never free again: it waits before the first rounds, and not before those after them."""
    busy(table, monkeypatch, [0] * 1000)
    table.add("fp32", 1.0)
    table.add("bf16", 1.0)
    outcome = table.run(replace(FAST, patience_s=0.1))
    assert counts(table) == {"fp32": 3, "bf16": 3}
    assert outcome.spent.waited_s == pytest.approx(0.1, abs=2 * waits.LOOK_EVERY_S)
    assert outcome.spent.rounds_s == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("free", "found_calm"), [([], True), ([0] * 24, True), ([0] * 1000, False)], ids=["at once", "later", "never"]
)
def test_a_case_tells_whether_other_work_left_it_alone(
    free: list[int], found_calm: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks each 5 ms, so that 0.1 s of patience are twenty looks; then once before each turn."""
    busy(table, monkeypatch, free)
    table.add("fp32", 1.0)
    table.add("bf16", 1.0)
    assert table.run(replace(FAST, patience_s=0.1)).spent.found_calm == found_calm


def test_without_patience_nothing_waits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy(table, monkeypatch, [0] * 100) == []
    table.add("fp32")
    assert table.run().spent.waited_s == 0


def test_where_the_system_does_not_tell_nothing_waits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "free_cores", lambda: None)
    table.add("fp32")
    assert table.run(replace(FAST, patience_s=100.0)).spent.waited_s == 0


def spinning(table: Table, monkeypatch: pytest.MonkeyPatch, cores: int) -> list[float]:
    """Have so many cores free, one less while a server spins, and note the waits."""
    waited = busy(table, monkeypatch, [])
    monkeypatch.setattr(waits, "free_cores", lambda: cores - (table.clock() < table.spun_until_s))
    return waited


def test_after_its_turn_a_server_on_this_machine_is_waited_for(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's worker spins for a second after each turn, on a core of the variant whose turn comes next."""
    waited = spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True, spins_s=1.0)
    outcome = table.run(replace(FAST, cores=2, patience_s=60.0))
    assert counts(table) == {"fp32": 3, "endpoint": 3}
    assert table.disturbed == []
    assert sum(waited) == pytest.approx(3.0, abs=4 * waits.LOOK_EVERY_S)
    assert (outcome.spent.rounds_s, outcome.spent.waited_s) == (pytest.approx(6.0), 0.0)


def test_a_servers_rest_leaves_the_share_to_the_rounds(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it was of the share. A block takes 1 s and that of the noisy one: after 9 of them 31.5 s are over."""
    spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", *NOISY, is_beside=True, spins_s=1.0)
    outcome = table.run(replace(FAST, max_noise=0.01, share_s=31.0, cores=2))
    assert counts(table) == {"fp32": 9, "endpoint": 9}
    assert outcome.spent.rounds_s == pytest.approx(31.5)


def test_a_server_that_never_rests_is_not_waited_for_long(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, after it has warmed up: later as many cores are free as before its turns."""
    waited = spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True, spins_s=1e9)
    outcome = table.run(replace(FAST, warmup_rounds=2, cores=2))
    assert sum(waited) == pytest.approx(LONGEST_SERVER_FALL_S, abs=2 * waits.LOOK_EVERY_S)
    assert outcome.spent.rounds_s == pytest.approx(6.0)


def test_a_case_waits_for_its_servers_so_long_and_no_longer(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest is 1.2 s of the 1.5 that it spins, after each turn that doesn't follow its own: after some 45 of 60."""
    waited = spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True, spins_s=1.5)
    table.run(replace(FAST, rounds=60, share_s=1000.0, cores=2))
    assert counts(table) == {"fp32": 60, "endpoint": 60}
    assert sum(waited) == pytest.approx(waits.MOST_REST_S, abs=2 * waits.LOOK_EVERY_S)


@pytest.mark.parametrize(
    ("cores", "names", "is_beside"),
    [
        pytest.param(64, ("fp32", "endpoint"), True, id="the next round needs two of 64 cores"),
        pytest.param(2, ("endpoint",), True, id="nobody else takes turns"),
        pytest.param(2, ("fp32", "endpoint"), False, id="it runs elsewhere"),
    ],
)
def test_a_server_that_takes_no_core_of_others_is_not_waited_for(
    cores: int, names: tuple[str, ...], is_beside: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: all cores of the machine had to be free, also where the server was alone."""
    waited = spinning(table, monkeypatch, cores)
    for name in names:
        table.add(name, 1.0, is_beside=is_beside and name == "endpoint", spins_s=1.0 * (name == "endpoint"))
    table.blocks(replace(FAST, cores=2), reference=names[0]).measure()
    assert counts(table) == dict.fromkeys(names, 3)
    assert waited == []


def test_what_was_busy_before_a_servers_turn_is_not_waited_for(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two cores is another program's all the time."""
    waited = spinning(table, monkeypatch, cores=1)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True)
    table.run(replace(FAST, cores=2))
    assert waited == []


def test_patience_lasts_for_waits_and_for_blocks_in_place_of_crowded_ones(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is waited before the first block, and blocks of 2 s have their share of 10 s after it."""
    crowd(table, monkeypatch, *range(100))
    table.add("fp32")
    table.add("bf16")
    outcome = table.run(replace(PATIENT, share_s=10.0, patience_s=10.0))
    assert counts(table) == {"fp32": 5, "bf16": 5}
    assert outcome.spent.waited_s == pytest.approx(10.0, abs=2 * waits.LOOK_EVERY_S)
    assert not outcome.spent.found_calm


def test_threads_that_wait_for_each_other_crowd_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: with more threads than cores each round was run again, as long as there was time."""
    crowd(table, monkeypatch, *range(100))
    monkeypatch.setattr(waits, "free_cores", lambda: -3)
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, max_noise=0.01, share_s=5000.0, cores=0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS, "bf16": ENOUGH_ROUNDS}
