"""The limits that a winner must keep."""

from __future__ import annotations

from dataclasses import dataclass

from llm_bench_fixtures.answer.standings import QualityStandings, Standing
from llm_bench_fixtures.options.quality_limit import DEFAULT_QUALITY_LIMIT, QualityLimit
from llm_bench_fixtures.results.record import Run


@dataclass(frozen=True)
class Need:
    """What a variant must keep to be recommended."""

    quality: QualityLimit = DEFAULT_QUALITY_LIMIT

    def kept_by(self, run: Run) -> frozenset[str]:
        """The variants that the run shows to keep every limit, or has nothing to judge by."""
        standings = QualityStandings(run, self.quality)
        return frozenset(variant.id for variant in run.variants if standings.admits(variant))

    def undecided_in(self, run: Run) -> frozenset[str]:
        """The variants of which the run doesn't tell whether they keep every limit."""
        standings = QualityStandings(run, self.quality)
        return frozenset(one.id for one in run.variants if standings.of(one) in (Standing.UNCLEAR, Standing.UNKNOWN))
