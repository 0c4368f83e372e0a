"""The ready suite, as it is found in the repository and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_bench_fixtures import suite

IN_REPOSITORY = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.skipif(not suite.PACKAGED.is_dir(), reason="the package is installed to be edited")
def test_the_installed_package_holds_the_suite() -> None:
    packaged, ours = (
        {file.name: file.read_bytes() for file in at.glob("*.py")} for at in (suite.PACKAGED, IN_REPOSITORY)
    )
    assert packaged == ours


def test_the_installed_suite_comes_before_the_repositorys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "PACKAGED", tmp_path)
    assert suite.pytest_arguments() == ["--pyargs", "llm_bench_fixtures.benchmarks"]
    assert suite.pytest_arguments("own") == ["--pyargs", "llm_bench_fixtures.benchmarks.test_own"]
    monkeypatch.setattr(suite, "PACKAGED", tmp_path / "absent")
    assert suite.pytest_arguments() == [str(suite.IN_REPOSITORY)]
    assert suite.pytest_arguments("own") == [str(suite.IN_REPOSITORY / "test_own.py")]


def test_the_installed_suites_tests_are_called_as_the_repositorys(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run of the one would have no test in common with a run of the other."""
    elsewhere = pytester.mkpydir("installed")
    (elsewhere / "test_speed.py").write_text("def test_it(): pass\n", encoding="utf-8")
    assert "installed/test_speed.py::test_it" in pytester.runpytest("--collect-only", "-q").outlines
    monkeypatch.setattr(suite, "PACKAGED", elsewhere)
    assert "benchmarks/test_speed.py::test_it" in pytester.runpytest("--collect-only", "-q").outlines
    pytester.syspathinsert()
    pytester.runpytest("--pyargs", "installed.test_speed").assert_outcomes(passed=1)
    pytester.runpytest(str(elsewhere / "test_speed.py") + "::test_it").assert_outcomes(passed=1)
