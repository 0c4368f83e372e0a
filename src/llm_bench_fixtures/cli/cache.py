"""List the exported models, quantized models and dummy weights that are kept for later runs, the longest unused first.

llm-bench cache
llm-bench cache --prune --older-than 30
llm-bench cache --prune --cache-dir .llm-cache

Removing them is safe: the next run that needs one makes it again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_bench_fixtures.cli.console import say
from llm_bench_fixtures.errors import InvalidSetting, UnwritableFile
from llm_bench_fixtures.models.artifacts import CachedArtifact, default_root, discard, kept_in
from llm_bench_fixtures.options.parsers import integer_of_at_least, parse_path
from llm_bench_fixtures.reading import refusal
from llm_bench_fixtures.report.renderers.terminal import columns
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import count, format_bytes

HELP = "list or remove the exported and quantized models kept on disk"
OLDER_THAN_HELP = "only what was not used for this many days. Default: 0, everything"
CACHE_DIR_HELP = "the folder, as given to pytest's --llm-cache-dir. Default: your user cache folder"
HEADER = ("what", "name", "size", "last used")
HOUR_S, DAY_S = 3600, 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prune", action="store_true", help="remove what is listed")
    parser.add_argument("--older-than", type=integer_of_at_least(0), default=0, metavar="DAYS", help=OLDER_THAN_HELP)
    parser.add_argument("--cache-dir", type=parse_path, metavar="DIR", help=CACHE_DIR_HELP)


def run(arguments: argparse.Namespace) -> None:
    root, now = arguments.cache_dir or default_root(), time.time()
    if why := refusal(root):
        raise InvalidSetting(f"the cache {root} {why}")
    kept = [one for one in kept_in(root) if max(now - one.used, 0) >= arguments.older_than * DAY_S]  # a clock set back
    say(_listed(kept, root, now))
    if arguments.prune:
        say([_pruned(kept, root)])


def _listed(kept: Sequence[CachedArtifact], root: Path, now: float) -> Iterator[str]:
    if kept:
        rows = tuple((_what(one), one.name, format_bytes(one.size_bytes), _age(now - one.used)) for one in kept)
        yield from columns(Table.of_texts(HEADER, rows, {2}))
        yield ""
    yield f"{count(len(kept), 'folder')}, {format_bytes(sum(one.size_bytes for one in kept))} in {root}"


def _what(one: CachedArtifact) -> str:
    return one.kind if one.is_whole else f"{one.kind}, unfinished"


def _age(seconds: float) -> str:
    """How long ago something was."""
    if seconds < HOUR_S:
        return "within the hour"
    if seconds < 2 * DAY_S:
        return f"{seconds / HOUR_S:.0f} h ago"
    return f"{seconds / DAY_S:.0f} days ago"


def _pruned(kept: Sequence[CachedArtifact], root: Path) -> str:
    """Remove them; returns what was done. Raises UnwritableFile."""
    try:
        removed = [one for one in kept if discard(one)]
    except OSError as error:
        raise UnwritableFile(f"{root} can't be pruned: {error}") from error
    busy = len(kept) - len(removed)
    text = f"removed {count(len(removed), 'folder')}, {format_bytes(sum(one.size_bytes for one in removed))}"
    return f"{text}; {busy} in use {'stays' if busy == 1 else 'stay'}" if busy else text
