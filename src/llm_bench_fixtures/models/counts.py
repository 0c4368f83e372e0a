"""How much a model's config asks for, told from its numbers' names, before anything is made of it.

Layers and experts are made one by one, and some tables number by number: with numbers that are large enough this has
no end, also where nothing takes memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llm_bench_fixtures.errors import CandidateFailed

MOST_PARTS = 20_000  # layers, or experts of a layer: the largest published models have some hundreds
MOST_EXPERTS = 100_000  # in all layers: the largest published models have some 25,000
MOST_POSITIONS = 2**24  # the largest published models have 10 million

LAYERS = frozenset({"layer", "layers", "depth", "depths"})
EXPERTS = frozenset({"expert", "experts"})
PARTS = LAYERS | EXPERTS | {"block", "blocks", "stage", "stages", "group", "groups", "head", "heads", "networks"}
POSITIONS = frozenset({"positions", "position", "ctx"})
COUNT = frozenset({"n", "num"})


def check_counts(config: object) -> None:
    """Raise CandidateFailed for a config, as its file has it, that asks for more than any model that there is."""
    layers = experts = 0
    for name, count in _integers(config):
        words = name.lower().split("_")
        if _counts(words, PARTS):
            _check(name, count, MOST_PARTS)
        if POSITIONS & {*words}:
            _check(name, count, MOST_POSITIONS)
        layers = max(layers, count if _counts(words, LAYERS) else 0)
        experts = max(experts, count if _counts(words, EXPERTS) else 0)
    _check("experts in all layers", layers * experts, MOST_EXPERTS)


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise CandidateFailed(f"its config asks for {what} of {count:,}, and {most:,} are the most")


def _counts(words: list[str], things: frozenset[str]) -> bool:
    """Whether a name of these words says how many of the things there are: num_hidden_layers, moe_num_experts,
    decoder_layers, zero_expert_num; but neither block_size nor vocab_size_per_layer_input."""
    return words[-1] in things or (bool(COUNT & {words[0], words[-1]}) and bool(things & {*words}))


def _integers(value: object, name: str = "") -> Iterator[tuple[str, int]]:
    """Those of the config, its parts and its lists, each with its name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _integers(inner, str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _integers(inner, name)
    elif isinstance(value, (int, float)) and abs(value) < float("inf"):
        yield name, int(value)
