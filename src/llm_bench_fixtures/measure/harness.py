"""lm-evaluation-harness: finds tasks by name or in a file, asks a model their items, and computes their metrics.

The harness runs in this process: it makes the prompts and judges the answers. What it asks of a model goes to the
model's own process.
"""

from __future__ import annotations

import io
import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llm_bench_fixtures.errors import InvalidSetting, MissingLibrary, WorkloadUnsupported
from llm_bench_fixtures.measure.task_files import FLAG, check_file, is_file, no_such_task, why_not
from llm_bench_fixtures.measure.tasks import (
    Continuation,
    TaskFacts,
    TaskMetric,
    continuations,
    log_likelihoods,
    rolling_log_likelihoods,
)
from llm_bench_fixtures.measure.windows import SEED
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.workloads import short_digest

EXTRA = "tasks"
LOGGERS = ("lm_eval", "datasets", "evaluate", "huggingface_hub")
FEWSHOT_SEED = 1234  # as on the harness's own command line
SEEN = 16  # items that each task is tried out on before any model is asked
NO_VERSION = ("Yaml", "N/A")
MOST_NEW_TOKENS = 256  # where a task names no number, as for the harness's own models
NAMES_OF_MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
OF_GREEDY = frozenset({"until", "do_sample", "temperature", "top_k", "top_p", *NAMES_OF_MOST})
NEEDS_LIKELIEST = {"loglikelihood": "acc", "multiple_choice": "exact_match"}  # metrics by a task's kind of output


@dataclass(frozen=True, eq=False)
class HarnessTask:
    """A task, or a group of tasks that has metrics of its own."""

    name: str
    tasks: Mapping[str, Any]
    """The harness's own objects, by name; of a group, its members."""
    groups: Mapping[str, Any]
    characters: float
    """Characters of all the requests of an item together, on average."""
    new_tokens: float
    """Largest number of new tokens of an item, on average."""
    digest: str
    """Digest of the first items of each of its tasks, as they are asked."""
    counts: Mapping[str, int]
    """How many items each of its tasks has."""

    @property
    def items(self) -> int:
        return sum(self.counts.values())

    @property
    def facts(self) -> TaskFacts:
        """Facts that are known before a variant is asked."""
        return TaskFacts(self.name, (), self.items, self.items, 0, self.digest, harness=installed_version("lm_eval"))

    def some(self, items: int) -> Mapping[str, list[int]]:
        """Numbers of so many items: the same part of each of its tasks, at least one; of more these and others."""
        places: list[tuple[float, str, int]] = []
        for name, count in self.counts.items():
            order = list(range(count))
            random.Random(SEED).shuffle(order)  # noqa: S311
            places += [(place / count, name, number) for place, number in enumerate(order)]
        first = sorted(places)[: max(items, len(self.counts))]
        return {name: sorted(number for _, one, number in first if one == name) for name in self.counts}


@dataclass(frozen=True)
class Member:
    """The items of one task, as a metric counts them."""

    weight: float
    """Weight in the metric of its group; 1 of a task alone."""
    items: tuple[Any, ...]
    """Value of the metric for each item."""
    aggregate: Callable[[Sequence[Any]], float]
    """The metric over items."""
    is_mean: bool


@dataclass(frozen=True)
class TaskAnswers:
    """Answers of a model to a task."""

    facts: TaskFacts
    values: Mapping[str, float]
    """Values by metric."""
    members: Mapping[str, tuple[Member, ...]]
    """Members by metric."""


def load_tasks(given: Sequence[str]) -> tuple[HarnessTask, ...]:
    """The tasks of these names, and those in these YAML files. A tag stands for its tasks, and so does a group without
    a metric of its own.

    Raises MissingLibrary, and InvalidSetting for a name that no task has, a file with a mistake, and a task that can't
    be had here.
    """
    try:
        from lm_eval import evaluator  # noqa: F401  # takes seconds, which would be of the first items
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise MissingLibrary(FLAG, "lm-eval", EXTRA) from error
    groups = {name: check_file(Path(name)) for name in given if is_file(name)}
    needs_list = len(groups) < len(given) or any(groups.values())  # the list takes seconds to read
    with _quietly(), TemporaryDirectory() as folder:
        for path, group in groups.items():
            if group:  # the harness finds a group in a folder alone
                Path(folder, f"{group}.yaml").write_text(f"include: {json.dumps(str(Path(path).resolve()))}\n")
        manager = TaskManager(include_defaults=needs_list, include_path=folder)
        found = {task.name: task for name in given for task in _load(manager, name, groups.get(name, ""))}
    return tuple(found.values())


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the harness's warnings and progress bars on stderr."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _load(manager: Any, name: str, group_name: str) -> Iterator[HarnessTask]:
    """group_name: of the group that the file of that name makes, if it does."""
    if not is_file(name) and name not in manager.task_index:
        raise InvalidSetting(f"{FLAG}: {no_such_task(name, list(manager.task_index))}")
    try:
        loaded = manager.load([group_name or name])
        groups = {group: found for group, found in loaded["groups"].items() if found.has_aggregation}
        inner = {one.name for found in groups.values() for one in found.get_all_groups()}
        members = {
            group: {task.task_name: task for task in found.get_all_tasks()}
            for group, found in groups.items()
            if group not in inner
        }
        for group, tasks in members.items():
            yield _prepared(group, tasks, {group: groups[group]})
        for task_name, task in loaded["tasks"].items():
            if not any(task_name in tasks for tasks in members.values()):
                yield _prepared(task_name, {task_name: task}, {})
    except Exception as error:  # whatever a task's own code raises
        raise InvalidSetting(f"{FLAG}: {why_not(name, error)}") from error


def _prepared(name: str, tasks: Mapping[str, Any], groups: Mapping[str, Any]) -> HarnessTask:
    """Try the task out on its first items, with answers that are made up. Raises InvalidSetting for what no variant can
    be asked, and whatever else is wrong with the task."""
    for task in tasks.values():
        if getattr(task, "MULTIMODAL", False):
            raise InvalidSetting("it has pictures or sounds, and variants read text alone")
        if getattr(task, "UNSAFE_CODE", False):
            raise InvalidSetting("it runs code that the model writes, which isn't done here")
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
    asked: list[tuple[Any, ...]] = []
    found = _evaluate(_trying(asked), tasks, groups, limit=SEEN)
    for one, task in tasks.items():
        computed = {key.partition(",")[0] for key in found["results"][one]}
        missing = sorted(task.aggregation().keys() - computed)
        if missing and task.OUTPUT_TYPE in NEEDS_LIKELIEST and not callable(task.get_config("process_results")):
            raise InvalidSetting(f"there is no metric '{missing[0]}' of output_type {task.OUTPUT_TYPE}")
    seen = sum(len({sample["doc_id"] for sample in samples}) for samples in found["samples"].values())
    characters = sum(len(part) for args in asked for part in args if isinstance(part, str))
    new_tokens = sum(_most(args[1]) for args in asked if isinstance(args[-1], dict))
    counts = {one: len(task.eval_docs) for one, task in tasks.items()}
    digest = short_digest(list(map(repr, asked)))
    return HarnessTask(name, tasks, groups, characters / seen, new_tokens / seen, digest, counts)


def _trying(asked: list[tuple[Any, ...]]) -> Any:
    """A model for the harness that notes what it is asked, and knows nothing."""
    from lm_eval.api.model import LM

    class Nobody(LM):  # type: ignore[misc]  # whose base is imported where it is needed
        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            return [(value, False) for value in self.loglikelihood_rolling(requests)]

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            asked.extend(request.args for request in requests)
            return [-1.0] * len(requests)

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            for request in requests:
                _continuation(*request.args)
            asked.extend(request.args for request in requests)
            return [""] * len(requests)

    return Nobody()


def _evaluate(model: Any, tasks: Mapping[str, Any], groups: Mapping[str, Any], **how: Any) -> Any:
    """The harness's results, with those of each item."""
    from lm_eval.evaluator import evaluate

    for task in tasks.values():
        task.set_fewshot_seed(FEWSHOT_SEED)  # the same examples each time
    asked = {"tasks": dict(tasks), "groups": dict(groups)}
    with _quietly():
        return evaluate(lm=model, task_dict=asked, bootstrap_iters=0, log_samples=True, **how)


def _most(how: Mapping[str, Any]) -> int:
    return int(next((how[name] for name in NAMES_OF_MOST if how.get(name) is not None), MOST_NEW_TOKENS))


def ask(task: HarnessTask, model: ModelHandle, chosen: Mapping[str, list[int]] | None = None) -> TaskAnswers:
    """Ask the items of these numbers of each of its tasks; None: all. Raises WorkloadUnsupported where the model can't
    be asked."""
    found = _evaluate(_as_harness_model(task, model), task.tasks, task.groups, samples=chosen)
    results = found["results"][task.name].items()
    values = {key.removesuffix(",none"): float(value) for key, value in results if _is_value(key, value)}
    listed = [metric for one in task.tasks.values() for metric in one.aggregation()]  # as its file has them
    values = dict(sorted(values.items(), key=lambda item: _place(item[0], listed)))
    members = {metric: tuple(_members(task, metric, found["samples"])) for metric in values}
    better = found["higher_is_better"].get(task.name, {})
    version = str(found["versions"].get(task.name) or "")
    facts = replace(
        task.facts,
        metrics=tuple(TaskMetric(one, better.get(one.partition(",")[0]), _is_share(members[one])) for one in values),
        items=task.items if chosen is None else sum(map(len, chosen.values())),
        shots=int(found["n-shot"].get(task.name) or 0),
        version="" if version in NO_VERSION else version,
    )
    return TaskAnswers(facts, values, members)


def _is_value(key: str, value: object) -> bool:
    """Whether the harness has a metric's value there, under "acc,none": its errors are of each model by itself."""
    return "," in key and "_stderr," not in key and isinstance(value, Real)


def _place(metric: str, listed: Sequence[str]) -> int:
    name = metric.partition(",")[0]
    return listed.index(name) if name in listed else len(listed)


def _members(task: HarnessTask, metric: str, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Member]:
    """Members that the metric is computed from."""
    from lm_eval.api.metrics import mean

    name, _, kept = metric.partition(",")
    items = {
        one: tuple(sample[name] for sample in found if sample["filter"] == (kept or "none") and name in sample)
        for one, found in samples.items()
    }
    items = {one: found for one, found in items.items() if found}
    total = sum(map(len, items.values()))
    listed = [one for group in task.groups.values() for one in group.aggregate_metric_list if one.metric == name]
    by_size = all(one.weight_by_size for one in listed)
    for one, found in items.items():
        aggregate = task.tasks[one].aggregation().get(name, mean)
        yield Member(len(found) / total if by_size else 1 / len(items), found, aggregate, aggregate is mean)


def _is_share(members: Sequence[Member]) -> bool:
    return all(one.is_mean and all(0 <= float(item) <= 1 for item in one.items) for one in members)


def _as_harness_model(task: HarnessTask, model: ModelHandle) -> Any:
    """Model in the form that the harness takes."""
    from lm_eval.api.model import LM

    class HandledModel(LM):  # type: ignore[misc]  # whose base is imported where it is needed
        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            found = model.call(log_likelihoods, [request.args[:2] for request in requests])
            if any(is_likeliest is None for _, is_likeliest in found):
                _check_needs_no_likeliest(task)
            return [(nats, bool(is_likeliest)) for nats, is_likeliest in found]

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            return model.call(rolling_log_likelihoods, [request.args[0] for request in requests])

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            return model.call(continuations, [_continuation(*request.args) for request in requests])

    return HandledModel()


def _check_needs_no_likeliest(task: HarnessTask) -> None:
    """Raise WorkloadUnsupported where one of its metrics counts whether a text is the likeliest one."""
    for one in task.tasks.values():
        is_own = callable(one.get_config("process_results"))
        if is_own or NEEDS_LIKELIEST.get(one.OUTPUT_TYPE) in one.aggregation():
            raise WorkloadUnsupported("it doesn't report whether a text is the likeliest one, which the task counts")


def _continuation(prompt: str, how: Mapping[str, Any]) -> Continuation:
    """Raises InvalidSetting for what isn't greedy."""
    draws = how.get("do_sample")
    is_greedy = not draws if draws is not None else not float(how.get("temperature") or 0.0)
    other = sorted(how.keys() - OF_GREEDY)
    if not is_greedy or other:
        what = ", ".join(other) if is_greedy else "draws tokens at random"
        raise InvalidSetting(f"variants generate greedily, and the task {f'sets {what}' if is_greedy else what}")
    until = how.get("until") or []
    stops = tuple(filter(None, [until] if isinstance(until, str) else until))
    return Continuation(prompt, stops, _most(how))
