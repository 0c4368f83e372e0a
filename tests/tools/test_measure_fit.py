"""The script that holds what is said to fit against what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import measure_fit
import pytest

from llm_bench_fixtures.errors import BackendUnavailable


def test_variants_that_fail_are_lines_and_missing_predictions_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: neither was to be seen, so that nothing told a check of everything from one of nothing."""

    def measured(name: str, *_: Any) -> Iterator[tuple[str, float | None, float | None]]:
        yield f"{name} weights", 110.0, 100.0
        yield f"{name} cache dynamic", None, 50.0
        if "bf16" in name:
            raise BackendUnavailable("torch: no bf16 here")

    monkeypatch.setattr(measure_fit, "_of_variant", measured)
    monkeypatch.setattr(measure_fit, "check_usable", lambda source: None)
    name = measure_fit.FAMILIES[0].name
    assert measure_fit.print_families([name], "fp32,bf16") == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{name} fp32 weights: 110.0 predicted, 100.0 measured <-",
        f"{name} fp32 cache dynamic: None predicted, 50.0 measured",
        f"{name} bf16 weights: 110.0 predicted, 100.0 measured <-",
        f"{name} bf16 cache dynamic: None predicted, 50.0 measured",
        f"{name} bf16: doesn't run: torch: no bf16 here",
        "2 differ by more than 5%; 2 without a prediction",
    ]
