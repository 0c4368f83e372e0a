"""The reference variant's results that are kept for the variants that are compared with it after."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean

from llm_bench_fixtures.measure.choices import AnswerIndex, ChoiceItem, flip_metrics
from llm_bench_fixtures.measure.equivalence import divergent_share, first_divergence
from llm_bench_fixtures.measure.reference_files import is_kept
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.processes.scratch import ScratchFolder
from llm_bench_fixtures.workloads import TokenIds, Workload


class KeptReference:
    """Results that are kept of the reference: its distributions over the corpus, in temporary files, its answers, and
    its continuations of each workload."""

    def __init__(self, identifier: str) -> None:
        """identifier: the reference variant's id."""
        self.identifier = identifier
        self._texts: dict[str, tuple[TokenIds, ...]] = {}
        self._answers: dict[ChoiceItem, AnswerIndex] = {}

    def folders(self, variant: Variant, sample: int | None = None) -> tuple[Path | None, Path | None]:
        """Where to keep the variant's distributions over a sample of the corpus, and those to compare it with; None
        where that is not to be done. sample: its number; None for the whole corpus.

        The reference's are kept, and every other's are compared with them where they are there.
        """
        folder = self._scratch.path / ("whole" if sample is None else f"sample {sample}")
        if variant.id == self.identifier:
            return folder, None
        return None, folder if is_kept(folder) else None

    def compare_answers(
        self, variant: str, items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex]
    ) -> dict[str, float]:
        """How many of the answers change against the reference's to the same items; nothing where it gave none.

        The reference's own are kept for those that come after it.
        """
        if variant == self.identifier:
            self._answers |= dict(zip(items, answers, strict=True))
            return {}
        if not all(item in self._answers for item in items):
            return {}
        return flip_metrics(items, answers, [self._answers[item] for item in items])

    def compare_texts(self, variant: Variant, workload: Workload, texts: Sequence[TokenIds]) -> dict[str, float]:
        """How far the continuations agree with the reference's of the same workload; nothing where it ran none.

        The reference's own are kept for those that come after it.
        """
        if variant.id == self.identifier:
            self._texts[workload.digest] = tuple(texts)
            return {}
        kept = self._texts.get(workload.digest)
        if kept is None:
            return {}
        pairs = list(zip(kept, texts, strict=True))
        return {
            "first_divergent_token": fmean(first_divergence(*pair) for pair in pairs),
            "divergent_share": fmean(divergent_share(*pair) for pair in pairs),
        }

    def close(self) -> None:
        """Remove the temporary files."""
        if "_scratch" in vars(self):
            self._scratch.close()

    @cached_property
    def _scratch(self) -> ScratchFolder:
        return ScratchFolder("reference")
