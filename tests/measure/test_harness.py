"""lm-evaluation-harness's tasks on our models, beside its own runs of the same; and what is wrong with a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_files import SOLVED, WHY_NIGHTLY, WHY_NOT, choosing, ending, group, harness_data, reading, write_task, writing  # noqa: F401

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure import harness
from llm_bench_fixtures.measure.harness import HarnessTask, TaskAnswers, ask, load_tasks
from llm_bench_fixtures.models.handle import LocalModel
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.transformers import TransformersModel

pytest.importorskip("lm_eval", reason=WHY_NOT)
pytestmark = [pytest.mark.nightly(WHY_NIGHTLY), pytest.mark.usefixtures("harness_data")]
Write = Callable[[Path], Path]


@pytest.fixture
def local(tiny_fp32: TransformersModel, tiny_source: Any) -> LocalModel:
    return LocalModel(tiny_fp32, tiny_source, tiny_fp32.facts)


def load(path: Path | str) -> HarnessTask:
    (task,) = load_tasks([str(path)])
    return task


def own_run(model: TransformersModel, path: Path) -> dict[str, Any]:
    """What the harness finds with its own model around the same module."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    evaluated = HFLM(pretrained=model.module, tokenizer=model.tokenizer, batch_size=1, device="cpu")
    manager = TaskManager(include_path=path.parent, include_defaults=False)
    whole = simple_evaluate(model=evaluated, tasks=[path.stem], task_manager=manager, bootstrap_iters=0)
    found: dict[str, Any] = whole["results"][path.stem]
    return found


@pytest.mark.parametrize("write", [choosing, ending, reading, writing], ids=lambda write: write.__name__)
def test_the_figures_are_those_of_the_harness_own_run(
    write: Write, local: LocalModel, tiny_fp32: TransformersModel, tmp_path: Path
) -> None:
    path = write(tmp_path)
    answers = ask(load(path), local)
    theirs = own_run(tiny_fp32, path)
    expected = {key.removesuffix(",none"): value for key, value in theirs.items() if ",none" in key}
    expected = {name: value for name, value in expected.items() if not name.endswith("_stderr")}
    assert answers.values == pytest.approx(expected, rel=1e-6)
    assert len(expected) >= 2
    assert any(value > 0 for value in expected.values())


@pytest.mark.parametrize("weight_by_size", [True, False])
def test_a_group_is_one_task_whose_members_weigh_as_it_says(
    weight_by_size: bool, local: LocalModel, tiny_fp32: TransformersModel, tmp_path: Path
) -> None:
    path = group(tmp_path, weight_by_size=weight_by_size)
    task = load(path)
    answers = ask(task, local)
    assert answers.values["acc"] == pytest.approx(own_run(tiny_fp32, path)["acc,none"])
    members = answers.members["acc"]
    assert [(one.weight, len(one.items)) for one in members] == (
        [(0.25, 10), (0.75, 30)] if weight_by_size else [(0.5, 10), (0.5, 30)]
    )
    assert sum(one.weight * one.aggregate(one.items) for one in members) == pytest.approx(answers.values["acc"])
    assert (answers.facts.name, answers.facts.items, answers.facts.of) == ("both", 40, 40)


def test_what_is_known_of_a_task(local: LocalModel, tmp_path: Path) -> None:
    task = load(choosing(tmp_path, metadata={"version": 2.0}))
    facts = ask(task, local).facts
    assert [(one.name, one.higher_is_better, one.is_share) for one in facts.metrics] == [
        ("acc", True, True),
        ("acc_norm", True, True),
        ("brier_score", False, False),
    ]
    assert (facts.shots, facts.version, facts.digest) == (0, "2.0", task.digest)
    assert (task.items, task.new_tokens) == (40, 0.0)
    assert ask(load(ending(tmp_path)), local).facts.shots == SOLVED
    assert load(writing(tmp_path)).new_tokens == 24


def test_chosen_items_are_asked_alone_and_give_the_same_answers(local: LocalModel, tmp_path: Path) -> None:
    task = load(choosing(tmp_path))
    (whole,), (some,) = (ask(task, local, chosen).members["acc"] for chosen in (None, {"choosing": [3, 5, 11]}))
    assert some.items == tuple(whole.items[item] for item in (3, 5, 11))


def test_every_variant_is_shown_the_same_examples(local: LocalModel, tmp_path: Path) -> None:
    """Bug: the harness draws them from a generator that goes on from one run to the next."""
    task = load(ending(tmp_path))
    first, second = (ask(task, local) for _ in range(2))
    assert first.values == second.values


def test_other_prompts_have_another_digest(tmp_path: Path) -> None:
    plain, other = (load(choosing(tmp_path, doc_to_text=text)) for text in ("prompt", "So: {{prompt}}"))
    assert plain.digest != other.digest
    assert load(choosing(tmp_path)).digest == plain.digest


class Server:
    """Tells the likelihoods of texts alone."""

    def __init__(self, model: Model) -> None:
        self.variant, self.device, self.facts, self.tokenizer = (
            model.variant,
            model.device,
            model.facts,
            model.tokenizer,
        )

    def token_log_likelihoods(self, rows: Any) -> list[list[float]]:
        return [[-1.0] * (len(row) - 1) for row in rows]


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (ending, "doesn't report whether a text is the likeliest one"),
        (writing, "may put another token in the place of the one that ends"),
        (choosing, ""),
        (reading, ""),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_server_is_asked_what_likelihoods_alone_answer(
    write: Write, why: str, local: LocalModel, tmp_path: Path
) -> None:
    server: Any = Server(local.model)
    task, asked = load(write(tmp_path)), LocalModel(server, local.source, local.facts)
    if not why:
        assert isinstance(ask(task, asked), TaskAnswers)
        return
    with pytest.raises(WorkloadUnsupported, match=why):
        ask(task, asked)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"do_sample": True, "temperature": 0.7}, "the task draws tokens at random"),
        ({"num_beams": 4}, "the task sets num_beams"),
    ],
)
def test_a_task_that_does_not_generate_greedily_is_refused(how: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=f"writing.yaml: variants generate greedily, and {why}$"):
        load_tasks([str(writing(tmp_path, **how))])


def edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("test_split: test", "test_split: [test", r"line 7: expected ',' or ']', but got ':'"),
        ("doc_to_text: prompt", "doc_to_txt: prompt", r"line 8: unknown key 'doc_to_txt'\. Did you mean doc_to_text\?"),
        ("doc_to_text: prompt", "doc_to_text: '{{promt}}'", r"choosing\.yaml: UndefinedError: 'promt' is undefined"),
        ("doc_to_text: prompt", "doc_to_text: '{{prompt'", r"choosing\.yaml: TemplateSyntaxError: "),
        ("test_split: test", "test_split: tset", r"choosing\.yaml: KeyError: .*'tset'"),
        ("output_type: multiple_choice", "output_type: multi", r"choosing\.yaml: .*invalid output_type 'multi'"),
        ("metric: acc\n", "metric: accc\n", r"yaml: there is no metric 'accc' of output_type multiple_choice"),
        ("task: choosing", "name: choosing", r"choosing\.yaml is no task: a line such as task: my_task has to name it"),
        ("choosing.jsonl", "chosing.jsonl", r"choosing\.yaml: .*chosing\.jsonl"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(old: str, new: str, why: str, tmp_path: Path) -> None:
    path = edited(choosing(tmp_path), old, new)
    with pytest.raises(InvalidSetting, match=f"^--llm-tasks: .*{why}"):
        load_tasks([str(path)])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-tasks: .*none\.yaml can't be read: .*No such file"):
        load_tasks([str(tmp_path / "none.yaml")])


def test_a_name_that_no_task_has_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-tasks: no task is called 'arc_eazy'\. Did you mean .*arc_easy"):
        load_tasks(["arc_eazy"])


def test_a_task_whose_data_is_elsewhere_says_that_it_wants_the_network(tmp_path: Path) -> None:
    path = edited(choosing(tmp_path), "dataset_path: json", "dataset_path: somebody/nothing")
    with pytest.raises(InvalidSetting, match=r"choosing\.yaml wants the network for its data, and there is none \("):
        load_tasks([str(path)])


def test_a_task_that_would_run_what_a_model_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="it runs code that the model writes"):
        load_tasks([str(choosing(tmp_path, unsafe_code=True))])


def test_nothing_of_the_harness_is_shown(
    local: LocalModel, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    ask(load(choosing(tmp_path)), local)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_loggers_are_as_loud_as_before(tmp_path: Path) -> None:
    import logging

    before = [logging.getLogger(name).level for name in harness.LOGGERS]
    load(choosing(tmp_path))
    assert [logging.getLogger(name).level for name in harness.LOGGERS] == before
