"""torchao: the weights of linear layers in 8 bits, on CPU and CUDA.

Left out are int4 weights, whose kernels are in a package of their own (mslk), and float8 activations, for which a
processor without float8 products has no code.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, first_line
from llm_bench_fixtures.models.backend import Backend, Chosen, LoadRequest, Storage, unavailable_where
from llm_bench_fixtures.models.backends import torch as torch_backend
from llm_bench_fixtures.models.backends.bitsandbytes import left_out_of
from llm_bench_fixtures.models.device import resolve_precision
from llm_bench_fixtures.models.transformers import TransformersModel, torch_model
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.models.weights import lesser_share, share_of, unmap, weights_outside

if TYPE_CHECKING:
    import torch


DYNAMIC = "int8-dynamic"
QUANTIZATIONS = {
    "int8-weight": ("Int8WeightOnlyConfig", "int8 weights"),
    DYNAMIC: ("Int8DynamicActivationInt8WeightConfig", "int8 weights, activations quantized as they come"),
    "float8-weight": ("Float8WeightOnlyConfig", "float8 weights"),
}
"""torchao's config for each, and a description."""

VARIANTS = tuple(
    Variant(f"ao-{name}", "torchao", description, quantization=name, base="fp32")
    for name, (_, description) in QUANTIZATIONS.items()
)


def load(request: LoadRequest) -> TransformersModel:
    """Raises BackendUnavailable where there is nothing to quantize; the model does where it can't run."""
    usual = Precision.FLOAT32 if request.device.kind == "cpu" else Precision.BFLOAT16
    precision = resolve_precision(usual, request.device)  # for what isn't quantized, and for products with it
    module = torch_backend.load_module(request, precision, precision.torch_dtype.itemsize).to(request.device.name)
    left_out = left_out_of(module, repacks=False)
    notes = (*make_linear(module), *left_out.notes)
    layers = _quantize(module, request.variant, {*left_out.head, *(left_out.names or ())})
    if not layers:
        raise BackendUnavailable(f"torchao finds no layer to quantize in {request.source.name}")
    unmap(weights_outside(layers, module))
    share = share_of(layers, module)
    is_dynamic = request.variant.quantization == DYNAMIC
    how = f"{precision.label} elsewhere" if is_dynamic else f"computes in {precision.label}"
    model = torch_model(
        request,
        module,
        precision.actual,
        label=f"torchao {request.variant.quantization}{lesser_share(share)}, {how}",
        compute=None if is_dynamic else precision.actual,
        quantized_share=share,
        notes=notes,
    )
    model.running = partial(unavailable_where, partial(_why_refused, request.source.model_type))
    return model


def make_linear(module: torch.nn.Module) -> tuple[str, ...]:
    """Put a linear layer in place of each Conv1D, which is one whose matrix lies the other way round. What to tell."""
    import torch
    from transformers.pytorch_utils import Conv1D

    found = [(name, part) for name, part in module.named_modules() if isinstance(part, Conv1D)]
    for name, part in found:
        columns, rows = part.weight.shape
        with torch.device("meta"):
            linear = torch.nn.Linear(columns, rows)
        linear.weight = torch.nn.Parameter(part.weight.detach().t().contiguous(), requires_grad=False)
        linear.bias = part.bias
        module.set_submodule(name, linear)
    return ("its matrices were made linear layers of torch first, as torchao quantizes no others",) if found else ()


def _quantize(module: torch.nn.Module, variant: Variant, left_out: set[str]) -> list[Any]:
    """The layers that are quantized: all linear ones but those of the names."""
    from torch import nn
    from torchao import quantization

    names = {name for name, part in module.named_modules() if isinstance(part, nn.Linear)} - left_out
    config = getattr(quantization, QUANTIZATIONS[str(variant.quantization)][0])(set_inductor_config=False)
    quantization.quantize_(module, config, filter_fn=lambda _, name: name in names)
    return [module.get_submodule(name) for name in sorted(names)]


def _why_refused(kind: str, error: Exception) -> str:
    """What the model's own code asks of its weights that torchao's tensors can't do; empty for another error.

    The failure shows when it first runs. A try in the load would do what the first generate is timed for.
    """
    operator = re.search(r"op='([\w.]+)'", str(error))
    if not isinstance(error, NotImplementedError) or (operator is None and "torchao" not in str(error)):
        return ""
    why = f"its tensors have no {operator[1]}" if operator else first_line(error)
    return f"torchao doesn't run {kind} models: {why}"


BACKEND = Backend(
    load,
    prepare=torch_backend.prepare,
    devices=("cpu", "cuda"),
    modules=("torchao",),
    extra="torchao",
    imports=("torchao.quantization",),
    storage=lambda *_: Storage(1.0, 4.0, takes_stacks=False, loading=4.0, is_known=True),  # loaded in float32
    variants=VARIANTS,
    chosen=Chosen.INSTALLED,
    libraries=("torchao",),
    loggers=("torchao", "torch.utils._pytree"),
)
