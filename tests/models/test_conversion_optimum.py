"""What the models of Optimum's exporters have in common."""

from __future__ import annotations

from functools import partial
from types import ModuleType

from llm_bench_fixtures.models.conversion import unbind_partials


def test_a_partial_that_a_class_holds_is_called_without_the_object() -> None:
    """Bug: on Python 3.14, which binds it like a function, no model was exported."""

    class Config:
        NORMALIZED_CONFIG_CLASS = partial(dict, allow_new=True)

    module = ModuleType("model_configs")
    module.Config = Config  # type: ignore[attr-defined]
    unbind_partials(module)
    assert isinstance(vars(Config)["NORMALIZED_CONFIG_CLASS"], staticmethod)
    assert Config().NORMALIZED_CONFIG_CLASS({"n": 1}) == {"n": 1, "allow_new": True}
