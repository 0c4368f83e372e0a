"""What libraries read of a candidate is read in another process first, which may die of it.

A tokenizer that takes all memory ends the whole process, as libraries in Rust do, and what a config asks for may have
no end, whatever its numbers are called. So the config is loaded, the tokenizer used and the architecture built where
memory and time are bounded, and only then here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llm_bench_fixtures.errors import CandidateFailed, NoAnswer, WorkerDied
from llm_bench_fixtures.models.checks import Check, here
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY_FOLDER, ModelSource
from llm_bench_fixtures.processes.calls import Raised, Returned, outcome_of
from llm_bench_fixtures.processes.launch import start_function, start_importing
from llm_bench_fixtures.processes.memory import free_memory_bytes, limit_own_memory

if TYPE_CHECKING:
    from llm_bench_fixtures.models.architecture import Footprint
    from llm_bench_fixtures.processes.channels import Channel
    from llm_bench_fixtures.processes.worker import WorkerProcess

LONGEST_S = 180.0  # seconds of work: converting a tokenizer of 256,000 tokens takes a minute on a slow machine
LEAST_BYTES, MOST_BYTES = 2 * 10**9, 16 * 10**9  # bytes that it may take; a trillion weights' modules take 1 GB
FREE_SHARE = 0.5  # share of the free memory, between these
IMPORTS = ("llm_bench_fixtures.models.tryout", "transformers.modeling_utils", "transformers.models.auto.modeling_auto")

Examined: TypeAlias = "str | Raised | Returned"
"""The part that is read next, or the end."""


def examine(source: ModelSource, check: Check, *, in_process: bool) -> Footprint:
    """Result of the check, made in another process first unless there is no need: for what came with this package or
    was made by it, and for a model whose author's code may run anyway. Raises what it raises, or CandidateFailed.

    in_process: the user wants everything in this process, to debug it.
    """
    is_known = source.folder == TINY_FOLDER or source.random_weights or source.trust_remote_code
    if is_known or in_process:
        return here(source, check)
    start_importing(IMPORTS, on_cpu=True)  # once, and unless it imports more already; nothing is on an accelerator
    budget = memory_budget()
    process = start_function("the process that was to read it", _serve, (source, check, budget), on_cpu=True)
    try:
        return _outcome(process, budget)
    except BaseException:
        process.kill()
        raise
    finally:
        process.close()


def memory_budget() -> int:
    """Bytes that a process may take for what a stranger's files ask for."""
    return min(max(int(free_memory_bytes() * FREE_SHARE), LEAST_BYTES), MOST_BYTES)


def _outcome(process: WorkerProcess[None, Examined], budget_bytes: int) -> Footprint:
    said, part = process.receive(), "files"  # once it has imported all that it needs
    limit = process.limit(LONGEST_S)
    while isinstance(said, str):
        part = said
        try:
            said = process.receive_within(limit)
        except WorkerDied as died:
            most = f"{budget_bytes / 1e9:.1f} GB"
            raise CandidateFailed(f"the process that read its {part}, in at most {most}, {died.how}") from None
        except NoAnswer:
            raise CandidateFailed(f"to read its {part} takes more than {LONGEST_S:.0f} s") from None
    if isinstance(said, Raised):
        raise said.rebuilt()
    takes: Footprint = said.result
    return takes


def _serve(channel: Channel[Examined, None], source: ModelSource, check: Check, budget_bytes: int) -> None:
    """The process."""

    def read() -> Footprint:
        with quiet_libraries():
            limit_own_memory(budget_bytes)
            return check(source, channel.send)

    channel.send(outcome_of(read, CandidateFailed))
