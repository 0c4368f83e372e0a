from __future__ import annotations

from llm_bench_fixtures.models.arithmetic import TOLERANCES, Arithmetic, tolerance_of
from llm_bench_fixtures.models.variants import Precision


def test_every_arithmetic_has_a_tolerance_and_float32_the_least() -> None:
    assert set(TOLERANCES) == set(Arithmetic)
    assert TOLERANCES[Arithmetic.FLOAT32] == min(TOLERANCES.values())


def test_each_dtype_has_the_tolerance_of_its_arithmetic() -> None:
    assert tolerance_of(Precision.FLOAT32) == TOLERANCES[Arithmetic.FLOAT32]
    assert tolerance_of(Precision.FLOAT16) == TOLERANCES[Arithmetic.FLOAT16]
    assert tolerance_of(Precision.BFLOAT16) == TOLERANCES[Arithmetic.BFLOAT16]
    assert tolerance_of(None) == TOLERANCES[Arithmetic.INT8]
