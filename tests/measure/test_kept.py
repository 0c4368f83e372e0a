from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any, cast

from llm_bench_fixtures.measure.kept import KeptForModel


@dataclass
class Unhashable:
    """Equal to every other one, as the dataclass of somebody's backend may be."""


def test_each_model_has_its_own_value() -> None:
    kept: KeptForModel[str] = KeptForModel()
    one, other = (cast(Any, Unhashable()) for _ in range(2))
    kept.put(one, "one's")
    assert (kept.get(one), kept.get(other)) == ("one's", None)
    assert kept.get_or_make(other, lambda: "made") == kept.get_or_make(other, lambda: "again") == "made"


def test_a_dropped_value_is_made_again() -> None:
    kept: KeptForModel[str] = KeptForModel()
    model = cast(Any, Unhashable())
    kept.put(model, "first")
    kept.pop(model)
    assert kept.get(model) is None
    assert kept.get_or_make(model, lambda: "second") == "second"


def test_a_value_goes_with_its_model() -> None:
    """Two workloads' tensors and a probe's buffers would else outlive every variant of a session."""
    kept: KeptForModel[Unhashable] = KeptForModel()
    model = cast(Any, Unhashable())
    kept.put(model, Unhashable())
    kept.put(model, Unhashable())
    del model
    gc.collect()
    assert not kept._values


def test_nothing_watches_a_model_whose_value_is_dropped() -> None:
    kept: KeptForModel[str] = KeptForModel()
    model = cast(Any, Unhashable())
    for value in ("first", "second", "third"):
        kept.put(model, value)
        assert weakref.getweakrefcount(model) == 1
        kept.pop(model)
    assert weakref.getweakrefcount(model) == 0


class Slotted:
    """Its objects have no dictionary, and can be referred to weakly."""

    __slots__ = ("__weakref__",)


def test_a_model_with_slots_has_its_value() -> None:
    kept: KeptForModel[str] = KeptForModel()
    model = cast(Any, Slotted())
    kept.put(model, "its")
    assert kept.get(model) == "its"
    del model
    gc.collect()
    assert not kept._values
