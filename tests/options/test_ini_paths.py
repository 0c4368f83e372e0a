"""Where the paths of an ini file begin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llm_bench_fixtures.plugin.stash import settings_of

INI = {
    "llm_corpus": "texts/mine.txt",
    "llm_report": "/out",
    "llm_cache_dir": "~/cache",
    "llm_model": "models/mine, tiny,ORG/NAME",
    "llm_choices": "none",
    "llm_prompts": "models/mine",
    "llm_variants": "texts",
}


def config_of(root: Path, started: str, typed: dict[str, str]) -> Any:
    return SimpleNamespace(
        stash=pytest.Stash(),
        inipath=root / "pytest.ini",
        invocation_params=SimpleNamespace(dir=root / started),
        getoption=lambda name: typed.get(name),
        getini=lambda name: INI.get(name),
    )


def test_an_ini_files_paths_begin_in_its_folder(tmp_path: Path) -> None:
    """Bug: they began in the working folder. Names stay names, and so does what is no path."""
    for name in ("models/mine", "tiny", "texts"):
        (tmp_path / name).mkdir(parents=True)
    settings = settings_of(config_of(tmp_path, "benchmarks", {}))
    assert (settings.corpus, settings.report) == (tmp_path / "texts/mine.txt", Path("/out"))
    assert settings.cache_dir == Path.home() / "cache"
    assert settings.model == (str(tmp_path / "models/mine"), "tiny", "ORG/NAME")
    assert (settings.choices, settings.variants) == ("none", "texts")
    assert settings.prompts == str(tmp_path / "models/mine")


def test_a_path_on_the_command_line_begins_in_the_working_folder(tmp_path: Path) -> None:
    settings = settings_of(config_of(tmp_path, "benchmarks", {"llm_corpus": "mine.txt"}))
    assert settings.corpus == Path("mine.txt")


def test_where_pytest_starts_beside_its_ini_file_paths_stay_as_they_are_written(tmp_path: Path) -> None:
    assert settings_of(config_of(tmp_path, ".", {})).corpus == Path("texts/mine.txt")
