"""The commands that the docs show: their options exist, and what works on saved runs is run."""

from __future__ import annotations

import argparse
import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from docs_code import FENCED, ROOT, TEXTS, named_commands, shown_commands

from llm_bench_fixtures.cli.main import COMMANDS, main
from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.variants import select_variants
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.options.table import OPTIONS, flag_of

FLAG = re.compile(r"--[a-z][\w-]*")
PLACEHOLDER = re.compile(r"[A-Z]{3,}|…|\.\.\.")
ON_SAVED_RUNS = ("report", "compare", "gate", "bless", "history", "export", "trend", "cache")
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in TEXTS}
HELP = {f"llm-bench {name} --help": f"```text\n{module.__doc__}\n```\n" for name, module in COMMANDS.items()}
SHOWN = PAGES | HELP
SAVED = sorted({
    tuple(words)
    for text in SHOWN.values()
    for words in shown_commands(text)
    if words[0] == "llm-bench" and words[1] in ON_SAVED_RUNS and not PLACEHOLDER.search(" ".join(words[:6]))
})  # fmt: skip
MEASURING = sorted({
    tuple(words)
    for text in SHOWN.values()
    for words in shown_commands(text)
    if words[0] == "pytest" or words[:2] == ["llm-bench", "run"]
})  # fmt: skip
REPORTS = ("llm-bench-report", "laptop", "server", "gpt2", "whole")
WORKED = ROOT / "docs" / "tutorial" / "which-quantization.md"
SHORTLY = "--llm-rounds=1 --llm-max-noise=0 --llm-limits-time=0 --llm-choices=none -p no:cacheprovider"


@pytest.fixture(scope="module")
def pytest_flags() -> Collection[str]:
    """All that pytest takes here, the plugins' options among them."""
    command = [sys.executable, "-m", "pytest", "--help"]
    return flags_in(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def flags_in(text: str) -> set[str]:
    return set(FLAG.findall(text))


def flags_of_command(name: str) -> set[str]:
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    return flags_in(parser.format_help())


def unknown(words: Sequence[str], pytest_flags: Collection[str]) -> Iterator[str]:
    """What of the command isn't there: options, a command, a script, an environment of tox."""
    own, passed_on = split(words)
    name = own[1] if len(own) > 1 else ""
    if own[0] == "llm-bench" and name not in ("", "COMMAND"):
        yield from given(own) - flags_of_command(name) if name in COMMANDS else [name]
        yield from given(passed_on) - {*pytest_flags}
    elif own[0] == "pytest":
        yield from given(own) - {*pytest_flags}
    elif own[0] == "tox":
        environments = ",".join(after for before, after in pairwise(own) if before == "-e")
        yield from {*environments.split(",")} - {*environments_of_tox(), ""}
    elif own[0] == "python" and name.startswith("tools/"):
        script = ROOT / name
        yield from given(own) - {*pytest_flags} - flags_in(script.read_text()) if script.exists() else [name]


def given(words: Sequence[str]) -> set[str]:
    """The long options among the words."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before `--`, and what behind it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def environments_of_tox() -> set[str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "tox.ini")
    return {section.removeprefix("testenv:") for section in parser.sections()}


@pytest.mark.parametrize("name", SHOWN)
def test_no_command_of_a_text_has_an_option_that_is_not_there(name: str, pytest_flags: Collection[str]) -> None:
    """Bug: a page showed an option that had been removed."""
    text = SHOWN[name]
    wrong = {
        " ".join(words): found
        for words in (*shown_commands(text), *named_commands(text))
        if (found := sorted(unknown(words, pytest_flags)))
    }
    assert wrong == {}


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """What a command that runs the suite gives for each option of this package, by the option's name."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, option in OPTIONS.items():
        if option.is_switch:
            parser.add_argument(flag_of(name), dest=name, action="store_const", const="true")
        else:
            parser.add_argument(flag_of(name), dest=name, nargs="?" if option.alone else None)
    given = vars(parser.parse_known_args([word for word in words if word != "--"])[0])
    return {name: value for name, value in given.items() if value and not PLACEHOLDER.search(value)}


@pytest.mark.parametrize("words", MEASURING, ids=" ".join)
def test_no_command_that_measures_gives_a_value_that_is_refused(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with enough cores. Variants of a server are those that --llm-endpoint names."""
    for module in ("processes.affinity", "models.variants"):
        monkeypatch.setattr(f"llm_bench_fixtures.{module}.usable_cores", lambda: 64)
    given = settings_of(words)
    parse_settings(given)
    names = [*given.get("variants", "").split(","), given.get("reference", "fp32")]
    select_variants(",".join(one for one in names if not one.startswith("endpoint")), CATALOGUE, "fp32")


def test_a_value_that_is_refused_is_found() -> None:
    assert settings_of(["pytest", "--llm-time=20m", "--llm-probe", "--llm-model", "ORG/NAME"]) == {
        "time": "20m",
        "probe": "true",
    }
    with pytest.raises(InvalidSetting, match="--llm-time"):
        parse_settings(settings_of(["pytest", "--llm-time=soon"]))


def test_an_option_and_a_script_that_are_not_there_are_found() -> None:
    assert list(unknown(["llm-bench", "history", "--limits", "3"], [])) == ["--limits"]
    assert list(unknown(["llm-bench", "histories"], [])) == ["histories"]
    assert list(unknown(["llm-bench", "pair", "main", "--", "--llm-isolate"], ["--llm-probe"])) == ["--llm-isolate"]
    assert list(unknown(["pytest", "--llm-isolate=1"], ["--llm-probe"])) == ["--llm-isolate"]
    assert list(unknown(["python", "tools/no_such.py"], [])) == ["tools/no_such.py"]
    assert list(unknown(["tox", "run", "-e", "docs,no-such"], [])) == ["no-such"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with five saved runs of main, and reports by the names that the docs use."""
    folder = tmp_path_factory.mktemp("stored")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import measure_history
    finally:
        sys.path.pop(0)
    measure_history.make(5, folder / ".benchmarks")
    for name in REPORTS:
        (folder / name).mkdir()
        shutil.copy(ROOT / "tests" / "goldens" / "whole" / "results.json", folder / name)
        (folder / name / ".llm-bench-report").touch()
    return folder


@pytest.mark.slow("writes reports")
@pytest.mark.parametrize("words", SAVED, ids=" ".join)
def test_a_command_on_saved_runs_does_what_the_docs_show(
    words: Sequence[str], stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with a verdict, whatever that is, and not with a mistake on the command line."""
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if any(word.startswith("sqlite:") for word in words):
        pytest.importorskip("sqlalchemy")
        assert main(["history", "import", ".benchmarks", "--history", "sqlite:///history.db"]) == 0
    assert main(words[1:]) in {*ExitStatus} - {ExitStatus.USAGE, ExitStatus.INTERRUPTED}


@pytest.mark.nightly("runs the suite twice")
def test_the_worked_page_does_what_it_shows(
    tmp_path: Path, session_store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its commands in their order, on its prompts, with fewer rounds than a reader's. The last one is a gate."""
    text = WORKED.read_text(encoding="utf-8")
    (prompts,) = [code for language, code in FENCED.findall(text) if language == "json"]
    (tmp_path / "mine.jsonl").write_text(prompts, encoding="utf-8")
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{SHORTLY} --llm-cache-dir={session_store.root}")
    for program, *words in shown_commands(text):
        if program == "pytest":
            assert subprocess.run([sys.executable, "-m", program, *words], check=False).returncode == 0
        else:
            assert main(words) == 0
    assert "= llm-gate: passed =" in capfd.readouterr().out
