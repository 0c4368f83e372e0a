"""The page of a first run on a GPU: what was done, what it showed, and what failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class DataSheet:
    """Rates that the maker promises: dense ones, without sparsity."""

    read_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    """Floating-point operations per second, by torch's name of the dtype."""


def _sheet(terabytes: float, half: float, single: float) -> DataSheet:
    """Terabytes a second, and TFLOP/s in 16 and in 32 bits."""
    return DataSheet(terabytes * 1e12, {"bfloat16": half * 1e12, "float16": half * 1e12, "float32": single * 1e12})


DATA_SHEETS = {
    "NVIDIA H200": _sheet(4.8, 989, 67),
    "NVIDIA H100 80GB HBM3": _sheet(3.35, 989, 67),
    "NVIDIA H100 PCIe": _sheet(2.0, 756, 51),
    "NVIDIA H100 NVL": _sheet(3.9, 835, 60),
    "NVIDIA A100-SXM4-80GB": _sheet(2.039, 312, 19.5),
    "NVIDIA A100-SXM4-40GB": _sheet(1.555, 312, 19.5),
    "NVIDIA A100 80GB PCIe": _sheet(1.935, 312, 19.5),
    "NVIDIA L40S": _sheet(0.864, 362, 91.6),
    "NVIDIA L4": _sheet(0.3, 121, 30.3),
}
"""Data sheets of NVIDIA, by torch's name of the device."""


class Status(StrEnum):
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "ran out of time"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step."""

    name: str
    status: Status
    command: str = ""
    seconds: float = 0.0
    reason: str = ""
    """Why it isn't done: the last lines that it wrote, or what it needs."""
    figures: Json = field(default_factory=dict)
    """Figures that it printed or left behind."""


def ratio(ours: float | None, plain: float | None) -> float | None:
    return ours / plain if ours is not None and plain else None


@dataclass(frozen=True)
class Workload:
    """Workload that both the suite and the plain loop measure."""

    variants: tuple[str, ...]
    prompt_tokens: int
    new_tokens: int


def page(outcomes: Sequence[Outcome], started: str, command: str, workload: Workload) -> str:
    """The whole page."""
    found = {one.name: one.figures for one in outcomes}
    facts = found.get("facts", {})
    parts = [
        "# The first run on a GPU",
        _opening(outcomes, started, command),
        _table(("what", "value"), _facts(facts)),
        "## Steps",
        _table(("step", "outcome", "seconds"), _steps(outcomes)),
        *_reasons(outcomes),
        "## Times next to a plain loop's",
        f"One prompt of {workload.prompt_tokens} tokens, {workload.new_tokens} new ones, random weights. {LOOPS}",
        _table(TIMES, _times(found.get("suite", {}), found.get("plain", {}), workload.variants)),
        "## Memory next to a plain loop's",
        "Both are `torch.cuda.max_memory_allocated` during a round, each in a process of its own.",
        _table(("variant", "ours, MB", "plain, MB", "ratio"), _memory(found, workload.variants)),
        "## The device's limits",
        LIMITS,
        _table(("limit", "measured", "plain", "data sheet", "measured, share", "plain, share"), _limits(found)),
        "## Every case",
        _table(("case", *(title for _, title, _ in CASE_COLUMNS)), _cases(found)),
        "## Commands",
        "\n".join(f"- {one.name}: `{one.command}`" for one in outcomes if one.command),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


LOOPS = (
    "*Loop* calls the model token by token and reads CUDA events; *generate* is transformers' own loop by the host's "
    "clock, with nothing called for each token. Ours times the tokens of `generate`. TTFT is the time to the first "
    "token, TPOT the time per further one."
)
LIMITS = (
    "*Measured* is what the package takes for the limit; *plain* a copy within the device (bytes read and written) and "
    "a product of 8192 rows. The shares are of the data sheet."
)
TIMES = ("variant", "figure", "ours, ms", "loop, ms", "ours/loop", "generate, ms", "ours/generate")


CASE_COLUMNS = (
    ("ttft_s", "TTFT, ms", 1e-3),
    ("tpot_s", "TPOT, ms", 1e-3),
    ("output_tokens_per_s", "tokens/s", 1),
    ("mbu", "MBU, %", 1e-2),
    ("mfu", "MFU, %", 1e-2),
    ("energy_j", "J", 1),
    ("cuda_max_allocated_bytes", "allocated, MB", 1e6),
    ("cuda_max_reserved_bytes", "reserved, MB", 1e6),
)


def has_cuda_run(outcomes: Sequence[Outcome]) -> bool:
    """Whether the facts are those of a CUDA device, and not of one that is pretended."""
    facts = next((one.figures for one in outcomes if one.name == "facts" and one.status is Status.DONE), {})
    return str(facts.get("device", "")).startswith("cuda") and bool(facts.get("cuda"))


def _opening(outcomes: Sequence[Outcome], started: str, command: str) -> str:
    said = f"Written by `{command}`, {started}."
    return said if has_cuda_run(outcomes) else f"{said} **No CUDA device was found or asked for: CUDA has not run.**"


def _facts(facts: Json) -> Iterator[tuple[str, ...]]:
    for name, value in facts.items():
        yield name.replace("_bytes", ", GB"), f"{value / 1e9:.1f}" if name.endswith("_bytes") else str(value)


def _steps(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    for one in outcomes:
        tests = one.figures.get("tests")
        shown = ", ".join(f"{count} {how}" for how, count in tests.items() if count) if tests else ""
        yield one.name, f"{one.status}{f': {shown}' if shown else ''}", f"{one.seconds:.0f}"


def _reasons(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for one in outcomes:
        if one.reason:
            yield f"**{one.name}** ({one.status}):\n\n```text\n{one.reason}\n```"
        rows = one.figures.get("not_measured", ())
        if rows:
            yield f"Not measured in **{one.name}**:\n\n" + "\n".join(f"- {row}" for row in rows)


def _times(suite: Json, plain: Json, variants: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for variant in variants:
        ours, theirs = suite.get(variant, {}), plain.get(variant, {})
        for name in ("ttft_s", "tpot_s"):
            a, b, c = ours.get(name), theirs.get(name), theirs.get(f"generate_{name}")
            yield variant, name[:-2].upper(), _ms(a), _ms(b), _times_as(ratio(a, b)), _ms(c), _times_as(ratio(a, c))


def _memory(found: Mapping[str, Json], variants: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for variant in variants:
        ours = found.get("suite", {}).get(variant, {}).get("cuda_max_allocated_bytes")
        plain = found.get("plain", {}).get(variant, {}).get("peak_bytes")
        yield variant, _scaled(ours, 1e6), _scaled(plain, 1e6), _times_as(ratio(ours, plain))


def _cases(found: Mapping[str, Json]) -> Iterator[tuple[str, ...]]:
    for step in ("suite", "compile"):
        for case in found.get(step, {}).get("cases", ()):
            yield (case["case"], *(_scaled(case.get(name), unit) for name, _, unit in CASE_COLUMNS))


def _limits(found: Mapping[str, Json]) -> Iterator[tuple[str, ...]]:
    limits = found.get("limits", {})
    sheet = DATA_SHEETS.get(found.get("facts", {}).get("name", ""))
    read, copy = limits.get("read_bytes_per_s"), limits.get("copy_bytes_per_s")
    yield ("reading, TB/s", *_limit(read, copy, sheet.read_bytes_per_s if sheet else None))
    for dtype in ("float32", "bfloat16", "float16"):
        ours = limits.get("matmul_flops_per_s", {}).get(dtype)
        plain = limits.get("plain_flops_per_s", {}).get(dtype)
        yield (f"{dtype} products, TFLOP/s", *_limit(ours, plain, sheet.flops_per_s[dtype] if sheet else None))


def _limit(ours: float | None, plain: float | None, promised: float | None) -> tuple[str, ...]:
    shares = (_percent(ratio(one, promised)) for one in (ours, plain))
    return (*(_scaled(one, 1e12) for one in (ours, plain, promised)), *shares)


def _table(heads: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _scaled(value: float | None, unit: float) -> str:
    return "" if value is None else f"{value / unit:,.3g}" if value / unit < 100 else f"{value / unit:,.0f}"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def _times_as(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
