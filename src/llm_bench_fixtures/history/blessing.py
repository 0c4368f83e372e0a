"""Accepts a saved run as a baseline, whatever its state."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.history.saved import EXTRA, read_saved_run
from llm_bench_fixtures.results.record import Blessing, Run
from llm_bench_fixtures.results.storage import decode, read_bytes
from llm_bench_fixtures.text import well_formed
from llm_bench_fixtures.writing import write_whole


def bless(path: Path, reason: str) -> Run:
    """Write into the file that its run is a baseline, and why. Returns the run as it was before.

    The file is replaced whole or not at all, and keeps its mode. Raises InvalidSetting where there is no reason,
    UnreadableResults and UnwritableFile.
    """
    if not reason.strip():
        raise InvalidSetting("a run is blessed for a reason: say which")
    run = read_saved_run(path)
    data = decode(read_bytes(path), dict, path)
    blessing = Blessing(reason.strip(), datetime.now(UTC).isoformat(timespec="seconds"))
    data.get(EXTRA, data)["blessing"] = asdict(blessing)
    write_whole(path, json.dumps(well_formed(data), indent=4))
    return run
