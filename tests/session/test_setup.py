"""What a run measures with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from llm_bench_fixtures.models.device import Device, DeviceKind
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


@pytest.mark.parametrize(("threads", "cores", "busy"), [(4, 8, 4), (4, 4, 4), (4, 2, 0)])
def test_a_round_keeps_as_many_cores_busy_as_it_has_threads_unless_these_wait_for_each_other(
    threads: int, cores: int, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    assert Setup(parse_settings({"device": "cpu"}), Progress()).busy_cores == busy


def test_an_accelerators_round_keeps_the_core_busy_that_feeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    setup = Setup(parse_settings({"device": "cpu"}), Progress())
    setup.device = Device(DeviceKind.CUDA, "cuda:0", "an accelerator")
    assert setup.busy_cores == 1


def test_what_a_stopped_build_left_in_the_cache_is_gone_with_the_run(tmp_path: Path) -> None:
    setup = Setup(parse_settings({"device": "cpu", "cache_dir": str(tmp_path)}), Progress())
    made = setup.store.get("whole", {}, lambda folder: (folder / "file").touch())
    stopped = made.folder.with_name(f"{made.folder.name}-stopped")
    shutil.copytree(made.folder, stopped)
    setup.close()
    assert made.folder.exists()
    assert not stopped.exists()
