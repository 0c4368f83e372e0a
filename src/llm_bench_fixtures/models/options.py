"""The options of single backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.options.parsers import parse_bool
from llm_bench_fixtures.options.table import Option

if TYPE_CHECKING:
    from llm_bench_fixtures.models.variants import Precision


def parse_optional_precision(text: str) -> Precision | None:
    from llm_bench_fixtures.models.variants import parse_precision

    return parse_precision(text) if text else None


BNB_COMPUTE_DTYPE = Option(
    "bnb_compute_dtype",
    parse_optional_precision,
    "",
    "DTYPE",
    "dtype in which bitsandbytes variants compute. Default: float32 on CPU, bfloat16 elsewhere",
)
BNB_DOUBLE_QUANT = Option(
    "bnb_double_quant",
    parse_bool,
    "false",
    "",
    "quantize the scales of the 4-bit bitsandbytes variants too",
)

OPTIONS: tuple[Option[Any], ...] = (BNB_COMPUTE_DTYPE, BNB_DOUBLE_QUANT)
