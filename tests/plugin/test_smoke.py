"""One run of the plugin from end to end, for those who want an answer within a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Bench


def test_a_suite_is_measured_scored_and_reported(own_suite: Bench) -> None:
    result = own_suite.run("--llm-variants=fp32,bf16")
    result.assert_outcomes(passed=2)
    assert [variant["status"] for variant in own_suite.variants().values()] == ["measured", "measured"]
    assert own_suite.variants()["fp32"]["quality"]["perplexity"] > 1
    assert all(len(record["rounds_s"]) == 2 for record in own_suite.records())
    assert "fp32" in own_suite.markdown()
