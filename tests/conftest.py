"""What several test files share: the embedded model, a factory of load requests, and a model around a fake module."""

from __future__ import annotations

import os
import signal

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub: no test may reach the network
os.environ.setdefault("OMP_NUM_THREADS", "1")  # models this small gain nothing from threads, and lose to busy cores
os.environ.pop("PYTEST_XDIST_WORKER", None)  # the runs that the tests start are nobody's workers, and do time

from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from llm_bench_fixtures.measure.quality import Score, score_windows
from llm_bench_fixtures.measure.windows import strided_windows
from llm_bench_fixtures.models import quarantine
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE, find_backend
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel, source_facts
from llm_bench_fixtures.models.variants import Precision, Variant, select_variants
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.processes import launch
from llm_bench_fixtures.processes.affinity import usable_cores
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.session.loader import MEASURING
from llm_bench_fixtures.workloads import CacheKind, Prompts, TokenIds, read_corpus

for number, hears in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if signal.getsignal(getattr(signal, number, signal.SIGTERM)) is signal.SIG_IGN:  # as below nohup
        signal.signal(getattr(signal, number), hears)  # runs that the tests start would ignore it, too

# A machine may be as slow as it likes.
hypothesis_settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: each waits a fifth of its time for processes that its tests start."""
    return usable_cores() + 1


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class MakeRequest(Protocol):
    def __call__(
        self,
        variant: str | Variant = "fp32",
        source: ModelSource | None = None,
        progress: Progress | None = None,
        **options: str,
    ) -> LoadRequest: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no pictures, which take most of the time that a report takes."""
    monkeypatch.setattr("llm_bench_fixtures.report.charts.pictures.pictures", lambda _: ())


@pytest.fixture(scope="session")
def cpu() -> Device:
    return Device(DeviceKind.CPU, "cpu", "a processor")


@pytest.fixture(scope="session")
def shared_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this test session, the same in all processes that pytest-xdist runs it in."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def session_store(shared_folder: Path) -> ArtifactStore:
    """Exports and quantized models of this test session."""
    return ArtifactStore(shared_folder / "artifacts")


@pytest.fixture(scope="session")
def tiny_source() -> ModelSource:
    return ModelSource(TINY, TINY_FOLDER)


@pytest.fixture(scope="session")
def make_request(cpu: Device, session_store: ArtifactStore, tiny_source: ModelSource) -> MakeRequest:
    """A factory of load requests: the variant's id, and options as one would type them."""

    def make(
        variant: str | Variant = "fp32",
        source: ModelSource | None = None,
        progress: Progress | None = None,
        **options: str,
    ) -> LoadRequest:
        if isinstance(variant, str):
            (variant,) = select_variants(variant, CATALOGUE, "fp32")
        settings = parse_settings(options)
        return LoadRequest(variant, source or tiny_source, cpu, settings, session_store, progress or Progress())

    return make


@pytest.fixture(scope="session")
def preloaded() -> Iterator[None]:
    """The process that others are forked from imports what models need, which each would else do by itself."""
    engines = (module for name in ("torch", "bitsandbytes") for module in find_backend(name).imports)
    imports = (*MEASURING, *engines, *quarantine.IMPORTS, "llm_bench_fixtures.models.chat")
    ensure_server = launch._ensure_server
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_ensure_server", lambda modules=(): ensure_server((*modules, *imports)))
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # another test's, which imports less
        yield


@pytest.fixture(scope="session")
def tiny_fp32(make_request: MakeRequest) -> TransformersModel:
    return load_variant(make_request("fp32")).model


@pytest.fixture(scope="session")
def prompts(tiny_source: ModelSource) -> Prompts:
    return Prompts(tiny_source.load_tokenizer())


@pytest.fixture(scope="session")
def corpus_sample(prompts: Prompts) -> tuple[TokenIds, ...]:
    """Some 250 tokens of each of three texts of the embedded corpus."""
    return tuple(prompts.encode(text)[:250] for text in read_corpus(None).texts[:3])


@pytest.fixture(scope="session")
def score_sample(corpus_sample: tuple[TokenIds, ...]) -> Callable[[Model], Score]:
    windows = [piece for ids in corpus_sample for piece in strided_windows(ids, 256, 128)]
    return lambda model: score_windows(model, windows)


@pytest.fixture(scope="session")
def fp32_loss(tiny_fp32: TransformersModel, score_sample: Callable[[Model], Score]) -> float:
    return score_sample(tiny_fp32).loss


@pytest.fixture(scope="session")
def model_around(cpu: Device, tiny_source: ModelSource) -> Callable[[Any], TransformersModel]:
    """A TransformersModel whose module is the given object; with the embedded model's limits where that names none."""
    tokenizer = tiny_source.load_tokenizer()
    usual = tiny_source.load_config()

    def make(module: Any) -> TransformersModel:
        config = getattr(module, "config", usual)
        facts = source_facts(CATALOGUE[0], config, Precision.FLOAT32, label="fake", weight_bytes=0)
        facts = replace(facts, cache_kinds=frozenset(CacheKind))
        return TransformersModel(CATALOGUE[0], cpu, module, tokenizer, facts)

    return make
