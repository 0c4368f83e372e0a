"""What the first run on a GPU does in processes of its own, each of which prints one line of JSON last.

The plain loop's model, prompt, cache and clocks are torch's and transformers' own, as the suite's figures are compared
with it.

    python tools/gpu_children.py facts|plain|limits --device cuda:0 ...
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
COPY_BYTES = 4 << 30
MATRIX_ROWS = 8192
WARMUPS, REPEATS = 3, 10
SMALL = 64  # times smaller is all of that on a CPU


def facts(device: str) -> dict[str, Any]:
    import torch
    import transformers

    told: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "device": device,
        "name": platform.processor() or platform.machine(),
    }
    if device != "cpu":
        properties = torch.cuda.get_device_properties(device)
        told |= {"name": torch.cuda.get_device_name(device), "memory_bytes": properties.total_memory}
        told["driver"] = _driver()
    return told


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"not told: {error}"


def plain(device: str, folder: Path, variants: list[str], prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
    """Figures by variant: seconds to the first token and per further one, of a loop and of `generate`, and the peak's
    bytes."""
    return {name: _plain_variant(device, folder, DTYPES[name], prompt_tokens, new_tokens) for name in variants}


def _plain_variant(device: str, folder: Path, dtype: str, prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind = getattr(torch, dtype)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=kind).eval()
        ids = torch.arange(1, prompt_tokens + 1).unsqueeze(0)
    with torch.inference_mode():
        for _ in range(WARMUPS):
            _loop(model, ids, new_tokens, device)
        if device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        rounds = [_loop(model, ids, new_tokens, device) for _ in range(REPEATS)]
        peak = torch.cuda.max_memory_allocated(device) if device != "cpu" else None
        first_s, all_s = (_generate_s(model, ids, count, device) for count in (1, new_tokens))
    del model
    if device != "cpu":
        torch.cuda.empty_cache()
    return {
        "ttft_s": statistics.median(times[0] for times in rounds),
        "tpot_s": statistics.median((times[-1] - times[0]) / (new_tokens - 1) for times in rounds),
        "generate_ttft_s": first_s,
        "generate_tpot_s": (all_s - first_s) / (new_tokens - 1),
        "peak_bytes": peak,
    }


def _loop(model: Any, ids: Any, new_tokens: int, device: str) -> list[float]:
    """Seconds from the start to each token. On CUDA they are the times of events, read when all is over."""
    marks = [_mark(device)]
    fed, cache = ids, None
    for _ in range(new_tokens):
        output = model(input_ids=fed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        fed, cache = output.logits[:, -1:].argmax(-1), output.past_key_values
        marks.append(_mark(device))
    first, *later = marks
    if device == "cpu":
        return [mark - first for mark in later]
    later[-1].synchronize()
    return [first.elapsed_time(mark) / 1e3 for mark in later]


def _mark(device: str) -> Any:
    import torch

    if device == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _generate_s(model: Any, ids: Any, new_tokens: int, device: str) -> float:
    """Median seconds of transformers' own loop, by the host's clock and with nothing called for each token."""
    import torch

    from llm_bench_fixtures.models.transformers import NO_TOKEN

    more = {"eos_token_id": NO_TOKEN, "max_new_tokens": new_tokens, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(ids)
    times = [_timed(lambda: model.generate(ids, attention_mask=mask, **more), device) for _ in range(1 + REPEATS)]
    return statistics.median(times[1:])


def _timed(work: Callable[[], object], device: str) -> float:
    _synchronize(device)
    started = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - started


def _synchronize(device: str) -> None:
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def limits(device: str) -> dict[str, Any]:
    """Limits that the package measures, and next to them a copy within the device and a product of random numbers."""
    from llm_bench_fixtures.measure.limits import measure_limits
    from llm_bench_fixtures.models.device import resolve_device
    from llm_bench_fixtures.models.variants import Precision

    found = measure_limits(resolve_device(device), Precision, budget_s=4.0)
    return {
        "read_bytes_per_s": found.read_bytes_per_s,
        "matmul_flops_per_s": {precision.value: rate for precision, rate in found.matmul_flops_per_s.items()},
        "copy_bytes_per_s": _copy_rate(device),
        "plain_flops_per_s": {dtype: _product_rate(device, dtype) for dtype in DTYPES.values()},
    }


def _copy_rate(device: str) -> float:
    """Bytes read and bytes written, both counted."""
    import torch

    count = COPY_BYTES // (SMALL if device == "cpu" else 1)
    source = torch.randint(255, (count,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [_timed(lambda: target.copy_(source), device) for _ in range(WARMUPS + REPEATS)]
    return 2 * count / min(times[WARMUPS:])


def _product_rate(device: str, dtype: str) -> float:
    import torch

    size = MATRIX_ROWS // (16 if device == "cpu" else 1)
    left, right = (torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2))
    times = [_timed(lambda: torch.mm(left, right), device) for _ in range(WARMUPS + REPEATS)]
    return 2 * size**3 / min(times[WARMUPS:])


@contextmanager
def _quiet() -> Iterator[None]:
    from llm_bench_fixtures.models.quiet import quiet_libraries

    with quiet_libraries():
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("facts", "plain", "limits"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", type=Path, help="a folder with a config.json")
    parser.add_argument("--variants", default=",".join(DTYPES))
    parser.add_argument("--prompt-tokens", type=int)
    parser.add_argument("--new-tokens", type=int)
    given = parser.parse_args()
    if given.what == "plain" and None in (given.model, given.prompt_tokens, given.new_tokens):
        parser.error("plain: give --model, --prompt-tokens and --new-tokens")
    with _quiet():
        if given.what == "facts":
            told = facts(given.device)
        elif given.what == "limits":
            told = limits(given.device)
        else:
            told = plain(given.device, given.model, given.variants.split(","), given.prompt_tokens, given.new_tokens)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
