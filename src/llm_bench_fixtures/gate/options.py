"""What the gate's options mean; their names, defaults and help stand in options/table.py."""

from __future__ import annotations

from typing import Any

from llm_bench_fixtures.gate.allowances import parse_missing
from llm_bench_fixtures.gate.rules import parse_rules
from llm_bench_fixtures.options.parsers import Setting, parse_bool, parse_optional_path

GATE = Setting("gate", parse_bool)
RULES = Setting("gate_rules", parse_rules)
MISSING = Setting("gate_missing", parse_missing)
SUMMARY = Setting("gate_summary", parse_optional_path)
BASELINE = Setting("baseline", str)

SETTINGS: tuple[Setting[Any], ...] = (GATE, RULES, MISSING, SUMMARY, BASELINE)
HOW = (RULES, MISSING, SUMMARY, BASELINE)  # they say how to judge, and need GATE, which says that a run is judged
