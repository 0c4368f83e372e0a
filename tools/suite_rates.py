"""How often the paired gate is right about a suite, from the pairs that measure_suite.py collected."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pair_curve import differences_of, rate

from llm_bench_fixtures.gate.verdicts import WORSE
from llm_bench_fixtures.paired.differences import Finding, Measurand
from llm_bench_fixtures.paired.sequential import SequentialTests
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.report.renderers.markdown import markdown_table
from llm_bench_fixtures.report.tables.table import Table

VARIANT_PERCENTS, TEST_PERCENT = (5.0, 3.0), 10.0
DECODE = ("tpot_s", "decode_tokens_per_s")

Pair: TypeAlias = Mapping[Measurand, float]


@dataclass(frozen=True)
class Block:
    """Differences that one pair tells of one variant."""

    differences: Pair
    percents: Mapping[str, float]
    """Percent of its decode step by which each slowed-down test was to be slower, by test."""

    @property
    def percent(self) -> float:
        """Percent for the whole variant; 0 if no test or a single one was slowed down."""
        return next(iter(self.percents.values())) if len(self.percents) > 1 else 0.0


def blocks_of(path: Path) -> Iterator[dict[str, Block]]:
    """Blocks of each pair in a file, by variant. The file is one of `collect`, or of `llm-bench pair --json`."""
    text = path.read_text(encoding="utf-8")
    trials = _of_gate(json.loads(text)) if text.startswith('{"schema"') else map(json.loads, text.splitlines())
    for trial in trials:
        by_variant: dict[str, dict[Measurand, float]] = defaultdict(dict)
        for one, difference in differences_of(trial).items():
            by_variant[trial["variants"][one.test]][one] = difference
        percents = trial.get("percents", {})
        yield {
            variant: Block(own, {one.test: percents[one.test] for one in own if one.test in percents})
            for variant, own in by_variant.items()
        }


def _of_gate(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The complete pairs with all tests."""
    for trial in result["trials"]:
        if trial["is_complete"] and len(trial["rounds"]) == len(result["trials"][0]["rounds"]):
            rows = {
                name: {test: [[tuple(times.values()) for times in row] for row in own] for test, own in rounds.items()}
                for name, rounds in ((name, trial[name]) for name in ("rounds", "prefills"))
            }
            yield {**rows, "variants": trial["variants"]}


@dataclass(frozen=True)
class Runs:
    """Runs of the gate over drawn pairs."""

    pairs: Sequence[Mapping[str, Block]]
    count: int
    """Pairs of a run."""
    threshold: float
    chance: random.Random

    def equal(self, variant: str) -> list[dict[Measurand, float]]:
        """The differences of a variant in the pairs of a run of equal versions."""
        known = [pair[variant].differences for pair in self.pairs if not pair[variant].percents]
        return [_swapped(own, self.chance) for own in self.chance.sample(known, self.count)]

    def judged(self, of_variant: Callable[[str], list[dict[Measurand, float]]]) -> SequentialTests:
        variants = {one.test: name for pair in self.pairs for name, own in pair.items() for one in own.differences}
        drawn = [of_variant(variant) for variant in self.pairs[0]]
        tests = SequentialTests(self.threshold, self.count)
        for number in range(self.count):
            tests.add({one: value for own in drawn for one, value in own[number].items()}, variants)
        tests.analyze()
        return tests

    def added(self, slow: str, percent: float, test: str = "") -> SequentialTests:
        """A run in which the decode of a variant, or of one test, is slower by so many percent."""

        def of_variant(variant: str) -> list[dict[Measurand, float]]:
            own = self.equal(variant)
            return [_slower(one, percent, test) for one in own] if variant == slow else own

        return self.judged(of_variant)

    def injected(self, slow: str, percent: float) -> SequentialTests:
        """A run in which a variant's blocks are those of any variants that were really slowed down by so many percent.

        Their tests are named as the variant's own.
        """
        own = {_case(test, slow): test for test in {one.test for one in self.pairs[0][slow].differences}}
        known = [
            {
                Measurand(own[case], one.metric): difference
                for one, difference in block.differences.items()
                if (case := _case(one.test, name)) in own
            }
            for pair in self.pairs
            for name, block in pair.items()
            if block.percent == percent
        ]
        return self.judged(
            lambda variant: self.chance.sample(known, self.count) if variant == slow else self.equal(variant)
        )


def _case(test: str, variant: str) -> str:
    """The test without its variant, which stands in brackets between dashes."""
    return test.replace(f"[{variant}-", "[").replace(f"-{variant}]", "]").replace(f"[{variant}]", "")


def _swapped(differences: Pair, chance: random.Random) -> dict[Measurand, float]:
    sign = chance.choice((1, -1))
    return {one: sign * value for one, value in differences.items()}


def _slower(differences: Pair, percent: float, test: str) -> dict[Measurand, float]:
    """latency_s is left as it is: how much of it is decode differs from test to test."""
    added = math.log1p(percent / 100)
    return {
        one: value + added * (one.metric in DECODE and test in ("", one.test)) for one, value in differences.items()
    }


def is_worse(finding: Finding | None) -> bool:
    return finding is not None and finding.verdict in WORSE


def rates(files: Sequence[Path], count: int, number: int, threshold: float) -> None:
    """Print how often runs of `count` pairs are right. number: of the runs of each kind."""
    pairs = [pair for path in files for pair in blocks_of(path)]
    runs = Runs(pairs, count, threshold, random.Random(1))  # noqa: S311  # the same each time
    print(*sentences(pairs), sep="\n")
    rows = tuple(table(runs, number))
    header = ("what", "runs", "found there", "red", "all settled")
    print(*markdown_table(Table.of_texts(header, rows, {1, 2, 3, 4})), sep="\n")


def table(runs: Runs, count: int) -> Iterator[tuple[str, ...]]:
    yield _row("equal versions", runs, count, lambda _: runs.judged(runs.equal), lambda *_: False)
    for percent in VARIANT_PERCENTS:
        what = f"decode of one variant +{percent:g} %"
        yield _row(f"{what}, added", runs, count, partial(runs.added, percent=percent), _finds_variant)
        if sum(block.percent == percent for pair in runs.pairs for block in pair.values()) >= runs.count:
            yield _row(f"{what}, injected", runs, count, partial(runs.injected, percent=percent), _finds_variant)
    tests = {slow: runs.chance.choice(_decoding_tests(runs, slow)) for slow in runs.pairs[0]}

    def finds_test(decided: SequentialTests, slow: str) -> bool:
        found = decided.findings()
        return any(is_worse(found.get(Measurand(tests[slow], metric))) for metric in DECODE)

    what = f"decode of one test +{TEST_PERCENT:g} %, added"
    yield _row(what, runs, count, lambda slow: runs.added(slow, TEST_PERCENT, tests[slow]), finds_test)


def _row(
    what: str,
    runs: Runs,
    count: int,
    run: Callable[[str], SequentialTests],
    finds: Callable[[SequentialTests, str], bool],
) -> tuple[str, ...]:
    """run: makes a run in which the variant is slow. finds: whether it found that."""
    found = red = settled = 0
    variants = list(runs.pairs[0])
    for number in range(count):
        slow = variants[number % len(variants)]
        tests = run(slow)
        found += finds(tests, slow)
        red += any(map(is_worse, tests.findings().values()))
        settled += not tests.open_tests
    return what, str(count), *(rate(number, count) for number in (found, red, settled))


def _decoding_tests(runs: Runs, variant: str) -> list[str]:
    return sorted({one.test for one in runs.pairs[0][variant].differences if one.metric == "tpot_s"})


def _finds_variant(tests: SequentialTests, slow: str) -> bool:
    found = tests.findings()
    return any(is_worse(found.get(HypothesisGroup(slow, metric))) for metric in DECODE)


def sentences(pairs: Sequence[Mapping[str, Block]]) -> Iterator[str]:
    """How many pairs there are, and what the injected slowdowns came to."""
    equal = [block for pair in pairs for block in pair.values() if not block.percents]
    yield f"{len(pairs)} pairs, with {len(equal)} blocks of a variant of equal versions."
    for percent in VARIANT_PERCENTS:
        came = [_decode(block) for pair in pairs for block in pair.values() if block.percent == percent]
        if len(came) > 1:
            error = statistics.stdev(came) / math.sqrt(len(came))
            yield (
                f"{len(came)} blocks of a variant slowed down by {percent:g} %: it came to "
                f"{math.expm1(statistics.fmean(came)):+.1%} ± {2 * error:.1%}."
            )
    singles = [
        (one.test, value)
        for pair in pairs
        for block in pair.values()
        for one, value in block.differences.items()
        if len(block.percents) == 1 and one.test in block.percents and one.metric == "tpot_s"
    ]
    if singles:
        mean = statistics.fmean(value for _, value in singles)
        yield f"{len(singles)} tests slowed down by {TEST_PERCENT:g} %: it came to {math.expm1(mean):+.1%}."
    yield ""


def _decode(block: Block) -> float:
    return statistics.median(value for one, value in block.differences.items() if one.metric == "tpot_s")
