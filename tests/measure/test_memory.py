from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from waiting import wait_until

from llm_bench_fixtures.measure import memory
from llm_bench_fixtures.measure.memory import MemoryMethod, MemoryPeak, PeakMemory
from llm_bench_fixtures.models.device import Device, DeviceKind, resident_bytes
from llm_bench_fixtures.processes import memory as process_memory

MIB = 1 << 20
SLACK = 8 * MIB  # what the interpreter and torch take meanwhile


def settled_bytes(device: Device) -> int:
    """What is resident once what earlier tests freed is given back."""
    device.release_cached_memory()
    return resident_bytes()


def touched(mebibytes: int) -> torch.Tensor:
    """Memory of that size, each page of it in RAM."""
    return torch.ones(mebibytes * MIB, dtype=torch.uint8)


@pytest.fixture(params=list(MemoryMethod))
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryMethod:
    if request.param is MemoryMethod.SAMPLED:
        monkeypatch.setattr(memory, "CLEAR_REFS", Path("/no/such/file"))
    elif not memory._reset_high_water_mark():
        pytest.skip("this kernel's high-water mark can't be reset")
    return MemoryMethod(request.param)


def test_64_mib_are_seen_as_64_mib(method: MemoryMethod, cpu: Device) -> None:
    before = settled_bytes(cpu)
    with PeakMemory(cpu) as watched:
        held = touched(64)
    assert 64 * MIB - SLACK < watched.peak.rise_over(before) < 64 * MIB + SLACK
    assert watched.peak.method is method
    assert held.nbytes == 64 * MIB


def test_a_peak_that_is_freed_before_the_end_is_seen(method: MemoryMethod, cpu: Device) -> None:
    before = settled_bytes(cpu)
    with PeakMemory(cpu) as watched:
        held = touched(64)
        wait_until(lambda: watched._sampler is None or watched._sampler._most > before + 64 * MIB - SLACK)
        del held
    assert 64 * MIB - SLACK < watched.peak.rise_over(before) < 64 * MIB + SLACK
    assert resident_bytes() < before + SLACK


def test_what_was_taken_before_the_block_is_not_counted(method: MemoryMethod, cpu: Device) -> None:
    """Neither what is still held nor an earlier, higher peak."""
    held = touched(64)
    higher = touched(128)
    del higher
    before = settled_bytes(cpu)
    with PeakMemory(cpu) as watched:
        pass
    assert watched.peak.rise_over(before) < SLACK
    assert watched.peak.resident_bytes > held.nbytes


def test_a_block_that_fails_has_its_peak_too(cpu: Device) -> None:
    watched = PeakMemory(cpu)
    with pytest.raises(ZeroDivisionError), watched:
        _ = 1 / 0
    assert watched.peak.resident_bytes > 0


def test_a_cpu_has_no_cuda_memory(cpu: Device) -> None:
    with PeakMemory(cpu) as watched:
        pass
    assert (watched.peak.cuda_allocated_bytes, watched.peak.cuda_reserved_bytes) == (None, None)


def test_the_peaks_of_cuda_are_reset_first_and_read_when_the_device_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def noted(name: str, value: int | None = None) -> Callable[..., int | None]:
        return lambda *arguments: events.append(f"{name} {' '.join(arguments)}".strip()) or value

    for name, value in {
        "synchronize": None,
        "empty_cache": None,
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 5,
        "max_memory_reserved": 7,
    }.items():
        monkeypatch.setattr(torch.cuda, name, noted(name, value))
    with PeakMemory(Device(DeviceKind.CUDA, "cuda:1", "an accelerator")) as watched:
        events.append("block")
    assert (watched.peak.cuda_allocated_bytes, watched.peak.cuda_reserved_bytes) == (5, 7)
    assert events == [
        "synchronize cuda:1",
        "empty_cache",
        "reset_peak_memory_stats cuda:1",
        "block",
        "synchronize cuda:1",
        "max_memory_allocated cuda:1",
        "max_memory_reserved cuda:1",
    ]


def test_the_peaks_of_several_devices_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    of = {"cuda:0": 5, "cuda:1": 7}
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", of.__getitem__)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda name: 2 * of[name])
    with PeakMemory(Device(DeviceKind.CUDA, "cuda:0", "two", ("cuda:1",))) as watched:
        pass
    assert (watched.peak.cuda_allocated_bytes, watched.peak.cuda_reserved_bytes) == (12, 24)
    assert watched.peak.cuda_by_device == of


def test_a_kernel_without_a_high_water_mark_is_sampled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpu: Device
) -> None:
    """A sandbox's, say: once it ended the test that was measured."""
    (tmp_path / "status").write_text("Name:\tpytest\nVmRSS:\t     128 kB\n")
    (tmp_path / "clear_refs").touch()
    monkeypatch.setattr(process_memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(memory, "CLEAR_REFS", tmp_path / "clear_refs")
    monkeypatch.setattr(process_memory, "MAPPINGS", tmp_path / "smaps")
    with PeakMemory(cpu) as watched:
        pass
    assert watched.peak.method is MemoryMethod.SAMPLED
    assert watched.peak.library_bytes is None


@pytest.mark.skipif(sys.platform != "linux", reason="libraries' pages are told apart on Linux")
@pytest.mark.parametrize("is_library", [False, True])
def test_pages_of_a_library_are_told_from_a_models_file_and_from_what_is_of_none(
    is_library: bool, tmp_path: Path, cpu: Device
) -> None:
    """64 MiB that are of no file, and 32 MiB of one whose every page is read: mapped as weights are, or as code is."""
    path = tmp_path / "file"
    path.write_bytes(bytes(32 * MIB))
    before = settled_bytes(cpu), process_memory.library_bytes() or 0
    how = mmap.PROT_READ | (mmap.PROT_EXEC if is_library else 0)
    with PeakMemory(cpu) as watched, path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=how) as mapped:
        assert not any(mapped[::4096])
        held = touched(64)
        libraries = process_memory.library_bytes() or 0
    assert abs(watched.peak.rise_over(before[0]) - 96 * MIB) < SLACK
    assert abs(libraries - before[1] - 32 * MIB * is_library) < MIB
    assert held.nbytes == 64 * MIB


def test_library_code_is_what_a_process_runs_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code and data of a library, but for the pages that became the process' own; no weights, heap or system's code."""
    sizes = (("r-xp", 7, "/lib/x.so", 40, 0), ("rw-p", 7, "/lib/x.so", 12, 8), ("r--p", 9, "/w (deleted)", 300, 0))
    others = (("rw-p", 0, "[heap]", 500, 500), ("r-xp", 0, "[vdso]", 4, 0), ("rw-p", 0, "", 8, 8))
    lines = (
        f"7f00-7f01 {how} 00000000 08:01 {inode}      {name}\nSize: 999 kB\nRss: {resident} kB\nAnonymous: {own} kB\n"
        for how, inode, name, resident, own in (*sizes, *others)
    )
    (tmp_path / "smaps").write_text("".join(lines))
    monkeypatch.setattr(process_memory, "MAPPINGS", tmp_path / "smaps")
    assert process_memory.library_bytes() == (40 + 12 - 8) * 1024


def test_mappings_are_read_again_once_more_pages_of_files_are_resident(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process_memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(process_memory, "MAPPINGS", tmp_path / "smaps")
    found = []
    for files, library in (
        ("RssFile: 100 kB", 40),
        ("RssFile: 100 kB", 60),
        ("RssFile: 120 kB", 60),
        ("", 70),
        ("", 80),
    ):
        (tmp_path / "status").write_text(f"{files}\n")
        (tmp_path / "smaps").write_text(f"1-2 r-xp 0 08:01 7 /lib/a.so\nRss: {library} kB\nAnonymous: 0 kB\n")
        found.append(process_memory.library_bytes())
    assert found == [size * 1024 for size in (40, 40, 60, 70, 80)]


def test_a_rise_is_never_negative() -> None:
    peak = MemoryPeak(100, None, None, MemoryMethod.SAMPLED)
    assert (peak.rise_over(70), peak.rise_over(130)) == (30, 0)
