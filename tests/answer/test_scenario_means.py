"""A scenario's mean speed-ups: derived by hand."""

from __future__ import annotations

import pytest
from run_factory import make_block_record, make_record, make_run, make_workload

from llm_bench_fixtures.answer.headline import scenario_means
from llm_bench_fixtures.results.record import Record


def case(name: str, speedup: float, variant: str = "v0", scenario: str = "cache") -> Record:
    return make_block_record(variant, speedup, scenario=scenario, case=name, workload=make_workload(name))


def test_it_is_the_geometric_mean_over_the_cases_that_all_variants_ran() -> None:
    """v0 is once and four times as fast: twice. v1 lacks the third case."""
    both = [case("a", 1.0), case("b", 4.0), case("a", 3.0, "v1"), case("b", 3.0, "v1")]
    (found,) = scenario_means(make_run([make_block_record(spread=0.0), *both, case("c", 9.0)]))
    assert (found.scenario, found.cases) == ("cache", 2)
    assert {name: one.ratio for name, one in found.speedups.items()} == {
        "v0": pytest.approx(2.0),
        "v1": pytest.approx(3.0),
    }


def test_who_ran_less_than_half_of_the_cases_has_no_mean() -> None:
    (found,) = scenario_means(make_run([*(case(name, 2.0) for name in "abc"), case("a", 3.0, "v1")]))
    assert (found.cases, list(found.speedups)) == (3, ["v0"])


def test_one_case_and_what_was_taken_apart_have_none() -> None:
    apart = [make_record("v0", scenario="cache", case=name, workload=make_workload(name)) for name in "ab"]
    assert list(scenario_means(make_run([case("a", 2.0, scenario="batch"), *apart]))) == []
