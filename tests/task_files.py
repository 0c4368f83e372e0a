"""Tasks of lm-evaluation-harness with their data beside them, of every kind of output.

A plain module: pytest puts this folder on sys.path, because there is a conftest.py in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from llm_bench_fixtures.measure.choices import embedded_choices
from llm_bench_fixtures.workloads import read_corpus

WHY_NOT = "lm-evaluation-harness is not installed: the extra [tasks] has it"
WHY_NIGHTLY = "needs lm-evaluation-harness and its forty libraries"
SOLVED = 2


@pytest.fixture
def harness_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `datasets` makes of the tasks' files is gone with the test."""
    datasets = pytest.importorskip("datasets", reason=WHY_NOT)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


def write_task(folder: Path, name: str, items: list[dict[str, Any]], **keys: Any) -> Path:
    """A file NAME.yaml with the task, and its items beside it."""
    data, path = folder / f"{name}.jsonl", folder / f"{name}.yaml"
    data.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    task = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        **keys,
    }
    path.write_text(yaml.safe_dump(task, sort_keys=False), encoding="utf-8")
    return path


def metrics(*names: str, higher: bool = True) -> list[dict[str, Any]]:
    return [{"metric": name, "aggregation": "mean", "higher_is_better": higher} for name in names]


def choosing(folder: Path, items: int = 40, **keys: Any) -> Path:
    """Questions of multiple choice, the embedded ones."""
    rows = [{"prompt": one.prompt, "choices": one.choices, "answer": one.answer} for one in embedded_choices().items]
    brier = {"metric": "brier_score", "aggregation": "brier_score", "higher_is_better": False}
    how: dict[str, Any] = {
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [*metrics("acc", "acc_norm"), brier],
    }
    return write_task(folder, "choosing", rows[:items], **how | keys)


def ending(folder: Path) -> Path:
    """Whether a text's end is the likeliest one, and its perplexity; each after two whole texts."""
    rows = [{"begin": one.prompt, "end": one.choices[one.answer]} for one in embedded_choices().items[:12]]
    return write_task(
        folder,
        "ending",
        rows,
        output_type="loglikelihood",
        doc_to_text="{{begin}}",
        doc_to_target=" {{end}}",
        target_delimiter="",
        fewshot_split="test",
        num_fewshot=SOLVED,
        metric_list=[
            *metrics("acc"),
            {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
        ],
    )


def reading(folder: Path) -> Path:
    """Whole texts, longer than the embedded model's context."""
    rows = [{"page": text[:6000]} for text in read_corpus(None).texts[:2]]
    aggregations = {
        "word_perplexity": "weighted_perplexity",
        "byte_perplexity": "weighted_perplexity",
        "bits_per_byte": "bits_per_byte",
    }
    listed = [{"metric": name, "aggregation": how, "higher_is_better": False} for name, how in aggregations.items()]
    keys = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "page"}
    return write_task(folder, "reading", rows, **keys, metric_list=listed)


def writing(folder: Path, **how: Any) -> Path:
    """Continuations up to a full stop, held against what they are in the embedded model's text, as letters."""
    rows = [{"begin": one.prompt, "end": one.choices[one.answer]} for one in embedded_choices().items[:8]]
    asked = {"until": [".", "\n"], "max_gen_toks": 24, "do_sample": False, **how}
    return write_task(
        folder,
        "writing",
        rows,
        output_type="generate_until",
        doc_to_text="{{begin}}",
        doc_to_target="{{end}}",
        generation_kwargs=asked,
        metric_list=[
            {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_punctuation": True},
            {"metric": "chrf", "aggregation": "chrf", "higher_is_better": True},
        ],
    )


def group(folder: Path, *, weight_by_size: bool) -> Path:
    """Two tasks of the questions, one of them three times as long as the other."""
    path = folder / "both.yaml"
    members = []
    for name, items in (("short", 10), ("long", 30)):
        part = folder / name
        part.mkdir(exist_ok=True)
        task = yaml.safe_load(choosing(part, items).read_text(encoding="utf-8"))
        members.append({**task, "task": name})
    listed = [{"metric": "acc", "aggregation": "mean", "weight_by_size": weight_by_size}]
    whole = {"group": "both", "task": members, "aggregate_metric_list": listed}
    path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    return path
