"""Which families of models are measured, by which variants, and why not where they aren't: a table in Markdown.

Each family of tests/families.py is built as a small folder with random weights, loaded as each variant, observed while
it generates, and checked for equivalence. What docs/reference/families.md shows is what this prints.

    python tools/measure_families.py [FAMILY ...]

It exits with 1 where a variant failed, instead of being measured or saying why it can't be.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
import transformers
from families import FAMILIES, Family

from llm_bench_fixtures.errors import BackendUnavailable, CandidateFailed, LlmBenchError, first_line
from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, check_equivalence
from llm_bench_fixtures.measure.observation import observe
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE, LIBRARIES
from llm_bench_fixtures.models.checks import check_loads, check_usable
from llm_bench_fixtures.models.device import resolve_device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import select_variants
from llm_bench_fixtures.models.versions import installed_versions
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.workloads import Workload

VARIANTS = ("fp32", "bf16", "ort-fp32", "ort-int8-dynamic", "ort-int8-static", "bnb-int8", "bnb-nf4")
WORKLOAD = Workload(((11, 12, 13, 14, 15, 16, 17), (21, 22, 23)), new_tokens=4, batch_size=2)


class Reasons:
    """The reasons below the table, each with a number."""

    def __init__(self, place: Path) -> None:
        """place: a temporary folder, which is left out of texts."""
        self.texts: list[str] = []
        self._place = place

    def mark(self, text: str) -> str:
        """The number that stands for the reason in a cell."""
        text = text.replace(f"{self._place}/", "").replace("|", "\\|")
        if text not in self.texts:
            self.texts.append(text)
        return f"[{self.texts.index(text) + 1}]"


class Table:
    """Rows as they come. failed: whether any variant did."""

    def __init__(self, root: Path) -> None:
        self.failed = False
        self.reasons = Reasons(root)
        self._store = ArtifactStore(root / "store")

    def row(self, family: Family, folder: Path) -> Sequence[str]:
        source = family.build(folder)
        try:
            check_usable(source)
            check_loads(source)
        except CandidateFailed as error:
            return [family.name, f"refused {self.reasons.mark(str(error))}", *[""] * len(VARIANTS), ""]
        kept, modes, cells = "", "", []
        for name in VARIANTS:
            try:
                model = self._load(name, source)
                observed = observe(model, WORKLOAD).observed.passes
                cells.append(_share(model))
                if name == "fp32" and observed is not None:
                    kept, modes = _kept(observed), self._modes(model)
            except BackendUnavailable as error:
                cells.append(self.reasons.mark(str(error)))
            except Exception as error:  # the table shows what a run would
                self.failed = True
                kind = "" if isinstance(error, LlmBenchError) else f"{type(error).__name__}: "
                cells.append(f"**fails** {self.reasons.mark(kind + first_line(error))}")
        return [family.name, kept, *cells, modes]

    def _load(self, variant: str, source: ModelSource) -> TransformersModel:
        (chosen,) = select_variants(variant, CATALOGUE, variant)
        request = LoadRequest(chosen, source, resolve_device("cpu"), parse_settings({}), self._store, Progress())
        return load_variant(request).model

    def _modes(self, model: TransformersModel) -> str:
        """The execution modes that fail or change the answers, with what is known of why."""
        return "; ".join(map(self._mode, filter(_matters, check_equivalence(model, WORKLOAD.prompts, 4))))

    def _mode(self, found: Equivalence) -> str:
        what = "fails" if found.verdict is EquivalenceVerdict.FAILED else "changes it"
        return f"{found.mode} {what} {self.reasons.mark(found.reason or 'no cause is known')}"


def _matters(found: Equivalence) -> bool:
    return found.verdict in (EquivalenceVerdict.DIVERGES, EquivalenceVerdict.FAILED)


def _share(model: TransformersModel) -> str:
    share = model.facts.quantized_share
    return "yes" if share is None else f"{share:.0%}"


def _kept(passes: object) -> str:
    kinds = {"keys and values": "cache_bytes", "states": "state_bytes"}
    return ", ".join(kind for kind, name in kinds.items() if getattr(passes, name)) or "not seen"


def lines(families: Sequence[Family]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions(LIBRARIES).items())
    yield f"With {versions}."
    yield ""
    header = ["family", "keeps", *(f"`{name}`" for name in VARIANTS), "execution modes"]
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    with tempfile.TemporaryDirectory() as root:
        table = Table(Path(root))
        for family in families:
            yield f"| {' | '.join(table.row(family, Path(root) / family.name))} |"
    yield ""
    yield from (f"{number}. {text}" for number, text in enumerate(table.reasons.texts, 1))
    if table.failed:
        yield ""
        yield "Some failed."


def main(names: Sequence[str]) -> int:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    failed = False
    with quiet_libraries(), suppress(BrokenPipeError):
        for line in lines([family for family in FAMILIES if not names or family.name in names]):
            print(line, flush=True)
            failed = line == "Some failed."
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
