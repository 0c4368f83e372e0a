from __future__ import annotations

from dataclasses import replace

import pytest

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.measure.support import check_supported
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import CacheKind, Padding, Workload


def test_what_fills_the_context_fits_and_one_token_more_does_not(tiny_fp32: TransformersModel) -> None:
    """10 columns and 6 new tokens are 16."""
    model = replace(tiny_fp32, facts=replace(tiny_fp32.facts, context_length=16))
    padding = Padding(at_least=10)
    check_supported(model, Workload(((1, 2, 3),), 6, 1, padding))
    with pytest.raises(WorkloadUnsupported, match=r"^17 tokens, padding and new ones included, .* context of 16$"):
        check_supported(model, Workload(((1, 2, 3),), 7, 1, padding))


def test_a_cache_that_the_model_has_not_is_not_supported(tiny_fp32: TransformersModel) -> None:
    model = replace(tiny_fp32, facts=replace(tiny_fp32.facts, cache_kinds=frozenset({CacheKind.DYNAMIC})))
    check_supported(model, Workload(((1,),), 1, 1))
    with pytest.raises(WorkloadUnsupported, match=r"^fp32 can't generate with cache off$"):
        check_supported(model, Workload(((1,),), 1, 1, cache=CacheKind.OFF))
