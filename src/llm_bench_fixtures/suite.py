"""Where the ready suite is: in the installed package, or in the repository that the package runs from."""

from __future__ import annotations

from pathlib import Path

NAME = "benchmarks"
MODULE = f"llm_bench_fixtures.{NAME}"
PACKAGED = Path(__file__).parent / NAME
IN_REPOSITORY = Path(__file__).parents[2] / NAME
"""Where the package is installed to be edited."""


def pytest_arguments(*scenarios: str) -> list[str]:
    """Arguments that tell pytest to run the suite, or the files of these scenarios alone."""
    files = [f"test_{scenario}" for scenario in scenarios]
    if PACKAGED.is_dir():
        return ["--pyargs", *([f"{MODULE}.{name}" for name in files] or [MODULE])]
    return [str(IN_REPOSITORY / f"{name}.py") for name in files] or [str(IN_REPOSITORY)]


def suite_id(file: Path) -> str:
    """The id of a file of the packaged suite, as pytest gives it in the repository; empty for another file.

    Wherever the suite is installed, its records keep their names, so that runs can be compared.
    """
    return f"{NAME}/{file.name}" if file.parent == PACKAGED else ""
