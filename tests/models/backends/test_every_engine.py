"""The ready suite on every engine, a real server among them, with a small Llama that all of them run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from families import BY_NAME
from llamacpp_server import serving

from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends import BACKENDS
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource

NEEDED = [module for backend in BACKENDS.values() for module in backend.modules]
if missing := first_missing([*NEEDED, "xllamacpp"]):
    pytest.skip(f"not every engine is installed: {missing} is missing", allow_module_level=True)

SUITE = Path(__file__).parents[3] / "benchmarks"
ELSEWHERE = "compiled"  # takes a minute, in test_compiled.py
FIRST = {
    backend.variants[0].id if backend.variants else name for name, backend in BACKENDS.items() if name != ELSEWHERE
}
"""Of each engine the variant with the most bits."""

FULL = {"fp32", "ort-fp32", "ov-fp32", "ct2-fp32", "ortgenai-fp32", "gguf-f32", "endpoint"}
"""Those of them that compute in float32, as the reference does."""

SKIPPED = {"checkpoint": "are not quantized"}
"""Those of them that the model isn't for, with the reason."""

CASES = "test_precision or test_batch or test_load or (test_padding and left and longest)"
MOST_S = 3600  # of the run, which takes a minute where both cores are free
NEW_TOKENS = 8
PROMPT_TOKENS = 64
"""Of the requests of a load."""

CORPUS = "The keeper climbed the stairs at dusk. She lit the lamp, and the ships came home one after another.\n"


def run_suite(folder: Path, url: str, model: Path) -> int:
    """Two rounds of a few cases, in the folder and in a process of its own. Gives its exit status."""
    shutil.copytree(SUITE, folder / "benchmarks")
    (folder / "corpus.txt").write_text(CORPUS, encoding="utf-8")
    command = (
        *(sys.executable, "-m", "pytest"),
        "benchmarks",
        *("-k", CASES),
        *("-p", "no:cacheprovider"),
        f"--llm-model={model}",
        f"--llm-endpoint={url}",
        f"--llm-variants={','.join(sorted(FIRST))}",
        "--llm-batch-sizes=4",
        f"--llm-new-tokens={NEW_TOKENS}",
        "--llm-request-rates=20",
        "--llm-load-time=2",
        "--llm-rounds=2",
        "--llm-max-noise=0",
        "--llm-limits-time=0",
        "--llm-corpus=corpus.txt",
        "--llm-choices=none",
        "--llm-cache-dir=cache",
    )
    return subprocess.run(command, cwd=folder, timeout=MOST_S, check=False).returncode


def check_variants(variants: dict[str, Any]) -> None:
    """Each is measured, or skipped for its reason; those in float32 are of the reference's quality."""
    assert variants.keys() == FIRST
    assert {name for name, variant in variants.items() if variant["status"] != "measured"} == SKIPPED.keys()
    assert all(text in variants[name]["reason"] for name, text in SKIPPED.items())
    for name in FULL - {"fp32", "endpoint"}:
        assert variants[name]["quality"]["ppl_ratio"] == pytest.approx(1, abs=1e-4), name
    assert not variants["endpoint"]["quality"]
    assert "echo: it was ignored" in " ".join(variants["endpoint"]["notes"])


def check_records(records: list[dict[str, Any]], source: ModelSource) -> None:
    """All have exactly the tokens that were asked for, and those in float32 the reference's texts."""
    tokenizer = source.load_tokenizer()

    def cut_anew(text: str) -> str:
        """A text of random weights may be more tokens than it was made of, and the server tells no ids."""
        cut: str = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"][:NEW_TOKENS])
        return cut

    measured = [record for record in records if record["status"] == "measured"]
    skipped = {record["variant"]: record["reason"] for record in records if record["status"] != "measured"}
    assert skipped.keys() == SKIPPED.keys()
    assert all(text in skipped[name] for name, text in SKIPPED.items())
    steps = {len(batch) for record in measured for batches in record["tokens_s"] for batch in batches}
    assert steps == {NEW_TOKENS}
    texts = {(record["variant"], record["scenario"], record["case"]): record["outputs"] for record in measured}
    assert {name for name, *_ in texts} == FIRST - SKIPPED.keys()
    for (name, *case), outputs in texts.items():
        expected = texts["fp32", *case]
        if name == "endpoint":
            expected = [cut_anew(text) for text in expected]
        assert name not in FULL or outputs == expected, (name, case)


@pytest.mark.slow("nine engines load a model, and most convert it")
def test_every_engine_runs_the_suite_and_those_in_float32_agree(tmp_path: Path) -> None:
    model = tmp_path / "model"
    with quiet_libraries():
        source = BY_NAME["llama"].build(model)
    with serving(source, model) as url:
        assert run_suite(tmp_path, url, model) == 0
    run = json.loads((tmp_path / "llm-bench-report" / "results.json").read_text(encoding="utf-8"))
    check_variants({variant["id"]: variant for variant in run["variants"]})
    check_records(run["records"], source)
    (load,) = run["loads"]
    answers = {(one["failure"], one["tokens"], one["prompt_tokens"]) for one in load["requests"]}
    assert answers == {("", NEW_TOKENS, PROMPT_TOKENS)}
