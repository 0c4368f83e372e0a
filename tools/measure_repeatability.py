"""How far apart two runs of the suite come out on this machine: quiet, and beside neighbours of several kinds.

    python tools/measure_repeatability.py collect FOLDER --runs N [--neighbour SEED [--kind KIND] [--alternate]]
        [--slow VARIANT:SHARE] [-- pytest arguments]
Runs `pytest benchmarks/` N times, one run after the other, and keeps their results in FOLDER/quiet-1, FOLDER/quiet-2
and so on; call it again to add more. With --neighbour a neighbour works beside each run, by another schedule for each:
one that comes and goes (neighbour.py), with results in FOLDER/noisy-1 and so on; with --kind hidden one that no counter
shows (hidden_neighbour.py), in FOLDER/hidden-1; with --kind uneven one that slows a core down (slow_core.py), in
FOLDER/uneven-1. With --alternate N quiet runs and N of the other kind take turns. With --slow a variant does so much
more work before each of its tokens (suite_injection.py). The runs share exported models: if --cache-dir does not exist,
a run that times nothing fills it first.

    python tools/measure_repeatability.py figures FOLDER [FOLDER ...] [--may-win VARIANTS] [--by KIND]
        [--gate [--rules RULES]] [--slower FOLDER ...]
Prints the figures as Markdown, in a column for the quiet runs of a folder and one for its noisy ones, with targets. The
speed-ups of runs that store none are the quotients of the median latencies. --may-win names the variants, separated by
commas, that may be the fastest, so that they have targets of their own. --by breaks the differences down: variant,
scenario or test; with "run" it tells for each run how far all speed-ups of each variant were off together. --gate
judges every run by every other one as `llm-bench gate` does, and counts the false alarms. --slower takes folders of
runs with --slow: it judges them by the others.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from neighbour import neighbour, scheduled_s
from repeatability_tables import (
    BREAKDOWNS,
    COLLECTED_FILE,
    HIDDEN,
    KINDS,
    NOISY,
    QUIET,
    UNEVEN,
    breakdown,
    gate_lines,
    main_table,
    notes,
    read_series,
    slower_lines,
)
from slow_core import slow_core
from suites import TOOLS, parsed, run_ready, with_tools

from llm_bench_fixtures.gate.options import RULES
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.report.renderers.markdown import markdown_table


@dataclass(frozen=True)
class Planned:
    """A run to be collected."""

    name: str
    """Name of its folder."""
    kind: str
    neighbour: str
    """The seed of the neighbour's schedule; empty for a quiet run."""


def plan(runs: int, seed: str, first: dict[str, int], *, alternate: bool, beside: str = NOISY) -> list[Planned]:
    """The runs in their order. first: the number of the first run of each kind. beside: the kind of the neighbour."""
    kinds = (QUIET, beside) if alternate else (beside if seed else QUIET,)
    names = [(kind, f"{kind}-{first[kind] + number}") for number in range(runs) for kind in kinds]
    return [Planned(name, kind, "" if kind == QUIET else f"{seed}/{name}") for kind, name in names]


def next_number(folder: Path, kind: str) -> int:
    """Number after that of the last run of the kind in the folder."""
    numbers = [int(found[1]) for path in folder.glob(f"{kind}-*") if (found := re.fullmatch(r".*-(\d+)", path.name))]
    return max(numbers, default=0) + 1


def collect(given: argparse.Namespace, arguments: Sequence[str]) -> None:
    if (given.alternate or given.kind != NOISY) and not given.neighbour:
        sys.exit("--alternate and --kind need --neighbour SEED")
    folder, cache = given.folder, given.cache_dir or given.folder / "cache"
    if any(json.loads(path.read_text()).get("slower", "") != given.slow for path in folder.glob(f"*/{COLLECTED_FILE}")):
        sys.exit(f"{folder} holds runs with another --slow: name another folder")
    if not cache.exists():
        wall_s = run_suite(folder / "preparation", cache, ["--benchmark-disable", *arguments])
        cache.mkdir(parents=True, exist_ok=True)  # where nothing was exported, there is none
        print(f"preparation: {wall_s:.0f} s", flush=True)
    first = {kind: next_number(folder, kind) for kind in KINDS}
    for planned in plan(given.runs, given.neighbour, first, alternate=given.alternate, beside=given.kind):
        print(
            f"{planned.name}: {collect_run(folder / planned.name, planned, cache, arguments, given.slow)}", flush=True
        )


def collect_run(report: Path, planned: Planned, cache: Path, arguments: Sequence[str], slow: str = "") -> str:
    """Run the suite, beside its neighbour if it has one; returns what it took in words.

    slow: VARIANT:SHARE, or empty.
    """
    seed = planned.neighbour
    is_busy = planned.kind == NOISY
    hidden_seed = seed if planned.kind == HIDDEN else ""
    uneven = slow_core(seed) if planned.kind == UNEVEN else nullcontext()
    with uneven, neighbour(seed) if is_busy else nullcontext() as beside:
        wall_s = run_suite(report, cache, arguments, hidden_seed, slow)
        cpu_s = beside.cpu_s() if beside else 0.0
    scheduled = scheduled_s(seed, wall_s) if is_busy else 0.0
    collected = {
        "wall_s": wall_s,
        "arguments": list(arguments),
        "slower": slow,
        "neighbour": {"seed": seed, "cpu_s": cpu_s, "scheduled_s": scheduled} if seed else None,
    }
    (report / COLLECTED_FILE).write_text(json.dumps(collected, indent=1) + "\n", encoding="utf-8")
    return f"{wall_s:.0f} s" + (
        f", the neighbour had {cpu_s:.0f} of the {scheduled:.0f} s that it wanted" if is_busy else ""
    )


def run_suite(report: Path, cache: Path, arguments: Sequence[str], hidden_seed: str = "", slow: str = "") -> float:
    """Wall seconds of a run, beside a hidden neighbour where there is a seed for one.

    slow: as for `collect_run`. If the run fails, this program ends with it.
    """
    options = [f"--llm-cache-dir={cache.resolve()}", *arguments, *(["-p", "suite_injection"] if slow else [])]
    beside = [sys.executable, str(TOOLS / "hidden_neighbour.py"), hidden_seed] if hidden_seed else []
    variables = {"LLM_BENCH_SLOW": slow, "PYTHONPATH": with_tools()} if slow else {}
    return run_ready(report, options, before=beside, variables=variables)


def show(given: argparse.Namespace) -> None:
    every = [series for folder in given.folders for series in read_series(folder)]
    if not every:
        sys.exit("there is no finished run in the folders")
    rules = Rules(RULES.read({RULES.name: given.rules}))
    print(*markdown_table(main_table(every, given.may_win.split(",") if given.may_win else ())), sep="\n")
    print("", *(f"- {note}" for series in every for note in notes(series)), sep="\n")
    for series in every if given.by else []:
        print(f"\n{series.name}\n", *markdown_table(breakdown(series, given.by)), sep="\n")
    if given.gate:
        print("", *(f"- {line}" for series in every for line in gate_lines(series, rules)), sep="\n")
    if slower := [series for folder in given.slower for series in read_series(folder)]:
        print("", *(f"- {line}" for line in slower_lines(every, slower, rules)), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    collecting = actions.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("--runs", type=int, required=True)
    collecting.add_argument("--neighbour", default="", metavar="SEED")
    collecting.add_argument("--kind", choices=KINDS[1:], default=NOISY)
    collecting.add_argument("--alternate", action="store_true")
    collecting.add_argument("--slow", default="", metavar="VARIANT:SHARE")
    collecting.add_argument("--cache-dir", type=Path, help="of exported models; default: FOLDER/cache")
    showing = actions.add_parser("figures")
    showing.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    showing.add_argument("--may-win", default="", metavar="VARIANTS")
    showing.add_argument("--slower", type=Path, nargs="+", default=[], metavar="FOLDER")
    showing.add_argument("--by", choices=BREAKDOWNS)
    showing.add_argument("--gate", action="store_true")
    showing.add_argument("--rules", default="", help="of the gate, as --llm-gate-rules takes them")
    given, arguments = parsed(parser)
    if given.action == "collect":
        collect(given, arguments)
    else:
        show(given)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that pytest is ended too
    main()
