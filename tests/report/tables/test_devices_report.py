"""What a report says of a model whose layers lie on several devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from run_factory import make_record, make_run, make_variant
from shown_table import header, rows

from llm_bench_fixtures.measure.memory import MemoryMethod, MemoryPeak
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.tables.on_request import device_sections
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import MemoryFacts
from llm_bench_fixtures.session.recording import _memory_facts


def test_weights_peak_and_rate_stand_by_device_and_in_sum() -> None:
    spread = make_variant(
        weight_bytes=8_000_000,
        weight_bytes_by_device={"cuda:0": 5_000_000, "cpu": 1_000_000, "disk": 2_000_000},
        read_bytes_per_s=1.5e9,
        read_bytes_per_s_by_device={"cuda:0": 900e9, "cpu": 20e9, "disk": 1e9},
    )
    memory = MemoryFacts(3_000_000, 6_000_000, 7_000_000, cuda_by_device={"cuda:0": 6_000_000})
    (section,) = device_sections(findings_of(make_run([make_record(memory=memory)], [spread]), registry()))
    assert header(section.table) == ("variant", "device", "weights", "peak memory", "reads weights at, GB/s")
    assert [tuple(row) for row in rows(section.table)] == [
        ("fp32", "cuda:0", "5.00 MB", "6.00 MB", "900"),
        ("fp32", "cpu", "1.00 MB", "3.00 MB", "20.0"),
        ("fp32", "disk", "2.00 MB", "–", "1.00"),
        ("fp32", "all", "8.00 MB", "9.00 MB", "1.50"),
    ]


def test_the_peak_of_a_single_gpu_is_in_its_row_and_in_the_sum() -> None:
    """Bug: the recorder kept peaks by device of several GPUs only, so one GPU with the CPU's memory had none."""
    sizes = {"cpu": 1_000_000, "cuda:0": 5_000_000}
    facts: Any = SimpleNamespace(
        resident_before_load_bytes=2_000_000, libraries_before_load_bytes=None, weight_bytes_by_device=sizes
    )
    peak = MemoryPeak(
        5_000_000, 6_000_000, 7_000_000, MemoryMethod.HIGH_WATER_MARK, cuda_by_device={"cuda:0": 6_000_000}
    )
    seen: Any = SimpleNamespace(peak=peak, after_scoring=False)
    record = make_record(memory=_memory_facts(seen, facts))
    spread = make_variant(weight_bytes=6_000_000, weight_bytes_by_device=sizes)
    (section,) = device_sections(findings_of(make_run([record], [spread]), registry()))
    assert [row[1:4] for row in map(tuple, rows(section.table))] == [
        ("cpu", "1.00 MB", "3.00 MB"),
        ("cuda:0", "5.00 MB", "6.00 MB"),
        ("all", "6.00 MB", "9.00 MB"),
    ]


def test_a_run_on_one_device_has_no_such_table() -> None:
    assert not list(device_sections(findings_of(make_run([make_record()], [make_variant()]), registry())))
