"""What an engine gives to be a backend, what it is asked for, and which libraries are installed."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting

if TYPE_CHECKING:
    import re
    from pathlib import Path

    from llm_bench_fixtures.models.artifacts import ArtifactStore
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.options.parsers import Setting
    from llm_bench_fixtures.options.settings import Settings
    from llm_bench_fixtures.progress import Progress

MEASURING = ("llm-bench-fixtures", "pytest", "pytest-benchmark")
"""Libraries that measure, and run no model."""


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Version by distribution name, of those that are installed."""
    versions = {name: _installed_version(name) for name in names}
    return {name: version for name, version in versions.items() if version is not None}


@functools.cache
def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


class Chosen(Enum):
    """When a backend's variants run without being named by --llm-variants."""

    ALWAYS = auto()
    """Where its modules are missing, they are skipped rows that say what to install."""

    INSTALLED = auto()
    """Where its modules are there."""

    NAMED = auto()
    """Never: they take more time than one may spend unasked."""


def first_missing(modules: Iterable[str]) -> str | None:
    """The first that isn't installed; a parent has to stand before its submodules."""
    return next((name for name in modules if importlib.util.find_spec(name) is None), None)


@contextmanager
def unavailable_where(reason: Callable[[Exception], str]) -> Iterator[None]:
    """Raise BackendUnavailable for what fails inside the block, where that is no fault of the run.

    reason: says why the variant can't run here; empty for an error that is to be raised as it is.
    """
    try:
        yield
    except Exception as error:  # libraries' errors have no narrower base
        if why := reason(error):
            raise BackendUnavailable(why) from error
        raise


@dataclass(frozen=True)
class LoadRequest:
    """Everything that a backend needs to load one variant."""

    variant: Variant
    source: ModelSource
    """The model of --llm-model: its folder holds weights, config and tokenizer."""

    device: Device
    """Device that it is to run on."""

    settings: Settings
    """All options; `settings.of(option)` for a backend's own."""

    store: ArtifactStore
    """Where what takes long to make is kept from run to run."""

    progress: Progress
    """Shows what takes long, and tells its time from the load's."""

    offload: Path | None = None
    """A folder for weights that are read for each use, which is removed after the model; None where none are."""


@dataclass(frozen=True)
class Storage:
    """How an engine stores a model, in bytes for each weight, or number."""

    matrices: float
    """Bytes per weight between the embedding and the output layer, with their scales."""

    tables: float
    """Bytes per weight of the embedding, the output layer and the table of positions."""

    output: float | None = None
    """Bytes per weight of an output layer that isn't tied to the embedding, where that differs."""

    output_copy: float = 0.0
    """Bytes per weight of an output layer that is tied to the embedding, where the engine's files hold it
    separately."""

    made_output: float = 0.0
    """Bytes per weight of a tied output layer that a load makes, as the files have one table."""

    numbers: int = 4
    """Bytes of a number that is computed or cached, and of a weight that isn't quantized: in norms and biases. Default:
    float32's."""

    is_text_only: bool = False
    """Whether it leaves out what a text doesn't need."""

    packs: bool = False
    """Whether it leaves matrices as they are that can't be packed."""

    takes_stacks: bool = True
    """Whether it quantizes matrices that lie in stacks."""

    is_known: bool = False
    """Whether its passes keep and take what those of transformers on torch do, but for the next three; else no largest
    workload can be told."""

    has_windows: bool = True
    """Whether its cache drops what lies before a layer's sliding window."""

    cache_copies: int = 1
    """Copies of the cache, while a step makes the next."""

    scores: int = 0
    """Copies of a layer's attention scores, where they are computed in full."""

    maps: str = ""
    """The dtype of safetensors files that are mapped in place of copied, as `torch` names it. Empty: of none."""

    has_all_logits: bool = False
    """Whether a prefill makes the logits of every position, and not of the last one alone."""

    loading: float = 0.0
    """Bytes per weight that a load takes for a moment, besides what it leaves."""

    making: float = 0.0
    """Bytes per weight, a tied output layer counted separately, that a process takes at most that makes what is then
    loaded, once. 0: nothing is made."""


UNKNOWN = Storage(6.0, 6.0)
"""Storage of an engine that says nothing: float32, with half as much again."""


@dataclass(frozen=True)
class Backend:
    """An engine that runs models. Its module has it as `BACKEND`, and imports nothing heavy when it is imported."""

    load: Callable[[LoadRequest], Model]
    """Loads `request.variant`. What it raises is an error of the variant; BackendUnavailable skips it."""

    check: Callable[[Variant, Device], None] = lambda *_: None
    """Raises BackendUnavailable, with what to do, where the variant can't run on this machine, and InvalidSetting where
    it asks for what the backend doesn't know. It looks and doesn't try; what `modules` names is there, the device is
    one of `devices`. Default: every variant runs everywhere."""

    prepare: Callable[[LoadRequest], None] = lambda _: None
    """Imports what loading and running need besides `imports`, so that neither the load's time nor its memory holds
    that."""

    storage: Callable[[Variant, Device], Storage] = lambda *_: UNKNOWN
    """How it holds a variant's weights, by which it is planned how many variants fit in memory together. May raise
    BackendUnavailable as `check` does. Default: six bytes for each weight."""

    devices: tuple[str, ...] = ()
    """Kinds of device that it runs on: "cpu", "cuda", "mps". Empty: every kind."""

    modules: tuple[str, ...] = ()
    """Modules that have to be installed, a parent before its submodules; else its variants are skipped."""

    imports: tuple[str, ...] = ()
    """Modules that take long to import. They are imported before `prepare`, or already before a process is forked."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the engine reads when it is first imported. What the user has set stays."""

    extra: str = ""
    """The extra of this package that installs them. Empty: the message names the modules themselves."""

    extra_note: str = ""
    """Further effect of installing that extra, if it is no small thing."""

    variants: tuple[Variant, ...] = ()
    """Variants for the catalogue, with every quantization that the engine knows. A project's own backend gives its
    variants by `pytest_llm_bench_variants` instead."""

    variants_of: Callable[[Settings], tuple[Variant, ...]] = lambda _: ()
    """Further variants of its, which options name. For the package's own backends only, as `variants` are."""

    takes_requests: bool = False
    """Whether its models are `TakesRequests`: the tests of load run on their variants only."""

    is_served: bool = False
    """Whether another program has its models loaded, a server: they take none of this one's memory."""

    chosen: Chosen = Chosen.ALWAYS
    """When its part of the catalogue runs without being named. A project's own variants always do."""

    takes_attention: bool = True
    """Whether `--llm-attention` and a variant's `attention` choose among transformers' implementations for it. Else the
    option is passed over with a note, and such a variant refused."""

    takes_device_map: bool = False
    """Whether `--llm-device-map` spreads its models. Else its variants are skipped where that is given."""

    threads_setting: str = "torch.set_num_threads"
    """Call that sets its number of threads in a program of one's own; here all have torch's. Empty: it can't be set."""

    takes_quantized: bool = False
    """Whether it runs a `--llm-model` whose weights are quantized already. Else its variants are skipped there."""

    libraries: tuple[str, ...] = ()
    """Distributions whose versions decide what runs: they stand in each run's results and in its fingerprint."""

    loggers: tuple[str, ...] = ()
    """Loggers that are silenced below ERROR while the engine works."""

    failed_allocation: re.Pattern[str] | None = None
    """Matches what the engine's own errors say where memory runs out; its first group is the size asked for, where the
    text tells it. What torch, numpy and Python say is known without it."""

    options: tuple[Setting[Any], ...] = ()
    """Command-line options' meanings; the options are rows of options/table.py. For the package's own backends only, as
    options are read before any project's hook. A project's own backend that has some is refused."""

    def storage_of(self, variant: Variant, device: Device) -> Storage:
        """Storage as the backend says, UNKNOWN where it fails: a plan costs no run. Raises BackendUnavailable."""
        try:
            return self.storage(variant, device)
        except BackendUnavailable:
            raise
        except Exception:  # a project's own backend fails, or loading will refuse the quantization
            return UNKNOWN

    def check_variant(self, variant: Variant, device: Device) -> None:
        """Raise InvalidSetting for a quantization that it doesn't know, BackendUnavailable for a device that it doesn't
        run on or threads that it can't set, and what `check` raises."""
        known = tuple(dict.fromkeys(one.quantization for one in self.variants))
        if known and variant.quantization not in known:
            names = ", ".join(filter(None, known)) or "none"
            if variant.quantization is None:
                raise InvalidSetting(f"{variant.backend} runs quantized variants only; known quantizations: {names}")
            raise InvalidSetting(f"{variant.backend} knows no quantization '{variant.quantization}'; known: {names}")
        if self.devices and device.kind not in self.devices:
            names = " and ".join(map(str.upper, self.devices))
            raise BackendUnavailable(
                f"{variant.backend} runs on {names} only; choose it with --llm-device {self.devices[0]}"
            )
        sets_threads = variant.threads is not None or variant.is_passive
        if sets_threads and not (self.threads_setting and device.kind == "cpu"):
            whose = "the accelerator, not threads, does the work" if self.threads_setting else "the server sets them"
            raise BackendUnavailable(f"{variant.backend} has no threads to set: {whose}")
        self.check(variant, device)
