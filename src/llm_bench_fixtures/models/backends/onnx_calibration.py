"""Activation ranges for static quantization, from what the model is really fed while it generates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import QualityCollapsed
from llm_bench_fixtures.models.transformers import prepare_for_greedy

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedTokenizerBase

Feed: TypeAlias = "dict[str, np.ndarray[Any, Any]]"

PROMPTS = 16
PROMPT_TOKENS = 64
NEW_TOKENS = 8
KL_LIMIT = 0.1  # nats per token, mean over the feeds that are checked


def recipe(texts: Sequence[str]) -> str:
    """Names the calibration: another text or other counts give another name."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return (
        f"{PROMPTS} x {PROMPT_TOKENS}+{NEW_TOKENS} tokens, none of which ends a text, of {digest}, KL below {KL_LIMIT}"
    )


def record_feeds(module: Any, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[Feed]:
    """The inputs of every forward pass of real `generate` calls: each prompt's prefill, then its decode steps."""
    import torch

    prepare_for_greedy(module, tokenizer)
    session = module.session
    recorder = _Recorder(session)
    module.session = recorder
    try:
        for prompt in _prompts(tokenizer, texts):
            ids = torch.tensor([prompt])
            module.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS)
    finally:
        module.session = session
    return recorder.feeds


def checked(feeds: Sequence[Feed]) -> list[Feed]:
    """Feeds of each prompt's prefill and last step, which are enough to see a broken model."""
    return [feed for place, feed in enumerate(feeds) if place % NEW_TOKENS in (0, NEW_TOKENS - 1)]


class _Recorder:
    """Stands in for an inference session and keeps a copy of what it is fed."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.feeds: list[Feed] = []

    def run(self, outputs: Any, feed: Feed) -> Any:
        self.feeds.append({name: value.copy() for name, value in feed.items()})
        return self._session.run(outputs, feed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def _prompts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Equal stretches from all over the texts."""
    ids = [token for text in texts for token in tokenizer(text, verbose=False)["input_ids"]]
    step = max((len(ids) - PROMPT_TOKENS) // PROMPTS, 1)
    return [ids[start : start + PROMPT_TOKENS] for start in range(0, step * PROMPTS, step)]


def tensor_ranges(graph: Path, feeds: Sequence[Feed], scratch: Path, operators: list[str]) -> Any:
    """The least and the largest value of each activation over the feeds, as ONNX Runtime's quantizer takes them."""
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    reader = SimpleNamespace(get_next=partial(next, iter(feeds), None))
    with TemporaryDirectory(dir=scratch) as folder:  # for the graph, and its weights under a name of the library's own
        calibrator = create_calibrator(
            graph,
            op_types_to_calibrate=operators,
            augmented_model_path=str(Path(folder, "augmented.onnx")),
            calibrate_method=CalibrationMethod.MinMax,
            use_external_data_format=graph.with_suffix(".onnx_data").exists(),
            extra_options={"symmetric": False},
        )
        calibrator.collect_data(reader)
        return calibrator.compute_data()


def check_close(reference: Any, quantized: Any, feeds: Sequence[Feed]) -> None:
    """Raise QualityCollapsed where the quantized session's next-token distributions are far from the reference's."""
    divergence = sum(_divergence(reference, quantized, feed) for feed in feeds) / len(feeds)
    if not divergence < KL_LIMIT:
        raise QualityCollapsed(
            f"static quantization broke the model: KL divergence from float32 of {divergence:.3f} nats per token over "
            f"the calibration text, more than {KL_LIMIT}"
        )


def _divergence(reference: Any, quantized: Any, feed: Feed) -> float:
    """Mean over the feed's positions of KL(reference || quantized), in nats."""
    import torch

    logits = [torch.from_numpy(session.run(["logits"], feed)[0]) for session in (reference, quantized)]
    p, q = (torch.log_softmax(values.double(), dim=-1) for values in logits)
    return float((p.exp() * (p - q)).sum(-1).mean())
