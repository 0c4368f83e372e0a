from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from run_factory import make_variant

from llm_bench_fixtures.errors import InvalidSetting, NotReached, TimeUp
from llm_bench_fixtures.models.backends import CATALOGUE, compiled
from llm_bench_fixtures.models.backends.compiled import CompiledModel
from llm_bench_fixtures.models.lineup import plan_lineup
from llm_bench_fixtures.models.loading import LoadRequest
from llm_bench_fixtures.models.model import ModelFacts
from llm_bench_fixtures.models.needs import LayerCache, MemoryNeed, Parts, RoundSize, Taken
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.session import loader
from llm_bench_fixtures.session.deadline import Deadline
from llm_bench_fixtures.session.forecast import Forecast, Phases, WorkKind
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.setup import Setup


def test_kept_code_is_loaded_in_one_process_and_compiled_in_one_that_ends(
    tiny_source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bugs: loading kept code counted as compiling, so that a second process loaded it again; what a session had made
    itself was said to be from the cache."""
    missing: list[int] = []
    processes: list[Process] = []

    class Process:
        def __init__(self, request: LoadRequest, *_: object) -> None:
            self.is_open = True
            processes.append(self)
            _, note = compiled._compile(request, cast(CompiledModel, self))
            self.facts = ModelFacts("", 0, 0, 0, notes=(note,))

        def close(self) -> None:
            self.is_open = False

    def are_open(*graphs: int) -> tuple[list[bool], str]:
        """Those of a new session's processes, which find so many graphs missing one after the other; and what the last
        one's model tells."""
        missing[:], processes[:] = graphs, []
        settings = parse_settings({"device": "cpu", "limits_time": "0", "cache_dir": str(tmp_path)})
        setup = Setup(settings, Progress())
        setup.source = tiny_source
        variant = next(one for one in CATALOGUE if one.id == "compile-fp32")
        VariantLoader(setup, RunBuilder("fp32")).load(variant)
        return [process.is_open for process in processes], re.split("[,:]", processes[-1].facts.notes[0])[0]

    monkeypatch.setattr(compiled, "settle", lambda _: missing.pop(0))
    monkeypatch.setattr(compiled, "check_steps", lambda _: None)
    monkeypatch.setattr(loader, "IsolatedModel", Process)
    monkeypatch.setattr(VariantLoader, "_describe", lambda self, result, model: result)
    assert are_open(2, 0) == ([False, True], "compiled in this run")
    assert are_open(0) == ([True], "its code is from the cache")
    assert are_open(1, 0) == ([False, True], "compiled in this run")  # torch's own cache has lost a graph


def test_what_is_made_in_much_memory_is_made_before_others_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The export takes 8 of 10 bytes, which it has beside the reference alone. One that fails is its own test's."""
    loaded: list[str] = []

    def load(_: VariantLoader, variant: Variant) -> str:
        loaded.append(variant.id)
        if variant.id == "broken":
            raise ValueError(variant.id)
        return variant.id

    monkeypatch.setattr(VariantLoader, "_load", load)
    reference, half, broken, exported = variants = tuple(
        Variant(name, "torch", "does nothing") for name in ("reference", "half", "broken", "exported")
    )
    needs = {
        "reference": MemoryNeed(2),
        "half": MemoryNeed(1),
        "broken": MemoryNeed(1, making=3),
        "exported": MemoryNeed(2, making=8),
    }
    one = VariantLoader(Setup(parse_settings({"device": "cpu"}), Progress()), RunBuilder("reference"))
    one.lineup = plan_lineup(variants, "reference", needs, 10)
    assert one.load(half) == "half"
    assert loaded == ["reference", "broken", "exported", "half"]
    assert (one.load(reference), one.load(exported)) == ("reference", "exported")
    assert loaded[4:] == []
    assert one.beside(broken) is None


def test_those_that_take_more_than_was_planned_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was planned to hold 2 of 10 bytes, and holds 4: a third is not loaded beside two, and its own test has the
    last one closed for it, not the reference."""

    class Machine:
        kind, loaded = "cpu", 0

        @property
        def free_bytes(self) -> int:
            return 10 - 4 * self.loaded

    class Held:
        def __init__(self) -> None:
            machine.loaded += 1

        def close(self) -> None:
            machine.loaded -= 1

    machine = Machine()
    monkeypatch.setattr(VariantLoader, "_load", lambda *_: Held())
    setup = Setup(parse_settings({}), Progress())
    setup.device = machine  # type: ignore[assignment]
    reference, half, third = variants = tuple(Variant(name, "torch", "") for name in ("reference", "half", "third"))
    one = VariantLoader(setup, RunBuilder("reference"))
    one.lineup = plan_lineup(variants, "reference", dict.fromkeys(("reference", "half", "third"), MemoryNeed(3)), 10)
    assert one.lineup.groups == (variants,)
    first = one.load(reference)
    assert one.beside(half) is not None
    assert one.beside(third) is None
    assert machine.loaded == 2
    one.load(third)
    assert (machine.loaded, one.beside(reference)) == (2, first)
    assert one._tight["third"].startswith("half had to make room for it in memory")


class NotedSetup:
    """Notes in which order a plan asks for what it needs."""

    def __init__(self, order: list[str], **options: str) -> None:
        self.settings, self.progress = parse_settings({"memory_share": "0", **options}), Progress()
        self.on_cpu = True
        self.known_limits, self.forecast = None, Forecast()
        self._order = order

    @property
    def limits(self) -> None:
        self._order.append("limits")

    @property
    def source(self) -> None:
        self._order.append("source")

    @property
    def free_bytes(self) -> None:
        self._order.append("free memory")


@pytest.mark.parametrize(
    ("options", "forks", "order"),
    [
        ({}, True, ["imports begin", "source", "free memory", "imports end", "limits"]),
        ({"limits_time": "0"}, True, ["imports begin", "source", "free memory", "limits"]),
        ({}, False, ["limits", "source", "free memory", "limits"]),
        ({"in_process": "true"}, True, ["limits", "source", "free memory", "limits"]),
    ],
    ids=["in processes that are forked", "not at all", "in processes that start afresh", "in this process"],
)
def test_limits_are_measured_while_nothing_is_imported(
    options: dict[str, str], forks: bool, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(loader, "can_fork", lambda **_: forks)
    monkeypatch.setattr(loader, "start_importing", lambda *_, **__: found.append("imports begin"))
    monkeypatch.setattr(loader, "await_imports", lambda **_: found.append("imports end"))
    VariantLoader(NotedSetup(found, **options), RunBuilder("fp32")).plan([Variant("fp32", "torch", "")])
    assert found == order


class Roomy:
    """A loader of four variants that hold 3 bytes each; rounds take `large` so many bytes more as they have rows."""

    def __init__(self, budget: int, monkeypatch: pytest.MonkeyPatch, need: MemoryNeed = MemoryNeed(3)) -> None:  # noqa: B008
        self.closed: list[str] = []

        def load(_: object, variant: Variant) -> SimpleNamespace:
            return SimpleNamespace(close=lambda: self.closed.append(variant.id))

        def rise(_: object, variant: Variant, largest: RoundSize) -> int:
            return largest.rows if variant.id == "large" else 0

        monkeypatch.setattr(VariantLoader, "_load", load)
        monkeypatch.setattr(VariantLoader, "_has_room", lambda *_: True)
        monkeypatch.setattr(VariantLoader, "_rise", rise)
        self.variants = tuple(Variant(name, "torch", "") for name in ("reference", "half", "third", "large"))
        self.loader = VariantLoader(Setup(parse_settings({}), Progress()), RunBuilder("reference"))
        needs = dict.fromkeys((each.id for each in self.variants), need)
        self.loader.lineup = plan_lineup(self.variants, "reference", needs, budget)
        for variant in self.variants:
            self.loader.load(variant)


def test_rounds_larger_than_the_plan_have_others_closed_and_give_their_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rounds take the fourth variant 4 of 12 bytes more: beside it and the reference 2 are left."""
    roomy = Roomy(12, monkeypatch)
    reference, half, third, large = roomy.variants
    one, closed = roomy.loader, roomy.closed
    with one.making_room(reference, RoundSize(4, 1)) as has_room:
        assert [has_room(other) for other in (half, large, third)] == [True, False, True]
    assert closed == []
    with one.making_room(large, RoundSize(4, 1)) as has_room:
        assert closed == ["third", "half"]
        assert not has_room(half)  # 9 bytes and 4
    assert closed == ["third", "half", "large"]
    assert one.load(large)


def test_what_took_more_than_was_planned_stays_as_long_as_all_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: variants of a small model were loaded anew after each case that the plan hadn't foreseen."""
    roomy = Roomy(16, monkeypatch)
    reference, half, third, large = roomy.variants
    one, closed = roomy.loader, roomy.closed
    for rows in (4, 3):  # the second takes none beyond what the first has taken
        with one.making_room(reference, RoundSize(rows, 1)) as has_room:
            assert all(map(has_room, (half, large, third)))
        assert closed == []
    with one.making_room(reference, RoundSize(1, 1)) as has_room:
        assert all(map(has_room, (half, third)))
    assert closed == []
    with one.making_room(large, RoundSize(5, 1)):
        assert closed == ["third"]
    assert closed == ["third", "large"]
    for variant in (third, large):
        one.load(variant)
    with one.making_room(reference, RoundSize(4, 1)) as has_room:
        assert all(map(has_room, (half, large, third)))  # the new process has taken none yet


def test_further_rounds_have_room_as_long_as_all_that_are_loaded_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four variants hold 12 of 16 bytes. What the largest rounds took stays taken; what has no room takes none."""
    roomy = Roomy(16, monkeypatch)
    reference, *_, large = roomy.variants
    for rows, has_room in ((5, False), (4, True), (1, True), (5, False)):
        assert roomy.loader.keeps_all({reference: RoundSize(rows, 1), large: RoundSize(rows, 1)}) is has_room
    assert roomy.loader._rises["large"] == 4
    assert roomy.closed == []


def test_a_round_is_beyond_the_plan_by_what_it_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position keeps 10 bytes, of 8 x (96 + 15) that were planned, and of 2,000."""
    parts = Parts(0, 0, 0, 0, is_known=True, kept=(LayerCache(10),), taken=Taken(0, 0, 0, 0), logits=0)
    one = VariantLoader(Setup(parse_settings({}), Progress()), RunBuilder("fp32"))
    monkeypatch.setattr(VariantLoader, "_largest_rounds", lambda _: [RoundSize(8, 96, 16), RoundSize(1, 9999)])
    monkeypatch.setattr(VariantLoader, "_parts", lambda _, variant: parts if variant is FP32 else None)
    assert one._rise(FP32, RoundSize(1, 1985, 16)) == 20_000 - 8_880
    assert one._rise(FP32, RoundSize(1, 96, 16)) == one._rise(BF16, RoundSize(1, 1985, 16)) == 0


def test_what_took_more_is_closed_where_scoring_would_have_no_room_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 bytes are held, the rounds take 4 more, and scoring takes 2 more of 17."""
    roomy = Roomy(17, monkeypatch, MemoryNeed(3, scoring=2))
    with roomy.loader.making_room(roomy.variants[0], RoundSize(4, 1)) as has_room:
        assert all(map(has_room, roomy.variants[1:]))
    assert roomy.closed == ["large"]


class Opened:
    """A loaded model."""

    def close(self) -> None: ...


def limited(seconds: list[float], limit_s: float, monkeypatch: pytest.MonkeyPatch) -> VariantLoader:
    """A loader in a run that has so much time before its report. Each load takes 10 s of a simulated clock."""
    setup = Setup(parse_settings({"device": "cpu", "limits_time": "0"}), Progress())
    setup.forecast = Forecast(lambda: sum(seconds))
    setup.deadline = Deadline((limit_s + 4.0) / 0.98, began_s=0.0, clock=lambda: sum(seconds))
    made = VariantLoader(setup, RunBuilder("fp32"))
    monkeypatch.setattr(VariantLoader, "_open", lambda self, variant: seconds.append(10.0) or Opened())
    monkeypatch.setattr(VariantLoader, "_describe", lambda self, result, model: result)
    return made


FP32, BF16, FP16 = (next(one for one in CATALOGUE if one.id == name) for name in ("fp32", "bf16", "fp16"))


def test_a_load_does_not_begin_that_is_not_expected_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are alike the first takes 10 s where 5 were expected. So the second does, for which 9 are left."""
    seconds: list[float] = []
    loader = limited(seconds, 19.0, monkeypatch)
    for variant in (FP32, BF16):
        loader._setup.forecast.expect(WorkKind.LOADING, variant.id, 5.0)
    loader.load(FP32)
    for _ in range(2):
        with pytest.raises(
            NotReached, match=r"^not reached in 23 s: loading bf16 takes about 10 s; --llm-time 30s has"
        ):
            loader.load(BF16)
    assert sum(seconds) == 10
    assert loader.load(FP32)


def test_a_load_does_not_begin_that_leaves_its_first_case_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: four variants were loaded until the time was gone, and none was measured. Here each load takes 10 s, and 4 s
    each variant's rounds, of 34: two have 28 together, three would take 42."""
    seconds: list[float] = []
    loader = limited(seconds, 34.0, monkeypatch)
    variants = (FP32, BF16, FP16)
    loader.lineup = plan_lineup(variants, "fp32", dict.fromkeys(("fp32", "bf16", "fp16"), MemoryNeed(1)), 10**12)
    for variant in variants:
        loader._setup.forecast.expect(WorkKind.LOADING, variant.id, 10.0)
        loader._setup.forecast.expect_rounds(variant.id, "mine", Phases(), Phases(4.0), least_s=100.0)
    for variant in variants[:2]:
        loader.load(variant)
    why = r"^not reached in 39 s: loading fp16 with its first case takes about 22 s; --llm-time 50s has room for it"
    with pytest.raises(NotReached, match=why):
        loader.load(FP16)
    assert sum(seconds) == 20
    assert loader._setup.forecast.expected_s(WorkKind.ROUNDS, "fp16", "mine") == 0


def test_a_load_begins_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    loader = limited(seconds, 20.5, monkeypatch)
    loader._setup.forecast.expect(WorkKind.LOADING, FP32.id, 10.0)
    assert loader.load(FP32)
    assert loader.load(BF16)  # of which nothing is known
    assert sum(seconds) == 20


def test_an_export_does_not_begin_that_is_not_expected_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    for left_s, fits in ((121.0, False), (122.5, True)):
        loader = limited([], left_s, monkeypatch)
        loader._setup.forecast.expect(WorkKind.MAKING, FP32.id, 122.0)
        loader._loading = FP32.id
        begun = []
        with suppress(TimeUp), loader._setup.progress.activity(Phase.EXPORTING, "exporting"):
            begun.append(left_s)
        assert bool(begun) is fits


def test_what_an_earlier_session_measured_as_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures would stand in one row with others'. Once it is described, it is as it is."""
    results, closed = RunBuilder("fp32"), list[str]()
    results.add_variant(make_variant(configuration="float32"))
    own = VariantLoader(Setup(parse_settings({}), Progress()), results)
    own.restored = frozenset({"fp32"})
    facts = ModelFacts("", 0, 512, 0, configuration="float16")
    model = SimpleNamespace(facts=facts, close=lambda: closed.append("fp32"))
    monkeypatch.setattr(own, "_open", lambda _: model)
    with pytest.raises(InvalidSetting, match="fp32 was measured as float32, and is float16 now: leave --llm-resume"):
        own._load(CATALOGUE[0])
    assert closed == ["fp32"]
    results.add_variant(make_variant(configuration="float16"))
    assert cast(object, own._load(CATALOGUE[0])) is model
    assert own.windows is not None
