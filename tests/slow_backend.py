"""A backend that takes its time and has nothing to load; a plain module, as a process of its own imports it."""

from __future__ import annotations

import time
from typing import NoReturn

from llm_bench_fixtures.models.backend import LoadRequest
from llm_bench_fixtures.progress import Phase


def check(*_: object) -> None: ...


def prepare(_: object) -> None: ...


def load(request: LoadRequest) -> NoReturn:
    with request.progress.activity(Phase.EXPORTING, "turning it over"):
        time.sleep(0.7)
    raise LookupError("nothing to load")
