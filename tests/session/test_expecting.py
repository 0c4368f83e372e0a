"""What a run of the embedded model is expected to take, on a machine of round figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from llm_bench_fixtures.answer.headline import PROMPT_LENGTHS
from llm_bench_fixtures.measure.harness import HarnessTask
from llm_bench_fixtures.measure.limits import MachineLimits
from llm_bench_fixtures.models.architecture import Footprint
from llm_bench_fixtures.models.artifacts import ArtifactStore, Maker, Making
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.lineup import Lineup
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.provenance import Commit
from llm_bench_fixtures.session import expecting
from llm_bench_fixtures.session.deadline import Deadline
from llm_bench_fixtures.session.expecting import (
    PROBED_BYTES,
    PROBED_CALLS,
    PROBED_POSITIONS,
    expect_run,
    machine_of,
    made_before,
    making_s,
)
from llm_bench_fixtures.session.forecast import Forecast, MachineSpeed, Runner, WorkKind, load_name
from llm_bench_fixtures.session.plan import Case, Stage
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import Workload, blank

FP32, BF16, INT8, SKIPPED = (
    next(one for one in CATALOGUE if one.id == name) for name in ("fp32", "bf16", "bnb-int8", "autocast-fp16")
)
MACHINE = MachineSpeed(read_bytes_per_s=1e9, flops_per_s=1e9, copy_bytes_per_s=1e9, hash_bytes_per_s=1e9, call_s=0.0)
WORKLOAD = Workload((blank(64),), new_tokens=16, batch_size=1)
COMPILED = next(one for one in CATALOGUE if one.id == "compile-fp32")
CASE = Case("mine", PROMPT_LENGTHS, frozenset({"fp32", "bnb-int8"}))


def expected(
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
    *groups: tuple[Variant, ...],
    weights: int = 4_339_200,
    random_weights: bool = False,
    checked: Collection[str] = (),
    tasks: tuple[HarnessTask, ...] = (),
    loads: Mapping[str, int] | None = None,
    machine: MachineSpeed = MACHINE,
    case: Case = CASE,
    stage: Stage = Stage.LATENCY,
    limits: MachineLimits | None = None,
    **options: str,
) -> Forecast:
    monkeypatch.setattr(expecting, "machine_of", lambda _: machine)
    settings = parse_settings({"device": "cpu", "limits_time": "0", "cache_dir": str(cache), **options})
    setup = Setup(settings, Progress(), deadline=Deadline(settings.time))
    setup.source = ModelSource(TINY, TINY_FOLDER, random_weights=random_weights, footprint=Footprint(weights, 0))
    setup.tasks = tasks
    setup.limits = limits
    session = BenchSession(setup, "fp32", lambda *_: (), Commit)
    session.loader.lineup = Lineup(groups)
    session.measuring.go_by(lambda _: stage, [])
    expect_run(session, {case: WORKLOAD}, checked, loads or {})
    return setup.forecast


def runner(variant: str, weights: int) -> Runner:
    return Runner(MACHINE, weights, layers=4, bytes_per_weight={"fp32": 4.0, "bnb-int8": 1.0}[variant])


def test_each_variant_that_can_run_here_loads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, tmp_path, (FP32, BF16, SKIPPED))
    one = runner("fp32", 4_339_200).load_s(expecting.FIRST)
    assert found.expected_s(WorkKind.LOADING, "fp32") == one
    assert found.expected_s(WorkKind.LOADING, "bf16") > 0
    assert found.expected_s(WorkKind.LOADING, "autocast-fp16") == 0  # not on a CPU
    assert found.expected_s(WorkKind.LOADING, "fp32", load_name(1)) == 0


def test_what_a_device_map_keeps_from_loading_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: time was expected for variants of backends that keep a model on one device, which are skipped then."""
    found, usual = (
        expected(monkeypatch, tmp_path, (FP32, COMPILED), **options) for options in ({"device_map": "auto"}, {})
    )
    assert found.expected_s(WorkKind.LOADING, "fp32") > 0
    assert usual.expected_s(WorkKind.LOADING, "compile-fp32") > 0
    assert found.expected_s(WorkKind.LOADING, "compile-fp32") == 0


def test_torch_alone_multiplies_float32_weights_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few positions at a time are slow."""
    slow = replace(MACHINE, rows_bytes_per_s=MACHINE.read_bytes_per_s / 1000)
    usual, found = (expected(monkeypatch, tmp_path, (FP32, INT8), machine=one) for one in (MACHINE, slow))
    ratio = {
        name: found.expected_s(WorkKind.ROUNDS, name, "mine") / usual.expected_s(WorkKind.ROUNDS, name, "mine")
        for name in ("fp32", "bnb-int8")
    }
    assert ratio["fp32"] > 10
    assert ratio["bnb-int8"] == 1


def test_each_load_is_expected_but_of_the_variant_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is in all groups."""
    loads = {"fp32": 9, "bf16": 2}
    found = expected(monkeypatch, tmp_path, (FP32, BF16), (FP32, INT8), loads=loads)
    again = {name: found.expected_s(WorkKind.LOADING, name, load_name(1)) > 0 for name in ("fp32", "bf16", "bnb-int8")}
    assert again == {"fp32": False, "bf16": True, "bnb-int8": False}


def test_rounds_are_those_of_a_variants_own_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that warms up and is observed takes two, one of up to ten tokens follows it, and three are timed."""
    found = expected(monkeypatch, tmp_path, (FP32, BF16))
    one = runner("fp32", 4_339_200)
    some_s = one.round_s(replace(WORKLOAD, new_tokens=10))
    assert found.expected_s(WorkKind.ROUNDS, "fp32", "mine") == pytest.approx(some_s + 5 * one.round_s(WORKLOAD))
    assert found.expected_s(WorkKind.ROUNDS, "bf16", "mine") == 0


@pytest.mark.parametrize(
    ("weights", "options", "fewer"),
    [
        (4_339_200, {}, 1),
        pytest.param(4_339_200, {"rounds": "3"}, 0, id="so many are asked for"),
        pytest.param(10**9, {}, 0, id="of a large model"),
    ],
)
def test_two_rounds_are_timed_where_the_answer_does_not_go_by_a_case(
    weights: int, options: dict[str, str], fewer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three, found = (
        expected(monkeypatch, tmp_path, (FP32,), weights=weights, case=replace(CASE, scenario=scenario), **options)
        for scenario in (PROMPT_LENGTHS, "cache")
    )
    saved_s = three.expected_s(WorkKind.ROUNDS, "fp32", "mine") - found.expected_s(WorkKind.ROUNDS, "fp32", "mine")
    assert saved_s == pytest.approx(fewer * runner("fp32", weights).round_s(WORKLOAD))


def test_fewer_rounds_are_timed_where_further_ones_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, few = (
        expected(monkeypatch, tmp_path, (FP32, INT8), weights=10**9, stage=stage, time="10h")
        for stage in (Stage.LATENCY, Stage.LENGTHS)
    )
    saved_s = usual.expected_s(WorkKind.ROUNDS, "fp32", "mine") - few.expected_s(WorkKind.ROUNDS, "fp32", "mine")
    assert saved_s == pytest.approx(runner("fp32", 10**9).round_s(WORKLOAD))


def test_three_tokens_warm_a_large_model_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, tmp_path, (FP32,), weights=10**9)
    large = runner("fp32", 10**9)
    brief_s = large.round_s(replace(WORKLOAD, new_tokens=3))
    assert found.expected_s(WorkKind.ROUNDS, "fp32", "mine") == pytest.approx(brief_s + 3 * large.round_s(WORKLOAD))


def test_a_small_model_is_scored_once_on_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, tmp_path, (FP32, INT8))
    assert found.expected_s(WorkKind.QUALITY, "bnb-int8") > 0
    assert found.expected_s(WorkKind.QUALITY, "bnb-int8", "1") == 0


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"choices": "none"}, ([1000], [1000], [2000], [2000])),
        ({"choices": "none", "window": "251", "stride": "250"}, ([1000], [1000], [2000], [2000])),
        ({"choices": "none", "windows": "llama", "window": "500"}, ([1996, 499], [1996, 499], [998])),
        pytest.param({}, ([1000, 480], [1000, 480], [2000, 40], [2000]), id="questions"),
    ],
)
def test_a_large_model_is_scored_on_samples_that_double(
    options: dict[str, str], passes: Sequence[Sequence[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve texts of 501 tokens: each is fed 500, and a pass takes up to 2,048. They make twelve of llama's windows of
    500 tokens, which are fed 499 and score 249. Each of 50 questions has two choices, of 11 tokens with it."""
    corpus, questions = tmp_path / "corpus", tmp_path / "questions.jsonl"
    corpus.mkdir()
    for number in range(12):
        (corpus / f"{number}.txt").write_text("a" * 501)
    questions.write_text('{"prompt": "ten tokens", "choices": ["a", "b"], "answer": 0}\n' * 50)
    monkeypatch.setattr(expecting, "_tokens_per_character", lambda _: 1.0)
    given = {"corpus": str(corpus), "choices": str(questions), **options}
    found = expected(monkeypatch, tmp_path, (FP32, INT8), weights=10**9, **given)
    for name in ("fp32", "bnb-int8"):
        pass_s = runner(name, 10**9).pass_s
        seconds = [found.expected_s(WorkKind.QUALITY, name, sample) for sample in ("", "1", "2", "3", "4")]
        assert seconds[: len(passes)] == pytest.approx([sum(map(pass_s, sample)) for sample in passes])
        assert not any(seconds[len(passes) :])


def test_a_window_is_as_long_as_the_models_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model's is of 512 tokens. Of a text of 513 the first window is fed 511, and the last, from the 257th
    on, 256. A longer one takes the text whole."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a" * 513)
    monkeypatch.setattr(expecting, "_tokens_per_character", lambda _: 1.0)
    given: dict[str, str] = {"corpus": str(corpus), "choices": "none"}
    pass_s = runner("fp32", 10**9).pass_s
    cut = expected(monkeypatch, tmp_path, (FP32,), weights=10**9, **given)
    assert cut.expected_s(WorkKind.QUALITY, "fp32") == pytest.approx(pass_s(2 * 511))
    monkeypatch.setattr(expecting, "_in_config", lambda *_: 0)
    whole = expected(monkeypatch, tmp_path, (FP32,), weights=10**9, **given, window="2048")
    assert whole.expected_s(WorkKind.QUALITY, "fp32") == pytest.approx(pass_s(512))


def test_a_precision_is_as_much_faster_as_the_limits_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At best the machine computes five times as fast as with the model's shapes, and in bfloat16 twice that."""
    limits = MachineLimits(1e9, {Precision.FLOAT32: 5e9, Precision.BFLOAT16: 1e10})
    plain, known = (expected(monkeypatch, tmp_path, (FP32, BF16), weights=10**9, limits=one) for one in (None, limits))
    fp32_s, bf16_s = (known.expected_s(WorkKind.QUALITY, name) for name in ("fp32", "bf16"))
    assert fp32_s == plain.expected_s(WorkKind.QUALITY, "fp32")
    assert bf16_s == pytest.approx(fp32_s / 2)


def test_modes_are_compared_of_variants_with_such_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, tmp_path, (FP32, BF16), checked={"fp32"})
    assert found.expected_s(WorkKind.CHECKS, "fp32") == runner("fp32", 4_339_200).round_s(expecting.CHECKED)
    assert found.expected_s(WorkKind.CHECKS, "bf16") == 0


def test_random_weights_are_not_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, tmp_path, (FP32,), random_weights=True)
    assert found.expected_s(WorkKind.QUALITY, "fp32") == 0


def test_tasks_take_what_reading_and_generating_their_items_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten items of 204.8 tokens, of two characters each, are a batch of 2048. Ten of three new tokens are 30 steps."""
    monkeypatch.setattr(expecting, "_tokens_per_character", lambda _: 0.5)
    reads, writes = (
        HarnessTask(name, {}, {}, characters, new_tokens, "", {name: 10})
        for name, characters, new_tokens in (("reads", 409.6, 0), ("writes", 0, 3))
    )
    found = expected(monkeypatch, tmp_path, (FP32,), tasks=(reads, writes))
    one = runner("fp32", 4_339_200)
    assert found.expected_s(WorkKind.TASKS, "fp32", "reads") == pytest.approx(one.pass_s(2048))
    assert found.expected_s(WorkKind.TASKS, "fp32", "writes") == pytest.approx(30 * one.pass_s(1))


def test_what_the_cache_has_is_known_to_be_made(tmp_path: Path) -> None:
    """For a variant in another number of threads, too."""
    setup = Setup(parse_settings({"device": "cpu", "cache_dir": str(tmp_path)}), Progress())
    setup.source = ModelSource(TINY, TINY_FOLDER, footprint=Footprint(4_339_200, 0))
    maker = Maker("bnb-int8", setup.source.identity, 4_339_200)
    ArtifactStore(tmp_path, maker=maker).get("made", {}, lambda folder: (folder / "file").touch())
    in_two = replace(INT8, id="bnb-int8-2t", threads_of="bnb-int8")
    assert made_before(setup, [FP32, INT8, in_two]) == {"bnb-int8", "bnb-int8-2t"}


def test_the_machine_is_probed_with_as_many_weights_as_the_model_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that ticks once a second. 16 matrices of 256 x 1024 float32 fit into the embedded model's weights. Two
    products with one of them tell how fast it computes, or with a part of it."""
    setup = Setup(parse_settings({"device": "cpu", "limits_time": "0", "cache_dir": str(tmp_path)}), Progress())
    setup.source = ModelSource(TINY, TINY_FOLDER, footprint=Footprint(4_339_200, 0))
    machine = machine_of(setup, clock=map(float, count()).__next__)
    weights_bytes = 16 * 256 * 1024 * 4
    assert (machine.read_bytes_per_s, machine.rows_bytes_per_s) == (weights_bytes, weights_bytes)
    assert machine.copy_bytes_per_s == machine.hash_bytes_per_s == PROBED_BYTES
    assert machine.call_s == 1 / PROBED_CALLS
    assert machine.flops_per_s == 4 * PROBED_POSITIONS * 256 * 1024
    monkeypatch.setattr(expecting, "PROBED_FLOPS", 4 * PROBED_POSITIONS * 256 * 10)
    assert machine_of(setup, clock=map(float, count()).__next__).flops_per_s == expecting.PROBED_FLOPS


def made(model: str, weights: int, seconds: float, is_current: bool = True) -> Making:
    return Making("", Maker("ort", model, weights), seconds, is_current)


def test_what_is_there_is_not_made_again() -> None:
    assert making_s("ort", "mine", 100, [made("mine", 100, 30.0)], 7.0) == 0


def test_making_takes_as_long_as_the_last_time_or_as_of_the_nearest_model() -> None:
    stale, small, large = made("mine", 100, 30.0, is_current=False), made("s", 10, 5.0), made("l", 200, 40.0)
    assert making_s("ort", "mine", 100, [stale, small], 7.0) == 30.0
    assert making_s("ort", "mine", 100, [small, large], 7.0) == 20.0
    assert making_s("other", "mine", 100, [small, large], 7.0) == 7.0
