"""How much of the corpus and of the questions each variant is scored on.

A model whose whole corpus takes seconds is scored on all of it. Of another, samples that double are scored: the same
for all variants, so that each is compared with the reference token by token. A variant has enough once its quality
limit is decided, or its perplexity's ratio is known well enough; the reference is scored on as much as any other.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from llm_bench_fixtures.answer.standings import is_decided
from llm_bench_fixtures.errors import NoRoom, OtherTokens, TimeUp, WorkloadUnsupported, first_line, named
from llm_bench_fixtures.measure.choices import AnswerIndex, accuracy_metrics, choose
from llm_bench_fixtures.measure.quality import CorpusScore, Part, corpus_metrics, join, loss_blocks, score_part
from llm_bench_fixtures.measure.windows import FIRST_TOKENS, SEED, plan_windows
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics.quality import OF_CHOICES
from llm_bench_fixtures.results.record import VariantResult
from llm_bench_fixtures.session.forecast import WorkKind, sample_name
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.reference import KeptReference
from llm_bench_fixtures.session.setup import Setup

WHOLE_S = 10.0  # a corpus that takes no longer is scored whole
SMALL = 1e12  # weights times bytes of a corpus that is always scored whole, on a slow or busy machine too
ENOUGH = 0.005  # standard error of a perplexity's ratio that is known well enough
FIXED_S = 60.0  # for a variant that is compared with none, and a reference that is closed before the others load
FIRST_ITEMS = 24  # questions next to the first sample
OF_A_SAMPLE = "quality is of a sample"  # what a note on that begins with
NOT_ASKED = "not asked"  # what a note on questions that can't be put begins with


@dataclass
class Found:
    """Scores and answers of one variant so far."""

    parts: list[Part] = field(default_factory=list)
    answers: dict[int, AnswerIndex] = field(default_factory=dict)
    """Answers by the question's number."""
    notes: dict[str, None] = field(default_factory=dict)
    """Notes on what it can't do, in order."""
    asks: bool = True
    """Whether questions can be put to it."""
    spent_s: float = 0.0
    asked_s: float = 0.0
    """Seconds that its answers took, which `spent_s` includes."""
    told: tuple[str, ...] = ()
    """The notes that the results have of it."""

    @property
    def is_compared(self) -> bool:
        return bool(self.parts) and self.parts[0].compared is not None

    @property
    def is_complete(self) -> bool:
        return bool(self.parts) and self.parts[-1].cut.is_last


def is_small(setup: Setup) -> bool:
    """Whether scoring the whole corpus is little work for the model, however fast the machine is."""
    return setup.source.weights * sum(len(text.encode()) for text in setup.corpus.read) <= SMALL


def questions_with(samples: int) -> int:
    """How many questions are asked with so many samples of a corpus, unless these are all of it."""
    return FIRST_ITEMS << max(samples - 1, 0)


@dataclass(eq=False)
class Samples:
    """Scores variants on as much as they need, and keeps what was found."""

    _setup: Setup
    _loader: VariantLoader
    _kept: KeptReference
    _clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._found: dict[str, Found] = {}
        self._asks_more = any(limit.metric.name in OF_CHOICES for limit in self._setup.need.limits)
        self.is_whole: bool | None = None
        """Whether every variant is scored on all there is; None until the first sample's time is known."""

    def score(self, model: ModelHandle) -> CorpusScore:
        """Score the variant on all there is, or on the first sample; on as much as it needs where it is compared with
        none. What the model can't do by its nature is a note with the reason."""
        found = Found()
        try:
            self._score_and_ask(model, found)
        except TimeUp:
            if not found.parts:
                raise
        self._found[model.variant.id] = found
        score = self._result(model.variant.id, found)
        found.told = score.notes
        return score

    def _score_and_ask(self, model: ModelHandle, found: Found) -> None:
        if self.is_whole is None:
            self._try_first(model, found)
        if self.is_whole is not False:
            self._score(model, found, None)
        elif not found.parts:
            self._score(model, found, 0)
        self._ask(model, found)
        while not found.is_compared and self._wants_more(model, found, self._is_enough):
            if not self._score_next(model, found):
                break

    def is_final(self, variant: VariantResult) -> bool:
        """Whether no more of a variant's quality would be scored, as far as its results tell.

        A sample is final where it decides the limits; of a variant that is compared with none, any is.
        """
        quality, choices = variant.quality, self._setup.choices
        if variant.unscored or (variant.quality_note and not quality):
            return False
        if choices and "choice_items" not in quality and not any(note.startswith(NOT_ASKED) for note in variant.notes):
            return False
        has_all_answers = choices is None or quality.get("choice_items", math.inf) >= len(choices.items)
        if ("scored_share" not in quality and has_all_answers) or "ppl_ratio" not in quality:
            return True
        look = 1 + math.ceil(math.log2(max(quality["scored_tokens"] / FIRST_TOKENS, 1.0)))  # at most: each doubles
        return is_decided(quality, self._setup.need.limits, look)

    def grow(self) -> None:
        """Score more of the variants that are loaded, a sample of each in turn, until each has enough."""
        self._grow_all(self._is_enough)

    def ask_more(self) -> None:
        """Ask the loaded variants as many questions as belong to the samples that are scored, now and from now on; the
        reference first, as its answers are what others' are compared with."""
        self._asks_more = True
        with suppress(TimeUp):
            for model in sorted(self._loader.loaded, key=lambda one: one.variant.id != self._kept.identifier):
                found = self._found.get(model.variant.id)
                if found is not None and found.parts and self._setup.deadline.fits(self._asking_s(found)):
                    self._try(model, found, self._ask)

    def _asking_s(self, found: Found) -> float:
        """How long it takes to ask the questions that are due, by those that were asked."""
        return len(self._due(found)) * found.asked_s / len(found.answers) if found.answers else 0.0

    def go_on(self) -> None:
        """Ask and score more until each one's limits on quality are decided, and then until all is scored."""
        self.ask_more()
        self._grow_all(self._is_decided)
        self._grow_all(lambda *_: False)
        for name in self._found:
            self._setup.forecast.forget(name, works=[WorkKind.QUALITY])

    def _grow_all(self, is_enough: Callable[[str, Found], bool]) -> None:
        known = [(model, self._found.get(model.variant.id)) for model in self._loader.loaded]
        growing = [(model, found) for model, found in known if found is not None and found.is_compared]
        with suppress(TimeUp):
            while growing := [each for each in growing if self._wants_more(*each, is_enough)]:
                growing = [each for each in growing if self._try(*each, self._score_next)]

    def _try(self, model: ModelHandle, found: Found, what: Callable[[ModelHandle, Found], bool | None]) -> bool:
        """As `what`. Where that fails, what is known of the variant stays."""
        try:
            with self._setup.progress.activity(Phase.SCORING, f"scoring more of {model.variant.id}"):
                return bool(what(model, found))
        except Exception as error:  # as where its process has died
            found.notes[f"no more of it was scored: {first_line(named(error))}"] = None
            return False

    def retell(self, results: RunBuilder, but: str = "") -> None:
        """Tell the results what is known of all variants now: their figures go by the reference's, which may grow.

        but: the variant that is being scored.
        """
        for name, found in self._found.items() if self.is_whole is False else ():
            if name != but:
                known, score = results.variant(name), self._result(name, found)
                finite = {metric: value for metric, value in score.metrics.items() if math.isfinite(value)}
                notes = (*(note for note in known.notes if note not in found.told), *score.notes)
                found.told = score.notes
                rest = {metric: value for metric, value in known.quality.items() if metric != "scored_share"}
                results.add_variant(replace(known, quality=rest | finite, loss_blocks=score.loss_blocks, notes=notes))

    def _try_first(self, model: ModelHandle, found: Found) -> None:
        """Score the first sample, whose time tells how long the whole corpus takes."""
        if is_small(self._setup):
            self.is_whole = True
            return
        self._score(model, found, 0)
        if found.parts:
            self.is_whole = found.parts[0].cut.is_last or found.spent_s / found.parts[0].cut.share <= WHOLE_S
        if self.is_whole is not False:
            self._setup.forecast.join(WorkKind.QUALITY)
            found.parts.clear()
            found.notes.clear()

    def _wants_more(self, model: ModelHandle, found: Found, is_enough: Callable[[str, Found], bool]) -> bool:
        """Whether a further sample is needed, and has time: it takes as long as all before it together."""
        if self.is_whole is not False or not found.parts or found.is_complete or is_enough(model.variant.id, found):
            return False
        reference = self._found.get(self._kept.identifier) if found.is_compared else None
        lacks_it = reference is not None and len(reference.parts) <= len(found.parts)
        return self._setup.deadline.fits(found.spent_s + (reference.spent_s if reference and lacks_it else 0.0))

    def _score_next(self, model: ModelHandle, found: Found) -> bool:
        """Score the next sample, with its questions. False where the reference isn't scored on it, or it fails."""
        sample = len(found.parts)
        if not self._has_reference(found):
            return False
        with self._setup.forecast.doing(WorkKind.QUALITY, model.variant.id, name=sample_name(sample)):
            if not self._score(model, found, sample):
                return False
            self._ask(model, found)
            return True

    def _has_reference(self, found: Found) -> bool:
        """Whether the reference is scored on the next sample, too, as far as the variant is compared with it at all."""
        reference, sample = self._found.get(self._kept.identifier), len(found.parts)
        if reference is None or not found.is_compared:
            return True
        loaded = next((one for one in self._loader.loaded if one.variant.id == self._kept.identifier), None)
        with suppress(Exception):  # as where its process has died
            while loaded is not None and len(reference.parts) <= sample and not reference.is_complete:
                if not self._score_next(loaded, reference):
                    break
        return len(reference.parts) > sample

    def _is_enough(self, variant: str, found: Found) -> bool:
        if found.is_compared:
            metrics = self._result(variant, found).metrics
            error = metrics.get("ppl_ratio_error")
            is_sure = error is not None and error <= ENOUGH * metrics["ppl_ratio"]
            return is_sure or self._is_decided(variant, found)
        if variant == self._kept.identifier and not self._loader.lineup.is_apart:
            return True  # the reference is scored on more when another needs that
        return found.spent_s * 2 > FIXED_S  # with the next sample

    def _is_decided(self, variant: str, found: Found) -> bool:
        return is_decided(self._result(variant, found).metrics, self._setup.need.limits, look=len(found.parts))

    def _score(self, model: ModelHandle, found: Found, sample: int | None) -> bool:
        """Score a sample, None for the whole corpus. False where it can't be, or not compared as those before were."""
        corpus, plan = self._setup.corpus, plan_windows(self._setup.settings)
        keep, compare_with = self._kept.folders(model.variant, sample)
        began_s = self._clock()
        try:
            part = model.call(score_part, corpus, plan, sample, keep=keep, compare_with=compare_with)
        except WorkloadUnsupported as error:
            found.notes[f"not scored on the {corpus.name}: {error}"] = None
            return False
        except (OtherTokens, NoRoom) as error:  # quality that needs no reference can be told all the same
            is_other = isinstance(error, OtherTokens)
            why = "not compared with the reference variant" if is_other else "nothing was kept to compare with"
            found.notes[f"{why}: {error}"] = None
            part = model.call(score_part, corpus, plan, sample)
        found.spent_s += self._clock() - began_s
        if found.is_compared and part.compared is None:
            return False
        found.parts.append(part)
        return True

    def _ask(self, model: ModelHandle, found: Found) -> None:
        """Ask as many questions as belong to the samples that are scored; as many as belong to the first where more
        would decide nothing, which wait for `ask_more`."""
        choices, numbers = self._setup.choices, self._due(found)
        if choices is None or not found.asks or not numbers:
            return
        items, began_s = [choices.items[number] for number in numbers], self._clock()
        try:
            with self._setup.progress.activity(Phase.SCORING, f"asking {model.variant.id} the {choices.name}"):
                answers = model.call(choose, items)
        except WorkloadUnsupported as error:
            found.notes[f"{NOT_ASKED} the {choices.name}: {error}"] = None
            found.asks = False
            return
        found.spent_s += (asked_s := self._clock() - began_s)
        found.asked_s += asked_s
        found.answers |= dict(zip(numbers, answers, strict=True))
        self._kept.compare_answers(model.variant.id, items, answers)  # keeps the reference's answers

    def _due(self, found: Found) -> list[int]:
        """The numbers of the questions to ask next; of those that the reference has answered, if it was asked any."""
        numbers = list(range(len(self._setup.choices.items))) if self._setup.choices else []
        if self.is_whole is False and not (found.is_complete and self._asks_more):
            random.Random(SEED).shuffle(numbers)  # noqa: S311
            numbers = sorted(numbers[: questions_with(len(found.parts) if self._asks_more else 1)])
        reference = self._found.get(self._kept.identifier)
        answered = reference.answers if reference is not None and reference is not found else {}
        return [one for one in numbers if one not in found.answers and (not answered or one in answered)]

    def _result(self, variant: str, found: Found) -> CorpusScore:
        reference = self._found.get(self._kept.identifier)
        metrics: dict[str, float] = {}
        blocks: tuple[float, ...] = ()
        if found.parts:
            joined = join(found.parts)
            metrics = corpus_metrics(joined, join(reference.parts) if reference and reference.parts else None)
            blocks = loss_blocks(joined.score.nll)
            if not joined.cut.is_last:
                metrics["scored_share"] = joined.score.tokens / joined.cut.corpus_tokens
        choices = self._setup.choices
        if found.answers and choices is not None:
            numbers = sorted(found.answers)
            items, answers = [choices.items[number] for number in numbers], [found.answers[one] for one in numbers]
            metrics |= accuracy_metrics(items, answers) | self._kept.compare_answers(variant, items, answers)
        return CorpusScore(metrics, blocks, (*found.notes, *self._of_a_sample(found)))

    def _of_a_sample(self, found: Found) -> Iterator[str]:
        """How much was scored, where that isn't all."""
        asked, choices = len(found.answers), self._setup.choices
        if not found.parts or (found.is_complete and (not asked or not choices or asked == len(choices.items))):
            return
        tokens, cut = sum(part.score.tokens for part in found.parts), found.parts[0].cut
        of_text = "" if found.is_complete else f"{tokens:,} of {count(cut.corpus_tokens, 'token')}"
        of_questions = f"{asked} of {count(len(choices.items), 'question')}" if choices and asked else ""
        yield f"{OF_A_SAMPLE}: {' and '.join(filter(None, (of_text, of_questions)))}"
