"""Says, before the first test, how long the run will take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle, islice

import pytest

from llm_bench_fixtures.answer.headline import BATCHES, OWN, PROMPT_LENGTHS
from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.options.settings import Settings
from llm_bench_fixtures.plugin import items as tests
from llm_bench_fixtures.plugin.stash import SESSION, is_kept
from llm_bench_fixtures.plugin.terminal_progress import announce
from llm_bench_fixtures.session.expecting import ExpectedCase, expect_run
from llm_bench_fixtures.session.forecast import CaseSize
from llm_bench_fixtures.session.plan import Stage, loads_in
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import LONGEST, LONGEST_TOKENS, VARIED_LENGTHS, CacheKind, Padding, Workload

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
        cases = tuple(_expected_cases(session))
        done = bench.scoring.is_scored, bench.tasks.is_asked
        checks = (item for item in session.items if CHECKS in getattr(item, "fixturenames", ()) and not is_kept(item))
        checked = frozenset(variant.id for variant in filter(None, map(tests.variant_of, checks)))
        expect_run(bench.setup, bench.loader.lineup, cases, checked, *done, _loads(session))
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


def _expected_cases(session: pytest.Session) -> Iterator[ExpectedCase]:
    bench = session.config.stash[SESSION]
    for name, items in grouped(tests.benchmarks_to_come(session), tests.case_of).items():
        weight = bench.measuring.weight_of(name, tests.identify(items[0]).scenario)
        share_s = bench.measuring.budget.share_s(1, weight)
        variants = frozenset(variant.id for variant in map(tests.variant_of, items) if variant)
        shape, rounds = _shape_of(items[0], bench.setup), bench.measuring.first_rounds(name, variants)
        yield ExpectedCase(name, variants, shape, share_s, decides=weight > 1, rounds=rounds)


def _shape_of(item: pytest.Item, setup: Setup) -> CaseSize:
    case = tests.own_case_of(item)
    if setup.own is not None and case is not None:
        with suppress(WorkloadUnsupported):  # the test says it
            return setup.own.work(case, setup.prompts).shape
    config = setup.source.load_config().get_text_config()
    return shape_of(item, setup.settings, int(getattr(config, CONTEXT, 0) or USUAL_TOKENS))


def _varied(lengths: Iterable[int], new_tokens: int, batch_size: int, padding: Padding | None = None) -> Workload:
    """As the suite takes them from `llm_prompts.varied`, without their tokens."""
    prompts = tuple((0,) * tokens for tokens in lengths)
    return Workload(prompts, new_tokens, min(batch_size, len(prompts)), padding or Padding())


def shape_of(item: pytest.Item, settings: Settings, context: int) -> CaseSize:
    """The size of the test's workload, by its parameters. context: tokens that the model can read."""
    given, new_tokens = tests.parameters_of(item), settings.new_tokens
    if "llm_prompt_length" in given:
        return CaseSize(given["llm_prompt_length"], new_tokens)
    if "llm_batch_size" in given:
        size = given["llm_batch_size"]
        prompts = max(LEAST_PROMPTS, size)
        return CaseSize.of(_varied(islice(cycle(VARIED_LENGTHS), prompts), new_tokens, size))
    texts: Sequence[str] = [value for value in given.values() if type(value) is str]
    if LONGEST in texts:
        return CaseSize(max(min(context - new_tokens, LONGEST_TOKENS), 1), new_tokens)
    padding = next((value for value in given.values() if isinstance(value, Padding)), None)
    if padding is not None:
        lengths = VARIED_LENGTHS[-PADDED_PROMPTS:]
        return CaseSize.of(_varied(lengths, new_tokens, given.get("batch_size", PADDED_PROMPTS), padding))
    tokens = max(len(texts[0]) / TOKEN_CHARACTERS, 1.0) if texts else USUAL_TOKENS
    return CaseSize(tokens, new_tokens, has_no_cache=CacheKind.OFF in given.values())
