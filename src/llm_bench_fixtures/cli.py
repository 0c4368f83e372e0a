"""`llm-bench`: what is done with saved runs, and what compares two versions of a project.

Each subcommand is a module of `commands` with a `HELP`, an `add_arguments` and a `run` that returns the exit status.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from llm_bench_fixtures.commands import export, history, trend
from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.printable import printable_lines

COMMANDS: Mapping[str, ModuleType] = {"history": history, "export": export, "trend": trend}

EXIT_USAGE = 4  # as pytest's
EXIT_INTERRUPTED = 128 + signal.SIGINT  # as a shell says it
EXIT_BROKEN_PIPE = 141  # as a shell says of SIGPIPE, which not every system has


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status. An error of ours is one message on stderr."""
    chosen = _parser().parse_args(arguments)
    try:
        status: int = chosen.run(chosen)
        sys.stdout.flush()
    except LlmBenchError as error:
        print(printable_lines(f"llm-bench {chosen.command}: {error}"), file=sys.stderr)  # noqa: T201  # a command line speaks
        return EXIT_USAGE
    except KeyboardInterrupt:
        print(f"llm-bench {chosen.command}: interrupted", file=sys.stderr)  # noqa: T201
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output has enough of it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its end
        return EXIT_BROKEN_PIPE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llm-bench", description=__doc__ and __doc__.split("\n")[0])
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser
