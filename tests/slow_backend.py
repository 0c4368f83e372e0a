"""A backend that takes its time and has nothing to load; a plain module, as a process of its own imports it."""

from __future__ import annotations

import time
from typing import NoReturn

from llm_bench_fixtures.models.backend import Backend
from llm_bench_fixtures.models.loading import LoadRequest
from llm_bench_fixtures.progress import Phase


def load(request: LoadRequest) -> NoReturn:
    with request.progress.activity(Phase.EXPORTING, "turning it over"):
        time.sleep(0.7)
    raise LookupError("nothing to load")


BACKEND = Backend(load)
