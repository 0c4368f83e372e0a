"""Models, and the embedded one, loaded on the CPU for the scripts beside this file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.device import resolve_device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Variant, select_variants
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress


def request_of(variant: Variant, source: ModelSource, store: ArtifactStore) -> LoadRequest:
    """A request to load the variant on the CPU, as without any option."""
    return LoadRequest(variant, source, resolve_device("cpu"), parse_settings({}), store, Progress())


def load_embedded(variant: str = "fp32") -> TransformersModel:
    """The model on the CPU. What it has to be exported or quantized to is made anew and not kept."""
    (chosen,) = select_variants(variant, CATALOGUE, variant)
    with tempfile.TemporaryDirectory() as folder, quiet_libraries():
        return load_variant(request_of(chosen, ModelSource(TINY, TINY_FOLDER), ArtifactStore(Path(folder)))).model
