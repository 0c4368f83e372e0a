"""Files with tasks of lm-evaluation-harness: what is wrong with one, and in which line; and why a task can't be had."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from llm_bench_fixtures.errors import InvalidSetting, UnknownName, alternatives, reason_of
from llm_bench_fixtures.workloads import check_readable

FLAG = "--llm-tasks"
YAML_ENDINGS = (".yaml", ".yml")
STRUCTURE = ("include", "tag", "group", "task_list")  # keys of a task's file that aren't of the task itself
NEAREST = 3  # names of tasks that are offered for one that there isn't
NO_CONNECTION = re.compile("Connect(ion)?Error|ConnectTimeout|OfflineMode")  # in the names of libraries' errors


def is_file(name: str) -> bool:
    return name.endswith(YAML_ENDINGS) or Path(name).is_file()


def check_file(path: Path) -> str:
    """The name of the group that the file makes; empty for a task. Raises InvalidSetting that names file and line for
    what is no YAML, or neither."""
    import yaml

    try:
        check_readable([path])
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except InvalidSetting as error:
        raise InvalidSetting(f"{FLAG}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{FLAG}: {path} can't be read: {reason_of(error)}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise InvalidSetting(f"{FLAG}: {where}: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise InvalidSetting(f"{FLAG}: {path}: {reason_of(error)}") from error
    values = {key.value: value for key, value in root.value} if isinstance(root, yaml.MappingNode) else {}
    if not values.keys() & {"task", "group", "include"}:
        raise InvalidSetting(f"{FLAG}: {path} is no task: a line such as task: my_task has to name it")
    if "group" in values:
        return str(values["group"].value)
    _check_keys(path, {key.value: key.start_mark.line + 1 for key, _ in root.value})
    return ""


def _check_keys(path: Path, keys: Mapping[str, int]) -> None:
    """keys: of the file, with their lines. A class of its own takes any."""
    from lm_eval.api.task import TaskConfig

    if "class" in keys:
        return
    known = sorted({*(field.name for field in fields(TaskConfig)), *STRUCTURE})
    for key, line in keys.items():
        if key not in known:
            raise InvalidSetting(f"{FLAG}: {path}, line {line}: {UnknownName('key', key, known)}")


def no_such_task(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=NEAREST)
    meant = f" Did you mean {alternatives(near)}?" if near else ""
    return f"no task is called {name!r}.{meant} `lm_eval ls tasks` lists all {len(known):,}; a file ends in .yaml"


def why_not(name: str, error: Exception) -> str:
    """Why a task can't be loaded."""
    if _wants_network(error):
        return (
            f"{name} wants the network for its data, and there is none ({reason_of(error)}). Load it once where there "
            "is one, into the cache of Hugging Face's datasets; or copy its YAML, with dataset_path: json and your own "
            "files as data_files of dataset_kwargs"
        )
    return f"{name}: {reason_of(error)}"


def _wants_network(error: BaseException | None) -> bool:
    """Whether it, or what it came of, is a failed connection, of whatever library."""
    while error is not None:
        names = " ".join(kind.__name__ for kind in type(error).__mro__)
        if isinstance(error, ConnectionError) or NO_CONNECTION.search(names):
            return True
        error = error.__cause__ or error.__context__
    return False
