"""A real server on the loopback address: llama.cpp's, within this process, with a model of transformers'.

A plain module: pytest puts this folder on sys.path, because there is a conftest.py in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.models.backends.gguf_files import check_convertible, write_model
from llm_bench_fixtures.models.source import ModelSource

if TYPE_CHECKING:
    import gguf

CONTEXT = 256
SLOTS = 2
QUIET = -1  # of its log


@contextmanager
def serving(source: ModelSource, folder: Path) -> Iterator[str]:
    """The URL of a server that answers in float32, on one thread, in SLOTS slots of CONTEXT tokens."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(write_served(source, folder / "served.gguf"))
    params.port = 0
    params.verbosity = QUIET
    params.n_ctx, params.n_parallel = SLOTS * CONTEXT, SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server  # which ends it


def write_served(source: ModelSource, path: Path) -> Path:
    """The source's weights as the package writes them, and the tokenizer, which a server needs beside them."""
    import gguf

    module = source.load_model()
    writer = gguf.GGUFWriter(path, check_convertible(module.config))
    add_tokenizer(writer, source.folder)
    write_model(writer, module)
    return path


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path) -> None:
    """That of the embedded model, a byte-level BPE."""
    import gguf

    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    tokens = {number: text for text, number in vocabulary.items()} | special
    merges = [one if isinstance(one, str) else " ".join(one) for one in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens[number] for number in sorted(tokens)])
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.NORMAL)
    writer.add_token_types([kinds[0] if number in special else kinds[1] for number in sorted(tokens)])
    writer.add_token_merges(merges)
    (end,) = special
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
