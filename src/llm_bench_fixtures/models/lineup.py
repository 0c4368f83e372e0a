"""Which variants are loaded at the same time: as many as fit a share of the memory that is free, the reference among
them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llm_bench_fixtures.models.needs import NOTHING, MemoryNeed
from llm_bench_fixtures.models.variants import Variant


@dataclass(frozen=True)
class Lineup:
    """Groups of variants that are loaded together, one group after the other."""

    groups: tuple[tuple[Variant, ...], ...]
    """Each holds the reference first, unless there is none or there is no room for another beside it."""

    needs: Mapping[str, MemoryNeed] = field(default_factory=dict)
    """Memory that each variant needs, by its id."""

    budget_bytes: int = 0
    """Bytes that all of a group may take together."""

    @property
    def is_apart(self) -> bool:
        """Whether no two variants are loaded at the same time."""
        return all(len(group) == 1 for group in self.groups)

    def place(self, variant: Variant) -> int:
        """The first group that the variant is in; 0 where it is in none."""
        return next((number for number, group in enumerate(self.groups) if variant in group), 0)

    @property
    def most_bytes(self) -> int:
        """Bytes that a group takes at most, once everything is made."""
        return max(together([self.need(variant) for variant in group]) for group in self.groups)

    def making_bytes(self, made: Container[str] = ()) -> int:
        """Bytes that a group takes at most while something is made next to those that are loaded before. made:
        variants, by id, for which nothing is made any more."""
        orders = [self.made_first(group) or group for group in self.groups]
        return max((size for order in orders for size in self._while_making(order, made)), default=0)

    def made_first(self, group: Sequence[Variant]) -> tuple[Variant, ...]:
        """The reference and those of the group for which something is made, if making it takes more memory than the
        others leave of the budget; else none."""
        if all(size <= self.budget_bytes for size in self._while_making(group)):
            return ()
        return (*group[:1], *(variant for variant in group[1:] if self.need(variant).making))

    def need(self, variant: Variant) -> MemoryNeed:
        return self.needs.get(variant.id, NOTHING)

    def _while_making(self, order: Sequence[Variant], made: Container[str] = ()) -> Iterator[int]:
        needs = [self.need(variant) for variant in order]
        for loaded, (variant, need) in enumerate(zip(order, needs, strict=True)):
            if need.making and variant.id not in made:
                yield _resident(needs[:loaded]) + need.making

    def fits(self, names: Collection[str], more_bytes: int) -> bool:
        """Whether the budget holds these variants between their turns, and so much more."""
        needs = [self.needs.get(name, NOTHING) for name in names]
        return not self.budget_bytes or _resident(needs) + more_bytes <= self.budget_bytes

    def holds(self, names: Collection[str], more_bytes: int) -> bool:
        """Whether the budget holds these variants while they are loaded and scored, and so much more."""
        needs = [self.needs.get(name, NOTHING) for name in names]
        return not self.budget_bytes or together(needs) + more_bytes <= self.budget_bytes

    def describe(self, made: Container[str] = ()) -> str:
        """The decision in a sentence, with the most memory that is planned to be taken. made: as in `making_bytes`."""
        if not self.budget_bytes:
            return "one variant at a time, so their figures are measured at different times"
        most, making = self.most_bytes, self.making_bytes(made)
        facts = f"about {most / 1e9:.1f} GB of {self.budget_bytes / 1e9:.1f}"
        if making > most:
            facts += f", and up to {making / 1e9:.1f} GB while a model is exported, which is done once"
        variants = dict.fromkeys(variant.id for group in self.groups for variant in group)
        too_large = [name for name in variants if self.needs.get(name, NOTHING).peak > self.budget_bytes]
        killed = f"; {', '.join(too_large)} may be killed for lack of memory" if too_large else ""
        return f"{self._decision(tuple(variants), facts)}{killed}"

    def _decision(self, variants: Sequence[str], facts: str) -> str:
        (first, *others), *groups = self.groups
        most = f"the most at a time: {facts}"
        if len(variants) == 1:
            return f"{first.id} is measured alone ({facts})"
        if not groups:
            return f"{len(variants)} variants are loaded together and take turns ({facts})"
        if self.is_apart:
            return (
                f"one variant at a time: no two fit in memory together ({most}), so their figures are measured at "
                "different times"
            )
        if all(len(group) == 1 for group in groups):
            beside = ", ".join(variant.id for variant in others)
            alone = ", ".join(variant.id for (variant,) in groups)
            are = "are" if len(others) > 1 else "is"
            return f"{beside} {are} measured next to {first.id}; {alone} alone, at other times ({most})"
        sizes = " + ".join(str(len(group)) for group in self.groups)
        how = f", each with {first.id}" if all(first in group for group in groups) else "; those of a group take turns"
        return f"{len(variants)} variants in groups of {sizes}{how} ({most})"


def together(needs: Sequence[MemoryNeed]) -> int:
    """Bytes of variants that are loaded one after the other: what those hold that are, and what one takes more.

    Variants for which something is made may be loaded before their turn, so others may come last.
    """
    loads = (_resident(needs[:number] if need.making else needs) + need.loading for number, need in enumerate(needs, 1))
    return max(*loads, _resident(needs) + max(need.scoring for need in needs))


def _resident(needs: Sequence[MemoryNeed]) -> int:
    """Bytes that each holds, and the model's files once for all that map them."""
    return sum(need.held for need in needs) + max((need.mapped for need in needs), default=0)


def apart(variants: Sequence[Variant]) -> Lineup:
    """Each variant alone."""
    return Lineup(tuple((variant,) for variant in variants))


def plan_lineup(variants: Sequence[Variant], reference: str, needs: Mapping[str, MemoryNeed], budget: int) -> Lineup:
    """Groups that take no more than the budget: each variant, in their order, is in the first that has room.
    variants: at least one.

    reference: its id; it is in every group, unless it leaves no room for the variant, which then is alone. needs: by
    id; of those that are loaded elsewhere NOTHING. budget: bytes of a group.
    """
    first = [variant for variant in variants if variant.id == reference]
    groups = [[*first]] if first else []
    for variant in variants:
        if variant.id == reference:
            continue
        group = next((group for group in groups if _fits([*group, variant], first, needs, budget)), None)
        if group is None:
            group = [*first] if _fits([*first, variant], first, needs, budget) else []
            groups.append(group)
        group.append(variant)
    return Lineup(tuple(map(tuple, groups)), needs, budget)


def _fits(group: Sequence[Variant], first: Sequence[Variant], needs: Mapping[str, MemoryNeed], budget: int) -> bool:
    """Whether the last of the group has room beside the others, the reference among them where there is one."""
    if first and group[0] is not first[0]:
        return False
    members = [needs.get(variant.id, NOTHING) for variant in group]
    return members[-1] == NOTHING or together(members) <= budget
