"""The ways to run a model: `Variant`, what it computes in, and how one is chosen by name. Each backend has its own in
its file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.processes.affinity import usable_cores


class Precision(StrEnum):
    """A floating-point type of weights and activations."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Arithmetic(StrEnum):
    """The number format that a model adds in: it bounds how much the order of additions may change results."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"  # activations too, on a scale that is fixed or a token's own
    INT8_PER_BATCH = "int8 per batch"  # activations too, on a scale that depends on all that runs together


TOLERANCES: Mapping[Arithmetic, float] = {
    Arithmetic.FLOAT32: 1e-4,
    Arithmetic.FLOAT16: 4e-3,
    Arithmetic.BFLOAT16: 3e-2,
    Arithmetic.INT8: 3e-2,
    Arithmetic.INT8_PER_BATCH: 1e-1,
}
"""How much float error alone may move a logit, in logit scales. docs/explanation/equivalence.md says what a scale is,
and has the measurements behind these values."""


def tolerance_of(compute: Precision | None) -> float:
    """Tolerance of a model that multiplies in the dtype, in logit scales. None: in 8-bit integers."""
    return TOLERANCES[Arithmetic(compute.value) if compute else Arithmetic.INT8]


SPELLINGS: Mapping[str, Precision] = {
    **dict.fromkeys(("float32", "fp32", "f32", "float", "torch.float32"), Precision.FLOAT32),
    **dict.fromkeys(("float16", "fp16", "f16", "half", "torch.float16"), Precision.FLOAT16),
    **dict.fromkeys(("bfloat16", "bf16", "torch.bfloat16"), Precision.BFLOAT16),
}


IN_THREADS = re.compile(r"(.+)-([0-9]{1,4})t")  # the id of a variant with a number of threads
PASSIVE = "-passive"  # the end of the id of one whose threads wait asleep
WAITING_PASSIVELY = ", waiting asleep (OMP_WAIT_POLICY=passive)"
LEAST_NEAR = 3  # characters of a name that others are looked for that are like it
WIDTH = re.compile(r"[a-z]*([0-9]+)(-?bits?)?")  # of weights, in bits: "int4", "8-bit"
DEFAULT = "default"
"""Name in a list of variants for those that run where none is named."""


def parse_precision(text: str) -> Precision:
    """The precision that `text` spells. Raises UnknownName with the accepted spellings."""
    try:
        return SPELLINGS[text.strip().lower()]
    except KeyError:
        raise UnknownName("dtype", text, SPELLINGS) from None


@dataclass(frozen=True)
class Variant:
    """One way to run the model."""

    id: str
    """Id that people type and tables show."""

    backend: str
    """The short name of one of the package's backends, or the dotted path of a module with one of your own."""

    description: str
    """Description in a few words."""

    precision: Precision = Precision.FLOAT32
    """The dtype of its weights, or of what isn't quantized of them."""

    autocast: Precision | None = None
    """The dtype that torch computes in under autocast."""

    quantization: str | None = None
    """How the weights are stored in fewer bits, in its backend's words. None: they aren't."""

    base: str | None = None
    """The id of the variant that this one is quantized from. None: it is made from no other variant."""

    attention: str | None = None
    """The attention implementation, by transformers' name for it. None: that of `--llm-attention`."""

    threads: int | None = None
    """Number of threads. None: torch's default."""

    is_passive: bool = False
    """Whether its threads sleep while they wait for work (OMP_WAIT_POLICY=passive), where engines by default let them
    spin for some milliseconds first."""

    threads_of: str | None = None
    """Id of the variant that differs from it only in the number of threads, or in how they wait."""

    def __post_init__(self) -> None:
        if not self.id or any(character in self.id for character in ", []"):
            raise InvalidSetting(f"variant id {self.id!r} must not be empty or hold a comma, space or bracket")


def with_threads(variant: Variant, threads: int) -> Variant:
    """The variant in this number of threads, such as `fp32-2t`. Raises InvalidSetting for 0, or more than the cores."""
    name, cores = f"{variant.id}-{threads}t", usable_cores()
    if not 0 < threads <= cores:
        raise InvalidSetting(f"{name}: expected at least 1 thread and at most {cores}, one for each core to be used")
    told = f"{variant.description}, {in_threads(threads)}"
    return replace(variant, id=name, description=told, threads=threads, threads_of=variant.id)


def waiting_passively(variant: Variant) -> Variant:
    """The variant with threads that wait asleep, such as `ort-fp32-passive`."""
    told, of = f"{variant.description}{WAITING_PASSIVELY}", variant.threads_of or variant.id
    return replace(variant, id=passive_id(variant.id), description=told, is_passive=True, threads_of=of)


def passive_id(identifier: str) -> str:
    """Id of the variant with threads that wait asleep."""
    return identifier + PASSIVE


def quantized_from(base: Variant, name: str, weights: str, quantization: str) -> Variant:
    """The variant `base` with its weights in fewer bits. weights: what they are, the end of the description."""
    return replace(base, id=name, description=f"{base.id} with {weights}", quantization=quantization, base=base.id)


def in_threads(number: int) -> str:
    """Words such as "in 2 threads"."""
    return f"in {number} thread{'' if number == 1 else 's'}"


def select_variants(
    text: str, catalogue: Sequence[Variant], reference: str, default: Sequence[Variant] | None = None
) -> tuple[Variant, ...]:
    """The variants that a comma-separated list of ids and engines names, the reference first, each once.

    An empty text means those of `default`, or the whole catalogue, and the reference. A backend's name, with "-" for
    "_" too as its extra has it, stands for all its variants, a dtype's spelling ("half") for its variant ("fp16"),
    "default" for those of `default`, "fp32-2t" for fp32 in two threads, "fp32-passive" for fp32 whose threads wait
    asleep.
    Raises UnknownName with the known ids and engines, and InvalidSetting for more threads than cores.
    """
    by_id = {variant.id: variant for variant in catalogue}
    groups = {DEFAULT: catalogue if default is None else default}
    for variant in catalogue:
        groups[variant.backend] = [*groups.get(variant.backend, ()), variant]
    names = [name.strip() for name in text.split(",") if name.strip()] or [DEFAULT, reference]
    chosen = {variant.id: variant for name in names for variant in _find(name, by_id, groups)}
    (first,) = _find(reference, by_id, {})
    return tuple(sorted(chosen.values(), key=lambda variant: variant.id != first.id))


def _find(name: str, by_id: Mapping[str, Variant], groups: Mapping[str, Sequence[Variant]]) -> Sequence[Variant]:
    """Variants that the name stands for: a variant's id before an engine of the same name."""
    if name in by_id:
        return (by_id[name],)
    form = IN_THREADS.fullmatch(name)
    if form and form[1] in by_id:
        return (with_threads(by_id[form[1]], int(form[2])),)
    base = name.removesuffix(PASSIVE)
    if base and base != name and not base.endswith(PASSIVE):
        return tuple(map(waiting_passively, _find(base, by_id, groups)))
    engine = name if name in groups else name.replace("-", "_")
    if engine in groups:
        return groups[engine]
    precision = SPELLINGS.get(name.lower())
    for variant in by_id.values():
        if precision is not None and variant.precision is precision and is_plain(variant):
            return (variant,)
    kind, near = "variant or engine" if groups else "variant", near_variants(name, by_id.values())
    raise UnknownName(kind, name, (*by_id, *groups), near)


def is_variant(name: str, catalogue: Iterable[Variant]) -> bool:
    """Whether it is the id of a variant of the catalogue, or of one with its own threads."""
    try:
        _find(name, {variant.id: variant for variant in catalogue}, {})
    except (UnknownName, InvalidSetting):
        return False
    return True


def near_variants(name: str, variants: Iterable[Variant]) -> list[str]:
    """Ids that the name is a part of, or whose weights have as many bits: "int4" stands for ov-int4 and bnb-nf4. None
    for a name of one or two characters, which is a part of most."""
    if len(name) < LEAST_NEAR:
        return []
    asked = WIDTH.fullmatch(name.lower())

    def is_near(one: Variant) -> bool:
        own = WIDTH.match(one.quantization or one.precision)
        return name.lower() in one.id or bool(asked and own and asked[1] == own[1])

    return [one.id for one in variants if is_near(one)]


def is_plain(variant: Variant) -> bool:
    """Whether the variant is nothing but the torch model in a dtype."""
    return _is_torch(variant) and variant.autocast is None


def narrow(names: Sequence[str], variants: Sequence[Variant], catalogue: Sequence[Variant]) -> tuple[Variant, ...]:
    """Variants that are named, by id or as a group: "quantization" for quantized variants and what they are made from,
    "precision" for the torch model in each dtype and under autocast, and for what else isn't in the former, "reference"
    for the first one. No names: all.

    Raises UnknownName for a name that is neither a group nor an id of the catalogue.
    """
    if not names:
        return tuple(variants)
    bases = {variant.base for variant in variants if variant.quantization is not None and variant.base}
    quantized = bases | {variant.id for variant in variants if variant.quantization is not None}
    groups = {
        "precision": {variant.id for variant in variants if variant.id not in quantized or _is_torch(variant)},
        "quantization": quantized,
        "reference": {variant.id for variant in variants[:1]},
    }
    known = {variant.id for variant in (*catalogue, *variants)}
    for name in names:
        if name not in known and name not in groups:
            near = near_variants(name, dict.fromkeys((*catalogue, *variants)))
            raise UnknownName("variant or group of variants", name, (*groups, *sorted(known)), near)
    wanted = set().union(*(groups.get(name, {name}) for name in names))
    return tuple(variant for variant in variants if variant.id in wanted)


def _is_torch(variant: Variant) -> bool:
    return variant.backend == "torch" and variant.quantization is None
