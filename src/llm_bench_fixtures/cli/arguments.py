"""The arguments that several subcommands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from llm_bench_fixtures.errors import InvalidSetting, StorageNotFound
from llm_bench_fixtures.history.storage import find_storage
from llm_bench_fixtures.options.parsers import Setting, parse_path
from llm_bench_fixtures.writing import check_writable

T = TypeVar("T")


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add --storage."""
    parser.add_argument(
        "--storage",
        metavar="DIR",
        help="folder of the saved runs. Default: .benchmarks here, or in the nearest folder above",
    )


def add_details(parser: argparse.ArgumentParser, json_help: str) -> None:
    """Add --verbose and --json."""
    parser.add_argument("-v", "--verbose", action="store_true", help="also show every value that moved")
    parser.add_argument("--json", type=checked(parse_path), metavar="FILE", help=json_help)


def storage_of(arguments: argparse.Namespace) -> Path | None:
    """The storage; None where there is none and none was named, since a run can be named by its file all the same.

    Raises StorageNotFound for a storage that was named, and InvalidSetting.
    """
    try:
        return find_storage(arguments.storage, working_folder())
    except StorageNotFound:
        if arguments.storage is not None:
            raise
        return None


def working_folder() -> Path:
    """Where the command was called. Raises InvalidSetting where that has been removed since."""
    try:
        return Path.cwd()
    except OSError as error:
        raise InvalidSetting("the working folder is gone: change to one that is there") from error


def check_files(*paths: Path | None) -> None:
    """Raise UnwritableFile for one that can't be written once the work is done."""
    for path in paths:
        if path is not None:
            check_writable(path)


def add_option(
    parser: argparse.ArgumentParser, flag: str, setting: Setting[T], help_text: str = "", *, has_default: bool = True
) -> None:
    """Add an option of the pytest plugin under a shorter name, with the same parser, and its help if none is given.

    has_default: whether what isn't given has the option's default; else it is None."""
    option = setting.option
    parser.add_argument(
        flag,
        type=checked(setting.parse),
        default=option.default if has_default else None,
        metavar=option.metavar,
        help=(help_text or option.full_help).replace("%", "%%"),
    )


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The parser for argparse, which only shows the messages of its own class of errors."""

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except InvalidSetting as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument
