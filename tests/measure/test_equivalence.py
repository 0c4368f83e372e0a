"""Which differences are float error and which are not, by hand; and that broken modes of running a model are caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from small_models import skip_without_onnx
from transformers.cache_utils import DynamicCache, StaticCache

from llm_bench_fixtures.measure.equivalence import (
    Equivalence,
    EquivalenceCheck,
    EquivalenceVerdict,
    ExecutionMode,
    ModeChange,
    check_equivalence,
    equivalence_of,
    logit_scale,
)
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic
from llm_bench_fixtures.workloads import CacheKind, Prompts, TokenIds

ModelAround = Callable[[Any], TransformersModel]
MakeRequest = Callable[..., LoadRequest]

TOLERANCE = TOLERANCES[Arithmetic.FLOAT32]
PLAIN = (1, 1, 1)
LOGITS = (0.0, 1.0, -1.0)
PROMPTS: tuple[TokenIds, ...] = ((2, 2, 2), (2,))


@dataclass(frozen=True)
class Script:
    """An answer to every prompt, and the logits by which each of its tokens is chosen."""

    tokens: TokenIds = PLAIN
    logits: tuple[Sequence[float], ...] = (LOGITS, LOGITS, LOGITS)


class ScriptedModel:
    """Answers by `plain`, save in the modes that have a script of their own: off, static, left, right, batch."""

    def __init__(self, plain: Script = Script(), context: int = 1000, **scripts: Script) -> None:
        self.plain = plain
        self.scripts = scripts
        text_config = SimpleNamespace(vocab_size=3, max_position_embeddings=context)
        self.config = SimpleNamespace(get_text_config=lambda: text_config, model_type="scripted")

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **how: Any) -> SimpleNamespace:
        script = self.scripts.get(self.mode(attention_mask, **how), self.plain)
        rows = len(input_ids)
        return SimpleNamespace(
            sequences=torch.cat([input_ids, torch.tensor(script.tokens).expand(rows, -1)], dim=1),
            logits=tuple(torch.tensor(logits).expand(rows, -1) for logits in script.logits),
        )

    def mode(self, mask: torch.Tensor, use_cache: bool, cache_implementation: str = "", **how: Any) -> str:
        if len(mask) > 1:
            return "batch"
        if not mask.all():
            return "left"
        return cache_implementation if use_cache else "off"

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        script = self.scripts.get("right", self.plain)
        return SimpleNamespace(logits=torch.tensor(script.logits[0]).expand(*input_ids.shape, -1))


def with_caches(model: TransformersModel, *kinds: CacheKind) -> TransformersModel:
    """The model as one that can generate with those caches only."""
    return replace(model, facts=replace(model.facts, cache_kinds=frozenset(kinds)))


def check(model: TransformersModel, mode: ExecutionMode) -> Equivalence:
    return EquivalenceCheck(model, PROMPTS, 3).check(mode)


@pytest.mark.parametrize("mode", ExecutionMode)
def test_a_mode_that_changes_nothing(mode: ExecutionMode, model_around: ModelAround) -> None:
    assert check(model_around(ScriptedModel()), mode) == Equivalence(mode, EquivalenceVerdict.EQUAL)


OTHER = Script((1, 0, 1), (LOGITS, (1.0, 0.0, -1.0), LOGITS))


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (ExecutionMode.CACHE, "off"),
        (ExecutionMode.STATIC_CACHE, "static"),
        (ExecutionMode.LEFT_PADDING, "left"),
        (ExecutionMode.BATCH, "batch"),
    ],
)
def test_a_mode_that_changes_the_second_token_by_one_nat(
    mode: ExecutionMode, name: str, model_around: ModelAround
) -> None:
    """The logits of tokens 0 and 1, which are 0 and 1, change places; the top one is 1 from zero and the median."""
    found = {item.mode: item for item in check_equivalence(model_around(ScriptedModel(**{name: OTHER})), PROMPTS, 3)}
    assert found.pop(mode) == Equivalence(
        mode, EquivalenceVerdict.DIVERGES, prompt=0, token=1, gap=pytest.approx(1.0), tolerance=TOLERANCE
    )
    assert {equivalence.verdict for equivalence in found.values()} == {EquivalenceVerdict.EQUAL}


def test_the_gap_is_that_of_the_log_probabilities(model_around: ModelAround) -> None:
    """Of two tokens, 3/4 and 1/4 against 7/8 and 1/8: the second one's falls by log 2. The third one is impossible."""
    plain, other = ([math.log(share), math.log(1 - share), -math.inf] for share in (3 / 4, 7 / 8))
    scripts = {"plain": Script((0,), (plain,)), "off": Script((0,), (other,))}
    found = EquivalenceCheck(model_around(ScriptedModel(**scripts)), PROMPTS, 1).check(ExecutionMode.CACHE)
    assert found.gap == pytest.approx(math.log(2))


def test_logits_that_all_move_by_the_same_change_nothing(model_around: ModelAround) -> None:
    """They are the same probabilities."""
    higher = Script(PLAIN, ((7.0, 8.0, 6.0),) * 3)
    assert check(model_around(ScriptedModel(off=higher)), ExecutionMode.CACHE).verdict is EquivalenceVerdict.EQUAL


def test_a_probability_that_moves_diverges_though_the_text_stays(model_around: ModelAround) -> None:
    moved = Script(PLAIN, (LOGITS, LOGITS, (0.5, 1.0, -1.0)))
    found = check(model_around(ScriptedModel(batch=moved)), ExecutionMode.BATCH)
    assert (found.verdict, found.prompt, found.token) == (EquivalenceVerdict.DIVERGES, 0, None)
    assert found.sentence.startswith("batch changes the probabilities of prompt 1, though not its text, by 0.")


def test_what_comes_after_the_first_token_that_differs_is_not_compared(model_around: ModelAround) -> None:
    """The two have other text before them from there on."""
    later = Script((0, 0, 0), ((1.0, 1.0, -1.0), (9.0, 0.0, 0.0), (9.0, 0.0, 0.0)))
    plain = Script((1, 1, 1), ((1.0, 1.0, -1.0), LOGITS, LOGITS))
    found = check(model_around(ScriptedModel(plain, off=later)), ExecutionMode.CACHE)
    assert (found.verdict, found.token, found.gap) == (EquivalenceVerdict.TIE, 0, 0.0)


@pytest.mark.parametrize(("share", "verdict"), [(0.9, EquivalenceVerdict.TIE), (1.1, EquivalenceVerdict.DIVERGES)])
def test_a_text_that_changes_within_the_tolerance_is_a_tie(
    share: float, verdict: EquivalenceVerdict, model_around: ModelAround
) -> None:
    """Two tokens at 8, of which one moves to 8 + 2x: it gains x and the other one loses x. The scale is 8 to 1e-4."""
    move = share * TOLERANCE * 8
    plain, other = Script((1,), ((8.0, 8.0, -8.0),)), Script((0,), ((8.0 + 2 * move, 8.0, -8.0),))
    found = EquivalenceCheck(model_around(ScriptedModel(plain, off=other)), PROMPTS, 1).check(ExecutionMode.CACHE)
    assert (found.verdict, found.token) == (verdict, 0)
    assert found.gap == pytest.approx(move, rel=1e-2)
    assert found.tolerance == pytest.approx(8 * TOLERANCE)


def test_right_padding_is_compared_by_the_next_token(model_around: ModelAround) -> None:
    """The logits of tokens 1 and 2, which are 1 and -1, change places."""
    found = check(model_around(ScriptedModel(right=Script(logits=((0.0, -1.0, 1.0),)))), ExecutionMode.RIGHT_PADDING)
    assert (found.verdict, found.prompt, found.token) == (EquivalenceVerdict.DIVERGES, 0, 0)
    assert found.gap == pytest.approx(2.0)


def test_logits_that_are_not_numbers_diverge(model_around: ModelAround) -> None:
    module = ScriptedModel(off=Script(PLAIN, ((math.nan,) * 3,) * 3))
    found = check(model_around(module), ExecutionMode.CACHE)
    assert (found.verdict, found.prompt, found.gap) == (EquivalenceVerdict.DIVERGES, 0, None)
    assert found.sentence.endswith("though not its text, by no finite number of nats")


def test_a_plain_mode_of_no_numbers_diverges(model_around: ModelAround) -> None:
    module = ScriptedModel(Script(PLAIN, ((math.nan,) * 3,) * 3))
    found = check(model_around(module), ExecutionMode.CACHE)
    assert (found.verdict, found.gap, found.tolerance) == (EquivalenceVerdict.DIVERGES, None, None)


def test_a_cache_that_the_model_does_not_have_is_not_supported(model_around: ModelAround) -> None:
    model = with_caches(model_around(ScriptedModel()), CacheKind.DYNAMIC)
    found = check(model, ExecutionMode.STATIC_CACHE)
    assert found == Equivalence(
        ExecutionMode.STATIC_CACHE, EquivalenceVerdict.NOT_SUPPORTED, reason="fp32 can't generate with cache static"
    )
    assert found.sentence == "static cache is not supported: fp32 can't generate with cache static"


def test_prompts_that_do_not_fit_with_their_padding_are_not_supported(model_around: ModelAround) -> None:
    """Three tokens and five of padding, then three new ones."""
    found = {item.mode: item for item in check_equivalence(model_around(ScriptedModel(context=10)), PROMPTS, 3)}
    assert found[ExecutionMode.LEFT_PADDING].verdict is EquivalenceVerdict.NOT_SUPPORTED
    assert "11 tokens, padding and new ones included" in found[ExecutionMode.LEFT_PADDING].reason
    assert {
        found[mode].verdict for mode in (ExecutionMode.CACHE, ExecutionMode.RIGHT_PADDING, ExecutionMode.BATCH)
    } == {EquivalenceVerdict.EQUAL}


def test_what_is_timed_is_what_is_compared(model_around: ModelAround) -> None:
    """The greedy settings of TransformersModel.generate, and the logits on top of them."""
    asked = []

    class Asked(ScriptedModel):
        def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **how: Any) -> SimpleNamespace:
            asked.append(how)
            return super().generate(input_ids, attention_mask, **how)

    model = model_around(Asked())
    check(model, ExecutionMode.CACHE)
    logits = {"output_logits": True, "return_dict_in_generate": True}
    plain = {"max_new_tokens": 3, "use_cache": True, **logits}
    assert asked == [plain, plain, {**plain, "use_cache": False}, {**plain, "use_cache": False}]


def test_the_largest_divergence_stands_for_all() -> None:
    changes = [ModeChange(0, 4, 0.3, 1.0), ModeChange(1, 0, 0.05, 1.0), ModeChange(2, 2, 0.9, 1.0)]
    assert equivalence_of(ExecutionMode.BATCH, changes, 0.1) == Equivalence(
        ExecutionMode.BATCH, EquivalenceVerdict.DIVERGES, prompt=2, token=2, gap=0.9, tolerance=0.1
    )


def test_a_divergence_stands_before_a_larger_tie() -> None:
    """Three tenths of a scale of 1 are more than four tenths of a scale of 10."""
    found = equivalence_of(ExecutionMode.BATCH, [ModeChange(0, 4, 0.3, 1.0), ModeChange(1, 0, 0.4, 10.0)], 0.1)
    assert (found.verdict, found.prompt) == (EquivalenceVerdict.DIVERGES, 0)


def test_a_divergence_that_changes_the_text_stands_before_one_that_does_not() -> None:
    found = equivalence_of(ExecutionMode.BATCH, [ModeChange(0, None, 0.9, 1.0), ModeChange(1, 3, 0.3, 1.0)], 0.1)
    assert (found.prompt, found.token) == (1, 3)


def test_float_error_that_changes_no_text_is_equal() -> None:
    assert equivalence_of(ExecutionMode.BATCH, [ModeChange(0, None, 0.05, 1.0)], 0.1) == Equivalence(
        ExecutionMode.BATCH, EquivalenceVerdict.EQUAL
    )


def test_sentences_count_from_one() -> None:
    found = Equivalence(
        ExecutionMode.LEFT_PADDING, EquivalenceVerdict.DIVERGES, prompt=1, token=2, gap=0.42, tolerance=0.001
    )
    assert found.sentence == "left padding changes token 3 of prompt 2 by 0.42 nats (tolerance 0.001)"
    assert found.short == "diverges: 0.42 nats (tolerance 0.001)"


def test_a_tie_says_so() -> None:
    found = Equivalence(ExecutionMode.BATCH, EquivalenceVerdict.TIE, prompt=0, token=0, gap=0.0002, tolerance=0.001)
    assert found.sentence == "batch changes token 1 of prompt 1 by 0.0002 nats (tolerance 0.001), a tie"


class Alibi(ScriptedModel):
    """Has no way to run with a static cache, and says so only when it is asked to."""

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **how: Any) -> SimpleNamespace:
        if how.get("cache_implementation") == "static":
            raise ValueError("no alibi for a static cache\nsorry")
        return super().generate(input_ids, attention_mask, **how)


def test_a_mode_that_raises_costs_the_others_nothing(model_around: ModelAround) -> None:
    """Bug: one mode's error was all five modes' error."""
    found = {item.mode: item for item in check_equivalence(model_around(Alibi()), PROMPTS, 3)}
    failed = found.pop(ExecutionMode.STATIC_CACHE)
    assert failed.verdict is EquivalenceVerdict.FAILED
    assert failed.sentence == "static cache failed: no alibi for a static cache"
    assert {item.verdict for item in found.values()} == {EquivalenceVerdict.EQUAL}


@pytest.mark.parametrize(("name", "mode"), [("left", ExecutionMode.LEFT_PADDING), ("batch", ExecutionMode.BATCH)])
def test_a_divergence_has_the_cause_that_is_known_of_its_mode(
    name: str, mode: ExecutionMode, model_around: ModelAround
) -> None:
    model = model_around(ScriptedModel(**{name: OTHER}))
    causes = {one.value: f"known of {one}" for one in ExecutionMode}
    known = replace(model, facts=replace(model.facts, divergence_causes=causes))
    found = {item.mode: item for item in check_equivalence(known, PROMPTS, 3)}
    assert found[mode].short.endswith(f"; cause: known of {mode}")
    assert found[mode].sentence.endswith(f"; cause: known of {mode}")
    assert [item.reason for item in found.values() if item.mode is not mode] == [""] * 4


def test_no_change_says_so() -> None:
    found = Equivalence(ExecutionMode.STATIC_CACHE, EquivalenceVerdict.EQUAL)
    assert (found.sentence, found.short) == ("static cache changes nothing", "equal")


@pytest.mark.parametrize(
    ("logits", "scale"),
    [
        ([-100.0, -103.0, -104.0], 100.0),
        ([1.0, -8.0, -9.0], 9.0),
        ([3.0, 2.0, -math.inf], 3.0),
    ],
    ids=["far from zero", "far from the others", "with a token that is never used"],
)
def test_the_scale_of_logits(logits: list[float], scale: float) -> None:
    assert logit_scale(torch.tensor(logits)) == scale


VARIANTS = ("fp32", "bf16", "autocast-bf16", "ort-fp32", "ort-int8-dynamic", "ort-int8-static", "bnb-int8", "bnb-nf4")
TORCH_VARIANTS = tuple(name for name in VARIANTS if not name.startswith("ort"))
NEW_TOKENS = 4  # as many as the suite asks for, of as many prompts


@pytest.fixture(scope="module")
def tiny(request: pytest.FixtureRequest, make_request: MakeRequest) -> TransformersModel:
    """The embedded model in the variant that the test is parametrized with."""
    if request.param.startswith("ort"):
        skip_without_onnx()
    return load_variant(make_request(request.param)).model


def each(names: Sequence[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tiny", names, indirect=True, scope="module")


@pytest.fixture(scope="session")
def unequal(prompts: Prompts) -> tuple[TokenIds, ...]:
    return prompts.varied(2)


@each(VARIANTS)
def test_the_embedded_model_answers_the_same_however_it_is_run(
    tiny: TransformersModel, unequal: tuple[TokenIds, ...]
) -> None:
    found = check_equivalence(tiny, unequal, NEW_TOKENS)
    assert [item.sentence for item in found if item.verdict is EquivalenceVerdict.DIVERGES] == []
    unsupported = [item.mode for item in found if item.verdict is EquivalenceVerdict.NOT_SUPPORTED]
    assert unsupported == ([] if CacheKind.STATIC in tiny.facts.cache_kinds else [ExecutionMode.STATIC_CACHE])


@each(["fp32", "ort-fp32"])
def test_in_float32_not_even_a_tie_is_found(tiny: TransformersModel, unequal: tuple[TokenIds, ...]) -> None:
    verdicts = {item.verdict for item in check_equivalence(tiny, unequal, NEW_TOKENS)}
    assert verdicts <= {EquivalenceVerdict.EQUAL, EquivalenceVerdict.NOT_SUPPORTED}


class Deaf:
    """A model that never hears of the mask."""

    def __init__(self, module: Any) -> None:
        self.config = module.config
        self._module = module

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **how: Any) -> Any:
        return self._module.generate(input_ids, attention_mask=torch.ones_like(attention_mask), **how)

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **how: Any) -> Any:
        return self._module(input_ids=input_ids, attention_mask=torch.ones_like(attention_mask), **how)


def verdicts(model: TransformersModel, prompts: Sequence[TokenIds]) -> dict[ExecutionMode, EquivalenceVerdict]:
    return {item.mode: item.verdict for item in check_equivalence(model, prompts, NEW_TOKENS)}


class Silent:
    """A model of a backend that can't show logits while it generates."""

    def __init__(self, model: TransformersModel) -> None:
        self.variant, self.device, self.facts, self.tokenizer = (
            model.variant,
            model.device,
            model.facts,
            model.tokenizer,
        )
        self.generate, self.logits, self.forget_caches = model.generate, model.logits, model.forget_caches


def test_where_no_logits_are_seen_nothing_is_said(tiny_fp32: TransformersModel, unequal: tuple[TokenIds, ...]) -> None:
    found = check_equivalence(cast(Any, Silent(tiny_fp32)), unequal, NEW_TOKENS)
    assert {item.verdict for item in found} == {EquivalenceVerdict.NOT_SUPPORTED}
    assert found[0].reason == "fp32 shows no logits while it generates"


@each(VARIANTS)
def test_a_mask_that_is_ignored_is_caught(tiny: TransformersModel, unequal: tuple[TokenIds, ...]) -> None:
    """Save in right padding, which no earlier token looks at."""
    found = verdicts(replace(tiny, module=Deaf(tiny.module)), unequal)
    assert (found[ExecutionMode.LEFT_PADDING], found[ExecutionMode.BATCH]) == (
        EquivalenceVerdict.DIVERGES,
        EquivalenceVerdict.DIVERGES,
    )
    assert EquivalenceVerdict.DIVERGES not in (
        found[ExecutionMode.CACHE],
        found[ExecutionMode.STATIC_CACHE],
        found[ExecutionMode.RIGHT_PADDING],
    )


@contextmanager
def altered(model: TransformersModel, alter: Callable[[dict[str, Any]], None]) -> Iterator[TransformersModel]:
    """The model with what its forward pass is given changed on the way."""

    def before(module: torch.nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        alter(given)
        return args, given

    hook = model.module.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield model
    finally:
        hook.remove()


def without_static_cache(model: TransformersModel) -> TransformersModel:
    """With one, `generate` hands on a mask of another shape, which the alterations below don't read."""
    return with_caches(model, CacheKind.DYNAMIC, CacheKind.OFF)


def mask_of(given: dict[str, Any]) -> torch.Tensor:
    """Of every position up to the newest; a `generate` of transformers 5 hands on none where nothing is masked."""
    if given.get("attention_mask") is not None:
        return cast(torch.Tensor, given["attention_mask"])
    rows, width = given["input_ids"].shape
    cache = given.get("past_key_values")
    return torch.ones(rows, (cache.get_seq_length() if cache is not None else 0) + width, dtype=torch.long)


def count_positions_from_the_first_column(given: dict[str, Any]) -> None:
    width = given["input_ids"].shape[1]
    end = mask_of(given).shape[-1]
    given["position_ids"] = torch.arange(end - width, end).expand(len(given["input_ids"]), -1)


@each(TORCH_VARIANTS)
def test_positions_that_are_not_shifted_for_left_padding_are_caught(
    tiny: TransformersModel, unequal: tuple[TokenIds, ...]
) -> None:
    with altered(without_static_cache(tiny), count_positions_from_the_first_column) as model:
        found = verdicts(model, unequal)
    assert (found[ExecutionMode.LEFT_PADDING], found[ExecutionMode.BATCH]) == (
        EquivalenceVerdict.DIVERGES,
        EquivalenceVerdict.DIVERGES,
    )
    assert EquivalenceVerdict.DIVERGES not in (found[ExecutionMode.CACHE], found[ExecutionMode.RIGHT_PADDING])


def count_positions_from_the_last_column(given: dict[str, Any]) -> None:
    """As if the padding stood on the left."""
    mask = mask_of(given)
    if given.get("position_ids") is None:
        width = given["input_ids"].shape[1]
        given["position_ids"] = (torch.arange(width) - (width - mask.sum(-1, keepdim=True))).clamp(min=0)


@each(TORCH_VARIANTS)
def test_positions_that_are_shifted_for_right_padding_are_caught(
    tiny: TransformersModel, unequal: tuple[TokenIds, ...]
) -> None:
    with altered(tiny, count_positions_from_the_last_column) as model:
        found = verdicts(model, unequal)
    assert found.pop(ExecutionMode.RIGHT_PADDING) is EquivalenceVerdict.DIVERGES
    assert EquivalenceVerdict.DIVERGES not in found.values()


def drop_a_cached_position(given: dict[str, Any], kind: type[Any]) -> None:
    """The one before the last that was kept."""
    cache = given.get("past_key_values")
    if isinstance(cache, kind) and cache.get_seq_length() > 1:
        mask = mask_of(given).clone()
        mask[..., cache.get_seq_length() - 1] = 0
        given["attention_mask"] = mask


@each(TORCH_VARIANTS)
@pytest.mark.parametrize(
    ("kind", "mode"), [(DynamicCache, ExecutionMode.CACHE), (StaticCache, ExecutionMode.STATIC_CACHE)]
)
def test_a_cache_that_drops_a_position_is_caught(
    kind: type[Any], mode: ExecutionMode, tiny: TransformersModel, unequal: tuple[TokenIds, ...]
) -> None:
    if mode is ExecutionMode.STATIC_CACHE and CacheKind.STATIC not in tiny.facts.cache_kinds:
        pytest.skip("no such cache")
    with altered(tiny, lambda given: drop_a_cached_position(given, kind)) as model:
        assert verdicts(model, unequal)[mode] is EquivalenceVerdict.DIVERGES
