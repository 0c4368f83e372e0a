"""Which scenario, case and variant a test is, read off its pytest item, and how the report shows its scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from llm_bench_fixtures.answer.headline import OWN, PROMPT_LENGTHS
from llm_bench_fixtures.errors import InvalidSetting, LlmBenchError, UnknownName, is_process_limit
from llm_bench_fixtures.models.lineup import Lineup
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.plugin import stash
from llm_bench_fixtures.plugin.fixtures import SWEEPS
from llm_bench_fixtures.plugin.internals import is_skipped, ordering_of
from llm_bench_fixtures.plugin.terminal_progress import announce
from llm_bench_fixtures.progress import Milestone
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.record import Record, Scenario, Status
from llm_bench_fixtures.session.expecting import made_before
from llm_bench_fixtures.session.own import OwnCase, own_cases
from llm_bench_fixtures.session.plan import Case, Plan
from llm_bench_fixtures.session.setup import Setup

LEFT_OUT: pytest.StashKey[int] = pytest.StashKey()  # how many tests measure the tool, and were deselected for it
LACKING: pytest.StashKey[dict[str, None]] = pytest.StashKey()  # what tests need that had nothing to run on, in order
COLLECTED: pytest.StashKey[dict[str, int]] = pytest.StashKey()  # each test's place among those that were collected
ORDERED: pytest.StashKey[bool] = pytest.StashKey()  # whether a plugin has ordered the tests
ARRANGED: pytest.StashKey[dict[str, int]] = pytest.StashKey()  # the place that each test was given last
PLAN: pytest.StashKey[Plan] = pytest.StashKey()
ORDERED_LINE = "another plugin, or --failed-first, orders the tests, so the answer may come late"
A_LOAD_NEEDS = "a load needs a server: --llm-endpoint URL"
OWN_NEEDS = "prompts of your own: --llm-prompts FILE, or --llm-shape 512/128 for their lengths alone"
THREADS_NEED = "a sweep over threads needs their numbers: --llm-threads 1,2 or auto"
OF_VARIANT = ("llm_model", "llm_prompts")  # fixtures that are made anew for each variant


def shortest(value: float) -> str:
    """The number in a test's id: whole ones have no point, and no two numbers share an id."""
    return str(int(value)) if value == int(value) else repr(value)


def variant_of(item: pytest.Item) -> Variant | None:
    """The variant that the item is parametrized with, if it is."""
    parameter = parameters_of(item).get("llm_model")
    return parameter if isinstance(parameter, Variant) else None


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give the test what it takes of the variants and of the sweeps' values."""
    for name, setting in SWEEPS.items():
        if name in metafunc.fixturenames:
            values = getattr(stash.settings_of(metafunc.config), setting)
            metafunc.parametrize(name, values, ids=[shortest(value) for value in values])
    if "llm_own" in metafunc.fixturenames:
        cases = own_cases(stash.settings_of(metafunc.config), stash.need_of(metafunc.config))
        if cases:
            metafunc.parametrize("llm_own", cases, ids=str, indirect=True)
    if "llm_model" in metafunc.fixturenames:
        variants = _variants_for(metafunc)
        names = [name for name in OF_VARIANT if name in metafunc.fixturenames]
        values = [[variant] * len(names) for variant in variants]
        ids = [variant.id for variant in variants]
        metafunc.parametrize(names, values, ids=ids, indirect=True, scope="session")


def _variants_for(metafunc: pytest.Metafunc) -> tuple[Variant, ...]:
    """Variants of the run that the test's markers name, or all; for a test of load those that take requests."""
    names = [name for marker in metafunc.definition.iter_markers("llm_variants") for name in marker.args]
    try:
        variants = stash.selected_variants(metafunc.config, names)
    except pytest.UsageError as error:  # pytest would show it with a traceback here
        what = "llm_variants: " if names else ""
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {what}{error}") from error
    if "llm_threads" in metafunc.fixturenames:
        return stash.swept_variants(metafunc.config, variants)
    return tuple(filter(stash.takes_requests, variants)) if "llm_load" in metafunc.fixturenames else variants


def leave_out_overhead(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that measure the tool, unless --llm-overhead asks for them."""
    measures_tool = [item for item in items if "llm_overhead" in getattr(item, "fixturenames", ())]
    if measures_tool and not stash.settings_of(config).overhead:
        config.stash[LEFT_OUT] = len(measures_tool)
        config.hook.pytest_deselected(items=measures_tool)
        items[:] = [item for item in items if item not in measures_tool]


def without_lacking(config: pytest.Config, found: Any) -> Any:
    """What pytest made of a name in a file, without tests of servers under load that have no server to run on, of the
    user's own prompts that have none, and of threads whose numbers aren't given."""
    if not isinstance(found, list):
        return found
    needed = [_lacks(item) for item in found]
    config.stash.setdefault(LACKING, {}).update(dict.fromkeys(filter(None, needed)))
    return [item for item, what in zip(found, needed, strict=True) if not what]


def _lacks(item: pytest.Item) -> str:
    names = getattr(item, "fixturenames", ())
    if "llm_load" in names and not variant_of(item):
        return A_LOAD_NEEDS
    if "llm_threads" in names and not variant_of(item):
        return THREADS_NEED
    return OWN_NEEDS if "llm_own" in names and own_case_of(item) is None else ""


def left_out_lines(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """How to run the tests that `leave_out_overhead` deselected, but not under -q, and those that `without_lacking`
    left out where there are no others."""
    told = [] if items else [*config.stash.get(LACKING, ())]
    number = config.stash.get(LEFT_OUT, 0)
    if number and config.getoption("verbose") >= 0:
        them = "it" if number == 1 else "them"
        told.append(f"{count(number, 'test measures', 'tests measure')} the tool itself: --llm-overhead runs {them}")
    return [f"llm-bench: {what}" for what in told]


def is_benchmark(item: pytest.Item) -> bool:
    """Whether the item takes `llm_benchmark` on some variant."""
    return "llm_benchmark" in getattr(item, "fixturenames", ()) and variant_of(item) is not None


def benchmarks_to_come(session: pytest.Session) -> list[pytest.Item]:
    """The benchmarks that no earlier session has run."""
    return [item for item in session.items if is_benchmark(item) and not stash.is_kept(item)]


def case_of(item: pytest.Item) -> str:
    """Node id without the variant: equal for tests that differ in the variant alone."""
    function, case = item.nodeid.partition("[")[0], identify(item).case
    return f"{function}[{case}]" if case else function


def variants_to_come(item: pytest.Item) -> list[Variant]:
    """The variants of the tests after this one that differ from it in the variant alone, that no marker skips, and
    that no earlier session has run."""
    case, items = case_of(item), item.session.items
    after = items[items.index(item) + 1 :]
    same = [other for other in after if is_benchmark(other) and case_of(other) == case]
    same = [other for other in same if not (stash.is_kept(other) or is_skipped(other))]
    return [variant for other in same if (variant := variant_of(other)) is not None]


def note_collected(item: pytest.Item) -> None:
    """Note the place at which a test was collected, by which `are_ordered` tells that somebody moved it."""
    item.config.stash.setdefault(COLLECTED, {}).setdefault(item.nodeid, len(item.config.stash[COLLECTED]))


def are_ordered(config: pytest.Config, items: Sequence[pytest.Item]) -> bool:
    """Whether a plugin has ordered the tests. pytest itself moves those of one variant past those of another, as it
    does with the values of any parametrized fixture that several tests share."""
    collected = config.stash.get(COLLECTED, {})
    places: dict[object, list[int]] = {}
    for item in items:
        if variant_of(item) is not None and item.nodeid in collected:
            places.setdefault(ordering_of(item), []).append(collected[item.nodeid])
    return any(found != sorted(found) for found in places.values())


def variants_of(config: pytest.Config, items: Iterable[pytest.Item]) -> tuple[Variant, ...]:
    """The variants of the run, then those of single tests, such as other numbers of threads."""
    return tuple(dict.fromkeys([*stash.selected_variants(config), *filter(None, map(variant_of, items))]))


def arrange(config: pytest.Config, items: list[pytest.Item], groups: stash.Groups | None) -> None:
    """Sort the tests; those without a variant come first, then the stages of the plan, each in the scenarios' order.

    groups: the ids of the variants that are loaded together. A group's tests of a stage are together, and among them
    the benchmarks that differ in the variant alone, which are measured side by side. None: one variant is loaded at a
    time, so all tests of a variant are together. Where a plugin has ordered the tests, the stages give way to it.
    """
    order = [variant.id for variant in variants_of(config, items)]
    plan = Plan(() if config.stash.setdefault(ORDERED, are_ordered(config, items)) else cases_of(items), groups or ())
    first: dict[str, int] = {}

    def place(position: int, item: pytest.Item) -> tuple[object, ...]:
        variant = variant_of(item)
        if variant is None:
            return (-1,)
        own, of_scenario = order.index(variant.id), 0.0 if config.stash[ORDERED] else _placed_scenario(item)[0]
        if groups is None:
            return (0, own, plan.stage(case_of(item)), of_scenario, position)
        together = case_of(item) if is_benchmark(item) else item.nodeid.partition("[")[0]
        begins = first.setdefault(together, position)
        return (0, plan.place(case_of(item), variant.id), of_scenario, begins, own, position)

    places = {item.nodeid: place(position, item) for position, item in enumerate(items)}
    items.sort(key=lambda item: places[item.nodeid])
    config.stash[ARRANGED] = {item.nodeid: place for place, item in enumerate(items)}
    config.stash[PLAN] = plan


def cases_of(items: Iterable[pytest.Item]) -> tuple[Case, ...]:
    """Cases of the benchmarks among the tests."""
    found: dict[str, Case] = {}
    items = [*filter(is_benchmark, items)]
    first_cache = next((own.cache for item in items if (own := own_case_of(item))), None)
    for item in items:
        variant, case = variant_of(item), case_of(item)
        scenario, own = identify(item).scenario, own_case_of(item)
        size = parameters_of(item).get("llm_prompt_length" if scenario == PROMPT_LENGTHS else "llm_batch_size")
        if scenario == OWN:  # a file of the user's may be called so, too
            size = own.batch_size if own and own.cache is first_cache else None
        known = found.get(case, Case(case, scenario, frozenset(), size))
        found[case] = replace(known, variants=known.variants | {variant.id if variant else ""})
    return tuple(found.values())


def plan_and_arrange(session: pytest.Session, keep: Callable[[pytest.Session, stash.Groups], None] | None) -> None:
    """Plan the lineup of the variants that have tests, with the reference, and put the tests of each group together.

    Where no model can be found, or no process can be started, nothing is done: the first test says why. keep: notes
    which tests an earlier session has run, by the groups in which the variants are loaded, so that only those variants
    are in the lineup that have tests, or quality, to come.
    """
    config = session.config
    places = [config.stash[ARRANGED].get(item.nodeid, -1) for item in session.items]
    if places != sorted(places):  # ordered by a plugin that came after this one, or --failed-first
        config.stash[ORDERED] = True
    bench = stash.bench_session(config)
    tested = {variant.id for item in session.items if (variant := variant_of(item))}
    known = variants_of(config, session.items)

    def plan(needed: Collection[str]) -> Lineup:
        return bench.loader.plan([one for one in known if one.id in needed or one.id == bench.results.reference])

    try:
        lineup = plan(tested)
        if keep is not None:
            keep(session, [[variant.id for variant in group] for group in lineup.groups])
            left = {variant.id for item in session.items if (variant := variant_of(item)) and not stash.is_kept(item)}
            if not (left or bench.due):
                bench.loader.lineup = Lineup(())
                return
            lineup = plan(left | bench.due)
    except (LlmBenchError, OSError, RuntimeError) as error:
        if isinstance(error, LlmBenchError) or is_process_limit(error):
            return
        raise
    first, *others = [[variant.id for variant in group] for group in lineup.groups]
    arrange(config, session.items, [[*first, *tested - {one.id for one in bench.loader.known}], *others])
    if not config.stash[ORDERED]:
        benchmarks = [(case_of(item), identify(item).scenario) for item in benchmarks_to_come(session)]
        bench.measuring.go_by(config.stash[PLAN].stage, benchmarks)
    bench.progress.expect(Milestone.VARIANT, len(bench.loader.known))
    placed = [(case_of(item), variant_of(item), stash.is_kept(item)) for item in filter(is_benchmark, session.items)]
    to_come = {(case, lineup.place(variant)) for case, variant, is_done in placed if variant and not is_done}
    done = {case for case, *_ in placed} - {case for case, _ in to_come}
    bench.progress.expect(Milestone.CASE, len(to_come) + len(done), len(done))
    setup, order = bench.setup, ORDERED_LINE * config.stash[ORDERED]
    own = f"own prompts: {setup.own.description}" if setup.own else ""
    together = lineup.describe(made_before(setup, bench.loader.known))
    announce(config, filter(None, (reference_line(setup), own, together, setup.threads_warning, order)))


def reference_line(setup: Setup) -> str:
    """Why it isn't fp32, where that was chosen for lack of memory; else empty."""
    settings = setup.settings
    if "reference" in settings.given or settings.reference != "bf16":
        return ""
    size, free = setup.source.weights * 4e-9, setup.device.free_bytes / 1e9
    where = "" if settings.device_map is None else f" on {', '.join(setup.device.names)} (nothing else is counted)"
    return f"bf16 is the reference, because the model takes {size:.1f} GB in float32, and {free:.1f} GB are free{where}"


def identify(item: pytest.Item) -> Record:
    """The record of a test that holds nothing measured: which scenario, case and variant it is.

    The scenario is the one that the marker `llm_scenario` names, or the file's name without `test_`. The variant is
    empty for a test without one.
    """
    scenario = _placed_scenario(item)[1].name
    function = getattr(item, "originalname", item.name).removeprefix("test_")
    values = [str(value) for name, value in parameters_of(item).items() if name not in OF_VARIANT]
    case = ", ".join([*([function] if function != scenario else []), *values])
    variant = variant_of(item)
    name = variant.id if variant else ""
    return Record(item.nodeid, scenario, case, name, Status.NOT_MEASURED, gate=_gate_marks(item))


def note_left_out(item: pytest.Item, reason: str, results: RunBuilder) -> None:
    """Keep a row that says which of the user's own prompts are not measured on the item's variant. reason: empty where
    all are."""
    if reason:
        blank = identify(item)
        test = f"{item.nodeid.partition('[')[0]}[left out-{blank.variant}]"
        results.add_unmeasured(replace(blank, test=test, case="left out", status=Status.SKIPPED, reason=reason))


def scenarios_of(items: Iterable[pytest.Item], metrics: Collection[str]) -> tuple[Scenario, ...]:
    """The scenarios of the benchmarks among the items, in the order of the report: those whose markers have an `order`
    by that, then the others as they were collected. Where two markers of one scenario differ, the first counts that
    names columns.

    Raises InvalidSetting for a marker that can't be used, UnknownName for columns that are none of the metrics.
    """
    found: dict[str, tuple[float, Scenario]] = {}
    for item in filter(variant_of, items):
        order, scenario = _placed_scenario(item)
        for column in scenario.columns:
            if column not in metrics:
                raise UnknownName(f"metric in the columns of scenario {scenario.name}:", column, metrics)
        _, known = found.setdefault(scenario.name, (order, scenario))
        if scenario.columns and not known.columns:
            found[scenario.name] = (order, scenario)
    return tuple(scenario for _, scenario in sorted(found.values(), key=lambda placed: placed[0]))


def _placed_scenario(item: pytest.Item) -> tuple[float, Scenario]:
    """Place in the report, where scenarios ascend, and scenario by the item's closest marker. Raises InvalidSetting for
    arguments that it doesn't have."""
    marker = item.get_closest_marker("llm_scenario")
    try:
        order, scenario = llm_scenario(*marker.args, **marker.kwargs) if marker else llm_scenario()
    except TypeError as error:
        raise InvalidSetting(f"{item.nodeid}: {error}") from error
    return order, replace(scenario, name=scenario.name or item.path.stem.removeprefix("test_"))


def llm_scenario(
    name: str = "", *, title: str = "", columns: Sequence[str] = (), order: float = math.inf
) -> tuple[float, Scenario]:
    """The marker's arguments, called as the marker so that Python's message about wrong ones names it."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    return order, Scenario(str(name), title, names)


def _gate_marks(item: pytest.Item) -> dict[str, str]:
    """Changes that the test's `llm_gate` markers allow; the closest marker wins."""
    markers = list(item.iter_markers("llm_gate"))[::-1]
    given = {name: str(change) for marker in markers for name, change in marker.kwargs.items()}
    return given | {str(word): "" for marker in markers for word in marker.args}  # no rule can be read from a bare word


def own_case_of(item: pytest.Item) -> OwnCase | None:
    """The case of the user's own prompts that the item is parametrized with, if it is."""
    case: OwnCase | None = parameters_of(item).get("llm_own")
    return case


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}
