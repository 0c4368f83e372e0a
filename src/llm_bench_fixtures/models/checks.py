"""Whether a folder holds a model that can be loaded and looks back only: what it says of a position must not depend on
the tokens after it. Each check raises CandidateFailed with the reason.

How much a config asks for is read from its numbers' names, before anything is made of it: layers and experts are made
one by one, and some tables number by number, which with large enough numbers has no end, also where nothing takes
memory.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from llm_bench_fixtures.errors import BackendUnavailable, CandidateFailed, NotCausal, first_line, reason_of
from llm_bench_fixtures.models import files
from llm_bench_fixtures.models.architecture import Footprint, check_architecture
from llm_bench_fixtures.models.conversion import logits_of
from llm_bench_fixtures.models.variants import parse_precision, tolerance_of
from llm_bench_fixtures.processes.memory import free_memory_bytes
from llm_bench_fixtures.workloads import MANY_LINES, ODD_UNICODE, STANDARD_PROMPTS, read_corpus

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.models.source import ModelSource

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
    for names, value in files.values_in(config):
        if not names or not isinstance(value, (int, float)) or not abs(value) < math.inf:
            continue
        name, count = names[-1], int(value)
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


REASON = (
    "its last token changes what it says after the first: it reads a text from both sides, as BERT does, or its code "
    "doesn't mask what comes later; measured here are causal models, which continue a text"
)
# Share of the tolerance for two ways to run a text. Here it runs in one way, so only a mixture of experts, which groups
# what it multiplies by its tokens, sums in another order (1e-6 in float32, measured).
SHARE_OF_TOLERANCE = 0.1


def check_causal(model: Model) -> None:
    """Raise NotCausal for a model that looks ahead, by two forward passes over two tokens; BackendUnavailable for one
    that can't run here.

    A model that multiplies integers isn't asked, as the scales of its activations depend on all tokens.
    """
    import torch

    facts = model.facts
    if facts.compute is None:
        return
    try:
        found = looks_ahead(
            lambda ids: model.logits(ids, torch.ones_like(ids)), facts.vocabulary, model.device.name, facts.tolerance
        )
    except BackendUnavailable:
        raise
    except Exception:  # a model that can't be asked this is left to what measures it, which says why
        return
    if found:
        raise NotCausal(REASON)


def looks_ahead(logits: Callable[[torch.Tensor], torch.Tensor], vocabulary: int, device: str, tolerance: float) -> bool:
    """Whether the last token changes the logits of the first position beyond float error.

    logits: gives (B, T, V) for (B, T) token ids. tolerance: of the model's arithmetic, in standard
    deviations of the logits.
    """
    import torch

    def of_first(last: int) -> torch.Tensor:
        return logits(torch.tensor([[vocabulary // 2, last]], device=device))[0, 0].float()

    one, other = of_first(vocabulary // 3), of_first(vocabulary // 3 + 1)
    return bool((one - other).abs().max() > SHARE_OF_TOLERANCE * tolerance * one.std())


T = TypeVar("T")
Tell: TypeAlias = Callable[[str], None]
"""Is told which part of the model is read next, by its name."""
Check: TypeAlias = "Callable[[ModelSource, Tell], Footprint]"

MOST_GROWTH = 100  # tokens of a byte of text, or characters of it there and back: bytes alone make one


def here(source: ModelSource, check: Check) -> Footprint:
    """Check in this process."""
    return check(source, lambda _: None)


def check_usable(source: ModelSource, examine: Callable[[ModelSource, Check], Footprint] = here) -> Footprint:
    """Footprint of the model of a source whose tokenizer, config and weights can be read and fit each other.

    examine: makes the check of what libraries have to read. Raises CandidateFailed; UntrustedCode where its own code
    would have to run, and isn't allowed to.
    """
    files.check_files(source.folder)
    files.check_trusted(source.folder, source.trust_remote_code)
    check_counts(files.read_config(source.folder))
    files.check_own_weights(source.folder)
    footprint = examine(source, check_parts)
    check_weights(source.folder)
    return footprint


def check_parts(source: ModelSource, tell: Tell) -> Footprint:
    """Footprint of the model of a source whose tokenizer and config can be used."""
    tell("config")
    config: PretrainedConfig = _loaded("config", source.load_config)
    tell("tokenizer")
    tokenizer: PreTrainedTokenizerBase = _loaded("tokenizer", source.load_tokenizer)
    rows = getattr(config.get_text_config(), "vocab_size", None)
    _check_tokenizer(tokenizer, _number("its config's vocab_size", rows))
    tell("config")
    return check_architecture(config, source.trust_remote_code)


def _number(what: str, value: object) -> int:
    """The value, if it is a whole number above 0. Raises CandidateFailed."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CandidateFailed(f"{what} is {files.shown(repr(value))}, and has to be a number above 0")
    return value


def check_shape(source: ModelSource, tell: Tell) -> Footprint:
    """Footprint of a model of the source's config; nothing else of it is read."""
    tell("config")
    return check_architecture(_loaded("config", source.load_config), source.trust_remote_code)


def _loaded(what: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except Exception as error:  # what transformers, tokenizers and remote code raise has no narrower base
        raise files.unusable(what, error) from error


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """rows: of the model's embedding."""
    longest = tokenizer.model_max_length  # a number beyond all lengths by default
    if not isinstance(longest, float):
        _number("its tokenizer's model_max_length", longest)
    if len(set(tokenizer("Once upon a time")["input_ids"])) < 2:  # transformers 5 makes an empty one from no files
        raise CandidateFailed("no usable tokenizer: it doesn't tell words apart; are its files in the folder?")
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise CandidateFailed(
            f"its tokenizer produces ids up to {largest} (vocabulary of {largest + 1}), its embedding has {rows} rows"
        )
    if tokenizer.pad_token_id is None:
        raise CandidateFailed("its tokenizer has no special token that could serve as padding")
    _loaded("tokenizer", lambda: _check_growth(tokenizer))


def _check_growth(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise CandidateFailed for a tokenizer that makes far more of a run's texts than any does, there or back.

    One that puts ten letters for one, some times over, would take all memory.
    """
    for text in (*STANDARD_PROMPTS, MANY_LINES, ODD_UNICODE, *read_corpus(None).texts):
        ids = tokenizer(text, verbose=False)["input_ids"]
        again = tokenizer.decode(ids[: len(text)])
        if max(len(ids), len(again)) > MOST_GROWTH * len(text.encode()):
            raise CandidateFailed(f"it makes {len(ids):,} tokens, or {len(again):,} characters, of {len(text):,}")


def check_loads(source: ModelSource) -> None:
    """Raise CandidateFailed unless the whole model can be loaded, in the dtype that its files have."""
    stored = files.safetensors_files(source.folder) or files.pickle_files(source.folder)
    check_fits(sum(path.stat().st_size for path in stored) + source.footprint.buffer_bytes)
    try:
        module = source.load_model(dtype="auto")
    except Exception as error:  # what transformers and remote code raise has no narrower base
        raise CandidateFailed(f"it can't be loaded: {reason_of(error)}") from error
    tolerance, vocabulary = tolerance_of(parse_precision(str(module.dtype))), module.config.get_text_config().vocab_size
    if looks_ahead(partial(logits_of, module), vocabulary, "cpu", tolerance):
        raise NotCausal(REASON)


def check_fits(needed: int) -> None:
    """Raise CandidateFailed for more bytes than memory has free."""
    free = free_memory_bytes()
    if needed > free:
        raise CandidateFailed(f"out of memory: it takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")


def check_room(weight_bytes: int, buffer_bytes: int, folder: Path) -> None:
    """Raise CandidateFailed where memory or the folder's disk has no room for weights that are to be made there."""
    check_fits(weight_bytes + buffer_bytes)
    free = shutil.disk_usage(folder).free
    if weight_bytes > free:
        raise CandidateFailed(
            f"no room for {weight_bytes / 1e9:.1f} GB of weights, {free / 1e9:.1f} GB are free where {folder} is; "
            "--llm-cache-dir names another place"
        )


def check_weights(folder: Path) -> None:
    """Raise CandidateFailed unless the folder holds whole safetensors files, or PyTorch checkpoints of tensors only."""
    from safetensors import SafetensorError, safe_open

    shards = files.safetensors_files(folder)
    pickles = [] if shards else files.pickle_files(folder)
    if not shards and not pickles:
        raise CandidateFailed("no weights (model*.safetensors or pytorch_model*.bin) in its folder")
    for path in shards:
        try:
            with safe_open(path, framework="np"):  # "pt" maps it writable, for which the system wants free memory
                pass
        except (SafetensorError, OSError) as error:
            raise CandidateFailed(f"{path.name} is damaged: {first_line(error)}") from error
    for path in pickles:
        _check_pickle(path)


def _check_pickle(path: Path) -> None:
    import pickle

    import torch

    try:
        torch.load(path, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CandidateFailed(f"{path.name} holds more than weights, and is not loaded: {first_line(error)}") from error
    except (RuntimeError, OSError, EOFError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CandidateFailed(f"{path.name} is damaged: {first_line(error)}") from error
