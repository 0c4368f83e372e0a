"""What of a torch module are weights: how many bytes, and how many of them a forward pass reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llm_bench_fixtures.models.experts import routed_parts

if TYPE_CHECKING:
    import torch

PAGE_BYTES = 4096


def weight_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters, and the buffers that a checkpoint holds.

    Buffers that are made when the model is (causal masks, tables of rotary angles), and masks that an old checkpoint
    holds, are no weights.
    """
    return [*module.parameters(), *_saved_buffers(module)]


def _saved_buffers(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    import torch

    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if name not in part._non_persistent_buffers_set and buffer.dtype is not torch.bool:
                yield buffer


def _no_scales(_: torch.Tensor) -> Sequence[torch.Tensor]:
    return ()


class BytesRead(NamedTuple):
    """Bytes of the weights that a forward pass reads."""

    least: int | None
    """Over one position, and at least over several. None where that can't be told."""
    most: int | None
    """Over positions that use all experts of a mixture between them. None where that is the same, or can't be told."""


def bytes_read_by_forward(
    module: torch.nn.Module, scales: Callable[[torch.Tensor], Sequence[torch.Tensor]] = _no_scales
) -> BytesRead:
    """Of each forward pass over text: of all parameters but the tables that are only looked up, and but towers for
    pictures or sound.

    A table that is the output layer's matrix too is read whole. scales: what is stored beside a quantized weight. Of a
    mixture's experts one position reads those that it uses.
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
    used = sum(one.of_position(stored) for one, stored in experts)
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
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def fault_in(tensors: Sequence[torch.Tensor]) -> None:
    """Read a byte of each page of tensors that lie on a CPU, so that what is mapped from a file comes into memory.

    Else a load would take no time, and the first forward pass would take the load's.
    """
    import torch

    for tensor in tensors:
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
