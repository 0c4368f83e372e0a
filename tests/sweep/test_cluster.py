"""What a cluster must have for a sweep: told before anything starts, with what it has. No Ray is needed."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.sweep.cluster import Node, check_nodes, check_versions
from llm_bench_fixtures.sweep.plan import MachineEntry, SweepCell
from llm_bench_fixtures.version import __version__

NODES = [
    Node("1", "server", {"CPU": 16, "GPU": 2, "llm-bench": 1, "gpu-a100": 1}, {"zone": "x"}),
    Node("2", "laptop", {"CPU": 4, "llm-bench": 1}, {}),
    Node("3", "head", {"CPU": 8}, {}),
]


def check(machine: MachineEntry, nodes: list[Node] = NODES) -> None:
    check_nodes([SweepCell("a cell", machine, (), (), {})], nodes)


@pytest.mark.parametrize(
    "machine",
    [
        MachineEntry("any"),
        MachineEntry("a100", resources={"gpu-a100": 1}, gpus=2),
        MachineEntry("labelled", labels={"zone": "x"}),
    ],
)
def test_a_node_fits(machine: MachineEntry) -> None:
    check(machine)


@pytest.mark.parametrize(
    ("machine", "asked"),
    [
        (MachineEntry("m", gpus=3), "llm-bench 1, GPU 3"),
        (MachineEntry("m", resources={"gpu-a100": 2}), "llm-bench 1, gpu-a100 2"),
        (MachineEntry("m", labels={"zone": "y"}), "llm-bench 1, zone = 'y'"),
    ],
)
def test_without_one_that_fits_the_nodes_are_listed(machine: MachineEntry, asked: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        check(machine)
    assert str(error.value).splitlines() == [
        f"[[machine]] m: no node has {asked}. The cluster has:",
        "  server: CPU 16, GPU 2, gpu-a100 1, llm-bench 1, zone = 'x'",
        "  laptop: CPU 4, llm-bench 1",
        "  head: CPU 8",
    ]


def test_a_resource_that_no_node_has_is_unknown() -> None:
    with pytest.raises(InvalidSetting, match=r"unknown resource 'gpu-a10'\. Did you mean gpu-a100\?"):
        check(MachineEntry("m", resources={"gpu-a10": 1}))


def test_nodes_that_were_started_without_the_resource_of_a_sweep_are_told_how_to() -> None:
    with pytest.raises(InvalidSetting, match="Start each node that measures with `ray start --resources"):
        check(MachineEntry("any"), NODES[2:])


def test_another_version_of_the_package_is_refused() -> None:
    check_versions([("server", __version__)])
    with pytest.raises(InvalidSetting) as error:
        check_versions([("laptop", "9.9"), ("laptop", __version__), ("head", "")])  # two nodes on one host
    assert str(error.value).splitlines()[1:3] == ["  laptop: 9.9", "  head: none"]
