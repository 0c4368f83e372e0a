"""The arguments that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llm_bench_fixtures.cli.console import counted
from llm_bench_fixtures.errors import InvalidSetting, StorageNotFound
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.rules import Rules, check_targets
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import SavedAt
from llm_bench_fixtures.history.storage import RunFolder, Storage, find_storage, select_run
from llm_bench_fixtures.options.parsers import Setting, parse_history, parse_path
from llm_bench_fixtures.results.metrics import registry

HISTORY = Setting("history", parse_history)
REPORT = Setting("report", parse_path)
STORAGE_HELP = "folder of the saved runs. Default: .benchmarks here, or in the nearest folder above"


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add --storage and --history."""
    where = parser.add_mutually_exclusive_group()
    add_option(where, "--history", HISTORY, "database of saved runs, as --llm-history names it")
    where.add_argument("--storage", metavar="DIR", help=STORAGE_HELP)


def add_details(parser: argparse.ArgumentParser, json_help: str) -> None:
    """Add --verbose and --json."""
    parser.add_argument("-v", "--verbose", action="store_true", help="also show every value that moved")
    parser.add_argument("--json", type=parse_path, metavar="FILE", help=json_help)


def add_results(parser: argparse.ArgumentParser, json_help: str, summary_help: str = "") -> None:
    """Add where runs are, and how what is said of them is shown. summary_help: that of the plugin if none is given."""
    add_option(parser, "--summary", options.SUMMARY, summary_help)
    add_details(parser, json_help)
    add_storage(parser)


def add_output(
    parser: argparse.ArgumentParser,
    help_text: str = "folder for the report. Default: %(default)s",
    metavar: str = "DIR",
    default: str | None = REPORT.option.default,
) -> None:
    """Add --output. default: as it would be typed; None where there is none."""
    parser.add_argument("-o", "--output", type=parse_path, default=default, metavar=metavar, help=help_text)


def storage_in(arguments: argparse.Namespace) -> Storage:
    """The database of --history, else the folder of --storage or the nearest one. Raises StorageNotFound and
    InvalidSetting."""
    if arguments.history:
        return Database(arguments.history)
    return RunFolder(find_storage(arguments.storage, working_folder()), lambda files: counted(files, "reading"))


def storage_of(arguments: argparse.Namespace) -> Storage | None:
    """The storage; None where there is none and none was named, since a run can be named by its file all the same.

    Raises StorageNotFound for a storage that was named, and InvalidSetting.
    """
    try:
        return storage_in(arguments)
    except StorageNotFound:
        if arguments.storage is not None or arguments.history:
            raise
        return None


def select_in(storage: Storage | None, text: str, other_than: SavedAt | None = None) -> SavedAt:
    """The run that is named, in the storage or by its file. Raises as select_run does."""
    return storage.select(text, other_than) if storage else select_run(None, text)


def rules_in(arguments: argparse.Namespace) -> Rules:
    """The rules of --rules. Raises UnknownName for one on an unknown metric."""
    check_targets([rule.target for rule in arguments.rules], registry())
    return Rules(arguments.rules)


def working_folder() -> Path:
    """Where the command was called. Raises InvalidSetting where that has been removed since."""
    try:
        return Path.cwd()
    except OSError as error:
        raise InvalidSetting("the working folder is gone: change to one that is there") from error


def add_option(parser: argparse._ActionsContainer, flag: str, setting: Setting[Any], help_text: str = "") -> None:
    """Add an option of the pytest plugin under a shorter name, with the same parser, and its help if none is given."""
    option = setting.option
    shown = (help_text or option.full_help).replace("%", "%%")
    parser.add_argument(flag, type=setting.parse, default=option.default, metavar=option.metavar, help=shown)
