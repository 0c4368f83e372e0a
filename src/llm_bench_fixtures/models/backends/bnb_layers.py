"""Which layers bitsandbytes leaves as they are, and how many of the weights it quantizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.models.architecture import PACKED_ROWS, SCALED_COLUMNS
from llm_bench_fixtures.models.experts import expert_count
from llm_bench_fixtures.models.weights import linear_layers, weights_outside
from llm_bench_fixtures.text import some_of

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.device import Device

# Names of layers, in transformers' code, that nobody quantizes: they are small, and much hangs on them.
ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
STATE_SPACE = frozenset({"x_proj", "dt_proj", "in_proj_ba"})
# Only Gemma 3n has these. transformers 4 clips their weights in each pass: in place, also the packed numbers of
# quantized ones.
CLIPPED = frozenset({"correction_coefs", "prediction_coefs"})
# DeepSeek's attention: where it has this method (transformers 5), the layer's inputs have four dimensions, and
# bitsandbytes' int8 on a CPU takes no more than three.
EXPANDING, EXPANDED_BY = "kv_b_proj", "expand_kv"


class Reason(StrEnum):
    """Why linear layers aren't quantized, in the report's words."""

    ROUTER = "the routers of its experts"
    STATE_SPACE = "projections to state-space parameters"
    UNFIT = (
        f"layers that don't have a multiple of {PACKED_ROWS} rows and of {SCALED_COLUMNS} columns, as the processor's "
        "kernel needs"
    )
    EXPANDING = "layers whose inputs have four dimensions, where int8 on a CPU takes three"
    CLIPPED = "coefficients that the model's code clips as it runs"


@dataclass(frozen=True)
class LeftOut:
    """Names of layers that are not quantized, though they are linear."""

    head: tuple[str, ...]
    """The output layer, which bitsandbytes never quantizes."""

    others: Mapping[Reason, Sequence[str]]
    """Names of the other layers, in the order of the reasons."""

    @property
    def names(self) -> list[str] | None:
        """All of them, for transformers; None where it finds the output layer by itself."""
        ours = [name for names in self.others.values() for name in names]
        return [*self.head, *ours] if ours else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the report."""
        return tuple(f"not quantized: {reason} ({some_of(names)})" for reason, names in self.others.items() if names)


def left_out_of(module: Any, *, repacks: bool, is_int8_on_cpu: bool = False) -> LeftOut:
    """module: a transformers model, with or without weights. repacks: whether its 4-bit weights are packed for
    AVX512-BF16."""
    experts = expert_count(module.config)
    output = module.get_output_embeddings()
    head = []
    others: dict[Reason, list[str]] = {reason: [] for reason in Reason}
    for name, part, rows, columns in linear_layers(module):
        owner, _, layer = name.rpartition(".")
        if part is output:
            head.append(name)
        elif experts and rows in (1, experts) and ROUTERS & set(name.split(".")[-2:]):
            others[Reason.ROUTER].append(name)
        elif layer in STATE_SPACE:
            others[Reason.STATE_SPACE].append(name)
        elif layer in CLIPPED:
            others[Reason.CLIPPED].append(name)
        elif repacks and (rows % PACKED_ROWS or columns % SCALED_COLUMNS):
            others[Reason.UNFIT].append(name)
        elif is_int8_on_cpu and layer == EXPANDING and hasattr(module.get_submodule(owner), EXPANDED_BY):
            others[Reason.EXPANDING].append(name)
    return LeftOut(tuple(head), others)


def other_weights(module: torch.nn.Module) -> list[torch.Tensor]:
    """All weights that aren't quantized."""
    return weights_outside(quantized_layers(module), module)


def quantized_layers(module: torch.nn.Module) -> list[Any]:
    from bitsandbytes.nn import Linear4bit, Linear8bitLt

    return [part for part in module.modules() if isinstance(part, Linear4bit | Linear8bitLt)]


def repacks_on(device: Device) -> bool:
    """Whether 4-bit weights are packed anew before their first use, and multiplied in bfloat16."""
    from bitsandbytes.functional import has_avx512bf16

    return device.kind == "cpu" and bool(has_avx512bf16())


def repack(module: torch.nn.Module) -> None:
    """Run each 4-bit layer once, so that its weights are what they will be in every later pass.

    First the whole model, which may change weights before it uses them: RWKV's are scaled in its first pass, and would
    be taken for what they were before they were packed. Then the experts that it passed over.
    """
    import torch
    from bitsandbytes.nn import Linear4bit

    one = torch.ones(1, 1, dtype=torch.int64)
    with torch.inference_mode():
        module(input_ids=one, attention_mask=one, use_cache=False)
        for layer in module.modules():
            if isinstance(layer, Linear4bit) and not getattr(layer.weight.quant_state, "packing_format_for_cpu", False):
                layer(torch.zeros(1, layer.in_features, dtype=layer.compute_dtype))


def scales_of(module: torch.nn.Module) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """Tells, of a weight of the module, the scales that bitsandbytes keeps beside it, and what they are made of.

    An int8 weight hands its scales to its layer when it is first used.
    """
    layers = [part for part in module.modules() if hasattr(part, "state") and hasattr(part, "weight")]
    handed = {id(layer.weight): getattr(layer.state, "SCB", None) for layer in layers}

    def scales_beside(weight: torch.Tensor) -> list[torch.Tensor]:
        found = [getattr(weight, "SCB", None), handed.get(id(weight))]
        tensors = [scales for scales in found if scales is not None]
        state = getattr(weight, "quant_state", None)
        while state is not None:
            tensors += [state.absmax, state.code]
            state = state.state2 if state.nested else None
        return tensors

    return scales_beside
