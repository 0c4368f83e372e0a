"""A sweep on a real cluster of Ray's, of three nodes on this machine, two of which measure: what ends well, and what
doesn't. The suite's variants are toys that take no time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from toy_engine import FILES, SIZES
from waiting import wait_until

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.results.storage import read_run
from llm_bench_fixtures.sweep import cluster as clusters
from llm_bench_fixtures.sweep.cluster import Cluster, connected
from llm_bench_fixtures.sweep.node import CellOutcome
from llm_bench_fixtures.sweep.plan import MachineEntry, SweepCell

pytest.importorskip("ray")
pytestmark = pytest.mark.nightly("starts clusters of Ray's")

OPTIONS = (
    "--llm-variants=toy,half", "--llm-reference=toy", "--llm-limits-time=0", "--llm-corpus=corpus.txt",
    "--llm-rounds=2", "--llm-choices=none", "-p", "no:cacheprovider",
)  # fmt: skip
# What befalls a cell: it waits for its node to be killed, has a test that fails, or a disk that is full.
CONFTEST = """
import os, pathlib, time

def pytest_sessionstart():
    alive = pathlib.Path(os.environ["PLACE"], os.environ["CELL"])
    alive.write_text(os.environ.get("NODE", "here"))
    while os.environ.get("WAITS") and not alive.with_suffix(".goes-on").exists():
        time.sleep(0.05)
    if os.environ.get("FULL"):
        def full(self, target):
            raise OSError(28, "No space left on device")
        pathlib.Path.replace = full
"""
SUITE = """
import os

def test_passes():
    assert not os.environ.get("FAILS")
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster as Local

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    head = {"num_cpus": 1, "include_dashboard": False}
    with ExitStack() as stack:
        local = Local(initialize_head=True, head_node_args=head)
        stack.callback(local.shutdown)
        yield local


def add(cluster: Any, name: str, path: str = "", **more: Any) -> Any:
    """A node that its cells know by the name."""
    resources = {"llm-bench": 1, **more.pop("resources", {})}
    paths = os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH"))))
    return cluster.add_node(num_cpus=1, resources=resources, env_vars={"NODE": name, "PYTHONPATH": paths}, **more)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    folder.mkdir()
    files = {**FILES, "conftest": FILES["conftest"] + CONFTEST, "test_sizes": SIZES, "test_own": SUITE}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "corpus.txt").write_text("The keeper climbed the stairs at dusk.\n" * 40, encoding="utf-8")
    return folder


def cell(suite: Path, name: str, machine: MachineEntry | None = None, **environment: str) -> SweepCell:
    known = {"PLACE": str(suite.parent), "CELL": name, **environment}
    return SweepCell(name, machine or MachineEntry("any"), (".",), OPTIONS, known)


def ignore(hosts: Mapping[str, str]) -> None:
    pass


def ends_of(
    ray: Cluster, *cells: SweepCell, told: Callable[[Mapping[str, str]], None] = ignore
) -> dict[str, CellOutcome]:
    ray.check(cells)
    return {one.cell: one for one in ray.run(cells, told)}


def test_what_fails_costs_its_own_cell_alone(cluster: Any, suite: Path) -> None:
    """The suite is sent to the nodes; none of the cells runs where it lies here."""
    add(cluster, "a100", resources={"gpu-a100": 1})
    add(cluster, "x", labels={"zone": "x"})
    with connected(cluster.address, suite) as ray:
        ends = ends_of(
            ray,
            cell(suite, "whole", MachineEntry("a100", resources={"gpu-a100": 1})),
            cell(suite, "fails", MachineEntry("x", labels={"zone": "x"}), FAILS="1"),
            cell(suite, "full", FULL="1"),
        )
        with pytest.raises(InvalidSetting, match=r"no node has llm-bench 1, GPU 1\. The cluster has:"):
            ray.check([cell(suite, "more", MachineEntry("more", gpus=1))])
    whole, fails, full = (ends[name] for name in ("whole", "fails", "full"))
    assert (whole.reason, whole.status) == ("", 0), whole.output
    assert b'"toy"' in whole.results
    assert next(name for name, _ in whole.saved).endswith("/0001_whole.json")
    assert (fails.reason, fails.status) == ("", 1)
    assert fails.results
    assert not full.results
    assert "without a run" in full.reason
    assert "No space left on device" in full.output
    assert [(suite.parent / name).read_text(encoding="utf-8") for name in ("whole", "fails")] == ["a100", "x"]


def test_a_cell_whose_node_is_killed_is_measured_on_another_and_then_given_up(
    cluster: Any, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "GONE_S", 0.0)
    nodes = {name: add(cluster, name) for name in ("one", "other")}
    started, goes_on = suite.parent / "dies", suite.parent / "dies.goes-on"

    def kill(hosts: Mapping[str, str]) -> None:
        """The cell's node, once it runs there."""
        if "dies" in hosts and started.exists() and not goes_on.exists():
            cluster.remove_node(nodes.pop(started.read_text(encoding="utf-8")), allow_graceful=False)
            goes_on.touch()  # for where it is begun again

    with connected(cluster.address, suite) as ray:
        ends = ends_of(ray, cell(suite, "dies", WAITS="1"), told=kill)
        assert (ends["dies"].reason, ends["dies"].status) == ("", 0), ends["dies"].output
        assert len(nodes) == 1, "it was killed once"
        started.unlink()
        goes_on.unlink()
        ends = ends_of(ray, cell(suite, "dies", WAITS="1"), told=kill)
    assert ends["dies"].reason == "no node is left that fits [[machine]] any"


def test_another_version_on_a_node_is_refused(cluster: Any, suite: Path, tmp_path: Path) -> None:
    package = tmp_path / "other" / "llm_bench_fixtures"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text('__version__ = "9.9"\n', encoding="utf-8")
    add(cluster, "other", str(package.parent))
    with connected(cluster.address, suite) as ray, pytest.raises(InvalidSetting, match=r"another version:\n.*: 9\.9"):
        ray.check([cell(suite, "any")])


def test_the_same_file_runs_without_a_cluster_and_again_only_what_is_missing(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ", ".join(f'"{option}"' for option in OPTIONS)
    text = f"""
        suite = ["."]
        arguments = [{options}]
        environment = {{ PLACE = "{suite.parent}", CELL = "any" }}
        [[machine]]
        name = "a100"
        gpus = 8
        [[options]]
        name = "passes"
        [[options]]
        name = "breaks"
        environment = {{ FULL = "1" }}
    """
    (suite / "sweep.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(suite)
    assert main(["sweep", "sweep.toml", "-o", "fleet"]) == 1
    out, err = capsys.readouterr()
    assert "[1/2] here/passes: measured on " in err
    assert "[2/2] here/breaks: on " in err
    assert "without a run" in " ".join(out.split())
    assert read_run("fleet/cells/here/passes/results.json").measured()
    assert len(list((suite / ".benchmarks").rglob("*.json"))) == 1
    assert (suite / "fleet" / "report.html").is_file()
    (suite / "sweep.toml").write_text(text.replace('FULL = "1"', 'FULL = ""'), encoding="utf-8")
    assert main(["sweep", "sweep.toml", "-o", "fleet"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("1 cell of 2 kept from fleet, 1 to measure")
    assert "here/passes" not in err
    wait_until(lambda: len(list((suite / ".benchmarks").rglob("*.json"))) == 2)
