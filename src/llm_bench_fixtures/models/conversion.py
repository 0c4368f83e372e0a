"""What engines that make a form of their own of a model have in common: what its failure is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, first_line

OUT_OF_MEMORY = re.compile("alloc|out of memory", re.IGNORECASE)


@contextmanager
def unavailable_where_it_fails(what: str) -> Iterator[None]:
    """What the libraries can't do with an architecture is no fault of the run; a full disk or memory is.

    what: the failure in words, before its reason. Raises BackendUnavailable.
    """
    try:
        yield
    except (LlmBenchError, OSError, MemoryError):
        raise
    except Exception as error:  # exporters trace the model's own code, which raises anything
        if OUT_OF_MEMORY.search(str(error)):
            raise
        reason = first_line(error).partition(" Status Message:")[0]  # after it a path of the library's own source
        raise BackendUnavailable(f"{what}: {type(error).__name__}: {reason}") from error
