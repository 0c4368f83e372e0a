"""Cells on a Ray cluster. Ray finds each a node; a node offers one of the resource `llm-bench`, so that no two cells
measure on it at once, and a cell takes all CPUs of the smallest node that it may run on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_bench_fixtures.errors import InvalidSetting, MissingLibrary, UnknownName, first_line, indented
from llm_bench_fixtures.sweep.node import CellOutcome, measure
from llm_bench_fixtures.sweep.plan import MEASURES, MachineEntry, SweepCell
from llm_bench_fixtures.version import __version__

OF_RAY = ("memory", "object_store_memory")  # resources that no file asks for
ATTEMPTS = 2
LOOK_EVERY_S = 1.0
CONNECT_S = 5.0
ANSWER_S = 60.0  # seconds in which each node says its version
GONE_S = 30.0  # seconds without a node that fits, until a cell is given up
NOT_SENT = (".benchmarks", "llm-bench-report*", "llm-bench-sweep*")  # left out of the folder that nodes are sent


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    """Host or address of the node."""
    resources: Mapping[str, float]
    labels: Mapping[str, str]

    def fits(self, machine: MachineEntry) -> bool:
        has = all(self.resources.get(name, 0) >= number for name, number in needs_of(machine).items())
        return has and all(self.labels.get(name) == value for name, value in machine.labels.items())

    def __str__(self) -> str:
        return f"{self.name}: {listed(dict(sorted(self.resources.items())), dict(sorted(self.labels.items())))}"


def listed(resources: Mapping[str, float], labels: Mapping[str, str]) -> str:
    """What a node has, or is asked for, in words."""
    shown = [f"{name} {number:g}" for name, number in resources.items()]
    return ", ".join([*shown, *(f"{name} = {value!r}" for name, value in labels.items())])


def needs_of(machine: MachineEntry) -> dict[str, float]:
    gpus = {"GPU": machine.gpus} if machine.gpus else {}
    return {MEASURES: 1, **machine.resources, **gpus}


def check_nodes(cells: Sequence[SweepCell], nodes: Sequence[Node]) -> None:
    """Raise InvalidSetting for a cell that no node fits, with what the cluster has."""
    known = {name for node in nodes for name in node.resources}
    there = indented([str(node) for node in nodes])
    for machine in {cell.machine.name: cell.machine for cell in cells}.values():
        if unknown := next((name for name in machine.resources if name not in known), None):
            raise InvalidSetting(f"[[machine]] {machine.name}: {UnknownName('resource', unknown, known)}\n{there}")
        if not any(node.fits(machine) for node in nodes):
            asked = listed(needs_of(machine), machine.labels)
            hint = f"\nStart each node that measures with `ray start --resources '{{\"{MEASURES}\": 1}}' …`"
            raise InvalidSetting(
                f"[[machine]] {machine.name}: no node has {asked}. The cluster has:\n{there}"
                f"{'' if MEASURES in known else hint}"
            )


def check_versions(versions: Iterable[tuple[str, str]]) -> None:
    """versions: each node's name, and its version of this package; empty without one. Raises InvalidSetting."""
    if other := [f"{node}: {version or 'none'}" for node, version in versions if version != __version__]:
        raise InvalidSetting(
            f"this is llm-bench-fixtures {__version__}, and the cluster's nodes have another version:\n"
            f"{indented(other)}\nInstall the same one on each, or runs can't be compared."
        )


def check_answers(address: str) -> None:
    """Raise InvalidSetting unless something listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not host or not port.isdecimal():
        raise InvalidSetting(f"--address: expected HOST:PORT or auto, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidSetting(
            f"no Ray cluster answers at {address}: {first_line(error)}\nGive the HOST:PORT that `ray start --head` "
            "showed, usually of port 6379, and let firewalls pass it."
        ) from error


@contextmanager
def connected(address: str | None, folder: Path | None) -> Iterator[Cluster]:
    """The cluster at the address; None: one of this machine alone, which ends with the block. folder: that its cells
    run in. Raises InvalidSetting where it can't be reached or sent the folder, and MissingLibrary."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingLibrary("llm-bench sweep", "ray", "ray") from error
    if address is not None:
        check_answers(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # and its warning of what that changes
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"address": "local", "resources": {MEASURES: 1}, "include_dashboard": False}
    else:
        options |= {"address": address}
        if folder is not None:
            options["runtime_env"] = {"working_dir": str(folder), "excludes": list(NOT_SENT)}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:  # the last of a folder that is too large
        hint = "\nIf it asks for a token, copy ~/.ray/auth_token here from where it was started." if address else ""
        raise InvalidSetting(
            f"Ray can't be used {f'at {address}' if address else 'here'}: {first_line(error)}{hint}"
        ) from error
    try:
        yield Cluster(ray, None if folder is None else "." if address else str(folder))
    finally:
        ray.shutdown()


class Cluster:
    """A Ray cluster that this process is connected to."""

    def __init__(self, ray: Any, folder: str | None) -> None:
        self._ray = ray
        self._folder = folder

    def nodes(self) -> list[Node]:
        """Nodes that are alive."""
        return [_node(one) for one in self._ray.nodes() if one["Alive"]]

    def check(self, cells: Sequence[SweepCell]) -> None:
        """Raise InvalidSetting for a cell without a node that fits, or a node with another version of this package."""
        nodes = self.nodes()
        check_nodes(cells, nodes)
        probe = self._ray.remote(num_cpus=0, max_retries=0)(_version_there())
        of_use = [node for node in nodes if any(node.fits(cell.machine) for cell in cells)]
        asked = [probe.options(scheduling_strategy=self._on(node.id)).remote() for node in of_use]
        _, silent = self._ray.wait(asked, num_returns=len(asked), timeout=ANSWER_S) if asked else ([], [])
        if names := [node.name for node, task in zip(of_use, asked, strict=True) if task in silent]:
            raise InvalidSetting(
                f"no answer within {ANSWER_S:.0f} s from {', '.join(names)}: restart Ray there, or end what it runs"
            )
        check_versions(self._answers(zip(of_use, asked, strict=True)))

    def _answers(self, asked: Iterable[tuple[Node, Any]]) -> Iterator[tuple[str, str]]:
        """The version on each node, but on one that has gone meanwhile."""
        for node, task in asked:
            try:
                yield node.name, self._ray.get(task)
            except self._ray.exceptions.TaskUnschedulableError:
                continue
            except self._ray.exceptions.RayError as error:
                raise InvalidSetting(f"a node of the cluster can't run anything: {first_line(error)}") from error

    def _on(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node, soft=False)

    def run(self, cells: Sequence[SweepCell], told: Callable[[Mapping[str, str]], None]) -> Generator[CellOutcome]:
        """Outcome of each cell, as it ends. A cell whose node died is begun once more. told: gets the host of each cell
        that runs, about once a second. What still runs where the caller stops is ended."""
        from ray.util.queue import Queue

        ray, here = self._ray, self._ray.get_runtime_context().get_node_id()
        board = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": self._on(here)})
        begin = ray.remote(max_retries=0)(measure)
        nodes = self.nodes()

        def begun(cell: SweepCell) -> Any:
            cpus = min(node.resources.get("CPU", 0) for node in nodes if node.fits(cell.machine))
            options = {
                "name": cell.name,
                "num_cpus": cpus,
                "num_gpus": cell.machine.gpus,
                "resources": {MEASURES: 1, **cell.machine.resources},
                "label_selector": cell.machine.labels or None,
            }
            return begin.options(**options).remote(cell, self._folder, board, __version__)

        running = {begun(cell): (cell, 1) for cell in cells}
        hosts: dict[str, str] = {}
        fitted = dict.fromkeys((cell.name for cell in cells), time.monotonic())  # when a node last fitted
        try:
            while running:
                done, _ = ray.wait(list(running), timeout=LOOK_EVERY_S)
                hosts |= dict(board.get_nowait_batch(board.size()))
                for task in done:
                    cell, attempt = running.pop(task)
                    host = hosts.pop(cell.name, "")
                    try:
                        yield ray.get(task)
                    except ray.exceptions.RayTaskError as error:
                        yield CellOutcome(cell.name, first_line(error.cause), host)
                    except ray.exceptions.RayError as error:
                        if attempt < ATTEMPTS:
                            running[begun(cell)] = cell, attempt + 1
                            continue
                        yield CellOutcome(
                            cell.name, f"it died {attempt} times, last on {host}: {first_line(error)}", host
                        )
                alive = self.nodes()
                for task, (cell, _) in list(running.items()):
                    if any(node.fits(cell.machine) for node in alive):
                        fitted[cell.name] = time.monotonic()
                    elif time.monotonic() - fitted[cell.name] > GONE_S:
                        del running[task]
                        ray.cancel(task, force=True)
                        yield CellOutcome(cell.name, f"no node is left that fits [[machine]] {cell.machine.name}")
                told(hosts)
        finally:
            for task in running:
                ray.cancel(task, force=True)


def _node(one: Mapping[str, Any]) -> Node:
    """A node as Ray lists it, without the resources and labels that Ray adds by itself."""
    own = [name for name in one["Resources"] if name not in OF_RAY and not name.startswith("node:")]
    labels = {name: value for name, value in one["Labels"].items() if not name.startswith("ray.io/")}
    host = one["NodeManagerHostname"] or one["NodeManagerAddress"]
    return Node(one["NodeID"], host, {name: one["Resources"][name] for name in own}, labels)


def _version_there() -> Callable[[], str]:
    """A function that a node without this package can read, too."""

    def version() -> str:
        try:
            from llm_bench_fixtures.version import __version__ as found
        except ImportError:
            return ""
        return found

    return version
