"""Models that run through transformers' `generate`: in torch, or behind the same interface (Optimum's)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.models.attention import asked_attention, attention_in_words, attention_of
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.model import Model, ModelFacts
from llm_bench_fixtures.models.peculiarities import OFFSET_POSITIONS, divergence_causes, shares_keys, type_of
from llm_bench_fixtures.models.spread import bytes_by_device, layers_by_device, where_in_words
from llm_bench_fixtures.models.variants import Precision, Variant, is_plain, tolerance_of
from llm_bench_fixtures.models.weights import bytes_read_by_forward, storage_bytes, weight_tensors
from llm_bench_fixtures.workloads import MOST_PROMPT_TOKENS, CacheKind, Tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

    from llm_bench_fixtures.models.backend import LoadRequest

DEFAULT_CONTEXT = 2048  # positions of models whose config names no limit
NO_TOKEN = 2**31 - 1  # an id beyond any vocabulary
CONTEXTS = ("max_position_embeddings", "max_seq_len", "max_target_positions", "max_positions")  # the limit's names


@dataclass(eq=False)
class TransformersModel(Model):
    """Runs an object with transformers' `generate` and forward pass, in the way that its variant says."""

    variant: Variant
    device: Device
    module: Any
    """A transformers model, or one of Optimum's. None once the model is closed."""

    tokenizer: Tokenizer
    facts: ModelFacts
    running: Callable[[], AbstractContextManager[object]] = nullcontext
    """Makes the context that each call runs in: autocast's."""

    def __post_init__(self) -> None:
        """Prepare the module for greedy search: what was published with it (sampling, penalties) is no setting of a
        measurement."""
        if self.module is not None:
            prepare_for_greedy(self.module, self.tokenizer)

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """As `Model.generate`; on_token is called by transformers' streamer on a CPU, else by a stopping criterion."""
        more: dict[str, object] = {}
        if on_token is not None and self.device.kind is DeviceKind.CPU:
            more["streamer"] = Streamer(on_token)
        elif on_token is not None:
            more["stopping_criteria"] = self._criteria
            self._criteria[0].on_token = on_token
        output: torch.Tensor = self._generate(input_ids, attention_mask, new_tokens, cache, **more)
        return output

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `ShowsLogits.generate_with_logits`."""
        import torch

        shown = {"output_logits": True, "return_dict_in_generate": True}
        output = self._generate(input_ids, attention_mask, new_tokens, cache, **shown)
        return output.sequences, torch.stack(output.logits, dim=1).float()

    def _generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind, **more: Any
    ) -> Any:
        import torch

        if cache is CacheKind.STATIC:
            more["cache_implementation"] = "static"
        with torch.inference_mode(), self.running():
            return self.module.generate(
                input_ids,
                attention_mask=attention_mask,
                max_new_tokens=new_tokens,
                use_cache=cache is not CacheKind.OFF,
                **more,
            )

    @cached_property
    def _criteria(self) -> Any:
        """Stopping criteria of transformers with a `Calling`, made once."""
        from transformers import StoppingCriteriaList

        return StoppingCriteriaList([Calling(self.device)])

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`, in the dtype that the model computes them in."""
        import torch

        with torch.inference_mode(), self.running():
            logits: torch.Tensor = self.module(
                input_ids=input_ids, attention_mask=attention_mask, use_cache=shares_keys(self.module.config)
            ).logits
        return logits

    def forget_caches(self) -> None:
        """Have the next `generate` make a static cache that fits.

        Else transformers makes it as large as the largest one before (5), or takes that one again (4), so that what a
        workload takes would depend on those before it.
        """
        for name in ("_cache", "_previous_max_cache_length"):
            vars(self.module).pop(name, None)

    def close(self) -> None:
        self.module = None
        self.running = nullcontext


class Streamer:
    """A streamer of transformers' that calls `on_token` for each new token.

    It needs one operation of torch's less at each step than a `Calling`. It is handed tokens in the CPU's memory,
    though, so each step of an accelerator would be waited for.
    """

    def __init__(self, on_token: Callable[[], None]) -> None:
        self._on_token = on_token
        self._is_prompt = True

    def put(self, _: torch.Tensor) -> None:
        """Take the prompts, which come first, or a step's tokens."""
        if self._is_prompt:
            self._is_prompt = False
        else:
            self._on_token()

    def end(self) -> None:
        """Nothing to flush."""


class Calling:
    """A stopping criterion of transformers' that stops nothing and calls `on_token` for each new token.

    It answers with a tensor, as transformers' own do.
    """

    def __init__(self, device: Device) -> None:
        import torch

        self.on_token: Callable[[], None] = lambda: None  # until somebody takes the tokens
        self._no = torch.zeros(1, dtype=torch.bool, device=device.name)

    def __call__(self, *_: object, **__: object) -> torch.Tensor:
        self.on_token()
        return self._no


def prepare_for_greedy(module: Any, tokenizer: Tokenizer) -> None:
    """Replace the model's published generation settings (sampling, penalties, lengths) by plain greedy search.

    No token ends a text: `generate` looks for one as ever, so that a step costs what it costs a user, and finds none.
    By default transformers compiles decode steps with a static cache on accelerators, so that the cache alone would not
    be what differs.
    """
    from transformers import GenerationConfig

    module.generation_config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        disable_compile=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=NO_TOKEN,
        pad_token_id=tokenizer.pad_token_id or 0,  # without one transformers warns at each call
    )


def context_of(config: PretrainedConfig) -> int:
    """Tokens that a text model's config allows in a context; DEFAULT_CONTEXT where it names no limit."""
    positions = int(next(filter(None, (getattr(config, name, None) for name in CONTEXTS)), DEFAULT_CONTEXT))
    return positions - (config.pad_token_id or 0) - 1 if type_of(config) in OFFSET_POSITIONS else positions


def source_facts(
    variant: Variant,
    config: PretrainedConfig,
    precision: Precision,
    *,
    label: str,
    weight_bytes: int,
    attention: str = "",
) -> ModelFacts:
    """Facts that the config tells of a model that runs the source; the backend adds what else it knows.

    attention: the implementation that was asked for, if one was; that which runs is named in the label.
    """
    text = config.get_text_config()
    runs = f", {attention_in_words(attention_of(config))}" if attention else ""
    return ModelFacts(
        label=f"{label}{runs}",
        weight_bytes=weight_bytes,
        context_length=min(context_of(text), MOST_PROMPT_TOKENS),
        vocabulary=int(text.vocab_size),
        width=int(getattr(text, "hidden_size", None) or 0),
        # a plain model in float32 is the same one, whatever dtype was asked for
        configuration=f"{'plain' if is_plain(variant) else variant.id} {precision}{runs}",
        runs_source=True,
        divergence_causes=divergence_causes(config),
    )


def torch_model(
    request: LoadRequest,
    module: PreTrainedModel,
    precision: Precision,
    *,
    label: str,
    compute: Precision | None,
    scales: Callable[[torch.Tensor], Sequence[torch.Tensor]] = lambda _: (),
    quantized_share: float | None = None,
    notes: tuple[str, ...] = (),
) -> TransformersModel:
    """The model of a module of transformers' on torch, with what its weights take and each forward pass reads of them.

    precision: of what isn't quantized. compute: the dtype that matrices are multiplied in; None for integers. scales:
    what is stored beside a quantized weight.
    """
    stored = [*weight_tensors(module), *(scale for weight in module.parameters() for scale in scales(weight))]
    read = bytes_read_by_forward(module, scales)
    places = bytes_by_device(module, stored) if request.settings.device_map is not None else {}
    facts = source_facts(
        request.variant,
        module.config,
        precision,
        label=label,
        weight_bytes=storage_bytes(stored),
        attention=asked_attention(request),
    )
    facts = replace(
        facts,
        label=facts.label + where_in_words(places, layers_by_device(module) if places else {}),
        configuration=facts.configuration + f", {places}" * (len(places) > 1),
        weight_bytes_by_device=places,
        weight_bytes_read=read.least,
        weight_bytes_most=read.most,
        compute=compute,
        tolerance=tolerance_of(compute),
        cache_kinds=supported_caches(module),
        quantized_share=quantized_share,
        notes=notes,
    )
    return TransformersModel(request.variant, request.device, module, request.source.load_tokenizer(), facts)


def supported_caches(module: torch.nn.Module) -> frozenset[CacheKind]:
    """A static cache needs a model whose forward pass doesn't depend on the cache's length, as Falcon's ALiBi does."""
    static = getattr(module, "_can_compile_fullgraph", False) or getattr(module, "_supports_static_cache", False)
    has_static = static and not getattr(module.config, "alibi", False)
    return frozenset(CacheKind) if has_static else frozenset({CacheKind.DYNAMIC, CacheKind.OFF})
