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
    from llm_bench_fixtures.errors import LlmBenchError as LlmBenchError
    from llm_bench_fixtures.errors import UnreadableResults as UnreadableResults
    from llm_bench_fixtures.errors import WorkloadUnsupported as WorkloadUnsupported
    from llm_bench_fixtures.measure.equivalence import ExecutionMode as ExecutionMode
    from llm_bench_fixtures.measure.quality import CorpusScore as CorpusScore
    from llm_bench_fixtures.models.backend import Backend as Backend
    from llm_bench_fixtures.models.backends.torch import load_source_model as load_source_model
    from llm_bench_fixtures.models.handle import ModelHandle as ModelHandle
    from llm_bench_fixtures.models.loading import LoadRequest as LoadRequest
    from llm_bench_fixtures.models.model import Model as Model
    from llm_bench_fixtures.models.model import ModelFacts as ModelFacts
    from llm_bench_fixtures.models.transformers import TransformersModel as TransformersModel
    from llm_bench_fixtures.models.variants import Precision as Precision
    from llm_bench_fixtures.models.variants import Variant as Variant
    from llm_bench_fixtures.progress import Phase as Phase
    from llm_bench_fixtures.results.metrics import Direction as Direction
    from llm_bench_fixtures.results.metrics import Force as Force
    from llm_bench_fixtures.results.metrics import Kind as Kind
    from llm_bench_fixtures.results.metrics import Metric as Metric
    from llm_bench_fixtures.results.metrics import ReportTable as ReportTable
    from llm_bench_fixtures.results.metrics import Tolerance as Tolerance
    from llm_bench_fixtures.results.metrics import Unit as Unit
    from llm_bench_fixtures.results.record import Provenance as Provenance
    from llm_bench_fixtures.results.record import Record as Record
    from llm_bench_fixtures.results.record import Run as Run
    from llm_bench_fixtures.results.record import Scenario as Scenario
    from llm_bench_fixtures.results.record import Status as Status
    from llm_bench_fixtures.results.record import VariantResult as VariantResult
    from llm_bench_fixtures.results.storage import read_results as read_results
    from llm_bench_fixtures.results.storage import read_run as read_run
    from llm_bench_fixtures.workloads import EDGE_PROMPTS as EDGE_PROMPTS
    from llm_bench_fixtures.workloads import STANDARD_PROMPTS as STANDARD_PROMPTS
    from llm_bench_fixtures.workloads import CacheKind as CacheKind
    from llm_bench_fixtures.workloads import Padding as Padding
    from llm_bench_fixtures.workloads import Side as Side
    from llm_bench_fixtures.workloads import Workload as Workload

_HOMES = {
    "errors": ("BackendUnavailable", "LlmBenchError", "UnreadableResults", "WorkloadUnsupported"),
    "measure.equivalence": ("ExecutionMode",),
    "measure.quality": ("CorpusScore",),
    "models.backend": ("Backend",),
    "models.backends.torch": ("load_source_model",),
    "models.handle": ("ModelHandle",),
    "models.loading": ("LoadRequest",),
    "models.model": (
        "Model",
        "ModelFacts",
    ),
    "models.transformers": ("TransformersModel",),
    "models.variants": ("Precision", "Variant"),
    "progress": ("Phase",),
    "results.metrics": ("Direction", "Force", "Kind", "Metric", "ReportTable", "Tolerance", "Unit"),
    "results.record": ("Provenance", "Record", "Run", "Scenario", "Status", "VariantResult"),
    "results.storage": ("read_results", "read_run"),
    "workloads": ("EDGE_PROMPTS", "STANDARD_PROMPTS", "CacheKind", "Padding", "Side", "Workload"),
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
