"""What the gate's options mean; their names, defaults and help stand in options/table.py."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from llm_bench_fixtures.gate.rules import parse_rules
from llm_bench_fixtures.options.parsers import Setting, members_of, parse_bool, parse_optional_path


class Allowance(StrEnum):
    """Something that would make a gate fail, and may be allowed."""

    BASELINE = "baseline"
    """No saved run to compare with."""
    NEW = "new"
    """Tests that the baseline does not have."""
    VANISHED = "vanished"
    """Tests or values that only the baseline has."""
    SKIPPED = "skipped"
    """Tests that are skipped now."""
    ERRORED = "errored"
    """Tests that fail now, or that time nothing now."""
    UNREACHED = "unreached"
    """Tests, and quality, that this run had no time for."""
    FINGERPRINT = "fingerprint"
    """Another machine, model, corpus or set of libraries than the baseline's."""
    CHANGED = "changed"
    """Tests that time another workload than before."""
    INCONCLUSIVE = "inconclusive"
    """Comparisons that stayed open."""
    SLIGHT = "slight"
    """What got worse by less than the threshold."""


# Allowances of a run compared with a saved one, and of two versions compared in turns.
BY_SAVED_RUN = (
    *(Allowance.BASELINE, Allowance.NEW, Allowance.VANISHED),
    *(Allowance.SKIPPED, Allowance.ERRORED, Allowance.UNREACHED, Allowance.FINGERPRINT),
)
BY_TURNS = (
    *(Allowance.SLIGHT, Allowance.CHANGED, Allowance.SKIPPED),
    *(Allowance.VANISHED, Allowance.INCONCLUSIVE),
)

NOTHING: frozenset[Allowance] = frozenset()
WORDS: Mapping[str, frozenset[Allowance]] = {"fail": NOTHING, "pass": frozenset({Allowance.BASELINE, Allowance.NEW})}

_missing = members_of(BY_SAVED_RUN, "thing that may be missing", also=WORDS)

parse_allowed = members_of(BY_TURNS, "thing that can be allowed")


def parse_missing(text: str) -> frozenset[Allowance]:
    """`fail`, `pass` or names of BY_SAVED_RUN; an empty text says `fail`. Raises UnknownName."""
    word = text or "fail"
    return WORDS[word] if word in WORDS else _missing(text)


GATE = Setting("gate", parse_bool)
RULES = Setting("gate_rules", parse_rules)
MISSING = Setting("gate_missing", parse_missing)
SUMMARY = Setting("gate_summary", parse_optional_path)
BASELINE = Setting("baseline", str)

SETTINGS: tuple[Setting[Any], ...] = (GATE, RULES, MISSING, SUMMARY, BASELINE)
HOW = (RULES, MISSING, SUMMARY, BASELINE)  # how to judge; each needs GATE, which says that a run is judged
