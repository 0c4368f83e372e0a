"""Accepting a run as a baseline on purpose."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.history.saved import EXTRA, Blessing, JudgedRun, read_saved_run
from llm_bench_fixtures.results.storage import decode, read_bytes, replacing


def bless(path: Path, reason: str) -> JudgedRun:
    """Write into the file that its run is a baseline, and why; the run as it was before.

    The file is replaced whole, or not at all. Raises InvalidSetting without a reason, and UnreadableResults.
    """
    if not reason.strip():
        raise InvalidSetting("a run is blessed for a reason: say which")
    run = read_saved_run(path)
    data = decode(read_bytes(path), dict, path)
    blessing = Blessing(reason.strip(), datetime.now(UTC).isoformat(timespec="seconds"))
    data.get(EXTRA, data)["blessing"] = asdict(blessing)
    with replacing(path) as scratch:
        scratch.write_text(json.dumps(data, indent=4), encoding="utf-8")
    return run
