"""`llm-bench pair` and `llm-bench aa` as they are typed, with sides whose workers are fakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llm_bench_fixtures.cli import pair
from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.paired.sides import PairSide


@pytest.fixture(autouse=True)
def fake_sides(make_side: Callable[..., PairSide], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is named as a side is a fake with one test, whose rounds differ a little; "slower" takes half as long
    again."""

    @contextmanager
    def opened(name: str, *_: object) -> Iterator[PairSide]:
        yield make_side(tests={"test_speed": 0.15 if name == "slower" else 0.1}, noise=0.001)

    monkeypatch.setattr(pair, "open_side", opened)


def test_a_version_against_itself_gives_the_resolution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "floor.json"
    assert main(["aa", "--rounds", "4", "--pairs", "3", "--json", str(kept)]) == ExitStatus.PASSED
    assert "against itself: 1 test in 3 pairs of processes" in capsys.readouterr().out
    data = json.loads(kept.read_text(encoding="utf-8"))
    assert [row["metric"] for row in data["metrics"]] == ["latency_s", "ttft_s", "tpot_s", "decode_tokens_per_s"]
    assert all(row["resolvable"] > row["half_width"] > row["deviation"] > 0 for row in data["metrics"])


def test_a_time_limit_that_leaves_too_few_pairs_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "HEAD", "--rounds", "1", "--time", "0.001s"]) == ExitStatus.INCONCLUSIVE
    assert "Time was up after 1 pair; verdicts need at least 3." in capsys.readouterr().out


def test_what_got_worse_is_named_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--json", str(tmp_path / "all.json"), "--summary", str(tmp_path / "summary.md"))
    status = main(["pair", "before", "slower", "--rounds", "4", "--pairs", "3", "--threshold", "20%", *files])
    out = capsys.readouterr().out
    assert status == ExitStatus.REGRESSED, out
    assert "test_speed" in out
    assert "Exit status 20: something got worse" in out
    data = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    tpot = next(row for row in data["comparisons"] if row["metric"] == "tpot_s")
    assert tpot["verdict"] == "regressed"
    assert tpot["estimate"]["mean"] == pytest.approx(0.5, abs=0.1)
    assert "**Exit status 20" in (tmp_path / "summary.md").read_text(encoding="utf-8")
