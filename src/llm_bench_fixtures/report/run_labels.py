"""What several runs are called: by what differs between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from llm_bench_fixtures.history.storage import MADE_BY_AUTOSAVE
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.storage import RESULTS_FILE

PARTS: tuple[Callable[[Provenance], str], ...] = (
    lambda one: f"{one.model} (random weights)" if one.random_weights else one.model,
    lambda one: _short_machine(one.hardware),
    lambda one: one.device,
)  # of a label, wherever they differ
MORE: tuple[Callable[[Provenance], str], ...] = (
    lambda one: one.hardware,
    lambda one: count(one.threads, "thread"),
    lambda one: one.commit[:12],
)  # what else may tell the runs apart, the most telling first; then the folder's name, and these:
LAST: tuple[Callable[[Provenance], str], ...] = (
    lambda one: ", ".join(f"{name} {version}" for name, version in one.libraries.items()),
    lambda one: _short_time(one.started),
    lambda one: one.started,
)

TRADEMARKS = re.compile(r"\((R|TM)\)|\bCPU\b|, \d+ cores?$", re.IGNORECASE)


def _short_machine(hardware: str) -> str:
    """The processor without its trademarks and its number of cores."""
    return " ".join(TRADEMARKS.sub("", hardware).split()) or hardware


def _short_time(started: str) -> str:
    """22 Nov 11:09 UTC; as it is where it is no time."""
    try:
        return datetime.fromisoformat(started).astimezone(UTC).strftime("%d %b %H:%M UTC")
    except ValueError:
        return started


def _folder(source: str) -> str:
    """The file's name, without what --benchmark-autosave makes of the commit and the time; of a results.json that of
    its folder."""
    path = Path(source)
    return MADE_BY_AUTOSAVE.sub("", path.stem) if path.name != RESULTS_FILE else path.absolute().parent.name


def common_to(origins: Sequence[Provenance], least: int = 1) -> str:
    """The model and the machine, as far as all runs share them; nothing where they share less than `least` of both."""
    texts = [{part(one) for one in origins} for part in PARTS[:2]]
    shared = [found.pop() for found in texts if len(found) == 1]
    return ", ".join(shared) if len(shared) >= least else ""


def labels_of(origins: Sequence[Provenance], sources: Sequence[str] = ()) -> list[str]:
    """A different one for each run: its model and machine as far as these differ, then whatever else tells them apart,
    alone or, where nothing does alone, together. sources: the runs' files."""
    folders = [list(map(_folder, sources))] if sources else []
    parts, more, last = ([[part(one) for one in origins] for part in parts] for parts in (PARTS, MORE, LAST))
    chosen = [texts for texts in parts if len(set(texts)) > 1]
    others = [texts for texts in (*more, *folders, *last) if len(set(texts)) > 1]
    if not _all_differ(chosen):
        enough = next((texts for texts in others if _all_differ([*chosen, texts])), None)
        for texts in others if enough is None else [enough]:
            if not _all_differ(chosen):
                chosen.append(texts)
    labels = [" · ".join(filter(None, texts)) for texts in zip(*chosen, strict=True)] or [one.model for one in origins]
    return labels if len(set(labels)) == len(labels) else [f"{label} · run {at}" for at, label in enumerate(labels, 1)]


def _all_differ(chosen: Sequence[Sequence[str]]) -> bool:
    rows = list(zip(*chosen, strict=True))
    return bool(rows) and len(set(rows)) == len(rows)
