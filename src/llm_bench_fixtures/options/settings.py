"""What the user asked for: the options and ini values, parsed once into one frozen `Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.options.parsers import LoadFormat, WindowScheme
from llm_bench_fixtures.options.quality_limit import QualityLimit
from llm_bench_fixtures.options.table import OPTIONS, Option

T = TypeVar("T")

LEAST_LLAMA_WINDOW = 3  # one token, the middle one, and one that is scored


@dataclass(frozen=True)
class Settings:
    """What the user asked for: one field for each row of OPTIONS."""

    model: tuple[str, ...]
    load_format: LoadFormat
    trust_remote_code: bool
    device: str
    attention: str
    chat: bool
    variants: str
    reference: str
    new_tokens: int
    rounds: int
    warmup_rounds: int
    max_noise: float
    max_time: float
    probe: bool
    in_process: bool
    memory_share: float
    limits_time: float
    prompt_lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    request_rates: tuple[float, ...]
    load_time: float
    ttft_limit: float
    tpot_limit: float
    corpus: Path | None
    windows: WindowScheme
    window: int
    stride: int
    choices: str
    overhead: bool
    seed: int
    quality_limit: QualityLimit
    report: Path
    cache_dir: Path | None
    given: Mapping[str, str]
    """The texts by option name, also of the gate's and the backends' options."""

    def of(self, option: Option[T]) -> T:
        """The value of an option that isn't a field: the gate's, or a backend's. Raises InvalidSetting."""
        return option.read(self.given)


def parse_settings(given: Mapping[str, str | None]) -> Settings:
    """Settings from texts by option name; one that is absent or None takes its default.

    Raises InvalidSetting that names the flag.
    """
    texts = {name: text for name, text in given.items() if text is not None}
    settings = Settings(**{option.name: option.read(texts) for option in OPTIONS}, given=texts)
    if settings.window and settings.stride > settings.window:
        raise InvalidSetting(f"--llm-stride: {settings.stride} is more than the window of {settings.window} tokens")
    _check_windows(settings)
    return settings


def _check_windows(settings: Settings) -> None:
    if settings.stride and settings.windows is not WindowScheme.STRIDED:
        raise InvalidSetting(f"--llm-stride: {settings.windows} windows have no stride")
    if settings.windows is WindowScheme.LLAMA and 0 < settings.window < LEAST_LLAMA_WINDOW:
        raise InvalidSetting(f"--llm-window: llama windows have at least {LEAST_LLAMA_WINDOW} tokens")
