"""bitsandbytes: weights in int8 (LLM.int8()) or 4 bits (NF4, FP4), on CPU and CUDA.

On a processor with AVX512-BF16, bitsandbytes repacks 4-bit weights before their first use, rounds their scales to
bfloat16, and multiplies in bfloat16 whatever dtype was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.architecture import PACKED_ROWS, SCALED_COLUMNS, without_weights
from llm_bench_fixtures.models.backend import Backend, LoadRequest, Storage
from llm_bench_fixtures.models.backends import torch as torch_backend
from llm_bench_fixtures.models.device import Device, ResolvedPrecision, processor_flags, resolve_precision
from llm_bench_fixtures.models.peculiarities import expert_count
from llm_bench_fixtures.models.spread import refuse_unfetched
from llm_bench_fixtures.models.transformers import TransformersModel, torch_model
from llm_bench_fixtures.models.variants import Precision, Variant, parse_precision
from llm_bench_fixtures.models.weights import lesser_share, linear_layers, share_of, unmap, weights_outside
from llm_bench_fixtures.options.parsers import Setting, parse_bool
from llm_bench_fixtures.text import some_of

if TYPE_CHECKING:
    import torch


INT8 = "int8"
FOUR_BITS = 0.5 + 4 / 64  # bytes of a weight, with a scale in float32 for each 64
PACKED_FOUR_BITS = 0.5 + 2 / 64  # where they are packed for AVX512-BF16, with scales in bfloat16
VARIANTS = (
    Variant("bnb-int8", "bitsandbytes", "LLM.int8() weights", quantization=INT8, base="fp32"),
    Variant("bnb-nf4", "bitsandbytes", "4-bit NormalFloat weights", quantization="nf4", base="fp32"),
    Variant("bnb-fp4", "bitsandbytes", "4-bit float weights", quantization="fp4", base="fp32"),
)

COMPUTE_DTYPE = Setting("bnb_compute_dtype", lambda text: parse_precision(text) if text else None)
DOUBLE_QUANT = Setting("bnb_double_quant", parse_bool)

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


def storage(variant: Variant, device: Device) -> Storage:
    """The embedding and the output layer aren't quantized."""
    size = 4 if device.kind == "cpu" else 2
    is_int8 = variant.quantization == INT8
    packs = not is_int8 and device.kind == "cpu" and "avx512_bf16" in processor_flags()
    matrices = 1.0 if is_int8 else PACKED_FOUR_BITS if packs else FOUR_BITS
    return Storage(matrices, size, numbers=size, packs=packs, takes_stacks=False, is_known=True)


def load(request: LoadRequest) -> TransformersModel:
    on_cpu = request.device.kind == "cpu"
    # The dtype of all that isn't quantized, and of the products as far as bitsandbytes has a choice.
    usual = Precision.FLOAT32 if on_cpu else Precision.BFLOAT16
    precision = resolve_precision(request.settings.of(COMPUTE_DTYPE) or usual, request.device)
    is_int8 = request.variant.quantization == INT8
    repacks = not is_int8 and repacks_on(request.device)
    of_products = replace(precision, actual=Precision.BFLOAT16, reason="AVX512-BF16") if repacks else precision
    compute = None if is_int8 else of_products
    shape = without_weights(request.source.load_config(), request.source.trust_remote_code)
    left_out = left_out_of(shape, repacks=repacks, is_int8_on_cpu=is_int8 and on_cpu)
    module = _load_quantized(request, precision, left_out.names)
    share = share_of(quantized_layers(module), module)
    if not share:
        raise BackendUnavailable(f"bitsandbytes finds no layer to quantize in {request.source.name}")
    if repacks:
        repack(module)
    unmap(other_weights(module))
    model = torch_model(
        request,
        module,
        precision.actual,
        label=_label(request, precision, compute, share),
        compute=compute.actual if compute else None,
        scales=scales_of(module),
        quantized_share=share,
        notes=left_out.notes,
    )
    return refuse_unfetched(model)


def _load_quantized(request: LoadRequest, precision: ResolvedPrecision, left_out: list[str] | None) -> Any:
    """The quantized module. Where files lack weights, transformers fails at the numbers that it would make."""
    from transformers import BitsAndBytesConfig

    if request.variant.quantization == INT8:
        config = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=left_out)
    else:
        config = BitsAndBytesConfig(
            llm_int8_skip_modules=left_out,
            load_in_4bit=True,
            bnb_4bit_quant_type=str(request.variant.quantization),
            bnb_4bit_compute_dtype=precision.torch_dtype,
            bnb_4bit_use_double_quant=request.settings.of(DOUBLE_QUANT),
        )
    device_map = {"": request.device.name}
    try:
        return torch_backend.load_module(request, precision, 1, quantization_config=config, device_map=device_map)
    except AttributeError:
        request.source.load_model(dtype="auto")  # raises IncompleteWeights where that is why
        raise


def _label(request: LoadRequest, precision: ResolvedPrecision, compute: ResolvedPrecision | None, share: float) -> str:
    part = lesser_share(share)
    if compute is None:
        return f"bitsandbytes int8{part}, {precision.label} elsewhere"
    double = ", double quantization" if request.settings.of(DOUBLE_QUANT) else ""
    return f"bitsandbytes {request.variant.quantization}{part}, computes in {compute.label}{double}"


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


BACKEND = Backend(
    load,
    prepare=torch_backend.prepare,
    devices=("cpu", "cuda"),
    modules=("bitsandbytes", "accelerate"),
    extra="bitsandbytes",
    imports=("bitsandbytes", "transformers.integrations.bitsandbytes"),
    storage=storage,
    variants=VARIANTS,
    takes_device_map=True,
    libraries=("bitsandbytes",),
    loggers=("bitsandbytes",),
    options=(COMPUTE_DTYPE, DOUBLE_QUANT),
)
