"""All that is shown of the golden runs stays as it is, letter for letter, until somebody accepts the difference."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_texts import GOLDENS

from llm_bench_fixtures.gate import margins
from llm_bench_fixtures.statistics import ratio

FOLDER = Path(__file__).parent
ACCEPT = "ACCEPT_GOLDENS"
MOST_LINES = 200  # of a difference


@pytest.mark.parametrize("name", GOLDENS)
def test_what_is_shown_has_not_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ratio, margins):  # what is measured anew changes nothing here
        monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.01)
    shown, folder = GOLDENS[name](), FOLDER / name
    if os.environ.get(ACCEPT):
        accept(shown, folder)
    lines = list(differences(shown, folder))
    if lines:
        more = len(lines) - MOST_LINES
        cut = [f"... and {more} more lines"] if more > 0 else []
        how = f"If that is meant: {ACCEPT}=1 python -m pytest tests/goldens, then see what git diff says."
        pytest.fail("\n".join([*lines[:MOST_LINES], *cut, "", how]), pytrace=False)


def kept(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*"))}


def differences(shown: dict[str, str], folder: Path) -> Iterator[str]:
    """Unified, from what is kept to what is shown; of files that only one of them has too."""
    before = kept(folder)
    for name in dict.fromkeys((*before, *shown)):
        where = f"tests/goldens/{folder.name}/{name}"
        texts = (before.get(name, "").splitlines(), shown.get(name, "").splitlines())
        yield from difflib.unified_diff(*texts, f"{where} (kept)", f"{where} (shown now)", lineterm="", n=1)


def accept(shown: dict[str, str], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in kept(folder).keys() - shown.keys():
        (folder / name).unlink()
    for name, text in shown.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def test_a_difference_is_told_with_its_file_and_can_be_accepted(tmp_path: Path) -> None:
    accept({"a.txt": "one\ntwo\n", "gone.txt": "three\n"}, tmp_path)
    shown = {"a.txt": "one\n2\n", "new.txt": "four\n"}
    lines = list(differences(shown, tmp_path))
    assert [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-two", "+2", "-three", "+four",
    ]  # fmt: skip
    assert any(line.startswith("--- ") and "a.txt" in line for line in lines)
    accept(shown, tmp_path)
    assert kept(tmp_path) == shown
    assert not list(differences(shown, tmp_path))
