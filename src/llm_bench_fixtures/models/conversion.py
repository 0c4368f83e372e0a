"""What engines that make a form of their own of a model have in common: its key, its failures, and its facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, reason_of
from llm_bench_fixtures.models.arithmetic import tolerance_of
from llm_bench_fixtures.models.artifacts import file_digest, made_s_of
from llm_bench_fixtures.models.device import ResolvedPrecision
from llm_bench_fixtures.models.experts import told_of_reading
from llm_bench_fixtures.models.transformers import source_facts
from llm_bench_fixtures.models.trial import TRIAL_VERSION, uncompared
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.models.versions import installed_versions
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from pathlib import Path

    from llm_bench_fixtures.models.artifacts import Artifact, KeyValue
    from llm_bench_fixtures.models.loading import LoadRequest
    from llm_bench_fixtures.models.model import ModelFacts

COUNTS_FILE = "facts.json"  # beside what was converted, so that no load has to count it
OUT_OF_ROOM = re.compile("alloc|out of memory|no space left|quota exceeded", re.IGNORECASE)
OF_THE_INSTALLATION = re.compile(
    "read-only file system|too many open files|cannot open shared object"
    "|NO_SUCHFILE|INVALID_PROTOBUF",  # ONNX Runtime's, of missing or torn files
    re.IGNORECASE,
)


def key_of(
    request: LoadRequest, libraries: Iterable[str], counts: Iterable[str], given: Path | None = None
) -> dict[str, KeyValue]:
    """What every artifact of an engine depends on: the weights, the libraries that convert, and the trial it passed.

    counts: names of what is counted and kept beside it, so that one that lacks some is made again.
    given: the file that stands for the source's own.
    """
    with request.progress.activity(Phase.CHECKING, f"reading the weights of {request.source.name}"):
        digest = request.source.digest if given is None else file_digest(given)
    return {"model": digest, "holds": ", ".join(counts), "trial": TRIAL_VERSION, **installed_versions(libraries)}


def write_counts(folder: Path, counts: Mapping[str, object]) -> None:
    """Keep what was counted of the model in the folder."""
    (folder / COUNTS_FILE).write_text(json.dumps(counts))


def read_counts(folder: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((folder / COUNTS_FILE).read_text())
    return counts


def converted_facts(
    request: LoadRequest, made: Sequence[Artifact], before_bytes: int, *, label: str, weight_bytes: int
) -> ModelFacts:
    """Facts of the source in an engine's own form: in float32, or quantized and multiplied in int8.

    made: what was made for it, what runs last. before_bytes: resident memory once that was made.
    """
    config, counts = request.source.load_config(), read_counts(made[-1].folder)
    is_quantized = request.variant.quantization is not None
    compute = None if is_quantized else Precision.FLOAT32
    plain = ResolvedPrecision(Precision.FLOAT32, Precision.FLOAT32)
    return replace(
        source_facts(request.variant, config, plain, label=label, weight_bytes=weight_bytes),
        weight_bytes_read=told_of_reading(config, counts["weight_bytes_read"]),
        quantized_share=counts["quantized_share"] if is_quantized else None,
        compute=compute,
        tolerance=tolerance_of(compute),
        notes=(*dict.fromkeys(artifact.note for artifact in made), *uncompared(config)),
        conversion_s=made_s_of(*made),
        resident_before_load_bytes=before_bytes,
    )


@contextmanager
def unavailable_where_it_fails(what: str) -> Iterator[None]:
    """What the libraries can't do with an architecture is no fault of the run; a broken installation, a full disk or
    memory is.

    what: the failure in words, before its reason. Raises BackendUnavailable.
    """
    try:
        yield
    except LlmBenchError:
        raise
    except Exception as error:  # exporters trace the model's own code, which raises anything
        if tells_of_the_machine(error):
            raise
        reason = reason_of(error).partition(" Status Message:")[0]  # after it a path of the library's own source
        raise BackendUnavailable(f"{what}: {reason}") from error


def tells_of_the_machine(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, is of the installation, the disk or the memory.

    Such a one says nothing of the architecture.
    """
    lacks_a_name = isinstance(error, AttributeError) and isinstance(error.obj, ModuleType)
    is_kind = isinstance(error, (ImportError, OSError, MemoryError)) or lacks_a_name
    if is_kind or any(what.search(str(error)) for what in (OUT_OF_ROOM, OF_THE_INSTALLATION)):
        return True
    return error.__cause__ is not None and tells_of_the_machine(error.__cause__)
