"""The quality of a loaded variant: over the corpus, and by its answers; by itself, and against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import NoRoom, OtherTokens, WorkloadUnsupported
from llm_bench_fixtures.measure.choices import accuracy_metrics, choose
from llm_bench_fixtures.measure.quality import CorpusScore, score_corpus
from llm_bench_fixtures.measure.windows import plan_windows
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.choices import ChoiceSet
    from llm_bench_fixtures.models.handle import ModelHandle
    from llm_bench_fixtures.session.session import BenchSession
    from llm_bench_fixtures.workloads import Corpus


def score_variant(session: BenchSession, model: ModelHandle, corpus: Corpus) -> CorpusScore:
    """The metrics of the plugin's own. What the model can't do by its nature is a note with the reason."""
    try:
        score = _on_corpus(session, model, corpus)
    except WorkloadUnsupported as error:
        score = CorpusScore({}, (), (f"not scored on the {corpus.name}: {error}",))
    choices = session.setup.choices
    if choices is None:
        return score
    try:
        metrics = _by_answers(session, model, choices)
    except WorkloadUnsupported as error:
        return replace(score, notes=(*score.notes, f"not asked the {choices.name}: {error}"))
    return replace(score, metrics={**score.metrics, **metrics})


def _on_corpus(session: BenchSession, model: ModelHandle, corpus: Corpus) -> CorpusScore:
    keep, compare_with = session.reference.folders(model.variant)
    plan = plan_windows(session.settings)
    try:
        return model.call(score_corpus, corpus, plan, keep=keep, compare_with=compare_with)
    except OtherTokens as error:  # its own quality can be told all the same
        score = model.call(score_corpus, corpus, plan)
        return replace(score, notes=(f"not compared with the reference variant: {error}",))
    except NoRoom as error:  # likewise, without the files that others would be compared by
        score = model.call(score_corpus, corpus, plan)
        return replace(score, notes=(f"nothing was kept to compare with: {error}",))


def _by_answers(session: BenchSession, model: ModelHandle, choices: ChoiceSet) -> dict[str, float]:
    with session.progress.activity(Phase.SCORING, f"asking {model.variant.id} the {choices.name}"):
        answers = model.call(choose, choices.items)
    compared = session.reference.compare_answers(model.variant, choices.items, answers)
    return {**accuracy_metrics(choices.items, answers), **compared}
