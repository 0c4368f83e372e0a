"""`llm-bench`: what is done with saved runs, and what compares two versions of a project.

Each subcommand is a module of `commands` with a `HELP`, an `add_arguments` and a `run` that returns the exit status.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.printable import printable_lines

COMMANDS: Mapping[str, ModuleType] = {}

EXIT_USAGE = 4  # as pytest's


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status. An error of ours is one message on stderr."""
    chosen = _parser().parse_args(arguments)
    try:
        status: int = chosen.run(chosen)
    except LlmBenchError as error:
        print(printable_lines(f"llm-bench {chosen.command}: {error}"), file=sys.stderr)  # noqa: T201  # a command line speaks
        return EXIT_USAGE
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
