"""Which variants of a run are loaded together: decided before the first test, and told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import LlmBenchError, is_process_limit
from llm_bench_fixtures.plugin.items import arrange, case_of, is_benchmark, variant_of
from llm_bench_fixtures.plugin.stash import bench_session, selected_variants
from llm_bench_fixtures.plugin.terminal_progress import tell
from llm_bench_fixtures.progress import Part
from llm_bench_fixtures.text import harmless

if TYPE_CHECKING:
    import pytest


def plan_and_arrange(session: pytest.Session) -> None:
    """Plan the lineup of the variants that have tests, with the reference, and put the tests of each group together.

    Where no model can be found, or no process can be started, nothing is done: the first test says why.
    """
    config = session.config
    selected = selected_variants(config)
    bench = bench_session(config)
    tested = {variant.id for item in session.items if (variant := variant_of(item))}
    variants = [one for one in selected if one.id in tested or one.id == bench.results.reference]
    try:
        lineup = bench.loader.plan(variants)
    except LlmBenchError:
        return
    except (OSError, RuntimeError) as error:
        if not is_process_limit(error):
            raise
        return
    arrange(session.items, [variant.id for variant in selected], lineup.place)
    bench.progress.expect(Part.VARIANT, len(variants))
    placed = ((case_of(item), variant_of(item)) for item in filter(is_benchmark, session.items))
    bench.progress.expect(Part.CASE, len({(case, lineup.place(variant)) for case, variant in placed if variant}))
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and config.get_verbosity() >= 0:
        lines = filter(None, (lineup.describe(), bench.setup.threads_warning))
        tell(reporter, harmless(f"llm-bench: {line}" for line in lines))
