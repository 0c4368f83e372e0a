"""Tasks of lm-evaluation-harness in a run: from the option to the report, and what else reads a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from endpoint_server import CountingServer, Manner
from task_files import WHY_NIGHTLY, WHY_NOT, choosing, ending, harness_data  # noqa: F401

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.session import tasks

if TYPE_CHECKING:
    from conftest import Bench

pytest.importorskip("lm_eval", reason=WHY_NOT)
pytestmark = [pytest.mark.nightly(WHY_NIGHTLY), pytest.mark.usefixtures("harness_data")]
NAME = "task_choosing_acc"


@pytest.mark.parametrize("in_turns", [False, True], ids=["here", "isolated"])
def test_every_variant_is_asked_and_compared_with_the_reference(own_suite: Bench, in_turns: bool) -> None:
    path = choosing(own_suite.pytester.path)
    run = own_suite.run_in_turns if in_turns else own_suite.run
    result = run(f"--llm-tasks={path}", "--llm-variants=fp32,fp16,bnb-nf4")
    assert result.ret == 0
    found = {name: one["quality"] for name, one in own_suite.variants().items()}
    assert found["fp32"][NAME] > 0.4
    assert f"{NAME}_change" not in found["fp32"]
    same = found["fp16"]  # on a CPU it is fp32 again
    assert [same[f"{NAME}_{end}"] for end in ("change", "change_error", "lost", "gained")] == [0, 0, 0, 0]
    other = found["bnb-nf4"]
    gain = (other[f"{NAME}_gained"] - other[f"{NAME}_lost"]) / 40
    assert other[NAME] == pytest.approx(found["fp32"][NAME] + gain)
    (task,) = own_suite.results()["provenance"]["tasks"]
    assert (task["name"], task["items"], task["of"]) == ("choosing", 40, 40)
    assert len(own_suite.variants()["fp32"]["item_blocks"][NAME]) == 40
    assert ">Task choosing<" in own_suite.page()
    assert "choosing acc" in own_suite.markdown()
    assert f",{NAME}," in (own_suite.report / "results.csv").read_text(encoding="utf-8").splitlines()[0]


def test_a_test_can_assert_by_a_tasks_metric(bench: Bench) -> None:
    bench.write(
        test_own=f"""
        def test_mine(llm_benchmark):
            record = llm_benchmark("Hello")
            assert record.{NAME} > 0.4
        """
    )
    assert bench.run(f"--llm-tasks={choosing(bench.pytester.path)}").ret == 0


def test_a_saved_run_is_reported_and_compared_with_its_tasks(
    own_suite: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    path = choosing(own_suite.pytester.path)
    assert own_suite.run(f"--llm-tasks={path}", "--benchmark-save=before").ret == 0
    assert own_suite.run(f"--llm-tasks={path}", "--benchmark-save=after").ret == 0
    folder = own_suite.pytester.path / "again"
    capsys.readouterr()
    assert main(["report", "before", "-o", str(folder)]) == 0
    assert "choosing acc" in (folder / "report.md").read_text(encoding="utf-8")
    assert "only the project itself knows" not in capsys.readouterr().out
    assert main(["compare", "before", "after", "--json", "said.json"]) == 0
    said = json.loads(Path("said.json").read_text(encoding="utf-8"))
    assert {one["verdict"] for one in said["values"] if one["metric"] == NAME} == {"unchanged"}


def test_the_run_says_how_long_its_tasks_take(own_suite: Bench) -> None:
    result = own_suite.run_in_turns(f"--llm-tasks={choosing(own_suite.pytester.path)}")
    result.stdout.re_match_lines([r"llm-bench: about .*, tasks \d+ s.*"])


def test_a_server_without_likelihoods_is_a_reason_and_the_others_are_asked(own_suite: Bench) -> None:
    path = choosing(own_suite.pytester.path)
    with CountingServer(Manner(scoring="ignored")).running() as server:
        options = (f"--llm-endpoint={server.url}", "--llm-variants=fp32,endpoint", f"--llm-tasks={path}")
        assert own_suite.run(*options).ret == 0
    assert NAME in own_suite.variants()["fp32"]["quality"]
    served = own_suite.variants()["endpoint"]
    assert NAME not in served["quality"]
    assert any(note.startswith("choosing can't be asked: ") for note in served["notes"])
    assert "endpoint: " in own_suite.page()


def test_a_mistake_ends_the_run_before_anything_is_measured(own_suite: Bench) -> None:
    path = choosing(own_suite.pytester.path, doc_to_text="{{promt}}")
    result = own_suite.run(f"--llm-tasks={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--llm-tasks: " in str(result.stdout)
    assert "line 8: UndefinedError: 'promt' is undefined" in str(result.stdout)
    assert not (own_suite.report / "results.json").exists()


def test_an_ini_file_names_tasks_beside_it(own_suite: Bench) -> None:
    choosing(own_suite.pytester.path)
    own_suite.pytester.makeini("[pytest]\nllm_tasks = choosing.yaml\n")
    (own_suite.pytester.path / "below").mkdir()
    own_suite.pytester.chdir()
    assert own_suite.run().ret == 0
    assert NAME in own_suite.variants()["fp32"]["quality"]


def test_random_weights_are_not_asked(own_suite: Bench) -> None:
    assert own_suite.run(f"--llm-tasks={choosing(own_suite.pytester.path)}", "--llm-load-format=dummy").ret == 0
    assert own_suite.variants()["fp32"]["quality"] == {}
    assert own_suite.results()["provenance"]["tasks"] == []


def test_several_tasks_stand_next_to_each_other(own_suite: Bench) -> None:
    paths = ",".join(str(write(own_suite.pytester.path)) for write in (choosing, ending))
    assert own_suite.run(f"--llm-tasks={paths}").ret == 0
    assert [task["name"] for task in own_suite.results()["provenance"]["tasks"]] == ["choosing", "ending"]
    assert {NAME, "task_ending_acc", "task_ending_perplexity"} <= own_suite.variants()["fp32"]["quality"].keys()


def answered(bench: Bench) -> dict[str, dict[str, float]]:
    """By variant, what is known of its answers."""
    qualities = {name: one["quality"] for name, one in bench.variants().items()}
    return {
        name: {metric: value for metric, value in one.items() if metric.startswith("task_")}
        for name, one in qualities.items()
    }


def test_a_whole_run_that_goes_on_keeps_its_tasks(own_suite: Bench) -> None:
    """Bug: the tasks were gone from provenance and report, and the file that had them was written over."""
    options = (f"--llm-tasks={choosing(own_suite.pytester.path)}", "--llm-variants=fp32,fp16")
    assert own_suite.run_in_turns(*options).ret == 0
    before, values = own_suite.results(), answered(own_suite)
    result = own_suite.run_in_turns(*options, "--llm-resume")
    result.stdout.fnmatch_lines(["llm-bench: 2 of 2 benchmarks kept *"])
    result.stdout.no_fnmatch_line("*loading*")
    assert own_suite.results()["provenance"]["tasks"] == before["provenance"]["tasks"] != []
    assert answered(own_suite) == values
    assert "choosing acc" in own_suite.markdown()


@pytest.mark.parametrize("in_turns", [False, True], ids=["here", "isolated"])
def test_a_run_that_goes_on_asks_what_is_missing(own_suite: Bench, in_turns: bool) -> None:
    """Bug: a run that had its cases and qualities asked no task, and said nothing."""
    run = own_suite.run_in_turns if in_turns else own_suite.run
    options = (f"--llm-tasks={choosing(own_suite.pytester.path)}", "--llm-variants=fp32,fp16")
    assert run(*options).ret == 0
    values, results = answered(own_suite), own_suite.results()
    results["provenance"]["tasks"] = []
    for one in results["variants"]:
        one["quality"] = {metric: value for metric, value in one["quality"].items() if not metric.startswith("task_")}
        one["item_blocks"] = {}
    (own_suite.report / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert run(*options, "--llm-resume").ret == 0
    assert answered(own_suite) == values
    assert [task["name"] for task in own_suite.results()["provenance"]["tasks"]] == ["choosing"]


def test_a_run_that_was_cut_within_the_second_variant_has_the_first_ones_answers(
    own_suite: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: both were lost."""
    options = (f"--llm-tasks={choosing(own_suite.pytester.path)}", "--llm-variants=fp32,fp16")
    asked, whole = [], tasks.ask

    def cut(*args: Any) -> Any:
        asked.append(args[1].variant.id)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return whole(*args)

    monkeypatch.setattr(tasks, "ask", cut)
    own_suite.run_in_turns(*options, no_reraise_ctrlc=True)
    cut_off = answered(own_suite)
    assert (NAME in cut_off["fp32"], cut_off["fp16"]) == (True, {})
    assert own_suite.run_in_turns(*options, "--llm-resume").ret == 0
    assert asked == ["fp32", "fp16", "fp32", "fp16"]
    found = answered(own_suite)
    assert (found["fp32"], found["fp16"][NAME]) == (cut_off["fp32"], cut_off["fp32"][NAME])
    assert found["fp16"][f"{NAME}_lost"] == 0


@pytest.mark.parametrize("changes", [{"doc_to_text": "Question: {{prompt}}"}, {"items": 39}], ids=["prompts", "items"])
def test_a_run_does_not_go_on_with_other_tasks(own_suite: Bench, changes: dict[str, Any]) -> None:
    """Bug: answers to other prompts were kept without a word."""
    path = choosing(own_suite.pytester.path)
    assert own_suite.run(f"--llm-tasks={path}").ret == 0
    choosing(own_suite.pytester.path, **changes)
    result = own_suite.run(f"--llm-tasks={path}", "--llm-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["  other items, prompts or code of the task choosing", "Nothing was run.*"])
