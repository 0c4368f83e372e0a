"""Which scenario, case and variant a test is, read off its pytest item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.results.record import Record, Status


OF_VARIANT = ("llm_model", "llm_prompts")  # fixtures that are made anew for each variant


@dataclass(frozen=True)
class Identity:
    """test: pytest's node id. case: the parameters other than the variant, as people read them. gate: the changes that
    its marker allows, by metric or kind of metrics."""

    test: str
    scenario: str
    case: str
    variant: str
    gate: Mapping[str, str] = field(default_factory=dict)

    def record(self, status: Status, reason: str = "") -> Record:
        """A record of this test that holds nothing measured."""
        from llm_bench_fixtures.results.record import Record

        return Record(self.test, self.scenario, self.case, self.variant, status, reason, gate=self.gate)


def variant_of(item: pytest.Item) -> Variant | None:
    """The variant that the item is parametrized with, if it is."""
    parameter = _parameters(item).get("llm_model")
    if parameter is None:
        return None
    from llm_bench_fixtures.models.variants import Variant

    return parameter if isinstance(parameter, Variant) else None


def identify(item: pytest.Item) -> Identity:
    """The scenario is the marker `llm_scenario`'s, or the file's name without `test_`."""
    marker = item.get_closest_marker("llm_scenario")
    scenario = str(marker.args[0]) if marker else item.path.stem.removeprefix("test_")
    function = getattr(item, "originalname", item.name).removeprefix("test_")
    values = [str(value) for name, value in _parameters(item).items() if name not in OF_VARIANT]
    case = ", ".join([*([function] if function != scenario else []), *values])
    variant = variant_of(item)
    return Identity(item.nodeid, scenario, case, variant.id if variant else "", _gate_marks(item))


def _gate_marks(item: pytest.Item) -> dict[str, str]:
    """What the test's `llm_gate` markers allow; the closest one's word counts."""
    markers = list(item.iter_markers("llm_gate"))[::-1]
    given = {name: str(change) for marker in markers for name, change in marker.kwargs.items()}
    return given | {str(word): "" for marker in markers for word in marker.args}  # which no rule can be read from


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}
