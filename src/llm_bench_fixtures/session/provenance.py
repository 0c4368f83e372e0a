"""Where a run's numbers come from: machine, libraries, model, corpus, commit and command."""

from __future__ import annotations

import platform
import shlex
import sys
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.energy import energy_meter
from llm_bench_fixtures.models.backend import MEASURING, installed_versions
from llm_bench_fixtures.models.backends import known_libraries
from llm_bench_fixtures.options.parsers import LoadFormat
from llm_bench_fixtures.results.provenance import Commit, Provenance

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.windows import WindowPlan
    from llm_bench_fixtures.options.settings import Settings
    from llm_bench_fixtures.session.setup import Setup
    from llm_bench_fixtures.workloads import Corpus


def provenance_of(setup: Setup, started: datetime, commit: Commit, windows: WindowPlan | None = None) -> Provenance:
    """windows: those that the corpus was scored in, if it was."""
    limits = setup.known_limits
    rates = {dtype.value: rate for dtype, rate in limits.matmul_flops_per_s.items()} if limits else {}
    source, device, meter = setup.source, setup.device, energy_meter(setup.device)
    spreading = () if setup.settings.device_map is None else ("accelerate",)
    return Provenance(
        started=started.isoformat(timespec="seconds"),
        model=source.name,
        model_digests=source.digests,
        random_weights=source.random_weights,
        device=device.name,
        hardware=device.hardware,
        threads=setup.threads,
        platform=platform.platform(),
        python=platform.python_version(),
        libraries=installed_versions((*MEASURING[:1], *known_libraries(), *spreading, *MEASURING[1:])),
        **asdict(commit),
        corpus=_corpus(setup.corpus, windows),
        prompts=setup.own.description if setup.own else "",
        choices=setup.choices.description if setup.choices and not source.random_weights else "",
        command=" ".join(["pytest", *map(shlex.quote, sys.argv[1:])]),
        options=setup.settings.told,
        isolated=not setup.settings.in_process,
        attention=setup.settings.attention,
        chat=setup.settings.chat,
        need=setup.settings.given.get("need", ""),
        want=setup.settings.given.get("want", ""),
        energy=meter.source or f"not measured: {meter.reason}",
        passed_over=tuple(f"{name}: {reason}" for name, reason in source.passed_over),
        memory_bytes=setup.known_free_bytes,
        fit_bytes=setup.settings.fit,
        read_bytes_per_s=limits.read_bytes_per_s if limits else None,
        matmul_flops_per_s=rates,
    )


def _corpus(corpus: Corpus, windows: WindowPlan | None) -> str:
    how = "each after its prompt" if corpus.answers else f"in {windows.description}" if windows else ""
    return ", ".join(filter(None, (f"{corpus.name} ({corpus.digest})", how)))


def foreseen(before: Provenance, settings: Settings, commit: Commit) -> Provenance:
    """An earlier session's provenance, with the commit, options and model's name of one that goes on with it."""
    return replace(
        before,
        model=before.model if before.model in settings.model else ", ".join(settings.model),
        random_weights=settings.load_format is LoadFormat.DUMMY,
        commit=commit.commit,
        dirty=commit.dirty,
        changes=commit.changes,
        options=settings.told,
    )


def completed_by(provenance: Provenance, before: Provenance) -> Provenance:
    """The provenance with the corpus and the prompts as an earlier session of the run tells them, where they are the
    same but for what is known later: the windows, and which of the prompts are sampled or left out."""
    has_corpus = before.corpus.startswith(f"{provenance.corpus}, in ")
    has_prompts = bool(provenance.prompts) and before.prompts.startswith(f"{provenance.prompts}; ")
    corpus = before.corpus if has_corpus else provenance.corpus
    return replace(provenance, corpus=corpus, prompts=before.prompts if has_prompts else provenance.prompts)
