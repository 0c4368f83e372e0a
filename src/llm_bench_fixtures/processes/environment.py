"""What a process runs with: the environment variables of a worker (its threads, where they run, how its memory is
allocated, nothing imported from the working folder), and the limit of open files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress

from llm_bench_fixtures.processes.allocator import KEEPING_VARIABLES

WAIT_POLICY = "OMP_WAIT_POLICY"  # read by libraries as they are imported, so that a fork comes too late to set it


def worker_environment(threads: int, cores: tuple[int, ...]) -> Mapping[str, str]:
    """Variables that set the number of threads, let idle threads sleep, and bind several threads to the cores.

    A single thread isn't bound here: it loads models on any core, and `affinity.pin_thread` binds it for the rounds.
    """
    count = str(threads)
    variables = {**KEEPING_VARIABLES, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, WAIT_POLICY: "passive"}
    if threads > 1 and cores:
        variables |= {"OMP_PLACES": ",".join(f"{{{core}}}" for core in cores), "OMP_PROC_BIND": "true"}
    return variables


def off_the_working_folder() -> AbstractContextManager[None]:
    """Processes that are started within import nothing from the working folder, which may be a stranger's model's.

    Python looks there first in what it starts with `-c` or `-m`, as multiprocessing and cpuinfo do.
    """
    return setting("PYTHONSAFEPATH", "1")


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """The environment variable has the value within, and afterwards what it had."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def most_open_files() -> Iterator[None]:
    """Allow as many open files, connections among them, as the system lets this process have; afterwards as before."""
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
