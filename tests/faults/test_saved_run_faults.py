"""Faults of saved runs. Each row plants one in a file; each command then ends with its verdict, or names the file.

What nobody thought of is sought by mutation, with a fixed seed for each command.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_block_record, make_provenance, make_run, make_variant, skipped_record
from saved_factory import stored_json

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.reading import LONGEST_TEXT
from llm_bench_fixtures.results.record import MOST_VARIANTS, MemoryFacts, Run
from llm_bench_fixtures.results.storage import MOST_BYTES, MOST_VALUES, read_results, run_to_json
from llm_bench_fixtures.text import LONGEST

Json = Any
BAD = "0002_bad.json"
VERDICTS = {status.value for status in ExitStatus}


def saved_run(day: int) -> Run:
    """Two variants in blocks with the reference, a quality, a probe, a mark and a skipped test."""
    quality = {"perplexity": 20.0, "kld_mean": 0.01, "kld_error": 0.001, "ppl_ratio": 1.01, "ppl_ratio_error": 0.002}
    by_round = {"waited_s": (0.0,) * 10, "reference_waited_s": (0.0,) * 10, "core_to_core": (1.8,) * 9 + (4.0,)}
    facts = {"memory": MemoryFacts(12_000_000), **by_round}
    marked = {"probe_s": ((0.001, 0.002),) * 10, "gate": {"perplexity": "0.5%"}, "extra": {"mine": 7.0}}
    records = [
        make_block_record(spread=0.0, **facts),
        make_block_record("bf16", 1.5, **facts, **marked),
        skipped_record("bf16", "no such cache", scenario="cache"),
    ]
    variants = [make_variant(), make_variant("bf16", quality=quality, loss_blocks=(3.0, 3.1, 2.9))]
    return make_run(records, variants, provenance=make_provenance(started=f"2026-01-{day:02}T00:00:00+00:00"))


@dataclass
class Storage:
    """A folder with one good run, 0001, and one whose file is at fault."""

    folder: Path
    bad: Path
    capture: pytest.CaptureFixture[str]

    @property
    def good(self) -> Path:
        return self.bad.with_name("0001_good.json")

    def commands(self) -> dict[str, list[str]]:
        """The file as what is judged, as what is judged by, and as one of many."""
        page = str(self.folder.parent / "trend.html")
        return {
            "gate": ["gate", str(self.bad), "--baseline", str(self.good)],
            "baseline": ["gate", str(self.good), "--baseline", str(self.bad)],
            "compare": ["compare", str(self.good), str(self.bad)],
            "chosen": ["gate", str(self.good)],
            "history": ["history", "--json"],
            "export": ["export"],
            "trend": ["trend", "-o", page],
            "bless": ["bless", str(self.bad), "--reason", "it is meant"],
        }

    def run(self, command: str) -> tuple[int, str]:
        """The exit status, and all that was said."""
        self.capture.readouterr()
        status = main([*self.commands()[command], "--storage", str(self.folder)])
        return status, "".join(self.capture.readouterr())


@pytest.fixture
def storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Storage:
    """The file at fault is the newest where the good one is judged, so that it would be chosen as the baseline."""
    folder = tmp_path / ".benchmarks" / "laptop"
    folder.mkdir(parents=True)
    found = Storage(folder.parent, folder / BAD, capsys)
    found.good.write_text(json.dumps(stored_json(saved_run(day=3))), encoding="utf-8")
    return found


NAMING = ("gate", "baseline", "compare", "bless")  # status 4, and the file's name
PASSING_OVER = ("chosen", "history", "export", "trend")  # the others are shown, and the file is named


def stored() -> Json:
    return stored_json(saved_run(day=2))


def edited(edit: Callable[[Json, Json], object]) -> bytes:
    """A file whose JSON was changed. edit: is given the run, and the record of bf16 within it."""
    data = stored()
    edit(data["llm_bench"], data["benchmarks"][1]["extra_info"]["llm_bench"])
    return json.dumps(data).encode()


def record(**fields: Json) -> Callable[[], bytes]:
    return lambda: edited(lambda _, one: one.update(fields))


def metric(value: float) -> Callable[[], bytes]:
    return lambda: edited(lambda _, one: one["metrics"].update(own_memory_bytes=value))


def variant(**fields: Json) -> Callable[[], bytes]:
    return lambda: edited(lambda run, _: run["variants"][1].update(fields))


def whole(**fields: Json) -> Callable[[], bytes]:
    return lambda: edited(lambda run, _: run.update(fields))


def provenance(**fields: Json) -> Callable[[], bytes]:
    return lambda: edited(lambda run, _: run["provenance"].update(fields))


JSON, DAMAGED = "can't be read as JSON", "is damaged: "
BLOCKS = f"{DAMAGED}benchmarks/test_precision.py::test_precision[-bf16] has blocks that don't fit its rounds"
# What is wrong with the file, its content, and what is said of it.
EVERYWHERE = [
    (
        "values without end",
        lambda: edited(lambda run, _: run["variants"][1].update(loss_blocks=[1] * MOST_VALUES)),
        " values, and no run has more than 8,000,000",
    ),
    ("cut in half", lambda: json.dumps(stored()).encode()[:900], JSON),
    ("empty", lambda: b"", JSON),
    ("not UTF-8", lambda: b"\xff\xfe{}", JSON),
    ("brackets without end", lambda: b'{"benchmarks": ' + b"[" * 100_000, JSON),
    ("a NaN", lambda: json.dumps(stored()).replace("7.0", "NaN").encode(), JSON),
    ("another program's", lambda: b'{"benchmarks": []}', "has no benchmarks that llm-bench-fixtures measured"),
    ("another schema", whole(version=99), "is of schema version 99; this reads 4"),
    ("a status that there isn't", record(status="fine"), DAMAGED),
    ("text in place of a list", whole(variants="none"), DAMAGED),
    (
        "figures without end",
        variant(weight_bytes=10**200),
        ".weight_bytes: expected a whole number <=",
    ),
    ("a loss of 1e300", variant(loss_blocks=[1e300]), ".loss_blocks[0]: expected a number <= 1e+30"),
    ("an error below 0", variant(quality={"kld_error": -1.0}), f"{DAMAGED}bf16 has an error below 0"),
    ("a reason without end", variant(reason="x" * (LONGEST_TEXT + 1)), ".reason: expected a text of length <= 1000000"),
    ("a variant's name without end", variant(id="x" * (LONGEST + 1)), ".id: expected a text of length <= 100000"),
    (
        "a commit without end",
        provenance(commit="0" * (LONGEST_TEXT + 1)),
        ".commit: expected a text of length <=",
    ),
    (
        "variants without end",
        lambda: edited(lambda run, _: run.update(variants=run["variants"] * MOST_VARIANTS)),
        f"{DAMAGED}llm_bench.variants: expected a list of length <= {MOST_VARIANTS}",
    ),
]
# What only who reads all of a record sees.
IN_RECORDS = [
    ("a number that no float holds", lambda: json.dumps(stored()).replace("7.0", "1e999").encode(), ""),
    (
        "a metric of 1e31",
        metric(1e31),
        ".metrics[...]: expected a number <= 1e+30",
    ),
    ("no rounds", record(rounds_s=[]), "was measured in no rounds"),
    ("a round of 0 s", record(rounds_s=[0.0] * 10), ".rounds_s[0]: expected a number >= 1e-09"),
    ("rounds of 5e-324 s", record(rounds_s=[5e-324] * 10), ".rounds_s[0]: expected a number >= 1e-09"),
    ("a round of 1e300 s", record(rounds_s=[1e300] * 10), ".rounds_s[0]: expected a number <= 1000000000.0"),
    ("the reference's rounds one short", record(reference_s=[1.0] * 9), BLOCKS),
    ("a reference of 5e-324 s", record(reference_s=[5e-324] * 10), ".reference_s[0]: expected a number >= 1e-09"),
    ("waits one short", record(waited_s=[0.0] * 9), BLOCKS),
    ("a variance of 0 that is known", record(expected_variance={"variance": 0.0, "freedom": 9.0}), BLOCKS),
    ("a variance of 1e31", record(expected_variance={"variance": 1e31, "freedom": 9.0}), BLOCKS),
    ("a variance that is known by -1", record(expected_variance={"variance": 1.0, "freedom": -1.0}), BLOCKS),
    ("a drift of -1", record(drift={"variance": -1.0, "freedom": 9.0}), BLOCKS),
    ("a drift of 1e6", record(drift={"variance": 1e6, "freedom": 9.0}), BLOCKS),
    ("a drift that is known by 1e-30", record(drift={"variance": 1.0, "freedom": 1e-30}), BLOCKS),
    ("a probe of 5e-324 s", record(probe_s=[[5e-324, 1.0]] * 10), ".probe_s[0][0]: expected a number >= 1e-09"),
    ("a test's name without end", record(test="é" * (LONGEST + 1)), ".test: expected a text of length <= 100000"),
    (
        "a metric's name without end",
        lambda: edited(lambda _, one: one["metrics"].update({"m" * (LONGEST + 1): 1.0})),
        "a name in benchmarks[1].extra_info.llm_bench.metrics: expected a text of length <= 100000",
    ),
]
# What is odd, and stops nothing.
HARMLESS = [
    ("a metric of 5e-324", metric(5e-324)),
    ("a metric of -0", metric(-0.0)),
    ("a metric below 0", metric(-1e30)),
    ("a variance of 5e-324", record(expected_variance={"variance": 5e-324, "freedom": 1e30})),
    ("a drift of 5e-324", record(drift={"variance": 5e-324, "freedom": 1.0})),
    ("a drift of 1e3", record(drift={"variance": 1e3, "freedom": 1.0})),
    ("no metrics", record(metrics={})),
    ("the same test twice", lambda: edited(lambda run, one: run["records"].append(one))),
    ("no time of the start", provenance(started="\x1b[2J")),
    ("a variant that isn't there", record(variant="none")),
    ("a divergence of 5e-324", variant(quality={"kld_mean": 5e-324, "kld_error": 1e30})),
    ("a field from later", whole(added_later=[1])),
]


@pytest.mark.parametrize(("plant", "said"), [pytest.param(*row[1:], id=row[0]) for row in (*EVERYWHERE, *IN_RECORDS)])
def test_a_damaged_run_is_refused_by_its_name(storage: Storage, plant: Callable[[], bytes], said: str) -> None:
    """Bug: 5e-324 in a metric was a traceback, lists that don't fit a ValueError; a name of 50 MB took 14.7 GB."""
    storage.bad.write_bytes(plant())
    before = storage.bad.read_bytes()
    for command in NAMING:
        status, text = storage.run(command)
        assert (command, status) == (command, ExitStatus.USAGE)
        assert BAD in text
        assert said in text
        assert len(text) < 3000
    assert storage.bad.read_bytes() == before


@pytest.mark.parametrize(("plant", "said"), [pytest.param(*row[1:], id=row[0]) for row in EVERYWHERE])
def test_a_damaged_run_is_passed_over_among_others(storage: Storage, plant: Callable[[], bytes], said: str) -> None:
    storage.bad.write_bytes(plant())
    for command in PASSING_OVER:
        status, text = storage.run(command)
        assert (command, status) == (command, ExitStatus.NO_BASELINE if command == "chosen" else ExitStatus.PASSED)
        assert BAD in text
        assert said in text


@pytest.mark.parametrize("plant", [pytest.param(row[1], id=row[0]) for row in HARMLESS])
def test_what_is_odd_stops_nothing(storage: Storage, plant: Callable[[], bytes]) -> None:
    storage.bad.write_bytes(plant())
    for command in storage.commands():
        assert storage.run(command)[0] in VERDICTS - {ExitStatus.USAGE}, command


def test_a_mark_that_no_rule_can_be_read_from_is_the_files_fault(storage: Storage) -> None:
    storage.bad.write_bytes(edited(lambda _, one: one.update(gate={"perplexity": "a lot"})))
    for command in ("gate", "compare"):
        status, text = storage.run(command)
        assert (status, BAD in text, "llm_gate: expected a change such as 5%" in text) == (4, True, True)


def test_a_file_that_is_too_large_is_not_read(storage: Storage) -> None:
    storage.bad.touch()
    os.truncate(storage.bad, MOST_BYTES + 1)  # without taking room on the disk
    for command in (*NAMING, "history"):
        text = storage.run(command)[1]
        assert f"{BAD} has 134 MB, and no run has more than 134 MB" in text


def test_what_is_no_file_is_no_run(storage: Storage) -> None:
    """A pipe that would block, a folder, and a link to itself."""
    os.mkfifo(storage.bad)
    storage.bad.with_name("0003_folder.json").mkdir()
    storage.bad.with_name("0004_loop.json").symlink_to("0004_loop.json")
    status, text = storage.run("history")
    assert (status, [Path(run["file"]).name for run in json.loads(text)["runs"]]) == (0, ["0001_good.json"])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is text")
def test_a_folder_whose_name_is_no_text_is_one_like_others(storage: Storage) -> None:
    odd = storage.folder.with_name(os.fsdecode(b"caf\xe9"))
    storage.folder.rename(odd)
    found = Storage(odd, odd / "laptop" / BAD, storage.capture)
    found.bad.write_bytes(json.dumps(stored()).encode())
    for command in found.commands():
        status, text = found.run(command)
        assert status in VERDICTS - {ExitStatus.USAGE}, command
        text.encode()


@pytest.mark.parametrize(
    "command", ["gate", "compare 1 2", "bless 1 --reason so", "history", "export", "trend", "pair main"]
)
def test_a_working_folder_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Bug: a traceback."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(command.split()) == ExitStatus.USAGE
    name = command.split()[0]
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"llm-bench {name}: the working folder is gone: change to one that is there"
    )


HOSTILE: tuple[Json, ...] = (
    *(None, True, 0, -1, 0.0, 1e308, -1e308, 5e-324, 1e31, 10**25, 10**400),
    *("", "x" * 300_000, "\x1b]52;c;AAAA\x07", "\u202e", "\ud800", "5e-324", [], {}, [[]], [1.0], [5e-324] * 10),
)


def places(value: Json, here: tuple[Json, ...] = ()) -> Iterator[tuple[Json, ...]]:
    """The path of every value within the JSON."""
    if here:
        yield here
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from places(child, (*here, name))


def mutate(data: Json, coin: random.Random) -> None:
    """Replace, remove, repeat or cut short one value."""
    *parents, name = coin.choice(list(places(data)))
    for parent in parents:
        data = data[parent]
    kind = coin.randrange(10)
    if kind < 6:
        data[name] = deepcopy(coin.choice(HOSTILE))
    elif kind < 8:
        del data[name]
    elif isinstance(data[name], list) and data[name]:
        data[name] = data[name][1:] if kind == 8 else data[name] * 2
    elif isinstance(data[name], float):
        data[name] *= coin.choice([-1, 0, 1e-9, 1e9, 1e29])


def mutations(kind: str, count: int, stored_of_three: int = 2) -> Iterator[bytes]:
    """Files with one to three values changed, and some with bytes changed.

    stored_of_three: of each three files, how many are as pytest-benchmark stores them; the others are a report's.
    """
    coin = random.Random(kind)  # noqa: S311  # the same in every run
    texts = json.dumps(run_to_json(saved_run(day=2))), json.dumps(stored())
    for index in range(count):
        data = json.loads(texts[index % 3 < stored_of_three])
        for _ in range(coin.choice([1, 1, 2, 3])):
            mutate(data, coin)
        text = bytearray(json.dumps(data).encode())
        for _ in range(coin.choice([0, 0, 0, 0, 1, 20])):
            text[coin.randrange(len(text))] = coin.randrange(256)
        yield bytes(text)


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("gate", 100),
        ("baseline", 60),
        ("compare", 100),
        ("chosen", 60),
        ("history", 60),
        ("export", 60),
        ("trend", 30),
        ("bless", 60),
    ],
)
def test_whatever_is_wrong_a_command_ends_with_its_verdict_or_names_the_file(
    storage: Storage, command: str, count: int
) -> None:
    refused = 0
    for number, content in enumerate(mutations(command, count)):
        storage.bad.write_bytes(content)
        status, text = storage.run(command)  # which would raise
        assert status in VERDICTS, f"mutation {number}"
        assert status != ExitStatus.USAGE or BAD in text, f"mutation {number}: {text}"
        refused += BAD in text
    assert refused


def test_whatever_is_wrong_the_table_of_a_run_can_be_read_or_its_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    refusals = []
    for content in mutations("results", 150, stored_of_three=0):
        path.write_bytes(content)
        try:
            read_results(path)
        except UnreadableResults as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < 150
    assert [message for message in refusals if str(path) not in message] == []
