"""How much the mode of running a model moves its logits: what the tolerances of the equivalence checks stand on.

For each model, variant and mode it prints the largest gap over all prompts, in logit scales, and how many of the texts
changed. The models: the embedded one, and a GPT-2 and a Llama of four layers with random weights, once as initialized
and once with the last layer's input made twenty times as large, so that a few tokens stand out as in a trained model.

    python tools/measure_equivalence.py [VARIANT,...]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from embedded import request_of
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from llm_bench_fixtures.errors import BackendUnavailable, WorkloadUnsupported
from llm_bench_fixtures.measure.equivalence import EquivalenceCheck, ExecutionMode
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import select_variants
from llm_bench_fixtures.workloads import Prompts

PROMPTS = 8
NEW_TOKENS = 16
SHARPER = 20.0


def random_models(folder: Path) -> Iterator[ModelSource]:
    tokenizer = ModelSource(TINY, TINY_FOLDER).load_tokenizer()
    common: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    configs = {
        "random gpt2": GPT2Config(n_layer=4, n_embd=384, n_head=6, **common),
        "random llama": LlamaConfig(
            hidden_size=384,
            intermediate_size=1024,
            num_hidden_layers=4,
            num_attention_heads=6,
            max_position_embeddings=1024,
            **common,
        ),
    }
    for name, config in configs.items():
        for sharper in (1.0, SHARPER):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config)
            last_norm = model.transformer.ln_f if "gpt2" in name else model.model.norm
            last_norm.weight.data *= sharper
            title = name if sharper == 1.0 else f"{name}, sharper"
            model.save_pretrained(folder / title)
            tokenizer.save_pretrained(folder / title)
            yield ModelSource(title, folder / title)


def measure(model: TransformersModel, name: str) -> None:
    prompts = Prompts(model.tokenizer).varied(PROMPTS)
    comparison = EquivalenceCheck(model, prompts, NEW_TOKENS)
    for mode in ExecutionMode:
        row = f"{model.facts.tolerance:<9.0e} {model.variant.id:17s} {name:22s} {mode:13s}"
        try:
            changes = comparison.changes(mode)
        except (WorkloadUnsupported, RuntimeError) as error:
            print(row, f"{type(error).__name__}: {error}")
            continue
        different = sum(change.token is not None for change in changes)
        print(f"{row} {max(change.share for change in changes):.1e}  {different}", flush=True)


def main(variants: str) -> None:
    print(f"{'tolerance':9s} {'variant':17s} {'model':22s} {'mode':13s} largest  texts changed of {PROMPTS}")
    with tempfile.TemporaryDirectory() as folder:
        store = ArtifactStore(Path(folder) / "store")
        sources = [ModelSource(TINY, TINY_FOLDER), *random_models(Path(folder))]
        for variant in select_variants(variants, CATALOGUE, "fp32"):
            for source in sources:
                try:
                    model = load_variant(request_of(variant, source, store)).model
                except BackendUnavailable as error:
                    print(f"{variant.id}: {error}")
                    break
                with quiet_libraries():
                    measure(model, source.name)
                model.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
