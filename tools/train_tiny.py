"""Train the embedded model `tiny` and its tokenizer, and write them to the package's assets.

Training text: the language topics and the docstrings of the Python that runs this script, and the texts in
`tools/training_text/`. The evaluation and calibration texts of the package are never read, except by
`--evaluate`, which prints the figures that `docs/explanation/embedded-model.md` quotes.

    python tools/train_tiny.py            # about 9 minutes on two cores
    python tools/train_tiny.py --evaluate # loss and perplexity against a uniform and a unigram model

Seeded: the same Python, torch and processor give the same weights.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import math
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "src" / "llm_bench_fixtures" / "assets"
OWN_TEXT = ROOT / "tools" / "training_text"
END = "<|endoftext|>"
SEED = 20261121
VOCABULARY = 4096
CONTEXT = 512
BATCH = 8
PEAK_RATE = 3e-3
WARMUP_STEPS = 60
DROPOUT = 0.1
OWN_TEXT_REPEATS = 2  # the corpus is mostly prose, and Python's documentation is not
SKIPPED_PACKAGES = {"test", "tests", "idle_test", "site-packages", "lib2to3", "__pycache__"}


def docstrings() -> Iterator[str]:
    """One document for each standard library module: its docstrings in the order of the source."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if SKIPPED_PACKAGES.intersection(path.relative_to(library).parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, nodes)]
        document = "\n\n".join(inspect.cleandoc(text) for text in found if text)
        if len(document) > 200:
            yield document


def language_topics() -> Iterator[str]:
    """The reference pages that `help("TOPIC")` shows."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield inspect.cleandoc(topics[name])


def own_texts() -> list[str]:
    """Our training texts, cut into documents of about ten paragraphs."""
    documents = []
    for path in sorted(OWN_TEXT.glob("*.txt")):
        paragraphs = path.read_text(encoding="utf-8").split("\n\n")
        documents += ["\n\n".join(paragraphs[start : start + 10]) for start in range(0, len(paragraphs), 10)]
    return documents


def train_tokenizer(documents: list[str]) -> PreTrainedTokenizerFast:
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        documents, vocab_size=VOCABULARY, min_frequency=2, special_tokens=[END], show_progress=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        bos_token=END,
        eos_token=END,
        unk_token=END,
        model_max_length=CONTEXT,
        model_input_names=["input_ids", "attention_mask"],  # GPT-2 would embed token_type_ids as tokens
        clean_up_tokenization_spaces=False,
    )


def token_stream(tokenizer: PreTrainedTokenizerFast, documents: list[str], order: torch.Generator) -> torch.Tensor:
    """Every document once, shuffled, each ended by the end-of-text token: (N,) int64."""
    ids: list[int] = []
    for index in torch.randperm(len(documents), generator=order).tolist():
        ids += tokenizer(documents[index])["input_ids"] + [tokenizer.eos_token_id]
    return torch.tensor(ids)


def batches(stream: torch.Tensor, steps: int, order: torch.Generator) -> Iterator[torch.Tensor]:
    """Random windows of the stream: (BATCH, CONTEXT) each."""
    for _ in range(steps):
        starts = torch.randint(0, len(stream) - CONTEXT, (BATCH,), generator=order)
        yield torch.stack([stream[start : start + CONTEXT] for start in starts])


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Warmed up, then down to a twentieth along a cosine."""
    if step < WARMUP_STEPS:
        return peak * (step + 1) / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / (steps - WARMUP_STEPS)
    return peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def optimizers(model: GPT2LMHeadModel) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for embeddings, biases and norms."""
    blocks = [p for p in model.transformer.h.parameters() if p.dim() == 2]
    chosen = {id(p) for p in blocks}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(blocks, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def fit(model: GPT2LMHeadModel, stream: torch.Tensor, steps: int, peak: float, order: torch.Generator) -> None:
    """Train the model in place on random windows of the stream."""
    model.train()
    both = optimizers(model)
    started = time.perf_counter()
    for step, batch in enumerate(batches(stream, steps, order)):
        for optimizer in both:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, peak)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {loss.item():.3f}  {time.perf_counter() - started:6.0f} s", flush=True)


def train(steps: int, folder: Path) -> None:
    """Tokenizer and model, from nothing, into `folder`."""
    torch.manual_seed(SEED)
    order = torch.Generator().manual_seed(SEED)
    documents = [*language_topics(), *docstrings(), *own_texts() * OWN_TEXT_REPEATS]
    tokenizer = train_tokenizer(documents)
    stream = token_stream(tokenizer, documents, order)
    print(f"{len(stream):,} tokens of text, vocabulary {len(tokenizer)}", flush=True)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=CONTEXT,
            n_embd=256,
            n_layer=4,
            n_head=4,
            resid_pdrop=DROPOUT,
            embd_pdrop=DROPOUT,
            attn_pdrop=DROPOUT,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    fit(model, stream, steps, PEAK_RATE, order)
    save(model, tokenizer, folder)


def save(model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    model.eval().half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def evaluate(folder: Path) -> None:
    """Print the model's loss on the package's corpus beside a uniform and a unigram model's."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    counts: Counter[int] = Counter()
    for document in [*language_topics(), *docstrings(), *own_texts() * OWN_TEXT_REPEATS]:
        counts.update(tokenizer(document)["input_ids"])
    total = sum(counts.values()) + len(tokenizer)  # add-one smoothing
    loss_sum = unigram_sum = 0.0
    tokens = 0
    for path in sorted((ASSETS / "corpus").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        for start in range(0, ids.shape[1], CONTEXT):
            window = ids[:, start : start + CONTEXT]
            with torch.no_grad():
                loss_sum += model(input_ids=window, labels=window).loss.item() * (window.shape[1] - 1)
            targets = window[0, 1:].tolist()
            tokens += len(targets)
            unigram_sum += sum(-math.log((counts[target] + 1) / total) for target in targets)
    rows = {"uniform": math.log(len(tokenizer)), "unigram": unigram_sum / tokens, "tiny": loss_sum / tokens}
    for name, loss in rows.items():
        print(f"{name:8s} loss {loss:.3f} nats/token   perplexity {math.exp(loss):8.1f}   ({tokens} tokens)")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(json.dumps({"parameters": model.num_parameters(), "bytes": size}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--evaluate", action="store_true", help="only print the figures for the docs")
    parser.add_argument("--folder", type=Path, default=ASSETS / "tiny", help="where the model is, or will be")
    arguments = parser.parse_args()
    if arguments.evaluate:
        evaluate(arguments.folder)
    else:
        train(arguments.steps, arguments.folder)
