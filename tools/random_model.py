"""Save a model of Qwen2.5-0.5B's shape with random weights, to see how long a run of a small real model takes.

python tools/random_model.py FOLDER

It takes 2 GB, in float32, and has the embedded model's tokenizer.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from embedded import TINY_FOLDER
from transformers import Qwen2Config, Qwen2ForCausalLM

SHAPE = Qwen2Config(
    vocab_size=151_936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=0,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder to save it in")
    folder = parser.parse_args().folder
    Qwen2ForCausalLM(SHAPE).save_pretrained(folder)
    for path in TINY_FOLDER.glob("tokenizer*.json"):
        shutil.copy(path, folder)


if __name__ == "__main__":
    main()
