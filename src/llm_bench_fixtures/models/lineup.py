"""Which variants are loaded at the same time: as many as fit a share of the memory that is free, the reference among
them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.variants import Variant

PROCESS_BYTES = 300_000_000  # of its own, beside the libraries that forked processes share
ACCELERATOR_PROCESS_BYTES = 600_000_000  # what a driver takes of its device for each process
LOADED_BYTES_PER_WEIGHT = 6.0  # float32, with half as much again for what a load, a cache and a round take


@dataclass(frozen=True)
class Lineup:
    """Groups of variants that are loaded together, one group after the other."""

    groups: tuple[tuple[Variant, ...], ...]
    """Each holds the reference first, unless there is none or there is no room for another beside it."""

    needed_bytes: int
    """That one loaded variant is expected to take at most."""

    budget_bytes: int
    """What all of them may take together."""

    @property
    def is_apart(self) -> bool:
        """Whether no two variants are loaded at the same time."""
        return all(len(group) == 1 for group in self.groups)

    def place(self, variant: Variant) -> int:
        """The first group that the variant is in."""
        return next(number for number, group in enumerate(self.groups) if variant in group)

    def describe(self) -> str:
        """The decision in a sentence."""
        variants = list(dict.fromkeys(variant.id for group in self.groups for variant in group))
        facts = f"each needs up to {_gigabytes(self.needed_bytes)} of {_gigabytes(self.budget_bytes)}"
        if self.needed_bytes > self.budget_bytes:
            return f"one variant at a time, and even one may be killed for lack of memory: {facts}"
        if len(variants) == 1:
            return f"{variants[0]} is measured alone"
        if self.is_apart:
            return (
                f"one variant at a time: no two fit in memory together ({facts}), so their figures are measured at "
                "different times"
            )
        if len(self.groups) == 1:
            return f"{len(variants)} variants are measured side by side ({facts})"
        if all(len(group) == 1 for group in self.groups[1:]) and self.budget_bytes < 2 * self.needed_bytes:
            return self._describe_servers(facts)
        sizes = " + ".join(str(len(group)) for group in self.groups)
        if all(group[0].id == variants[0] for group in self.groups):
            return f"{len(variants)} variants in groups of {sizes}, each with {variants[0]} ({facts})"
        return f"{len(variants)} variants in groups of {sizes}, those of a group side by side ({facts})"

    def _describe_servers(self, facts: str) -> str:
        """Where no two variants fit in memory, and the first has servers next to it, which take no room."""
        first, *servers = (variant.id for variant in self.groups[0])
        left = ", ".join(variant.id for group in self.groups[1:] for variant in group)
        are = "is" if len(servers) == 1 else "are"
        return (
            f"{', '.join(servers)} {are} measured next to {first}; no two others fit in memory together ({facts}), so "
            f"the figures of {left} are measured at different times"
        )


def needed_bytes(weights: int, device: Device) -> int:
    """An upper bound of what one variant takes, whatever its precision: many are loaded in float32 first."""
    from llm_bench_fixtures.models.device import DeviceKind

    process = PROCESS_BYTES if device.kind is DeviceKind.CPU else ACCELERATOR_PROCESS_BYTES
    return process + int(weights * LOADED_BYTES_PER_WEIGHT)


def apart(variants: Sequence[Variant]) -> Lineup:
    """Each variant alone."""
    return Lineup(tuple((variant,) for variant in variants), 0, 0)


def plan_lineup(
    variants: Sequence[Variant], reference: str, needed: int, budget: int, served: Container[str] = ()
) -> Lineup:
    """Groups in the variants' order, with as many of them as the budget holds. variants: at least one.

    reference: its id; it is in every group. needed, budget: bytes of one variant, and of all together. served: ids of
    those that another program has loaded. They take none of it, and are in the first group.
    """
    first = [variant for variant in variants if variant.id == reference]
    rest = [variant for variant in variants if variant.id != reference]
    free = [variant for variant in rest if variant.id in served]
    others = [variant for variant in rest if variant.id not in served]
    room = max(budget // max(needed, 1), 1) - sum(variant.id not in served for variant in first)
    if room < 1:  # beside the reference
        groups = [[*first, *free], *([variant] for variant in others)]
    else:
        groups = [[*first, *others[start : start + room]] for start in range(0, max(len(others), 1), room)]
        groups[0] += free
    return Lineup(tuple(map(tuple, groups)), needed, budget)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
