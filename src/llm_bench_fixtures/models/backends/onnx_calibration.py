"""Activation ranges for static quantization, from what the model is really fed while it generates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import QualityCollapsed
from llm_bench_fixtures.models.backends.onnx_graphs import PROVIDERS, session_options
from llm_bench_fixtures.models.transformers import prepare_for_greedy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
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


@dataclass(frozen=True)
class Pass:
    """A forward pass in float32."""

    feed: Feed
    logits: NDArray[np.float32]
    """(1, T, V)"""


def calibrate(
    module: Any,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    graph: Path,
    scratch: Path,
    operators: list[str],
) -> tuple[Any, list[Pass]]:
    """Ranges of the activations, and what tells whether the quantized model still works.

    The ranges, as ONNX Runtime's quantizer takes them, are over all forward passes of real `generate` calls: each
    prompt's prefill, and its decode steps. The passes are each prompt's prefill and last step.

    module: generates over the graph, and gets its session back. scratch: a folder for files of that size. operators:
    their inputs' and outputs' ranges are found.
    """
    import torch
    from onnxruntime import InferenceSession
    from onnxruntime.quantization.calibrate import MinMaxCalibrater

    prepare_for_greedy(module, tokenizer)
    session, weights = module.session, graph.with_suffix(".onnx_data")
    files = [path for path in (graph, weights) if path.exists()]
    with TemporaryDirectory(dir=scratch) as folder:
        copies = [Path(copyfile(path, Path(folder, path.name))) for path in files]  # the library writes next to them
        augmented = str(Path(folder, "augmented.onnx"))
        calibrator = MinMaxCalibrater(copies[0], operators, augmented, use_external_data_format=len(copies) > 1)
        for path in copies:
            path.unlink()
        calibrator.augment_graph()
        del calibrator.model  # it holds the weights
        # The library's own session is not optimized, and transposes tied weights in each run.
        calibrator.infer_session = InferenceSession(augmented, session_options(), [PROVIDERS["cpu"]])
        module.session = recorder = _Recorder(calibrator)
        try:
            for prompt in _prompts(tokenizer, texts):
                ids = torch.tensor([prompt])
                module.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS)
        finally:
            module.session = session
        return calibrator.compute_data(), recorder.checked


class _Recorder:
    """Stands in for an inference session: runs the calibrator's, which gives the ranges, too."""

    def __init__(self, calibrator: Any) -> None:
        self._calibrator = calibrator
        self._outputs = [output.name for output in calibrator.infer_session.get_outputs()]
        self._runs = 0
        self.checked: list[Pass] = []

    def run(self, outputs: Sequence[str] | None, feed: Feed) -> Any:
        found = dict(zip(self._outputs, self._calibrator.infer_session.run(None, feed), strict=True))
        own = self._calibrator.model_original_outputs
        self._calibrator.intermediate_outputs.append([None if name in own else found[name] for name in self._outputs])
        if self._runs % NEW_TOKENS in (0, NEW_TOKENS - 1):
            self.checked.append(Pass({name: value.copy() for name, value in feed.items()}, found["logits"].copy()))
        self._runs += 1
        return [found[name] for name in outputs or (name for name in self._outputs if name in own)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calibrator.infer_session, name)


def _prompts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Equal stretches from all over the texts."""
    ids = [token for text in texts for token in tokenizer(text, verbose=False)["input_ids"]]
    step = max((len(ids) - PROMPT_TOKENS) // PROMPTS, 1)
    return [ids[start : start + PROMPT_TOKENS] for start in range(0, step * PROMPTS, step)]


def check_close(passes: Sequence[Pass], quantized: Any) -> None:
    """Raise QualityCollapsed where the quantized session's next-token distributions are far from those in float32."""
    divergence = sum(_divergence(one, quantized) for one in passes) / len(passes)
    if not divergence < KL_LIMIT:
        raise QualityCollapsed(
            f"static quantization broke the model: KL divergence from float32 of {divergence:.3f} nats per token over "
            f"the calibration text, more than {KL_LIMIT}"
        )


def _divergence(reference: Pass, quantized: Any) -> float:
    """Mean over the pass' positions of KL(reference || quantized), in nats."""
    import torch

    logits = map(torch.from_numpy, (reference.logits, quantized.run(["logits"], reference.feed)[0]))
    p, q = (torch.log_softmax(values.double(), dim=-1) for values in logits)
    return float((p.exp() * (p - q)).sum(-1).mean())
