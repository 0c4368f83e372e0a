"""Run the ready suite, work on saved runs, and compare two versions of a project. Each command has its own --help.

Each command is a module of this package with a `HELP`, an `add_arguments` and a `run` that returns the exit status,
or None for 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from llm_bench_fixtures.cli import (
    aa,
    bless,
    cache,
    compare,
    export,
    gate,
    history,
    merge,
    pair,
    report,
    run,
    sweep,
    trend,
)
from llm_bench_fixtures.cli.console import printing, warn
from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.version import __version__

MODULES = (run, report, merge, compare, gate, bless, history, export, trend, sweep, pair, aa, cache)
COMMANDS: Mapping[str, ModuleType] = {module.__name__.rpartition(".")[2]: module for module in MODULES}

EXIT_BROKEN_PIPE = 141  # as a shell says of SIGPIPE, which not every system has

RAW = argparse.RawDescriptionHelpFormatter

PASSES_ON = ("run", "pair", "aa")  # to pytest, what follows "--"


class _Parser(argparse.ArgumentParser):
    """Ends with exit status 4 for arguments that can't be used, as pytest does; argparse's own 2 says interrupted."""

    def error(self, message: str) -> NoReturn:
        warn(f"{self.format_usage()}{self.prog}: error: {message}")
        self.exit(ExitStatus.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. An error of ours becomes one message on stderr."""
    with printing():
        own, passed_on = _split(sys.argv[1:] if arguments is None else arguments)
        parser = _parser()
        if not own:
            warn(parser.format_help())
            return ExitStatus.USAGE
        chosen, unknown = parser.parse_known_args(own, argparse.Namespace(passed_on=passed_on))
        if unknown:
            hint = "; what is pytest's goes behind --" if chosen.command in PASSES_ON else ""
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    try:
        status: int = COMMANDS[chosen.command].run(chosen) or ExitStatus.PASSED
    except LlmBenchError as error:
        warn(f"llm-bench {chosen.command}: {error}")
        return ExitStatus.USAGE
    except KeyboardInterrupt:
        warn(f"llm-bench {chosen.command}: interrupted")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:  # whoever read our data has enough of it, as `head` does
        return EXIT_BROKEN_PIPE
    return status


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command's own arguments, and those behind `--` for a command that passes them on to pytest.

    argparse would take the latter for positional arguments.
    """
    if arguments and arguments[0] in PASSES_ON and "--" in arguments:
        at = list(arguments).index("--")
        return list(arguments[:at]), list(arguments[at + 1 :])
    return list(arguments), []


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="llm-bench", description=__doc__ and __doc__.split("\n")[0])
    parser.add_argument("--version", action="version", version=f"llm-bench {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=module.HELP, description=module.__doc__, formatter_class=RAW)
        module.add_arguments(subparser)
    return parser
