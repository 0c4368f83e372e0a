"""Graphs that transformers 5 exports by itself, where Optimum isn't installed, and a model that generates with one.

Imported where it is used only, as its class has one of transformers' for a base.
"""

from __future__ import annotations

import logging
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from llm_bench_fixtures.models.backends.onnx_graphs import ONE_FILE_LIMIT_BYTES

PAST = "past_key_values."  # in the names of the cache's inputs and outputs


def export(module: Any, folder: Path) -> None:
    """Write a model of transformers' that generates greedily, as one graph for prompts and for steps on a cache."""
    import onnx_ir
    from transformers.exporters import OnnxConfig, OnnxExporter, exporter_dynamo
    from transformers.exporters.utils import decompose_for_generation

    logging.getLogger(exporter_dynamo.__file__).setLevel(logging.ERROR)  # so named, and not below "transformers"
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])  # without padding the graph would have no mask
    sample = {"input_ids": torch.ones_like(mask), "attention_mask": mask}
    decoder, inputs = decompose_for_generation(module, sample, multi_token_decode=True)["decode"]
    with redirect_stdout(StringIO()):
        graph = OnnxExporter().export(decoder, inputs, OnnxConfig(dynamic=True)).program
    size = sum(value.const_value.nbytes for value in graph.graph.initializers.values())
    onnx_ir.save(graph, folder / "model.onnx", "model.onnx_data" if size > ONE_FILE_LIMIT_BYTES else None)
    module.config.save_pretrained(folder)


class GraphModel(PreTrainedModel, GenerationMixin):  # type: ignore[misc]  # transformers' types are not followed
    """Generates with transformers' loop over a session on a CPU. Its cache is a list of tensors."""

    main_input_name = "input_ids"
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, graph: Path, session: Any) -> None:
        super().__init__(AutoConfig.from_pretrained(graph.parent, attn_implementation="eager"))
        self.path, self.model_save_dir, self.session = graph, graph.parent, session
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [value.name for value in session.get_outputs()]
        self._sizes = [(value.shape[1], value.shape[3]) for value in session.get_outputs() if PAST in value.name]

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Whether `generate` is to make a cache of its own."""
        return False

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: list[torch.Tensor] | None = None,
        use_cache: bool = True,
        **_: Any,
    ) -> Any:
        rows, width = input_ids.shape
        if past_key_values is None:
            past_key_values = [torch.zeros(rows, heads, 0, size) for heads, size in self._sizes]
        before = past_key_values[0].shape[2]
        if attention_mask is None:  # as `generate` leaves it where nothing is padded
            attention_mask = torch.ones(rows, before + width, dtype=torch.int64)
        if position_ids is None:
            position_ids = torch.arange(before, before + width).expand(rows, width)
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        given |= zip((name for name in self._inputs if PAST in name), past_key_values, strict=True)
        feed = {name: value.numpy() for name, value in given.items() if name in self._inputs}
        made = self.session.run(self._outputs if use_cache else self._outputs[:1], feed)
        logits, *present = map(torch.from_numpy, made)
        return CausalLMOutputWithPast(logits=logits, past_key_values=present or None)
