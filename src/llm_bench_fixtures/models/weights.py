"""What of a torch module are weights: how many bytes, and how many of them a forward pass reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llm_bench_fixtures.models.peculiarities import routed_parts

if TYPE_CHECKING:
    import torch

PAGE_BYTES = 4096
MOST = 0.5  # share of the weights: a label that names a quantization speaks of at least so many


def weight_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters, and the buffers that a checkpoint holds.

    Buffers that are made when the model is (causal masks, tables of rotary angles), and masks that an old checkpoint
    holds, are no weights.
    """
    import torch

    saved = (
        buffer
        for part in module.modules()
        for name, buffer in part.named_buffers(recurse=False)
        if name not in part._non_persistent_buffers_set and buffer.dtype is not torch.bool
    )
    return [*module.parameters(), *saved]


class BytesRead(NamedTuple):
    """Bytes of the weights that a forward pass reads."""

    least: int | None
    """Bytes read over one position, and at least over several. None where that can't be told."""
    most: int | None
    """Bytes read over positions that use all experts of a mixture between them. None where that is the same, or can't
    be told."""


def bytes_read_by_forward(
    module: torch.nn.Module, scales: Callable[[torch.Tensor], Sequence[torch.Tensor]] = lambda _: ()
) -> BytesRead:
    """Bytes that each forward pass over text reads: all parameters but the tables that are only looked up, and but
    towers for pictures or sound.

    A table that is the output layer's matrix too is read whole. scales: what is stored beside a quantized weight. Of a
    mixture's experts one position reads those that it uses, unless its code reads all.
    """
    from torch import nn

    routed = routed_parts(module)
    if routed is None:
        return BytesRead(None, None)
    inside = {id(weight) for one in routed for weight in one.part.parameters()}
    read = [
        parameter
        for part in _text_parts(module)
        if not isinstance(part, nn.Embedding)
        for parameter in part.parameters(recurse=False)
        if id(parameter) not in inside
    ]
    always = _stored_bytes(read, scales)
    experts = [(one, _stored_bytes([*one.part.parameters()], scales)) for one in routed]
    used = sum(stored if one.is_dense else one.of_position(stored) for one, stored in experts)
    return BytesRead(always + used, always + sum(stored for _, stored in experts) if experts else None)


def _stored_bytes(weights: Sequence[torch.Tensor], scales: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> int:
    return storage_bytes([*weights, *(scale for weight in weights for scale in scales(weight))])


def _text_parts(module: Any) -> Iterator[torch.nn.Module]:
    """The modules that text goes through: all, but in a model of several media its decoder and output layer."""
    config = getattr(module, "config", None)
    if config is None or config.get_text_config() is config:
        yield from module.modules()
        return
    yield from module.get_decoder().modules()
    yield from module.get_output_embeddings().modules()


def storage_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the storages behind the tensors, a shared one counted once."""
    plain = [part for tensor in tensors for part in _parts(tensor)]
    storages = {
        id(tensor) if tensor.is_meta else tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in plain  # weights on meta are fetched for each use
    }
    return sum(storages.values())


def _parts(tensor: Any) -> Iterator[torch.Tensor]:
    """The tensor itself, or what a quantized one of a class of its own is made of: its numbers and their scales."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from _parts(getattr(tensor, name))


def is_packed(tensor: torch.Tensor) -> bool:
    """Whether it holds weights in fewer bits: as integers, in 8-bit floats, or in a class of tensors of its own."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return not tensor.is_floating_point() or tensor.itemsize == 1 or is_traceable_wrapper_subclass(tensor)


def linear_layers(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, int, int]]:
    """Each layer that multiplies with a matrix, with its name, rows (outputs) and columns (inputs)."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            yield name, part, part.out_features, part.in_features
        elif isinstance(part, Conv1D):  # GPT-2's, whose matrix lies the other way round
            columns, rows = part.weight.shape
            yield name, part, rows, columns


def own_tensors(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The layer's own parameters and buffers, by name."""
    return {**dict(layer.named_parameters(recurse=False)), **dict(layer.named_buffers(recurse=False))}


def weights_outside(layers: Iterable[torch.nn.Module], module: torch.nn.Module) -> list[torch.Tensor]:
    """All weights but those that the layers' matrices are stored in."""
    inside = {id(tensor) for layer in layers for name, tensor in own_tensors(layer).items() if name != "bias"}
    return [weight for weight in weight_tensors(module) if id(weight) not in inside]


def share_of(layers: Sequence[Any], module: torch.nn.Module) -> float:
    """Share of the module's weights in the layers' matrices, as (outputs, inputs) says where packed."""
    inside = sum(int(layer.in_features) * int(layer.out_features) for layer in layers)
    return inside / (inside + sum(weight.numel() for weight in weights_outside(layers, module)))


def lesser_share(share: float | None) -> str:
    """Words for a label that names a quantization: how many of the weights it has, where that is not most of them."""
    return f" of {share:.0%} of the weights" if share is not None and share < MOST else ""


def fault_in(tensors: Sequence[torch.Tensor]) -> None:
    """Read a byte of each page of tensors that lie on a CPU, so that what is mapped from a file comes into memory.

    Else a load would take no time, and the first forward pass would take the load's.
    """
    import torch

    for tensor in (part for whole in tensors for part in _parts(whole)):
        if tensor.device.type == "cpu":
            torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())[::PAGE_BYTES].sum()


def unmap(tensors: Sequence[torch.Tensor]) -> None:
    """Copy tensors that lie on a CPU into memory of their own, so that no file stays mapped for them.

    A checkpoint of which some weights are used as they are stays mapped as a whole, with the pages of those that were
    quantized from it. Tensors that share a storage share its copy.
    """
    import torch

    copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # each beside what it is of
    for tensor in tensors:
        if tensor.device.type == "cpu":
            storage = tensor.untyped_storage()
            place = storage.data_ptr()
            if place not in copies:
                copies[place] = storage, storage.clone()  # type: ignore[no-untyped-call]
            own = torch.empty(0, dtype=tensor.dtype)
            tensor.data = own.set_(copies[place][1], tensor.storage_offset(), tensor.shape, tensor.stride())
