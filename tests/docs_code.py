"""The code and the commands of the docs, for tests that run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^(?:    .+\n)+", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
SHELLS = ("sh", "console")
EXPLAINED = re.compile(r"(?<=\S)\s{2,}\S.*")  # what a docstring says next to an example
PROGRAMS = ("llm-bench", "pytest", "tox", "python")
ENVIRONMENT = re.compile(r"[A-Z_]+=")
END = re.compile(r"&&|\||>|;")


def python_blocks(page: str) -> list[str]:
    """The page's blocks of Python, in their order."""
    return [
        code for language, code in FENCED.findall((DOCS / page).read_text(encoding="utf-8")) if language == "python"
    ]


def shown_commands(text: str) -> Iterator[list[str]]:
    """The words of each command in the text's blocks, of the programs that this repository answers for."""
    fenced = FENCED.findall(text)
    shells = [code for language, code in fenced if language in SHELLS]
    printed = [EXPLAINED.sub("", line) for language, code in fenced if language == "text" for line in code.splitlines()]
    indented = INDENTED.findall(FENCED.sub("", text))
    lines = "\n".join([*shells, *indented]).replace("\\\n", " ").splitlines()
    for line in [*lines, *printed]:
        yield from _commands_of(line)


def named_commands(text: str) -> Iterator[list[str]]:
    """The same of what stands in backticks within a sentence: a whole command, or the beginning of one."""
    for line in INLINE.findall(INDENTED.sub("", FENCED.sub("", text))):
        yield from _commands_of(line.replace("\n", " "))


def _commands_of(line: str) -> Iterator[list[str]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a sentence with an apostrophe
        return
    while words:
        end = next((place for place, word in enumerate(words) if END.fullmatch(word)), len(words))
        command = _program(words[:end])
        if command[:1] and command[0] in PROGRAMS:
            yield command
        words = words[end + 1 :]


def _program(words: list[str]) -> list[str]:
    """Without what stands before the program: variables of the environment, `taskset -c 0`, `python -m`."""
    while words and ENVIRONMENT.match(words[0]):
        words = words[1:]
    words = words[3:] if words[:2] == ["taskset", "-c"] else words
    return words[2:] if words[:2] == ["python", "-m"] else words
