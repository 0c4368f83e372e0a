"""What the user asked for: the options and ini values, parsed once into one frozen `Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.options import OPTIONS, LoadFormat, WindowScheme

if TYPE_CHECKING:
    from llm_bench_fixtures.history.gate import Missing
    from llm_bench_fixtures.history.rules import NamedRule
    from llm_bench_fixtures.measure.windows import WindowPlan
    from llm_bench_fixtures.variants import Precision

LEAST_LLAMA_WINDOW = 3  # one token, the middle one, and one that is scored


@dataclass(frozen=True)
class Settings:
    """What the user asked for. One field a row of OPTIONS."""

    model: tuple[str, ...]
    load_format: LoadFormat
    trust_remote_code: bool
    device: str
    variants: str
    reference: str
    new_tokens: int
    rounds: int
    warmup_rounds: int
    precision: float
    max_time: float
    probe: bool
    isolate: bool
    limits_time: float
    prompt_lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    corpus: Path | None
    windows: WindowScheme
    window: int
    stride: int
    bnb_compute_dtype: Precision | None
    bnb_double_quant: bool
    seed: int
    report: Path
    cache_dir: Path | None
    gate: bool
    gate_rules: tuple[NamedRule, ...]
    gate_missing: frozenset[Missing]
    gate_summary: Path | None
    baseline: str

    @property
    def window_plan(self) -> WindowPlan:
        """How the corpus is cut for scoring."""
        from llm_bench_fixtures.measure.windows import WindowPlan

        return WindowPlan(self.windows, self.window, self.stride)


def parse_settings(given: Mapping[str, str | None]) -> Settings:
    """Settings from texts by option name; one that is absent or None takes its default.

    Raises InvalidSetting that names the flag.
    """
    values = {}
    for option in OPTIONS:
        text = given.get(option.name)
        try:
            values[option.name] = option.parse(option.default if text is None else text)
        except InvalidSetting as error:
            raise InvalidSetting(f"{option.flag}: {error}") from error
    settings = Settings(**values)
    if settings.window and settings.stride > settings.window:
        raise InvalidSetting(f"--llm-stride: {settings.stride} is more than the window of {settings.window} tokens")
    _check_windows(settings)
    return settings


def _check_windows(settings: Settings) -> None:
    if settings.stride and settings.windows is not WindowScheme.STRIDED:
        raise InvalidSetting(f"--llm-stride: {settings.windows} windows have no stride")
    if settings.windows is WindowScheme.LLAMA and 0 < settings.window < LEAST_LLAMA_WINDOW:
        raise InvalidSetting(f"--llm-window: llama windows have at least {LEAST_LLAMA_WINDOW} tokens")
