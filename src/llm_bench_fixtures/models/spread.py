"""A model's layers over several devices, as --llm-device-map asks for.

accelerate moves what passes from layer to layer. It fetches weights that lie where nothing computes, on disk or in the
CPU's memory beside a CUDA device, before each use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, UnknownName, first_line
from llm_bench_fixtures.models.architecture import without_weights
from llm_bench_fixtures.models.backend import LoadRequest, first_missing
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.weights import fault_in, storage_bytes
from llm_bench_fixtures.options.parsers import DISK
from llm_bench_fixtures.processes.memory import free_memory_bytes
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.models.transformers import TransformersModel

FLAG = "--llm-device-map"
LEFT_FOR_WEIGHTS = 0.9  # share of the free memory; the rest is for a cache, activations and the process
REFUSALS = {  # what transformers says of a map, and what that means; empty: it says so itself
    "device disk": "memory doesn't hold its largest layer",
    "llm_int8_enable_fp32_cpu_offload": "bitsandbytes runs on CUDA devices or on the CPU, not on both or from disk",
    "device_map": "",
}
UNFETCHED = re.compile(r"\bmeta\b|on the same device")  # what torch says of weights that lie elsewhere
TRIED_TOKENS = 3


def spread_choice(request: LoadRequest) -> dict[str, Any]:
    """The keywords for transformers' loading; none without --llm-device-map.

    Raises BackendUnavailable without accelerate, and InvalidSetting for a map that doesn't go with the model.
    """
    asked, source = request.settings.device_map, request.source
    if asked is None:
        return {}
    if missing := first_missing(["accelerate"]):
        raise BackendUnavailable(f"{FLAG} needs accelerate: pip install {missing}")
    if asked:
        module = without_weights(source.load_config(), source.trust_remote_code)
        return {"device_map": rows_of(module, asked), "offload_folder": request.offload}
    return {"device_map": "auto", "max_memory": _room(request.device), "offload_folder": request.offload}


def _room(device: Device) -> dict[object, int]:
    """Bytes of each device that weights may take. accelerate by itself knows no container's limit."""
    import torch

    names = device.names if device.kind is DeviceKind.CUDA else ()
    free = [(torch.device(name).index, torch.cuda.mem_get_info(name)[0]) for name in names]
    return {place: int(size * LEFT_FOR_WEIGHTS) for place, size in (*free, ("cpu", free_memory_bytes()))}


def rows_of(module: torch.nn.Module, asked: Mapping[str, int | str]) -> dict[str, int | str]:
    """A map by parts each of which lies in one place as a whole, as accelerate takes it.

    module: the model, with or without weights. asked: by name of a part, the whole model's being empty; the longest
    name that fits decides. Raises InvalidSetting.
    """
    weights = dict(module.named_parameters(remove_duplicate=False))
    names = {*dict(module.named_modules()), *weights}
    for name in asked:
        if name not in names:
            near = UnknownName("part of the model", name, names)
            raise InvalidSetting(f"{FLAG}: {str(near).partition(' Known:')[0]}")
    rows: dict[str, int | str] = {}

    def place(part: torch.nn.Module, name: str, where: int | str | None) -> None:
        where = asked.get(name, where)
        start = f"{name}." if name else ""
        if where is not None and not any(one != name and one.startswith(start) for one in asked):
            rows[name] = where
            return
        for inner, child in part.named_children():
            place(child, start + inner, where)
        for inner, _ in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
            found = asked.get(start + inner, where)
            if found is None:
                raise InvalidSetting(f'{FLAG}: no device for {start}{inner}; "" stands for all that isn\'t named')
            rows[start + inner] = found

    place(module, "", None)
    _check_ties(weights, rows)
    first, *others = set(rows.values())
    return rows if others else {"": first}


def _check_ties(weights: Mapping[str, torch.Tensor], rows: Mapping[str, int | str]) -> None:
    """Raise InvalidSetting for a weight of two layers that lies in two places; or on disk, which transformers 4 can't
    read it from."""
    first: dict[int, str] = {}
    for name, weight in weights.items():
        other = first.setdefault(id(weight), name)
        places = home_of(other, rows), home_of(name, rows)
        if other != name and (len({*places}) > 1 or DISK in places):
            raise InvalidSetting(f"{FLAG}: {other} and {name} are one weight; put both on the same device, not on disk")


def home_of(name: str, rows: Mapping[str, Any]) -> str:
    """Where the part of that name lies, as torch calls the place."""
    while name not in rows and name:
        name = name.rpartition(".")[0]
    place = rows[name]
    return f"cuda:{place}" if isinstance(place, int) else str(place)


def why_not_spread(request: LoadRequest, error: Exception) -> str:
    """Why transformers or a quantizer doesn't take the map; empty where there is none, and for another error."""
    said = next((words for words in REFUSALS if words in str(error)), None)
    if request.settings.device_map is None or said is None:
        return ""
    return f"{request.variant.id} can't be spread over devices: {REFUSALS[said] or first_line(error)}"


def bytes_by_device(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> dict[str, int]:
    """Bytes of a spread model's weights by place. tensors: of the module's weights those that count."""
    homes = _homes(module)
    found: dict[str, list[torch.Tensor]] = {}
    for tensor in tensors:
        found.setdefault(homes.get(id(tensor), str(tensor.device)), []).append(tensor)
    return {place: storage_bytes(those) for place, those in sorted(found.items())}


def layers_by_device(module: torch.nn.Module) -> dict[str, list[int]]:
    """Numbers of a spread model's layers by place; those that lie in several, under each."""
    from torch.nn import ModuleList

    homes = _homes(module)
    lists = (part for part in module.modules() if isinstance(part, ModuleList))
    layers = max(lists, key=lambda one: sum(weight.numel() for weight in one.parameters()), default=())
    found: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for place in {homes[id(weight)] for weight in layer.parameters()}:
            found.setdefault(place, []).append(number)
    return found


def _homes(module: torch.nn.Module) -> dict[int, str]:
    rows = getattr(module, "hf_device_map", {})
    weights = module.named_parameters()
    return {id(one): home_of(name, rows) if one.is_meta else str(one.device) for name, one in weights}


def where_in_words(sizes: Mapping[str, int], layers: Mapping[str, Sequence[int]]) -> str:
    """Label's words on the share of each place, and its layers. sizes: of all weights by place; empty where nobody
    asked to spread them."""
    total = sum(sizes.values())
    if len(sizes) < 2:
        return "".join(f", all on {place}" for place in sizes)
    shares = (f"{size / total:.0%} on {place}{_numbered(layers.get(place, ()))}" for place, size in sizes.items())
    return f", weights {', '.join(shares)}"


def _numbered(layers: Sequence[int]) -> str:
    """Layers in words, such as " (layers 0-3, 7)"; empty for none."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(layers), lambda one: one[1] - one[0])]
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f" (layer{'s' * (len(layers) > 1)} {shown})" if layers else ""


def refuse_unfetched(model: TransformersModel) -> TransformersModel:
    """Have each call raise BackendUnavailable where the model's own code takes weights from a layer that it doesn't
    call: accelerate fetches a layer's weights when the layer is called."""
    if model.facts.weight_bytes_by_device:
        running, kind = model.running, model.module.config.model_type
        model.running = lambda: _refusing(running, kind)
    return model


@contextmanager
def _refusing(running: Callable[[], AbstractContextManager[object]], kind: str) -> Iterator[None]:
    try:
        with running():
            yield
    except (NotImplementedError, RuntimeError) as error:
        if not UNFETCHED.search(str(error)):
            raise
        why = f"their code uses weights that accelerate has not fetched ({first_line(error)})"
        raise BackendUnavailable(f"{kind} models can't be spread over devices: {why}") from error


def check_fetched(model: Model) -> None:
    """Generate a few tokens. Raises BackendUnavailable where weights are used that were not fetched.

    torch raises no error for some products of a tensor and one without numbers, and what comes out is wrong.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
            if any(one.is_meta for one in given) and any(one.dim() and not one.is_meta for one in given):
                raise NotImplementedError(f"{func} gets weights on meta, which were not fetched")
            return func(*args, **(kwargs or {}))

    ids = torch.ones(1, TRIED_TOKENS, dtype=torch.int64, device=model.device.name)
    with Watch():  # type: ignore[no-untyped-call]
        model.generate(ids, torch.ones_like(ids), TRIED_TOKENS, CacheKind.DYNAMIC)


def fetch_all(module: Any, place: str) -> None:
    """Fetch all weights that lie in the place, layer by layer, as a forward pass does."""
    for name, part in module.named_modules():
        hook: Any = getattr(part, "_hf_hook", None)
        for one in getattr(hook, "hooks", (hook,)):
            if getattr(one, "offload", False) and home_of(name, module.hf_device_map) == place:
                one.pre_forward(part)
                fault_in(list(part.parameters(recurse=False)))
                one.post_forward(part, None)
