"""Keeps the libraries' own warnings, logs and progress bars out of the terminal while they work for us."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from llm_bench_fixtures.models.backends import known_backends


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence the libraries that load, convert and run models. Errors still raise, and our own warnings still show."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    levels = {name: logging.getLogger(name).level for backend in known_backends() for name in backend.loggers}
    hub_bars, own_bars = not are_progress_bars_disabled(), transformers_logging.is_progress_bar_enabled()
    _set_levels(dict.fromkeys(levels, logging.ERROR))
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        if own_bars:
            transformers_logging.enable_progress_bar()
        (enable_progress_bars if hub_bars else disable_progress_bars)()
        _set_levels(levels)


def _set_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).level = level
    logging.root.setLevel(logging.root.level)  # forgets what is known of all loggers' levels, once and not for each
