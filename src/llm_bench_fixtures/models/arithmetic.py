"""What a model computes with, and how much two orders of the same sums can differ in it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_bench_fixtures.models.variants import Precision


class Arithmetic(StrEnum):
    """The number format of a model's sums, which bounds how much another order of the same sums may change them."""

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
