"""What a run is expected to take: from the model, the machine, the variants and the cases that were collected."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from timeit import repeat

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting
from llm_bench_fixtures.measure.choices import ChoiceItem
from llm_bench_fixtures.measure.equivalence import ExecutionMode
from llm_bench_fixtures.measure.harness import HarnessTask
from llm_bench_fixtures.measure.limits import measure_limits
from llm_bench_fixtures.measure.quality import BATCH_TOKENS, group_windows, most_tokens_of
from llm_bench_fixtures.measure.turns import WARMING_TOKENS
from llm_bench_fixtures.measure.windows import USUAL_WINDOW, Window, plan_windows, samples_of, strided_windows
from llm_bench_fixtures.measure.work import BRIEF_TOKENS
from llm_bench_fixtures.models.artifacts import Maker, Making, makings_in
from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends import find_backend
from llm_bench_fixtures.models.files import read_config
from llm_bench_fixtures.models.needs import FLOAT32_BYTES
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.options.parsers import WindowScheme
from llm_bench_fixtures.options.settings import Settings
from llm_bench_fixtures.session.blocks import OBSERVED_LONGER
from llm_bench_fixtures.session.forecast import MachineSpeed, Phases, Runner, WorkKind, load_name, sample_name
from llm_bench_fixtures.session.measuring import LARGE_WEIGHTS, ROUNDS
from llm_bench_fixtures.session.plan import Case
from llm_bench_fixtures.session.samples import is_small, questions_with
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.statistics.ratio import FEWEST_PAIRS
from llm_bench_fixtures.workloads import TokenIds, Workload, blank

PROBED_BYTES = 16 << 20  # copied and hashed to see how fast that goes
PROBED_WEIGHTS = 1 << 26  # multiplied with one position, in matrices of the model's shape: 256 MiB
PROBED_ROWS = 8  # rows of a batch, at one position each
PROBED_POSITIONS = 256  # of a text
PROBED_FLOPS = 1 << 31  # of its products at most, for which a large model's matrices are cut
USUAL_WIDTH = 2048  # width of a model whose config has other names for it
PROBED_CALLS = 200
FIRST = Workload((blank(64),), new_tokens=16, batch_size=1)  # about what a process generates first
CHECKED = Workload((blank(32),) * 2 * len(ExecutionMode), new_tokens=4, batch_size=1)  # compares two prompts' modes
SAMPLE = 4000  # characters, whose tokens are counted
UNKNOWN_MAKING_S = 10.0  # times as long as a load, where nothing was ever made


def machine_of(setup: Setup, clock: Callable[[], float] = time.perf_counter) -> MachineSpeed:
    """How fast the machine does what takes time. A CPU multiplies matrices of the model's shape; an accelerator's rates
    are its limits."""
    import torch
    from torch.nn.functional import linear, silu

    some, few = torch.ones(PROBED_BYTES // FLOAT32_BYTES), torch.ones((8, 8))
    data = bytes(PROBED_BYTES)

    def best_s(work: Callable[[], object], times: int = 1) -> float:
        return max(min(repeat(work, timer=clock, repeat=3, number=times)), 1e-9)

    hidden, inner = _widths(setup)
    probed = min(PROBED_WEIGHTS, setup.source.weights)  # so that they lie in the caches where the model's do
    weights = torch.ones((max(probed // (hidden * inner), 1), inner, hidden)) if setup.on_cpu else torch.empty(0)

    def weights_bytes_per_s(rows: int) -> float:
        positions = torch.ones((rows, hidden))

        def layers() -> None:
            for matrix in weights:
                linear(positions, matrix)

        return weights.nbytes / best_s(layers)

    def computed_flops_per_s() -> float:
        matrix = weights[0, : max(PROBED_FLOPS // (4 * PROBED_POSITIONS * hidden), 1)]
        text = torch.ones((PROBED_POSITIONS, hidden))
        return 4 * PROBED_POSITIONS * matrix.numel() / best_s(lambda: linear(silu(linear(text, matrix)), matrix.T))

    if setup.on_cpu:
        read, flops, rows = weights_bytes_per_s(1), computed_flops_per_s(), weights_bytes_per_s(PROBED_ROWS)
    else:
        limits = setup.limits or measure_limits(setup.device, [Precision.FLOAT32], budget_s=0.1)
        read, flops, rows = limits.read_bytes_per_s, limits.matmul_flops_per_s[Precision.FLOAT32], 0.0
    return MachineSpeed(
        read_bytes_per_s=read,
        rows_bytes_per_s=rows,
        flops_per_s=flops,
        copy_bytes_per_s=PROBED_BYTES / best_s(some.clone),
        hash_bytes_per_s=PROBED_BYTES / best_s(lambda: hashlib.sha256(data).digest()),
        call_s=best_s(partial(torch.mm, few, few), PROBED_CALLS) / PROBED_CALLS,
    )


def expect_run(
    session: BenchSession, cases: Mapping[Case, Workload], checked: Collection[str], loads: Mapping[str, int]
) -> None:
    """Fill the forecast: what each variant that can run here is expected to take. cases: what each will run, by
    `blank` tokens where nothing else is known. checked: the ids of the variants whose execution modes are compared.
    loads: how often each is loaded, where that isn't once; one in all groups stays."""
    setup, groups, machine = session.setup, session.loader.lineup.groups, machine_of(session.setup)
    layers = _in_config(setup, "num_hidden_layers", "n_layer", "num_layers") or 1
    made = tuple(_made(setup))
    samples = [] if setup.source.random_weights else [*_scored(setup)]
    per_character = _tokens_per_character(setup) if setup.tasks else 0.0
    known = {variant.id for variant in session.loader.known}
    for variant in session.loader.known:
        runner = _runner(setup, machine, variant, layers)
        if runner is None:
            continue
        load_s = runner.load_s(FIRST)
        setup.forecast.expect_runner(variant.id, runner)
        stays = all(variant in group for group in groups)
        for done in range(1 if stays else loads.get(variant.id, 1)):
            setup.forecast.expect(WorkKind.LOADING, variant.id, load_s, load_name(done))
        if runner.is_made:
            seconds = _making_s(setup, variant, made, UNKNOWN_MAKING_S * load_s)
            setup.forecast.expect(WorkKind.MAKING, variant.id, seconds)
        has_quality = variant.threads_of in known  # the variant in the default number of threads has it
        if not has_quality and not session.scoring.is_scored(variant.id):
            for number, passes in enumerate(samples):
                quality_s = sum(times * runner.pass_s(positions) for positions, times in passes.items())
                setup.forecast.expect(WorkKind.QUALITY, variant.id, quality_s, sample_name(number))
        for task in setup.tasks:
            if not (has_quality or session.tasks.is_asked(task.name, variant.id)):
                asked = task.items * _item_of(runner, task, per_character)
                setup.forecast.expect_passes(WorkKind.TASKS, variant.id, asked, task.name)
        for case, workload in cases.items():
            if variant.id in case.variants:
                _expect_rounds(session, variant.id, runner, case, workload)
        if variant.id in checked:
            setup.forecast.expect_passes(WorkKind.CHECKS, variant.id, runner.round_of(CHECKED))


def _expect_rounds(session: BenchSession, variant: str, runner: Runner, case: Case, workload: Workload) -> None:
    settings, measuring = session.settings, session.measuring
    is_large = session.setup.source.weights >= LARGE_WEIGHTS
    weight = measuring.weight_of(case.name, case.scenario)
    may_be_few = len(case.variants) > 1 and settings.max_noise > 0 and not (is_large or weight > 1)
    usual = FEWEST_PAIRS if may_be_few else ROUNDS
    rounds = settings.rounds or measuring.first_rounds(case.name, case.variants) or usual
    warm_up = _warm_up_of(settings, runner, workload, is_large=is_large)
    share_s = measuring.budget.share_s(1, weight) if settings.max_noise else 0.0
    session.setup.forecast.expect_rounds(variant, case.name, warm_up, rounds * runner.round_of(workload), share_s)


def made_before(setup: Setup, variants: Iterable[Variant]) -> frozenset[str]:
    """The ids of those whose engine's form of the model is in the cache, as far as that tells."""
    made = tuple(_made(setup))
    return frozenset(one.id for one in variants if not _making_s(setup, one, made, unknown_s=1.0))


def _making_s(setup: Setup, variant: Variant, made: Collection[Making], unknown_s: float) -> float:
    name, source = variant.threads_of or variant.id, setup.source
    return making_s(name, source.identity, source.weights, made, unknown_s)


def making_s(variant: str, model: str, weights: int, made: Collection[Making], unknown_s: float) -> float:
    """Seconds that making the variant's form of the model takes: none where it is there, else as long as the last time,
    or as of the model that is nearest in size, by the weights.

    made: what engines have made, at most one of a variant and a model. unknown_s: where there is no such.
    """
    own = [one for one in made if one.maker.variant == variant]
    same = [one for one in own if one.maker.model == model]
    if same:
        return 0.0 if same[0].is_current else same[0].seconds
    sizes = [(one.maker.weights, one.seconds) for one in own if one.maker.weights]
    if not sizes:
        return unknown_s
    nearest, seconds = min(sizes, key=lambda size: max(size[0] / weights, weights / size[0]))
    return seconds * weights / nearest


def _warm_up_of(settings: Settings, runner: Runner, workload: Workload, *, is_large: bool) -> Phases:
    """A variant's rounds of a case before those that are timed: one is observed, and some tokens of one batch more warm
    up. Of a large model some tokens stand for all that."""
    batches = len(workload.groups)
    tokens = BRIEF_TOKENS if is_large else min(WARMING_TOKENS, round(workload.steps / batches))
    some = (1 / batches) * runner.round_of(replace(workload, new_tokens=tokens, lengths=()))
    whole = settings.warmup_rounds - 1 + (0.0 if is_large else OBSERVED_LONGER)
    return some + whole * runner.round_of(workload)


def _widths(setup: Setup) -> tuple[int, int]:
    """Hidden and inner width of a layer, of no more weights than are probed."""
    hidden = min(_in_config(setup, "hidden_size", "n_embd", "d_model") or USUAL_WIDTH, PROBED_WEIGHTS // 4)
    inner = _in_config(setup, "intermediate_size", "ffn_dim", "n_inner") or 4 * hidden
    return hidden, max(min(inner, PROBED_WEIGHTS // hidden), 1)


def _in_config(setup: Setup, *names: str) -> int:
    """Number in the model's config under the first of these names; 0 where there is none."""
    config = read_config(setup.source.folder)
    found = [config.get(name) for name in names] if isinstance(config, dict) else []
    return next((one for one in found if isinstance(one, int) and one > 0), 0)


def _made(setup: Setup) -> Iterator[Making]:
    """Yield what was made for each variant and model: seconds of all kinds of artifacts together, which has no kind; an
    older one of a kind counts no more."""
    found: dict[tuple[str, str], dict[str, Making]] = defaultdict(dict)
    for one in sorted(makings_in(setup.store.root), key=lambda one: one.is_current):
        found[one.maker.variant, one.maker.model][one.kind] = one
    for (variant, model), kinds in found.items():
        seconds = sum(one.seconds for one in kinds.values())
        is_current = all(one.is_current for one in kinds.values())
        weights = max(one.maker.weights for one in kinds.values())
        yield Making("", Maker(variant, model, weights), seconds, is_current)


def _scored(setup: Setup) -> Iterator[Counter[int]]:
    """Yield, of each sample, how many passes over so many positions score its texts and ask its questions."""
    per_character = _tokens_per_character(setup)
    windows = [*_windows(setup, per_character)]
    samples = [[*range(len(windows))]] if is_small(setup) else samples_of(windows)
    items: Sequence[ChoiceItem] = setup.choices.items if setup.choices else ()
    vocabulary = _in_config(setup, "vocab_size")
    most_tokens = most_tokens_of(vocabulary) if vocabulary else BATCH_TOKENS
    before = 0
    for done, sample in enumerate(samples, 1):
        asked = items[before : None if done == len(samples) else questions_with(done)]
        before += len(asked)
        characters = (len(item.prompt) + len(choice) for item in asked for choice in item.choices)
        questions = [Window(_blank(length * per_character), 1) for length in characters]
        yield _passes([windows[index] for index in sample], most_tokens) + _passes(questions, most_tokens)


def _windows(setup: Setup, per_character: float) -> Iterator[Window]:
    """Yield the corpus' windows, of tokens that nobody reads. per_character: tokens."""
    corpus, given = setup.corpus, plan_windows(setup.settings)
    context = _in_config(setup, "max_position_embeddings", "n_positions", "n_ctx")
    plan = given.resolved(context or max(given.window, USUAL_WINDOW))
    if corpus.answers:
        for prompt, text in zip(corpus.texts, corpus.read, strict=True):
            ids = _blank(len(text) * per_character)
            yield Window(ids, min(round(len(prompt) * per_character), len(ids) - 1))
    elif plan.scheme is WindowScheme.LLAMA:
        ids = _blank(sum(map(len, corpus.texts)) * per_character)
        for start in range(0, len(ids) - plan.window + 1, plan.window):
            yield Window(ids[start : start + plan.window], plan.window // 2 + 1)
    else:
        for text in corpus.texts:
            yield from strided_windows(_blank(len(text) * per_character), plan.window, plan.stride or plan.window)


def _passes(windows: Sequence[Window], most_tokens: int) -> Counter[int]:
    groups = group_windows(windows, most_tokens)
    return Counter(len(group) * max(len(windows[index].fed) for index in group) for group in groups)


def _blank(tokens: float) -> TokenIds:
    """So many tokens, two or more."""
    return blank(max(round(tokens), 2))


def _item_of(runner: Runner, task: HarnessTask, per_character: float) -> Phases:
    """Ask an item of a task: read its texts, and generate as many tokens as it allows. per_character: tokens."""
    batches = task.characters * per_character / BATCH_TOKENS
    return Phases(batches * runner.pass_s(BATCH_TOKENS), task.new_tokens * runner.pass_s(1))


def _tokens_per_character(setup: Setup) -> float:
    sample = max(setup.corpus.read, key=len)[:SAMPLE]
    return len(setup.prompts.encode(sample)) / len(sample)


def _runner(setup: Setup, machine: MachineSpeed, variant: Variant, layers: int) -> Runner | None:
    """None for one that can't run here, or that a server runs."""
    with suppress(ImportError, InvalidSetting, BackendUnavailable):
        backend = find_backend(variant.backend)
        if backend.is_served or first_missing(backend.modules) is not None:
            return None
        if setup.settings.device_map is not None and not backend.takes_device_map:
            return None
        backend.check_variant(variant, setup.device)
        limits = setup.known_limits
        rates = limits.matmul_flops_per_s if limits else {}
        computed = variant.autocast or variant.precision
        times = rates[computed] / rates[Precision.FLOAT32] if computed in rates and not variant.quantization else 0.0
        storage = backend.storage_of(variant, setup.device)
        is_made = bool(storage.making)
        is_plain = not is_made and not variant.autocast and storage.matrices == FLOAT32_BYTES
        flops_per_s = times * machine.flops_per_s
        return Runner(machine, setup.source.weights, layers, storage.matrices, flops_per_s, is_made, is_plain)
    return None
