"""What engines that make a form of their own of a model have in common: its key, and its failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, reason_of
from llm_bench_fixtures.models.trial import TRIAL_VERSION
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from pathlib import Path

    from llm_bench_fixtures.models.artifacts import KeyValue
    from llm_bench_fixtures.models.loading import LoadRequest

OUT_OF_ROOM = re.compile("alloc|out of memory|no space left|quota exceeded", re.IGNORECASE)
OF_THE_INSTALLATION = re.compile(
    "read-only file system|too many open files|cannot open shared object"
    "|NO_SUCHFILE|INVALID_PROTOBUF",  # ONNX Runtime's, of missing or torn files
    re.IGNORECASE,
)


def key_of(
    request: LoadRequest, libraries: Iterable[str], facts: Iterable[str], given: Path | None = None
) -> dict[str, KeyValue]:
    """What every artifact of an engine depends on: the weights, the libraries that convert, and the trial it passed.

    facts: names of what is counted and kept beside it, so that one that lacks some is made again.
    given: the file that stands for the source's own.
    """
    from llm_bench_fixtures.models.artifacts import file_digest
    from llm_bench_fixtures.models.versions import installed_versions

    with request.progress.activity(Phase.CHECKING, f"reading the weights of {request.source.name}"):
        digest = request.source.digest if given is None else file_digest(given)
    return {"model": digest, "holds": ", ".join(facts), "trial": TRIAL_VERSION, **installed_versions(libraries)}


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
