"""The docs say what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.plugin.stash import ALL_OPTIONS
from llm_bench_fixtures.report.sections import SCENARIOS

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("page", ["metrics.md", "options.md"])
def test_the_pages_that_are_written_from_the_code_are_up_to_date(page: str) -> None:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert module.render(page, text) == text


@pytest.mark.parametrize("scenario", [*SCENARIOS, "equivalence", "overhead"])
def test_each_scenario_of_the_report_has_its_file(scenario: str) -> None:
    assert (ROOT / "benchmarks" / f"test_{scenario}.py").is_file()


@pytest.mark.parametrize("variant", [variant.id for variant in CATALOGUE])
def test_the_readme_names_each_variant(variant: str) -> None:
    assert f"`{variant}`" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_docs_name_no_option_that_is_not_there() -> None:
    known = {option.flag for option in ALL_OPTIONS}
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        named = set(re.findall(r"--llm-[a-z-]+", path.read_text(encoding="utf-8")))
        assert named <= known, path.name
