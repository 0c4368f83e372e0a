"""What of a torch module are weights: how many bytes, and how many of them a forward pass reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PAGE_BYTES = 4096
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")  # in configs of mixtures of experts


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


def bytes_read_by_forward(module: torch.nn.Module, scales: Sequence[torch.Tensor] = ()) -> int | None:
    """Bytes of the weights that each forward pass over text reads: of all parameters but the tables that are only
    looked up, and but towers for pictures or sound.

    A table that is the output layer's matrix too is read whole. scales: what is stored beside quantized weights.
    None for a mixture of experts, which reads those that it chooses.
    """
    from torch import nn

    if expert_count(getattr(module, "config", None)) > 1:
        return None
    read = [
        parameter
        for part in _text_parts(module)
        if not isinstance(part, nn.Embedding)
        for parameter in part.parameters(recurse=False)
    ]
    return storage_bytes([*read, *scales])


def expert_count(config: object) -> int:
    """Experts of each layer's mixture, by a model's config; 0 where it has none."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return max((getattr(text, name, None) or 0 for name in EXPERT_COUNTS), default=0)


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
