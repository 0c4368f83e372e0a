"""Says, before the first test, how long the run will take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle, islice

import pytest

from llm_bench_fixtures.answer.headline import BATCHES, OWN, PROMPT_LENGTHS
from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.options.settings import Settings
from llm_bench_fixtures.plugin import items as tests
from llm_bench_fixtures.plugin.stash import SESSION, is_kept
from llm_bench_fixtures.plugin.terminal_progress import announce
from llm_bench_fixtures.session.expecting import expect_run
from llm_bench_fixtures.session.plan import Case, Stage, loads_in
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import LONGEST, LONGEST_TOKENS, VARIED_LENGTHS, CacheKind, Padding, Workload, blank

LEAST_PROMPTS = 2  # prompts of a case that sweeps batch sizes
USUAL_TOKENS = 64  # tokens of a prompt that can't be told before its test runs
TOKEN_CHARACTERS = 4
PADDED_PROMPTS = 4
CONTEXT = "max_position_embeddings"  # tokens that a model can read, by the name that most configs have for it
CHECKS = "llm_equivalence"  # the fixture of tests that compare execution modes


def foresee(session: pytest.Session) -> None:
    """Fill the forecast of a run that is planned, and say it. What it fails at costs the forecast alone; where the
    model can't be used, the first test says so."""
    config = session.config
    bench = config.stash[SESSION]
    if not bench.loader.lineup.groups:
        return
    try:
        checks = (item for item in session.items if CHECKS in getattr(item, "fixturenames", ()) and not is_kept(item))
        checked = frozenset(variant.id for variant in filter(None, map(tests.variant_of, checks)))
        expect_run(bench, _workloads(session), checked, _loads(session))
        bench.measuring.expect_further()
    except Exception:  # as of a project's own backend
        bench.setup.forecast.forget_all()
        return
    if bench.setup.forecast.left_s is not None:
        announce(config, [bench.setup.forecast.describe(bench.deadline.limit_s, [*shorter_ways(session)])])


def shorter_ways(session: pytest.Session) -> Iterator[str]:
    """Options that leave tests out, but those that the answer goes by, and variants; where there are such."""
    bench, plan = session.config.stash[SESSION], session.config.stash[tests.PLAN]
    names = {item.nodeid.lower(): plan.stage(tests.case_of(item)) for item in tests.benchmarks_to_come(session)}
    deciding = (OWN,) if bench.setup.own else (PROMPT_LENGTHS, BATCHES)
    words = [word for word in deciding if any(word in name for name in names)]
    left_out = [stage for name, stage in names.items() if not any(word in name for word in words)]
    if words and left_out and Stage.LATENCY not in left_out:
        yield f"-k {words[0]}" if len(words) == 1 else f'-k "{" or ".join(words)}"'
    if len(bench.loader.known) > 1:
        yield "fewer --llm-variants"


def _loads(session: pytest.Session) -> Mapping[str, int]:
    """How often each variant with tests to come is loaded, by the group that it is in first."""
    plan = session.config.stash[tests.PLAN]
    left = [(item, variant.id) for item in session.items if (variant := tests.variant_of(item)) and not is_kept(item)]
    places = [(name, plan.place(tests.case_of(item), name)) for item, name in left]
    visits = loads_in(place for _, place in places)
    return {name: visits[place.group] for name, place in places}


def _workloads(session: pytest.Session) -> Mapping[Case, Workload]:
    """The cases to come, and what each will run."""
    setup, to_come = session.config.stash[SESSION].setup, tests.benchmarks_to_come(session)
    first = {tests.case_of(item): item for item in reversed(to_come)}
    return {case: _workload_of(first[case.name], setup) for case in tests.cases_of(to_come)}


def _workload_of(item: pytest.Item, setup: Setup) -> Workload:
    case = tests.own_case_of(item)
    if setup.own is not None and case is not None:
        with suppress(WorkloadUnsupported):  # the test says it
            return setup.own.work(case, setup.prompts).workload
    config = setup.source.load_config().get_text_config()
    return workload_of(item, setup.settings, int(getattr(config, CONTEXT, 0) or USUAL_TOKENS))


def workload_of(item: pytest.Item, settings: Settings, context: int) -> Workload:
    """The test's workload without its tokens, by its parameters. context: tokens that the model can read."""
    given, new_tokens, batch_size = tests.parameters_of(item), settings.new_tokens, 1
    texts: Sequence[str] = [value for value in given.values() if type(value) is str]
    padding = next((value for value in given.values() if isinstance(value, Padding)), None)
    lengths: Sequence[int] = [USUAL_TOKENS]
    if "llm_prompt_length" in given:
        lengths = [given["llm_prompt_length"]]
    elif "llm_batch_size" in given:
        batch_size = given["llm_batch_size"]
        lengths = [*islice(cycle(VARIED_LENGTHS), max(LEAST_PROMPTS, batch_size))]  # as by `llm_prompts.varied`
    elif LONGEST in texts:
        lengths = [max(min(context - new_tokens, LONGEST_TOKENS), 1)]
    elif padding is not None:
        batch_size, lengths = given.get("batch_size", PADDED_PROMPTS), VARIED_LENGTHS[-PADDED_PROMPTS:]
    elif texts:
        lengths = [max(math.ceil(len(texts[0]) / TOKEN_CHARACTERS), 1)]
    prompts, cache = tuple(map(blank, lengths)), CacheKind.OFF if CacheKind.OFF in given.values() else CacheKind.DYNAMIC
    return Workload(prompts, new_tokens, min(batch_size, len(prompts)), padding or Padding(), cache)
