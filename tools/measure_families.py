"""Which families of models are measured, by which variants, and why not where they aren't: a table in Markdown.

Each family of tests/families.py is built as a small folder with random weights, loaded as each variant whose engine is
installed, observed while it generates, and checked for equivalence. What an engine computes in float32 is compared with
fp32's tokens, prompts alone and in a padded batch. docs/reference/families.md sums up what this prints.

    python tools/measure_families.py [--variants ID,ID] [FAMILY ...]

Without fp32 among the variants the table has no columns of what fp32 alone can show. It exits with 1 where a variant
failed, instead of being measured or saying why it can't be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
import transformers
from embedded import request_of
from families import FAMILIES, Family

from llm_bench_fixtures.errors import (
    AnotherModel,
    BackendUnavailable,
    CandidateFailed,
    LlmBenchError,
    WorkloadUnsupported,
    first_line,
)
from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, check_equivalence
from llm_bench_fixtures.measure.work import Observed, observe
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backend import first_missing, installed_versions
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE, LIBRARIES
from llm_bench_fixtures.models.checks import check_loads, check_usable
from llm_bench_fixtures.models.handle import LocalModel
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Precision, Variant, select_variants
from llm_bench_fixtures.workloads import Workload

REFERENCE = "fp32"
VARIANTS = (REFERENCE, "bf16", "ort-fp32", "ort-int8-dynamic", "ort-int8-static", "bnb-int8", "bnb-nf4")
FURTHER = ("ov-fp32", "ct2-fp32", "ortgenai-fp32", "gguf-f32", "ao-int8-weight")
PADDED = Workload(((11, 12, 13, 14, 15, 16, 17), (21, 22, 23)), new_tokens=4, batch_size=2)
ALONE = replace(PADDED, batch_size=1)


def installed(names: str) -> tuple[Variant, ...]:
    """Variants whose engines are installed, the reference first: it is always among them."""
    variants = select_variants(f"{REFERENCE},{names}", CATALOGUE, REFERENCE)
    return tuple(one for one in variants if first_missing(BACKENDS[one.backend].modules) is None)


class Reasons:
    """The reasons below the table, each with a number."""

    def __init__(self, place: Path) -> None:
        """place: a temporary folder, which is left out of texts."""
        self.texts: list[str] = []
        self._place = place

    def mark(self, text: str, source: ModelSource) -> str:
        """The number that stands for the reason in a cell: the same for all families whose name alone is another."""
        text = _without_names(text, source).replace(f"{self._place}/", "").replace("|", "\\|")
        if text not in self.texts:
            self.texts.append(text)
        return f"[{self.texts.index(text) + 1}]"


def _without_names(text: str, source: ModelSource) -> str:
    config = source.load_config()
    named = {f"models of type {config.model_type}": "such models", f"{config.model_type} models": "such models"}
    for name in config.architectures or ():
        named[name] = "its architecture"
    for name, instead in named.items():
        text = text.replace(name, instead)
    return text


@dataclass
class _Row:
    """What is seen of the reference."""

    kept: str = ""
    modes: str = ""
    alone: str = ""
    """The digest of its tokens for prompts that run alone."""
    padded: str = ""
    """Digest of its tokens for a padded batch."""


class Table:
    """Rows as they come. failed: whether any variant did."""

    def __init__(self, root: Path, names: str) -> None:
        """names: of the variants, separated by commas."""
        self.failed = False
        self.reasons = Reasons(root)
        self._variants = installed(names)
        self._shows_reference = REFERENCE in names.split(",")
        self._store = ArtifactStore(root / "store")

    @property
    def header(self) -> Sequence[str]:
        names = [f"`{variant.id}`" for variant in self._variants]
        return ["family", "keeps", *names, "execution modes"] if self._shows_reference else ["family", *names[1:]]

    def row(self, family: Family, folder: Path) -> Sequence[str]:
        source = family.build(folder)
        try:
            check_usable(source)
            check_loads(source)
        except CandidateFailed as error:
            refused = f"refused {self.reasons.mark(str(error), source)}"
            return [family.name, refused, *[""] * (len(self.header) - 2)]
        row = _Row()
        cells = [self._cell(variant, source, row) for variant in self._variants]
        return [family.name, row.kept, *cells, row.modes] if self._shows_reference else [family.name, *cells[1:]]

    def _cell(self, variant: Variant, source: ModelSource, row: _Row) -> str:
        try:
            with closing(self._load(variant, source)) as loaded:
                return self._measured(loaded, row)
        except (BackendUnavailable, AnotherModel) as error:
            return self.reasons.mark(str(error), source)
        except Exception as error:  # the table shows what a run would
            self.failed = True
            kind = "" if isinstance(error, LlmBenchError) else f"{type(error).__name__}: "
            return f"**fails** {self.reasons.mark(kind + first_line(error), source)}"

    def _measured(self, loaded: LocalModel, row: _Row) -> str:
        variant, model, source = loaded.variant, loaded.model, loaded.source
        alone = observe(model, ALONE).observed.output_digest
        try:
            padded = observe(model, PADDED).observed
        except WorkloadUnsupported as error:
            return f"{_share(model)}, one by one {self.reasons.mark(str(error), source)}"
        if variant.id == REFERENCE:
            row.kept = _kept(padded)
            row.modes = self._modes(loaded) if self._shows_reference else ""
            row.alone, row.padded = alone, padded.output_digest
        elif variant.quantization is None and variant.precision is Precision.FLOAT32:
            if alone != row.alone:
                return "other tokens"
            if padded.output_digest != row.padded:
                return "other tokens in a batch"
        return _share(model)

    def _load(self, variant: Variant, source: ModelSource) -> LocalModel:
        return load_variant(request_of(variant, source, self._store))

    def _modes(self, loaded: LocalModel) -> str:
        """The execution modes that fail or change the answers, with what is known of why."""
        found = check_equivalence(loaded.model, PADDED.prompts, 4)
        return "; ".join(self._mode(one, loaded.source) for one in found if _matters(one))

    def _mode(self, found: Equivalence, source: ModelSource) -> str:
        what = "fails" if found.verdict is EquivalenceVerdict.FAILED else "changes it"
        return f"{found.mode} {what} {self.reasons.mark(found.reason or 'no cause is known', source)}"


def _matters(found: Equivalence) -> bool:
    return found.verdict in (EquivalenceVerdict.DIVERGES, EquivalenceVerdict.FAILED)


def _share(model: Model) -> str:
    share = model.facts.quantized_share
    return "yes" if share is None else f"{share:.0%}"


def _kept(observed: Observed) -> str:
    if observed.forward_passes is None:
        return ""
    kinds = {"keys and values": "cache_bytes", "states": "state_bytes"}
    return ", ".join(kind for kind, name in kinds.items() if getattr(observed, name)) or "not seen"


def lines(families: Sequence[Family], names: str) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions(LIBRARIES).items())
    yield f"With {versions}."
    yield ""
    with tempfile.TemporaryDirectory() as root:
        table = Table(Path(root), names)
        yield f"| {' | '.join(table.header)} |"
        yield f"|{'---|' * len(table.header)}"
        for family in families:
            yield f"| {' | '.join(table.row(family, Path(root) / family.name))} |"
    yield ""
    yield from (f"{number}. {text}" for number, text in enumerate(table.reasons.texts, 1))
    if table.failed:
        yield ""
        yield "Some failed."


def main() -> int:
    parser = argparse.ArgumentParser(description="Which families of models are measured by which variants.")
    parser.add_argument("--variants", default=",".join((*VARIANTS, *FURTHER)), metavar="ID,ID")
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    failed = False
    families = [family for family in FAMILIES if not asked.families or family.name in asked.families]
    with quiet_libraries(), suppress(BrokenPipeError):
        for line in lines(families, asked.variants):
            print(line, flush=True)
            failed = line == "Some failed."
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
