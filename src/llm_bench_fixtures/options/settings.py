"""What the user asked for: the options and ini values, parsed once into one frozen `Settings`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.options import parsers
from llm_bench_fixtures.options.parsers import LoadFormat, Setting, TokenShape, WindowScheme
from llm_bench_fixtures.options.table import OPTIONS
from llm_bench_fixtures.workloads import CacheKind

T = TypeVar("T")

MOST_TOKENS = 2**24  # in a prompt: the longest published contexts hold ten millions
MOST_ROWS = 65_536  # in a batch
MOST_ROUNDS = 100_000
MOST_REQUESTS_PER_S = 10_000.0
MOST_SEED = 2**63 - 1  # torch's seeds have 64 bits
LEAST_LLAMA_WINDOW = 3  # one token, the middle one, and one that is scored
# Options that change figures, and that nothing else in a run's provenance tells.
TOLD_BY_THEMSELVES = (
    *("load_format", "seed", "new_tokens", "warmup_rounds", "probe", "windows", "window", "stride"),
    *("bnb_compute_dtype", "bnb_double_quant", "gguf", "endpoint", "endpoint_model"),
    *("load_time", "device_map"),
)


def parsed_by(parse: Callable[[str], T]) -> T:
    """A field of `Settings`: the value of the option of that name."""
    made: T = field(metadata={"parse": parse})
    return made


@dataclass(frozen=True)
class Settings:
    """Settings that the user asked for: a field for each option, except those of engines, of the gate and of the
    answer."""

    given: Mapping[str, str]
    """The texts by option name, also of the options that aren't fields."""
    model: tuple[str, ...] = parsed_by(parsers.parse_names)
    load_format: LoadFormat = parsed_by(parsers.member_of(LoadFormat, "load format"))
    trust_remote_code: bool = parsed_by(parsers.parse_bool)
    device: str = parsed_by(parsers.parse_device)
    device_map: Mapping[str, int | str] | None = parsed_by(parsers.parse_device_map)
    """Where each part of the model lies; empty: where accelerate puts it. None: all on one device."""
    attention: str = parsed_by(str)
    chat: bool = parsed_by(parsers.parse_bool)
    variants: str = parsed_by(str)
    reference: str = parsed_by(str)
    time: float = parsed_by(parsers.parse_time_limit)
    prompts: str = parsed_by(str)
    shape: tuple[TokenShape, ...] = parsed_by(parsers.token_shapes(MOST_TOKENS))
    cache: tuple[CacheKind, ...] = parsed_by(parsers.each_once(parsers.member_of(CacheKind, "cache")))
    show_texts: bool = parsed_by(parsers.parse_bool)
    new_tokens: int = parsed_by(parsers.integer_of_at_least(1, MOST_TOKENS))
    rounds: int | None = parsed_by(parsers.auto_or(parsers.integer_of_at_least(1, MOST_ROUNDS)))
    warmup_rounds: int = parsed_by(parsers.integer_of_at_least(1, MOST_ROUNDS))
    max_noise: float = parsed_by(parsers.parse_share)
    probe: bool = parsed_by(parsers.parse_bool)
    in_process: bool = parsed_by(parsers.parse_bool)
    memory_share: float = parsed_by(parsers.parse_part)
    limits_time: float = parsed_by(parsers.parse_seconds)
    prompt_lengths: tuple[int, ...] = parsed_by(parsers.positive_integers(MOST_TOKENS))
    batch_sizes: tuple[int, ...] = parsed_by(parsers.positive_integers(MOST_ROWS))
    request_rates: tuple[float, ...] = parsed_by(parsers.positive_numbers(MOST_REQUESTS_PER_S))
    load_time: float = parsed_by(parsers.parse_seconds)
    corpus: Path | None = parsed_by(parsers.parse_optional_path)
    windows: WindowScheme = parsed_by(parsers.member_of(WindowScheme, "scheme of windows"))
    window: int = parsed_by(parsers.parse_window)
    stride: int = parsed_by(parsers.integer_of_at_least(0, MOST_TOKENS))
    choices: str = parsed_by(str)
    tasks: tuple[str, ...] = parsed_by(parsers.parse_any_names)
    overhead: bool = parsed_by(parsers.parse_bool)
    fit: int | None = parsed_by(parsers.parse_optional_size)
    threads: tuple[int, ...] = parsed_by(parsers.parse_threads)
    seed: int = parsed_by(parsers.integer_of_at_least(0, MOST_SEED))
    report: Path = parsed_by(parsers.parse_path)
    resume: Path | bool = parsed_by(parsers.parse_resume)
    """The run to go on with; True for that in `report`."""
    history: str = parsed_by(parsers.parse_history)
    """The URL of a database; empty for none."""
    cache_dir: Path | None = parsed_by(parsers.parse_optional_path)

    def of(self, setting: Setting[T]) -> T:
        """The value of an option that isn't a field, such as the gate's, or an engine's. Raises InvalidSetting."""
        return setting.read(self.given)

    @property
    def told(self) -> Mapping[str, str]:
        """Values other than the default that were given for options that change figures and are told by themselves."""
        given = {name: self.given.get(name, OPTIONS[name].default) for name in TOLD_BY_THEMSELVES}
        if self.device_map:
            given["device_map"] = json.dumps(self.device_map, sort_keys=True)
        return {name: text for name, text in given.items() if text != OPTIONS[name].default}


FIELDS: tuple[Setting[Any], ...] = tuple(
    Setting(one.name, one.metadata["parse"]) for one in fields(Settings) if "parse" in one.metadata
)


def parse_settings(given: Mapping[str, str | None]) -> Settings:
    """Settings from texts by option name; one that is absent or None takes its default.

    Raises InvalidSetting that names the flag.
    """
    texts = {name: text for name, text in given.items() if text is not None}
    settings = Settings(texts, **{setting.name: setting.read(texts) for setting in FIELDS})
    if settings.window and settings.stride > settings.window:
        raise InvalidSetting(f"--llm-stride: {settings.stride} is more than the window of {settings.window} tokens")
    if settings.shape and settings.prompts:
        raise InvalidSetting("--llm-shape: --llm-prompts has the lengths of its prompts; leave one of the two out")
    if settings.cache != (CacheKind.DYNAMIC,) and not (settings.shape or settings.prompts):
        raise InvalidSetting(
            "--llm-cache is the cache of prompts of your own, and there are none. Give --llm-prompts or --llm-shape, "
            "or leave --llm-cache out; -k cache measures every kind"
        )
    if settings.stride and settings.windows is not WindowScheme.STRIDED:
        raise InvalidSetting(f"--llm-stride: {settings.windows} windows have no stride")
    if settings.windows is WindowScheme.LLAMA and 0 < settings.window < LEAST_LLAMA_WINDOW:
        raise InvalidSetting(f"--llm-window: llama windows have at least {LEAST_LLAMA_WINDOW} tokens")
    return settings
