"""What measuring keeps for a model from one call to the next, outside the model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from llm_bench_fixtures.models.model import Model

T = TypeVar("T")


class KeptForModel(Generic[T]):
    """One value for each model, until it is dropped or the model is gone.

    Models are told apart by identity: a WeakKeyDictionary would need models that can be hashed.
    """

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Model], T]] = {}

    def get(self, model: Model) -> T | None:
        _, value = self._values.get(id(model), (None, None))
        return value

    def put(self, model: Model, value: T) -> None:
        key = id(model)
        gone = weakref.ref(model, lambda _: self._values.pop(key, None))  # another object may get its id
        self._values[key] = gone, value

    def get_or_make(self, model: Model, make: Callable[[], T]) -> T:
        value = self.get(model)
        if value is None:
            value = make()
            self.put(model, value)
        return value

    def pop(self, model: Model) -> T | None:
        _, value = self._values.pop(id(model), (None, None))
        return value
