"""The gate's options: rows as in options/table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.gate.allowances import parse_missing
from llm_bench_fixtures.options.parsers import parse_bool, parse_optional_path
from llm_bench_fixtures.options.table import Option

if TYPE_CHECKING:
    from llm_bench_fixtures.gate.rules import NamedRule


def _rules(text: str) -> tuple[NamedRule, ...]:
    from llm_bench_fixtures.gate.rules import parse_rules  # here, because every pytest run reads these rows

    return parse_rules(text)


GATE = Option(
    "gate",
    parse_bool,
    "false",
    "",
    "judge this run by a saved one, and fail where it is worse: the newest complete run in pytest-benchmark's "
    "storage, or what --benchmark-compare or --llm-baseline names",
)
RULES = Option(
    "gate_rules",
    _rules,
    "",
    "RULE[,RULE...]",
    "[SCENARIO/]METRIC:CHANGE, where METRIC may be a kind (timing, memory, quality, exact) and CHANGE is what may "
    "change for the worse: 5% relative, 0.5 in the metric's unit, 0 nothing, or blocking, advisory, off. Default: "
    "docs/reference/stored-gate.md",
)
MISSING = Option(
    "gate_missing",
    parse_missing,
    "fail",
    "WHAT[,WHAT...]",
    "what may be missing without failing the gate: baseline, new, vanished, skipped or errored (tests), "
    "fingerprint (another machine, model, corpus or library set). pass: baseline and new. fail: nothing",
)
SUMMARY = Option(
    "gate_summary",
    parse_optional_path,
    "",
    "FILE",
    "write the gate's verdict as Markdown, for a comment or a step summary",
)
BASELINE = Option(
    "baseline",
    str,
    "",
    "WHAT",
    "the saved run to judge by: branch:NAME (its newest), merge-base:REF (of the commit where this branch left "
    "REF, or the nearest before it), or a run's number, name or file",
)

OPTIONS: tuple[Option[Any], ...] = (GATE, RULES, MISSING, SUMMARY, BASELINE)
HOW = (RULES, MISSING, SUMMARY, BASELINE)  # they say how to judge, and need GATE, which says that a run is judged
