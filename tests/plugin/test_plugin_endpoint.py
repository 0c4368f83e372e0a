"""A suite beside a server: as a variant among the others, under load, and without it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from endpoint_server import CountingServer, Manner

if TYPE_CHECKING:
    from conftest import Bench

pytest.importorskip("httpx2")

KEY = "sk-7d1f-not-to-be-seen"
SUITE = """
import pytest

@pytest.mark.parametrize("tokens", [20, 24])
def test_length(llm_benchmark, llm_prompts, tokens):
    llm_benchmark(llm_prompts.exact(tokens))

def test_mode(llm_equivalence, llm_prompts):
    llm_equivalence(llm_prompts.varied(2), "batch")

def test_load(llm_load, llm_request_rate):
    llm_load(llm_request_rate, prompt_tokens=16)
"""


def breaks(body: dict) -> str:
    """A prompt of 24 tokens breaks the server, which repeats the key."""
    return "500" if len(body["prompt"]) == 24 else ""


def holding(text: str, folder: Path) -> list[Path]:
    """The files that the text is in."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def test_a_server_is_measured_beside_the_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_BENCH_ENDPOINT_KEY", KEY)
    bench.write(test_own=SUITE)
    with CountingServer(Manner(fault=breaks, models=(f"counting {KEY}",))).running() as server:
        result = bench.run_in_turns(
            f"--llm-endpoint={server.url}",
            "--llm-variants=fp32,endpoint",
            "--llm-request-rates=40,80",
            "--llm-load-time=0.5",
            "--llm-need=ttft_s<=0.5",
            "--benchmark-autosave",
            "--showlocals",
        )
    result.assert_outcomes(passed=6, failed=1, skipped=1)
    assert result.ret == 1
    variant = bench.variants()["endpoint"]
    assert variant["status"] == "measured"
    assert variant["label"].startswith("counting [key] at 127.0.0.1:")
    nothing = ("weight_bytes", "load_s", "first_generate_s", "resident_before_load_bytes", "read_bytes_per_s")
    assert not any(variant[name] for name in nothing)
    assert {"perplexity", "ppl_ratio", "accuracy"} & variant["quality"].keys() == {"perplexity", "ppl_ratio"}
    records = {record["test"].partition("::")[2]: record for record in bench.records()}
    good, bad = records["test_length[endpoint-20]"], records["test_length[endpoint-24]"]
    assert good["reference_s"]
    assert (good["memory"], good["energy_j"], good["waited_s"]) == (None, [], [])
    assert (bad["status"], records["test_length[fp32-24]"]["status"]) == ("error", "measured")
    assert "500 Internal Server Error: broken with Bearer [key]" in bad["reason"]
    loads = bench.results()["loads"]
    assert [(point["rate_per_s"], point["variant"]) for point in loads] == [(40, "endpoint"), (80, "endpoint")]
    assert {(point["ttft_limit_s"], point["tpot_limit_s"]) for point in loads} == {(0.5, 0.1)}
    assert all(one["tokens"] == 2 and not one["failure"] for point in loads for one in point["requests"])
    assert len(loads[1]["requests"]) > len(loads[0]["requests"]) > 5
    said = re.compile(r"endpoint (answers 100 % of|at 80/s, [^:]*: INVALID)")  # this machine may be too busy
    assert said.search(" ".join(result.outlines))
    assert said.search(bench.markdown())
    assert "Servers under load" in bench.page()
    assert all(f"Bearer {KEY}" == one.headers["Authorization"] for one in server.seen)
    assert holding("Servers under load", bench.pytester.path)  # the search finds what is there
    assert holding("broken with Bearer", bench.pytester.path / ".benchmarks")
    assert not holding(KEY, bench.pytester.path)
    assert KEY not in f"{result.stdout.str()}{result.stderr.str()}"


def test_a_load_that_no_request_survives_fails_its_test_and_is_kept(bench: Bench) -> None:
    """Bug: it passed."""
    bench.write(test_own="def test_load(llm_load): llm_load(20)")
    refuses = Manner(fault=lambda body: "500" if len(body["prompt"]) == 64 else "")
    with CountingServer(refuses).running() as server:
        options = (f"--llm-endpoint={server.url}", "--llm-variants=endpoint", "--llm-reference=endpoint")
        result = bench.run(*options, "--llm-load-time=0.5")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*none of \d+ requests? was answered; most: .*500 Internal Server Error.*"])
    [point] = bench.results()["loads"]
    assert all(one["failure"] for one in point["requests"])


def test_without_a_server_there_is_nothing_of_it(bench: Bench) -> None:
    bench.write(test_own=SUITE, test_only="def test_load(llm_load, llm_request_rate): pass")
    result = bench.run("--collect-only", "-q", "test_own.py")
    result.stdout.fnmatch_lines(["test_own.py::test_length?fp32-20?", "*", "3 tests collected*"])
    assert not any(word in result.stdout.str() for word in ("deselected", "llm-bench:", "test_load"))
    alone = bench.run("--collect-only", "test_only.py")
    alone.stdout.fnmatch_lines(["collected 0 items", "llm-bench: a load needs a server: --llm-endpoint URL"])
    named = bench.run("--collect-only", "test_only.py::test_load")
    assert named.ret == pytest.ExitCode.USAGE_ERROR
    named.stdout.fnmatch_lines(["llm-bench: a load needs a server: --llm-endpoint URL"])
    named.stderr.fnmatch_lines(["ERROR: not found: *"])
