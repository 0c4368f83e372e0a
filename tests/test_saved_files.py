"""Files of saved runs: none is written over, and none is left empty."""

from __future__ import annotations

from pathlib import Path

from llm_bench_fixtures.writing import reserve, save_or_keep


def test_a_run_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """Bug: of two runs that ended at once under the same name, the second replaced the first."""
    first, second = (reserve(tmp_path, 1, "x") for _ in range(2))
    assert [first.name, second.name] == ["0001_x.json", "0002_x.json"]
    assert save_or_keep(second, "{}", print) == second
    assert second.read_text(encoding="utf-8") == "{}"


def test_a_file_that_cannot_be_written_is_not_left_empty(tmp_path: Path) -> None:
    path = reserve(tmp_path, 1, "x")
    path.chmod(0o400)
    told: list[str] = []
    kept = save_or_keep(path, "{}", told.append)
    assert kept is not None
    if told:  # root may write to any file
        assert not path.exists()
    assert kept.read_text(encoding="utf-8") == "{}"


def test_where_no_file_can_be_made_the_writing_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.touch()
    told: list[str] = []
    kept = save_or_keep(reserve(folder, 1, "x"), "{}", told.append)
    assert kept is not None
    assert "0001_x.json can't be written: " in told[0]
