"""A pytest plugin and a ready benchmark suite for language-model text generation.

Here stand the package's public names. Import them from here and from nowhere else: where a name is defined may change.
Each is imported once it is asked for, because the plugin is loaded by pytest runs that never do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.version import __version__ as __version__

if TYPE_CHECKING:
    from llm_bench_fixtures.errors import BackendUnavailable as BackendUnavailable
    from llm_bench_fixtures.errors import EndpointFailed as EndpointFailed
    from llm_bench_fixtures.errors import LlmBenchError as LlmBenchError
    from llm_bench_fixtures.errors import UnreadableResults as UnreadableResults
    from llm_bench_fixtures.errors import WorkloadUnsupported as WorkloadUnsupported
    from llm_bench_fixtures.measure.equivalence import Equivalence as Equivalence
    from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict as EquivalenceVerdict
    from llm_bench_fixtures.measure.equivalence import ExecutionMode as ExecutionMode
    from llm_bench_fixtures.measure.open_loop import Request as Request
    from llm_bench_fixtures.measure.quality import CorpusScore as CorpusScore
    from llm_bench_fixtures.measure.work import Work as Work
    from llm_bench_fixtures.models.artifacts import ArtifactStore as ArtifactStore
    from llm_bench_fixtures.models.backend import Backend as Backend
    from llm_bench_fixtures.models.backend import Chosen as Chosen
    from llm_bench_fixtures.models.backend import LoadRequest as LoadRequest
    from llm_bench_fixtures.models.backend import Storage as Storage
    from llm_bench_fixtures.models.backends.torch import load_source_model as load_source_model
    from llm_bench_fixtures.models.device import Device as Device
    from llm_bench_fixtures.models.device import DeviceKind as DeviceKind
    from llm_bench_fixtures.models.handle import ModelHandle as ModelHandle
    from llm_bench_fixtures.models.model import Model as Model
    from llm_bench_fixtures.models.model import ModelFacts as ModelFacts
    from llm_bench_fixtures.models.model import Reply as Reply
    from llm_bench_fixtures.models.model import ScoresTokens as ScoresTokens
    from llm_bench_fixtures.models.model import ShowsLogits as ShowsLogits
    from llm_bench_fixtures.models.model import TakesRequests as TakesRequests
    from llm_bench_fixtures.models.source import ModelSource as ModelSource
    from llm_bench_fixtures.models.transformers import TransformersModel as TransformersModel
    from llm_bench_fixtures.models.variants import TOLERANCES as TOLERANCES
    from llm_bench_fixtures.models.variants import Arithmetic as Arithmetic
    from llm_bench_fixtures.models.variants import Precision as Precision
    from llm_bench_fixtures.models.variants import Variant as Variant
    from llm_bench_fixtures.options.parsers import Setting as Setting
    from llm_bench_fixtures.options.settings import Settings as Settings
    from llm_bench_fixtures.plugin.benchmark import LlmBenchmark as LlmBenchmark
    from llm_bench_fixtures.plugin.checks import LlmEquivalence as LlmEquivalence
    from llm_bench_fixtures.plugin.checks import LlmLoad as LlmLoad
    from llm_bench_fixtures.plugin.checks import LlmOverhead as LlmOverhead
    from llm_bench_fixtures.progress import Phase as Phase
    from llm_bench_fixtures.progress import Progress as Progress
    from llm_bench_fixtures.results.load import LoadPoint as LoadPoint
    from llm_bench_fixtures.results.measured_record import MeasuredRecord as MeasuredRecord
    from llm_bench_fixtures.results.metrics import Direction as Direction
    from llm_bench_fixtures.results.metrics import Force as Force
    from llm_bench_fixtures.results.metrics import Kind as Kind
    from llm_bench_fixtures.results.metrics import Metric as Metric
    from llm_bench_fixtures.results.metrics import ReportTable as ReportTable
    from llm_bench_fixtures.results.metrics import Tolerance as Tolerance
    from llm_bench_fixtures.results.metrics import Unit as Unit
    from llm_bench_fixtures.results.provenance import Provenance as Provenance
    from llm_bench_fixtures.results.record import MemoryFacts as MemoryFacts
    from llm_bench_fixtures.results.record import Record as Record
    from llm_bench_fixtures.results.record import Run as Run
    from llm_bench_fixtures.results.record import Scenario as Scenario
    from llm_bench_fixtures.results.record import Status as Status
    from llm_bench_fixtures.results.record import VariantResult as VariantResult
    from llm_bench_fixtures.results.record import WorkloadFacts as WorkloadFacts
    from llm_bench_fixtures.results.storage import read_results as read_results
    from llm_bench_fixtures.results.storage import read_run as read_run
    from llm_bench_fixtures.session.own import OwnWork as OwnWork
    from llm_bench_fixtures.workloads import EDGE_PROMPTS as EDGE_PROMPTS
    from llm_bench_fixtures.workloads import STANDARD_PROMPTS as STANDARD_PROMPTS
    from llm_bench_fixtures.workloads import CacheKind as CacheKind
    from llm_bench_fixtures.workloads import Corpus as Corpus
    from llm_bench_fixtures.workloads import Padding as Padding
    from llm_bench_fixtures.workloads import Prompts as Prompts
    from llm_bench_fixtures.workloads import Side as Side
    from llm_bench_fixtures.workloads import TokenIds as TokenIds
    from llm_bench_fixtures.workloads import Tokenizer as Tokenizer
    from llm_bench_fixtures.workloads import Workload as Workload

_HOMES = {
    "errors": ("BackendUnavailable", "EndpointFailed", "LlmBenchError", "UnreadableResults", "WorkloadUnsupported"),
    "measure.equivalence": ("Equivalence", "EquivalenceVerdict", "ExecutionMode"),
    "measure.open_loop": ("Request",),
    "measure.quality": ("CorpusScore",),
    "measure.work": ("Work",),
    "models.artifacts": ("ArtifactStore",),
    "models.backend": ("Backend", "Chosen", "LoadRequest", "Storage"),
    "models.backends.torch": ("load_source_model",),
    "models.device": ("Device", "DeviceKind"),
    "models.handle": ("ModelHandle",),
    "models.model": ("Model", "ModelFacts", "Reply", "ScoresTokens", "ShowsLogits", "TakesRequests"),
    "models.source": ("ModelSource",),
    "models.transformers": ("TransformersModel",),
    "models.variants": ("TOLERANCES", "Arithmetic", "Precision", "Variant"),
    "options.parsers": ("Setting",),
    "options.settings": ("Settings",),
    "plugin.benchmark": ("LlmBenchmark",),
    "plugin.checks": ("LlmEquivalence", "LlmLoad", "LlmOverhead"),
    "progress": ("Phase", "Progress"),
    "results.load": ("LoadPoint",),
    "results.measured_record": ("MeasuredRecord",),
    "results.metrics": ("Direction", "Force", "Kind", "Metric", "ReportTable", "Tolerance", "Unit"),
    "results.provenance": ("Provenance",),
    "results.record": ("MemoryFacts", "Record", "Run", "Scenario", "Status", "VariantResult", "WorkloadFacts"),
    "results.storage": ("read_results", "read_run"),
    "session.own": ("OwnWork",),
    "workloads": (
        *("EDGE_PROMPTS", "STANDARD_PROMPTS", "CacheKind", "Corpus", "Padding"),
        *("Prompts", "Side", "TokenIds", "Tokenizer", "Workload"),
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """A public name from its home."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
