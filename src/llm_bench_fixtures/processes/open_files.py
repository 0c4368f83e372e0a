"""How many files, connections among them, this process may have open at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def most_open_files() -> Iterator[None]:
    """As many as the system allows the process, where it has such a limit; afterwards as many as before."""
    try:
        import resource
    except ImportError:  # on Windows, which has none
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names a limit that it doesn't allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
