"""The score of a whole corpus, as a session has it of a model that is scored on no less."""

from __future__ import annotations

from pathlib import Path

from llm_bench_fixtures.measure.quality import CorpusScore, corpus_metrics, loss_blocks, score_part
from llm_bench_fixtures.measure.windows import WindowPlan
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.workloads import Corpus


def score_corpus(
    model: Model, corpus: Corpus, plan: WindowPlan, *, keep: Path | None = None, compare_with: Path | None = None
) -> CorpusScore:
    part = score_part(model, corpus, plan, keep=keep, compare_with=compare_with)
    return CorpusScore(corpus_metrics(part), loss_blocks(part.score.nll))
