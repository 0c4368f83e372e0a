"""Which model is benchmarked: the first candidate that can be used."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import NoCandidateLoaded, reason_of
from llm_bench_fixtures.models.checks import check_loads, check_usable
from llm_bench_fixtures.models.dummy import dummy_source
from llm_bench_fixtures.models.folders import model_folder
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.tryout import examine
from llm_bench_fixtures.options.parsers import LoadFormat

if TYPE_CHECKING:
    from llm_bench_fixtures.models.artifacts import ArtifactStore
    from llm_bench_fixtures.options.settings import Settings


PANIC = "PanicException"  # from Rust libraries, such as tokenizers; no Exception, and in no module to import it from


def find_source(settings: Settings, store: ArtifactStore) -> ModelSource:
    """The first candidate of `settings.model` that has a usable tokenizer, config and weights.

    Each of several is loaded once to see: only then is it certain that it can be.
    Whatever fails with one is the reason why the next is tried. Raises NoCandidateLoaded with the reason of each.
    """
    failures: list[tuple[str, str]] = []
    for name in settings.model:
        try:
            with quiet_libraries():
                if settings.load_format is LoadFormat.DUMMY:
                    source = dummy_source(name, settings, store)
                else:
                    folder = model_folder(name, settings)
                    source = ModelSource(name, folder, trust_remote_code=settings.trust_remote_code)
                takes = check_usable(source, partial(examine, in_process=settings.in_process))
                source = replace(source, footprint=takes, notes=(*source.notes, *takes.notes))
                if len(settings.model) > 1:
                    check_loads(source)
            return replace(source, passed_over=tuple(failures))
        except BaseException as error:  # a folder from elsewhere can make any library fail in any way
            if not isinstance(error, Exception) and type(error).__name__ != PANIC:
                raise
            failures.append((name, reason_of(error)))
    raise NoCandidateLoaded(failures)
