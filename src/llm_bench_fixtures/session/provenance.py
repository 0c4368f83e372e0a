"""Where a run's numbers come from: machine, libraries, model, corpus, commit and command."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.measure.energy import energy_meter
from llm_bench_fixtures.models.backends import known_libraries
from llm_bench_fixtures.models.versions import MEASURING, installed_versions
from llm_bench_fixtures.plugin.internals import DETACHED, UNKNOWN
from llm_bench_fixtures.results.record import Provenance

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.windows import WindowPlan
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.session.setup import Setup


def provenance_of(
    setup: Setup, started: datetime, commit: Mapping[str, Any], windows: WindowPlan | None = None
) -> Provenance:
    """commit: what is measured: `id`, `branch` and `dirty`. windows: in which the corpus was scored, if it was."""
    import torch

    limits = setup.known_limits
    rates = {dtype.value: rate for dtype, rate in limits.matmul_flops_per_s.items()} if limits else {}
    source, device = setup.source, setup.device
    return Provenance(
        started=started.isoformat(timespec="seconds"),
        model=source.name,
        random_weights=source.random_weights,
        device=device.name,
        hardware=device.hardware,
        threads=torch.get_num_threads(),
        platform=platform.platform(),
        python=platform.python_version(),
        libraries=installed_versions((*MEASURING[:1], *known_libraries(), *MEASURING[1:])),
        commit=_known(commit.get("id")),
        branch=_known(commit.get("branch")),
        dirty=bool(commit.get("dirty")),
        corpus=f"{setup.corpus.name} ({setup.corpus.digest}){f', in {windows.description}' if windows else ''}",
        command=" ".join(["pytest", *map(shlex.quote, sys.argv[1:])]),
        isolated=setup.settings.isolate,
        energy=_energy(device),
        passed_over=tuple(f"{name}: {reason}" for name, reason in source.passed_over),
        read_bytes_per_s=limits.read_bytes_per_s if limits else None,
        matmul_flops_per_s=rates,
    )


def _known(text: object) -> str:
    return "" if text in (*UNKNOWN, DETACHED) else str(text)


def _energy(device: Device) -> str:
    """Where joules are read, or why they aren't."""
    meter = energy_meter(device)
    return meter.source or f"not measured: {meter.reason}"
