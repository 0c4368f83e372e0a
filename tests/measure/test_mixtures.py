"""Mixtures of experts: what one position uses of them is counted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from families import BY_NAME, IS_TRANSFORMERS_5
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from llm_bench_fixtures.measure.flops import FlopCounter
from llm_bench_fixtures.measure.work import observe_round
from llm_bench_fixtures.models.architecture import footprint_of
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.peculiarities import expert_count, routed_parts
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.weights import bytes_read_by_forward
from llm_bench_fixtures.workloads import Workload

WIDTH, INNER, EXPERT_INNER = 64, 128, 64
GATED = 3  # matrices of an expert: gate, up and down
QWEN2_MOE = {
    **{name: value for name, value in BY_NAME["qwen3_moe"].config.items() if name != "head_dim"},
    "model_type": "qwen2_moe",
    "shared_expert_intermediate_size": 64,
}
GPT_OSS_EXPERT = WIDTH * 2 * INNER + 2 * INNER + INNER * WIDTH + WIDTH  # with its biases

# By model, its config and the weights of the experts that a position does not use: unused ones of a layer x layers of
# experts x weights of an expert.
MIXTURES: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "mixtral": (BY_NAME["mixtral"].config, 2 * 2 * GATED * WIDTH * INNER),
    "qwen2_moe": (QWEN2_MOE, 2 * 2 * GATED * WIDTH * EXPERT_INNER),
    "qwen3_moe": (BY_NAME["qwen3_moe"].config, 2 * 2 * GATED * WIDTH * EXPERT_INNER),
    "one dense layer, shared experts": (BY_NAME["deepseek_v2"].config, 2 * 1 * GATED * WIDTH * EXPERT_INNER),
    "deepseek_v3": (BY_NAME["deepseek_v3"].config, 2 * 1 * GATED * WIDTH * EXPERT_INNER),
    "biases": ({**BY_NAME["gpt_oss"].config, "num_experts_per_tok": 1}, 3 * 2 * GPT_OSS_EXPERT),
    "granitemoehybrid": (BY_NAME["granitemoehybrid"].config, 2 * 2 * GATED * WIDTH * INNER),
    "every other layer": (BY_NAME["jamba"].config, 2 * 1 * GATED * WIDTH * INNER),
    "llama4_text": (BY_NAME["llama4_text"].config, 3 * 2 * GATED * WIDTH * INNER),
}
PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23))


def config_of(name: str) -> PretrainedConfig:
    return AutoConfig.for_model(**MIXTURES[name][0])


def module_of(config: PretrainedConfig) -> Any:
    """With experts that are multiplied by plain products, which torch can count."""
    plain = {"experts_implementation": "eager"} if IS_TRANSFORMERS_5 else {}
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", **plain).eval()


@pytest.mark.parametrize("name", MIXTURES)
def test_a_position_uses_and_reads_the_experts_that_its_router_chooses(name: str) -> None:
    module, unused = module_of(config_of(name)), MIXTURES[name][1]
    everything = sum(weight.numel() for weight in module.parameters())
    table = module.get_input_embeddings().weight
    looked_up = 0 if table is module.get_output_embeddings().weight else table.numel()
    unread = 0 if name == "llama4_text" else unused  # whose code multiplies all experts
    assert bytes_read_by_forward(module) == (4 * (everything - looked_up - unread), 4 * (everything - looked_up))
    footprint = footprint_of(module)
    assert footprint.active_weights == everything - unused
    assert footprint.notes == (
        f"a mixture of experts: each position uses {everything - unused:,} of its {everything:,} weights",
    )


@pytest.mark.parametrize("name", MIXTURES)
def test_its_flops_are_what_torch_counts_while_it_runs(
    name: str, model_around: Callable[[Any], TransformersModel]
) -> None:
    """Two rows of unlike prompts, and two steps after the first: 2 x 7 + 2 + 2 positions. Llama 4's code alone
    multiplies each position with all experts."""
    config = config_of(name)
    workload = Workload(PROMPTS, new_tokens=3, batch_size=2)
    with quiet_libraries():
        flops = FlopCounter(config)
        found = flops.round(workload)
        model = model_around(module_of(config))
        with FlopCounterMode(display=False) as counter:
            observe_round(model, workload)
    assert found is not None, flops.reason
    multiplied_for_nothing = 2 * 18 * MIXTURES[name][1] if name == "llama4_text" else 0
    assert found.prefill + found.decode == counter.get_total_flops() - multiplied_for_nothing


def test_the_flops_of_a_step_are_those_derived_by_hand() -> None:
    """Mixtral: four attention matrices, of which two have half the heads, the router, and two experts of three matrices
    in each of two layers; the output layer; and two products with each of the 8 positions attended to."""
    config = config_of("mixtral")
    layer = 3 * WIDTH**2 + WIDTH * 4 + 2 * GATED * WIDTH * INNER
    attended = 2 * 2 * WIDTH * 8
    after_seven = FlopCounter(config).round(Workload(((1,) * 7,), new_tokens=2, batch_size=1))
    first = FlopCounter(config).round(Workload(((1,),), new_tokens=1, batch_size=1))
    assert after_seven is not None
    assert first is not None
    step = after_seven.decode
    assert step - first.prefill == 2 * 2 * 2 * WIDTH * 7
    angles = step - 2 * (2 * layer + WIDTH * config.vocab_size + attended)
    assert angles in (0, 2 * 16 // 2)  # of rotary positions, a product in transformers 4


def test_a_mixture_that_is_not_known_is_not_counted() -> None:
    """Neither in bytes nor in FLOPs: all of its experts would be taken for what each position uses."""

    class Unknown(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = config_of("mixtral")
            self.specialists = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(4)])

    module = Unknown()
    assert expert_count(module.config) == 4
    assert routed_parts(module) is None
    assert bytes_read_by_forward(module) == (None, None)
    assert footprint_of(module).active_weights is None
    assert footprint_of(module).notes == ()


def test_quantized_experts_are_read_as_they_are_stored(make_request: Callable[..., LoadRequest], tmp_path: Any) -> None:
    """Half of the experts' bytes are read for one position, of their scales too, where there are any."""
    pytest.importorskip("bitsandbytes")
    with quiet_libraries():
        source: ModelSource = BY_NAME["mixtral"].build(tmp_path)
        model = load_variant(make_request("bnb-nf4", source)).model
    facts, routed = model.facts, routed_parts(model.module)
    assert routed is not None
    assert facts.weight_bytes_most == facts.weight_bytes - 4 * WIDTH * 4096
    packed = sum(weight.nbytes for one in routed for weight in one.part.parameters())
    unread = facts.weight_bytes_most - facts.weight_bytes_read
    assert packed / 2 <= unread < packed
