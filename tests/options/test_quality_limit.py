"""The limit of quality, as it is typed."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.options.quality_limit import (
    DEFAULT_QUALITY_LIMIT,
    QualityLimit,
    QualityMeasure,
    parse_quality_limit,
)
from llm_bench_fixtures.options.settings import parse_settings

PPL_RATIO, TOP1 = QualityMeasure.PPL_RATIO, QualityMeasure.TOP1_AGREEMENT


@pytest.mark.parametrize(
    ("text", "limit", "shown", "words"),
    [
        ("ppl_ratio:1.01", QualityLimit(PPL_RATIO, 1.01), "ppl_ratio ≤ 1.01", "perplexity at most 1 % above fp32's"),
        ("ppl_ratio:1", QualityLimit(PPL_RATIO, 1.0), "ppl_ratio ≤ 1", "perplexity not above fp32's"),
        (
            " ppl_ratio : 101% ",
            QualityLimit(PPL_RATIO, 1.01),
            "ppl_ratio ≤ 1.01",
            "perplexity at most 1 % above fp32's",
        ),
        (
            "top1_agreement:0.99",
            QualityLimit(TOP1, 0.99),
            "top1_agreement ≥ 99 %",
            "top-1 agreement of at least 99 % with fp32",
        ),
        (
            "top1_agreement:99.5%",
            QualityLimit(TOP1, 0.995),
            "top1_agreement ≥ 99.5 %",
            "top-1 agreement of at least 99.5 % with fp32",
        ),
        (
            "top1_agreement:1",
            QualityLimit(TOP1, 1.0),
            "top1_agreement ≥ 100 %",
            "top-1 agreement of at least 100 % with fp32",
        ),
    ],
)
def test_a_limit(text: str, limit: QualityLimit, shown: str, words: str) -> None:
    assert parse_quality_limit(text) == limit
    assert str(limit) == shown
    assert limit.words("fp32") == words


def test_the_default_of_the_option_is_that_of_a_saved_run() -> None:
    assert parse_settings({}).quality_limit == DEFAULT_QUALITY_LIMIT


@pytest.mark.parametrize(
    "text",
    [
        "", "1.01", "ppl_ratio", "ppl_ratio:", "ppl_ratio:low", "ppl_ratio:0.99", "ppl_ratio:inf", "ppl_ratio:nan",
        "kld_mean:0.01", "top1_agreement:99", "top1_agreement:0", "top1_agreement:-1%", "top1_agreement:nan",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_taken(text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_settings({"quality_limit": text})
    assert str(caught.value) == (
        "--llm-quality-limit: expected ppl_ratio:LIMIT of at least 1, such as ppl_ratio:1.01, or top1_agreement:LIMIT, "
        f"such as 99%; got {text!r}"
    )
