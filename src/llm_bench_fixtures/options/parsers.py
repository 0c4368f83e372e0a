"""Parsers from an option's text to its value, or to an InvalidSetting that says what was expected."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, urlsplit

from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.options.table import OPTIONS, Option, flag_of, ini_of

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=StrEnum)

MOST_WINDOW = 2**24  # tokens
MOST_THREADS = 65_536
WEEK_S = 7 * 24 * 3600
TIME = re.compile(r"(?=.)" + "".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in "hms"))
UNIT_BYTES = {
    f"{letter}{unit}": base**power
    for power, letter in enumerate("kmgt", 1)
    for unit, base in (("b", 1000), ("ib", 1024))
}
SIZE = re.compile(rf"([0-9]+(?:\.[0-9]+)?) ?({'|'.join(UNIT_BYTES)})", re.IGNORECASE)
MOST_BYTES = 10**15
SQLITE, POSTGRESQL = "sqlite", "postgresql"  # databases of saved runs
NO_PASSWORDS = "a password is taken from PGPASSWORD in the environment, or from ~/.pgpass"
WORDS = ("tiny", "none")  # what an option takes in place of a model's folder, or of a file
DEVICES = ("auto", "cpu", "cuda", "mps")
DISK = "disk"
EXAMPLE_MAP = '{"": "cpu", "lm_head": 0}'
CUDA_DEVICE = re.compile(r"cuda(?::([0-9]{1,4}))?")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """How the text of an option is read: the option's name in the table, and the parser."""

    name: str
    parse: Callable[[str], T]

    @property
    def option(self) -> Option:
        return OPTIONS[self.name]

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def ini(self) -> str:
        return ini_of(self.name)

    def read(self, given: Mapping[str, str]) -> T:
        """The value among texts by option name, or that of the default. Raises InvalidSetting that names the flag."""
        text = given.get(self.name)
        if text is not None and "\0" in text:
            raise InvalidSetting(f"{self.flag}: there is a NUL character in {shortened(text)}; take it out")
        try:
            return self.parse(self.option.default if text is None else text)
        except InvalidSetting as error:
            raise InvalidSetting(f"{self.flag}: {error}") from error


class WindowScheme(StrEnum):
    """How a corpus is cut to be scored."""

    STRIDED = "strided"
    ROLLING = "rolling"
    LLAMA = "llama"


class LoadFormat(StrEnum):
    AUTO = "auto"
    DUMMY = "dummy"


def parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InvalidSetting("expected at least one name")
    return names


def parse_any_names(text: str) -> tuple[str, ...]:
    """Each once, in their order; none of an empty text."""
    return tuple(dict.fromkeys(parse_names(text))) if text else ()


def parse_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise UnknownName("truth value", text, words) from None


def integer_of_at_least(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """A parser of whole numbers. most: what is beyond it would only fail later, after hours or for lack of memory."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise InvalidSetting(f"expected a whole number, got {shortened(text)}") from None
        if number < least:
            raise InvalidSetting(f"expected at least {least}, got {number}")
        if number > most:
            raise InvalidSetting(f"expected at most {most}, got {number}")
        return number

    return parse


def auto_or(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """A parser of what `parse` takes, or of `auto`, which is None: as the program finds best."""
    return lambda text: None if text == "auto" else parse(text)


def shortened(text: str, most: int = 40) -> str:
    """Value that was given, as an error quotes it."""
    return repr(text if len(text) <= most else f"{text[:most]}…")


def parse_seconds(text: str) -> float:
    """Seconds, at most a week."""
    seconds = _number(text)
    if seconds is None:
        raise InvalidSetting(f"expected seconds, got {text!r}")
    if seconds > WEEK_S:
        raise InvalidSetting(f"expected at most {WEEK_S} seconds, a week, got {text}")
    return seconds


def parse_time_limit(text: str) -> float:
    """As `parse_time`; infinite for none."""
    return math.inf if text == "none" else parse_time(text, ", or none")


def parse_time(text: str, otherwise: str = "") -> float:
    """Seconds of a text such as 20m, 90s, 1.5h or 1h30m. otherwise: what else could be given, for the error."""
    found = TIME.fullmatch(text)
    parts = found.groups() if found else ()
    seconds = sum(float(part or 0) * unit_s for part, unit_s in zip(parts, (3600, 60, 1), strict=False))
    if not seconds:
        raise InvalidSetting(f"expected a time such as 20m, 90s or 1h30m{otherwise}, got {shortened(text)}")
    if seconds > WEEK_S:
        raise InvalidSetting(f"expected at most {WEEK_S // 3600}h, a week{otherwise}, got {shortened(text)}")
    return seconds


def parse_size(text: str) -> int:
    """Bytes of a text such as 24GB, 1.5 TB or 512MiB."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidSetting(f"expected a size with its unit, such as 24GB, 900MB or 16GiB, got {shortened(text)}")
    size = int(float(found[1]) * UNIT_BYTES[found[2].lower()])
    if not 0 < size <= MOST_BYTES:
        raise InvalidSetting(f"expected more than 0 and at most {MOST_BYTES // 10**12}TB, got {shortened(text)}")
    return size


def parse_optional_size(text: str) -> int | None:
    return parse_size(text) if text else None


def parse_part(text: str) -> float:
    """A share of at most all."""
    share = parse_share(text)
    if share > 1:
        raise InvalidSetting(f"expected at most 100%, got {text}")
    return share


def parse_share(text: str) -> float:
    """0.05 and 5% are the same."""
    number = _number(text.strip().removesuffix("%"))
    if number is None:
        raise InvalidSetting(f"expected a share such as 5% or 0.05, got {text!r}")
    if text.strip().endswith("%"):
        return number / 100
    if number >= 1:
        raise InvalidSetting(f"{text} would be {number:.0%}: type {text}%, or a share below 1")
    return number


def _number(text: str) -> float | None:
    """A finite number that isn't negative."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


@dataclass(frozen=True, order=True)
class TokenShape:
    """The length of a prompt and of its answer, in tokens."""

    prompt: int
    new: int

    def __str__(self) -> str:
        return f"{self.prompt}/{self.new}"


def token_shapes(most: int) -> Callable[[str], tuple[TokenShape, ...]]:
    """A parser of shapes such as 512/128, separated by commas: ascending, each once; none of an empty text."""
    parse_length = integer_of_at_least(1, most)

    def parse_one(text: str) -> TokenShape:
        prompt, slash, new = text.partition("/")
        if not slash:
            raise InvalidSetting(
                f"expected tokens of a prompt and of its answer, such as 512/128; got {shortened(text)}"
            )
        return TokenShape(parse_length(prompt), parse_length(new))

    return lambda text: tuple(sorted({parse_one(part) for part in parse_names(text)})) if text else ()


def parse_window(text: str) -> int:
    return 0 if text == "0" else integer_of_at_least(2, MOST_WINDOW)(text)


def positive_integers(most: int) -> Callable[[str], tuple[int, ...]]:
    """A parser of whole numbers, separated by commas: ascending, each once."""
    parse_one = integer_of_at_least(1, most)
    return lambda text: tuple(sorted({parse_one(part) for part in parse_names(text)}))


def parse_threads(text: str) -> tuple[int, ...]:
    """Numbers of threads, ascending, each once; `auto`: 1, 2, 4, … and the number of usable cores.

    Raises InvalidSetting for more than the cores.
    """
    from llm_bench_fixtures.processes.affinity import usable_cores

    if not text:
        return ()
    cores = usable_cores()
    if text == "auto":
        return tuple(sorted({cores, *(2**power for power in range(cores.bit_length()))}))
    try:
        numbers = positive_integers(MOST_THREADS)(text)
    except InvalidSetting as error:
        raise InvalidSetting(f"{error}; or auto: 1, 2, 4, … and all cores") from None
    if numbers[-1] > cores:
        raise InvalidSetting(f"expected at most {cores}, one for each core to be used, or auto, got {numbers[-1]}")
    return numbers


def positive_numbers(most: float) -> Callable[[str], tuple[float, ...]]:
    """A parser of numbers above 0, separated by commas: ascending, each once."""

    def parse_one(text: str) -> float:
        number = _number(text)
        if not number or number > most:
            raise InvalidSetting(f"expected a number above 0, at most {most:g}, got {shortened(text)}")
        return number

    return lambda text: tuple(sorted({parse_one(part) for part in parse_names(text)}))


def each_once(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A parser of several, separated by commas, in the order in which they are given."""
    return lambda text: tuple(dict.fromkeys(map(parse, parse_names(text))))


def member_of(known: Iterable[EnumT], kind: str, also: Iterable[str] = ()) -> Callable[[str], EnumT]:
    """A parser of one name of an enum's.

    kind: what the names are called in the error. also: other texts that the option takes, which the error lists first.
    """
    members = {member.value: member for member in known}

    def parse(text: str) -> EnumT:
        if text not in members:
            raise UnknownName(kind, text, [*also, *members])
        return members[text]

    return parse


def members_of(known: Iterable[EnumT], kind: str, also: Iterable[str] = ()) -> Callable[[str], frozenset[EnumT]]:
    """A parser of several names, separated by commas; else as `member_of`."""
    parse_one = member_of(known, kind, also)
    return lambda text: frozenset(map(parse_one, parse_names(text)))


def parse_path(text: str) -> Path:
    """A path, with ~ and ~USER for a home folder. Raises InvalidSetting where there is no such user, or no path."""
    if not text:
        raise InvalidSetting("expected a path")
    try:
        return Path(text).expanduser()
    except RuntimeError:  # pathlib's
        raise InvalidSetting(f"{text}: no user of that name has a home folder here; give the whole path") from None


def parse_optional_path(text: str) -> Path | None:
    return parse_path(text) if text else None


def parse_history(text: str) -> str:
    """The URL of a database, with a file's path whole; "" for none. Nothing of a text that is refused is shown, as
    there may be a password in it."""
    scheme, _, rest = text.partition("://")
    if text and scheme not in (SQLITE, POSTGRESQL):
        raise InvalidSetting("expected sqlite:///FILE or postgresql://[USER@]HOST[:PORT]/DATABASE")
    if scheme == SQLITE:
        if not rest.strip("/") or not rest.startswith("/"):
            raise InvalidSetting("expected a file behind sqlite:///, such as sqlite:///history.db")
        return f"{SQLITE}:///{parse_path(rest[1:]).absolute()}"
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for none
    except ValueError:
        parts = None
    if parts is None or parts.fragment or "@" in parts.path or not text.isascii():
        raise InvalidSetting(f"no URL of a database: special characters are written as %XX, and {NO_PASSWORDS}")
    secrets = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if "password" in name.lower()}
    if parts.password is not None or secrets:
        raise InvalidSetting(f"there is a password in the URL, which would be shown and saved: {NO_PASSWORDS}")
    return text


def parse_resume(text: str) -> Path | bool:
    """The run to go on with: True for that of the report's folder, False for none."""
    return text == "true" if text in ("", "true", "false") else parse_path(text)


def names_seen_from(folder: Path, text: str) -> str:
    """Names or paths, separated by commas, as a file in that folder has them: what lies there, by its whole path.

    A word such as `tiny` stays one, whatever is called so there.
    """
    return ",".join(_seen_from(folder, name.strip()) for name in text.split(","))


def _seen_from(folder: Path, name: str) -> str:
    is_there = bool(name) and name not in WORDS and "\0" not in name and (folder / name).exists()
    return str(folder / name) if is_there else name


def path_seen_from(folder: Path, text: str) -> str:
    """Path seen from the folder, whether anything is there or not; none stays none, and ~ is a home folder."""
    return str(folder / text) if text and not text.startswith("~") else text


def parse_device(text: str) -> str:
    kind, _, index = text.partition(":")
    if text in DEVICES or (kind == "cuda" and index.isdecimal()):
        return text
    raise InvalidSetting(f"unknown device {text!r}. Known: auto, cpu, cuda, cuda:N, mps")


def parse_device_map(text: str) -> Mapping[str, int | str] | None:
    """Place of each named part of the model: the number of a CUDA device, "cpu" or "disk". Empty for `auto`: where
    accelerate puts it. None for no map."""
    if text in ("", "auto"):
        return {} if text else None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found:
        raise InvalidSetting(f"expected auto, or JSON such as {EXAMPLE_MAP}, got {shortened(text)}")
    places = {name: _place(name, device) for name, device in found.items()}
    if set(places.values()) == {DISK}:
        raise InvalidSetting("all lies on disk; at least one part needs a device that computes: cpu, or cuda:N")
    return places


def _place(name: str, device: object) -> int | str:
    cuda = CUDA_DEVICE.fullmatch(str(device))
    if cuda:
        return int(cuda[1] or 0)
    if device in ("cpu", DISK) or (type(device) is int and device >= 0):
        return device
    raise InvalidSetting(f"expected cpu, disk, cuda:N or N for the part {name!r}, got {shortened(str(device))}")
