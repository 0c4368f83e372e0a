"""What a run measures with."""

from __future__ import annotations

import pytest
import torch

from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.session import setup as module
from llm_bench_fixtures.session.setup import Setup


@pytest.mark.parametrize(
    ("threads", "cores", "warning"),
    [
        (99, 2, "99 threads wait for each other on 2 cores: set OMP_NUM_THREADS=2"),
        (2, 1, "2 threads wait for each other on 1 core: set OMP_NUM_THREADS=1"),
        (2, 2, ""),
        (1, 2, ""),
    ],
)
def test_more_threads_than_cores_are_told(
    threads: int, cores: int, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    assert Setup(parse_settings({"device": "cpu"}), Progress()).threads_warning == warning
