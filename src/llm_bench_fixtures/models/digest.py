"""Which model a run measured: short digests by which two runs tell whether it was the same.

They are to be cheap for any size of model, so of the weights they take samples: the name, type and shape of each tensor
with 4 KiB from its beginning, its middle and its end; of files that aren't safetensors, blocks from all over them. A
change of few numbers in between stays unseen. How tensors are spread over files makes no difference.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from llm_bench_fixtures.models.files import pickle_files, safetensors_files

BLOCK_BYTES = 4096
BLOCKS_OF_A_FILE = 256
DIGITS = 16
HEADER_LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # as the library that reads the weights has it
CONFIG = "config.json"
OF_WHOM = ("transformers_version", "_name_or_path")  # in a config: who wrote it, not what it says
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja", "tokenizer.*.json", "tekken.json", "tiktoken.model"),
    *("bpe.codes", "byte_maps.json", "dict.txt", "emoji.json", "entity_vocab.json", "normalizer.json"),
    *("prophetnet.tokenizer", "sentencepiece.bpe.model", "sentencepiece.model", "source.spm", "spm.model"),
    *("spm_char.model", "target.spm", "target_vocab.json", "vocab-src.json", "vocab-tgt.json"),
    *("word_pronunciation.json", "word_shape.json"),
)
"""Files that transformers reads for a tokenizer, as patterns. In this order: a later one changes no digest of
before."""


def model_digests(folder: Path) -> Mapping[str, str]:
    """Sixteen hex digits each of a model's `config`, `tokenizer` and `weights`. Raises OSError."""
    parts = {"config": _config(folder), "tokenizer": _tokenizer(folder), "weights": _weights(folder)}
    return {name: _digest(pieces) for name, pieces in parts.items()}


def _digest(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()[:DIGITS]


def _config(folder: Path) -> Iterator[bytes]:
    """Content of the config, in whatever order and by whomever it was written."""
    values: dict[str, Any] = json.loads((folder / CONFIG).read_bytes())
    named = {name: value for name, value in values.items() if name not in OF_WHOM}
    yield json.dumps(named, sort_keys=True).encode()


def _tokenizer(folder: Path) -> Iterator[bytes]:
    for pattern in TOKENIZER_FILES:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                yield path.relative_to(folder).as_posix().encode()
                yield path.read_bytes()


def _weights(folder: Path) -> Iterator[bytes]:
    tensors: dict[str, str] = {}
    for path in safetensors_files(folder):
        with path.open("rb") as file:
            header = _header(file)
            start = file.tell()
            tensors.update({name: _digest(_sampled(file, start, facts)) for name, facts in header.items()})
    for name in sorted(tensors):
        yield f"{name} {tensors[name]}".encode()
    if not tensors:
        for path in pickle_files(folder):
            with path.open("rb") as file:
                yield from _spread(file)


def _header(file: IO[bytes]) -> dict[str, Any]:
    """Type, shape and place of each tensor, by name. Source: the format's description in safetensors."""
    length = int.from_bytes(file.read(HEADER_LENGTH_BYTES), "little")
    if length > MOST_HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes")
    header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header


def _sampled(file: IO[bytes], start: int, facts: Mapping[str, Any]) -> Iterator[bytes]:
    """Description of a tensor, and blocks of it. start: of the file's first tensor."""
    begin, end = (start + offset for offset in facts["data_offsets"])
    yield json.dumps([facts["dtype"], facts["shape"]]).encode()
    for place in (begin, max((begin + end - BLOCK_BYTES) // 2, begin), max(end - BLOCK_BYTES, begin)):
        yield _block(file, place, end)


def _spread(file: IO[bytes]) -> Iterator[bytes]:
    """A file's size, and blocks at equal distances."""
    size = file.seek(0, os.SEEK_END)
    yield size.to_bytes(8, "little")
    step = max(size // BLOCKS_OF_A_FILE, BLOCK_BYTES)
    for place in range(0, size, step):
        yield _block(file, place, size)


def _block(file: IO[bytes], place: int, end: int) -> bytes:
    file.seek(place)
    return file.read(min(BLOCK_BYTES, end - place))
