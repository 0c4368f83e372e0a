"""The counts of a small package that is written here."""

from __future__ import annotations

from pathlib import Path

import count_layout
import pytest

USED = '''"""Two
lines."""

# Why.
def used() -> str:
    """One."""
    return """a
text"""  # odd
'''
FILES = {
    "__init__.py": '"""The package."""\n',
    "top.py": "from small.room.used import used\n",
    "room/__init__.py": "",
    "room/used.py": USED,
    "room/user.py": "from small.room import used\n\nprint(used)\n",
    "other.py": "import os\nfrom small.room.user import used\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "small" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "small"


def test_comments_docstrings_and_blanks_are_no_code(package: Path) -> None:
    """The head of the function, and its string of two lines, which is no docstring."""
    assert count_layout.code_lines(package / "room" / "used.py") == 3
    assert count_layout.code_lines(package / "__init__.py") == 0


def test_code_is_counted_by_room_the_largest_first(package: Path) -> None:
    assert [line.split() for line in count_layout.code_by_room(package)] == [
        ["5", "3", "room"],
        ["2", "1", "other"],
        ["1", "1", "top"],
        ["0", "1", "__init__"],
        ["8", "6", "in", "all"],
    ]


def test_a_small_module_with_one_user_is_lone(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`used` has two users, `top` and `other` have none."""
    assert count_layout.lone_modules(package) == ["room.user"]
    monkeypatch.setattr(count_layout, "LONE", 2)
    assert count_layout.lone_modules(package) == []


def test_the_report_tells_of_this_package() -> None:
    lines = list(count_layout.report(count_layout.PACKAGE))
    assert any(line.startswith("lone modules ") for line in lines)
    assert lines[-1].endswith("  in all")
