"""A sweep in TOML: its cells, and what is wrong with it, by table and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.sweep.plan import SweepCell, cells_of, parse_matrix, read_plan

WHOLE = """
suite = ["bench"]
arguments = ["--llm-time=5m"]
environment = { A = "1", B = "1" }
leave_out = ["large/laptop/*"]

[[model]]
name = "small"

[[model]]
name = "large"
model = "org/large"

[[machine]]
name = "laptop"

[[machine]]
name = "a100"
resources = { gpu-a100 = 1 }
gpus = 2
environment = { B = "2" }

[machine.labels]
zone = "x"

[[options]]
name = "batch"
arguments = ["-k", "batch"]
environment = { B = "3" }
"""


def cells(text: str, *, is_local: bool = False) -> dict[str, SweepCell]:
    found = cells_of(parse_matrix(text, "sweep.toml"), "sweep.toml", is_local=is_local)
    return {cell.name: cell for cell in found}


def test_each_model_is_run_on_each_machine_with_each_set_of_options() -> None:
    found = cells(WHOLE)
    assert list(found) == ["small/laptop/batch", "small/a100/batch", "large/a100/batch"]
    large = found["large/a100/batch"]
    assert large.arguments == ("--llm-time=5m", "--llm-model=org/large", "-k", "batch")
    assert large.environment == {"A": "1", "B": "3"}, "the later axis wins"
    assert large.machine.resources == {"gpu-a100": 1}
    assert large.machine.labels == {"zone": "x"}
    assert large.machine.gpus == 2
    assert large.suite == ("bench",)
    assert found["small/laptop/batch"].arguments[1] == "--llm-model=small"


def test_without_a_cluster_everything_runs_here_once() -> None:
    """So that the same file works on a laptop; nothing there is called an a100."""
    assert list(cells(WHOLE, is_local=True)) == ["small/here/batch", "large/here/batch"]


def test_an_axis_may_be_missing() -> None:
    assert list(cells("")) == ["all"]
    assert list(cells('[[options]]\nname = "a"\n[[options]]\nname = "b"\n')) == ["a", "b"]


def test_a_cell_is_another_one_where_anything_that_it_runs_is_another() -> None:
    cell = cells(WHOLE)["small/laptop/batch"]
    others = [replace(cell, arguments=()), replace(cell, environment={}), replace(cell, suite=())]
    digests = {one.digest("commit") for one in (cell, *others)} | {cell.digest("another commit")}
    assert len(digests) == 5
    assert cell.digest("commit") == cells(WHOLE)["small/laptop/batch"].digest("commit")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[model]]\nname = "a"\nargumets = []', "unknown key in [[model]] 'argumets'. Did you mean arguments?"),
        ("folders = 'x'", "unknown key 'folders'. Did you mean folder?"),
        ('[[model]]\nname = "a"\n\n[[model]]\nname = 3', "model[1].name: expected a text, got a whole number"),
        ('[[model]]\nname = "a"\n\n[[model]]\nmodel = "b"', "sweep.toml: model[1]: object missing required field name"),
        ('arguments = "-k x"', "sweep.toml: arguments: expected a list, got a text"),
        (
            '[[machine]]\nname = "a"\n[machine.resources]\ngpu = "two"',
            "sweep.toml: machine[0].resources[...]: expected a number, got a text",
        ),
        ('[[machine]]\nname = "a"\ngpus = -1', "sweep.toml: machine[0].gpus: expected a number >= 0.0"),
        ('[[model]]\nname = "a/b"', "sweep.toml: model[0].name: expected a text of letters, digits, . _ + and -"),
        ('[[options]]\nname = "a"\nname = "b"', "is no TOML: Cannot overwrite a value (at end of document)"),
        ('suite = ["a"\nfolder = "b"', "is no TOML: Unclosed array (at line 2, column 1)"),
        ('[[options]]\nname = "a"\n[[options]]\nname = "a"', "two cells would be called 'a': give each [[op"),
        ('[[model]]\nname = "a"\n[[model]]\nname = "A"', "sweep.toml: two cells would be called 'a'"),
        ('leave_out = ["b*"]\n[[model]]\nname = "a"', "sweep.toml: leave_out has 'b*', which is the name of no cell"),
        ('leave_out = ["*"]\n[[model]]\nname = "a"', "sweep.toml: leave_out leaves no cell"),
        ('[model]\nname = "a"', "sweep.toml: model: expected a list, got"),
        ('[[machine]]\nname = "a"\nresources = { GPU = 1 }', "gpus"),
        ('[[machine]]\nname = "a"\nresources = { CPU = 4 }', "CPU"),
        ('[[machine]]\nname = "a"\nresources = { llm-bench = 1 }', "llm-bench"),
        ('[[machine]]\nname = "a"\nresources = { arm = -1 }', "machine[0].resources[...]: expected a number"),
        ('[[machine]]\nname = "a"\ngpus = 1.5', "gpus"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_table_and_key(text: str, said: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        cells(text)
    assert str(error.value).startswith("sweep.toml")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "folder"), [("", None), ('suite = ["b"]', "."), ('folder = "inner"', "inner"), ('folder = "."', ".")]
)
def test_cells_run_in_the_folder_of_a_suite_of_ones_own(tmp_path: Path, text: str, folder: str | None) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "sweep.toml").write_text(text, encoding="utf-8")
    assert read_plan(tmp_path / "sweep.toml", is_local=True).folder == (folder and (tmp_path / folder).resolve())


def test_a_folder_or_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    with pytest.raises(InvalidSetting, match=r"sweep\.toml can't be read: No such file"):
        read_plan(file, is_local=True)
    file.write_text('folder = "gone"', encoding="utf-8")
    with pytest.raises(InvalidSetting, match=r"folder = 'gone': there is no folder .*gone"):
        read_plan(file, is_local=True)
