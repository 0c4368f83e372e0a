"""Prefill and decode of a record, from the times of its tokens within the `generate` calls that gave its latency.

A round's batches run one after the other. What is said of a prompt (time to its first token, time per token after it)
is averaged over the prompts of a round; what is said of the machine (tokens per second, bytes per second) takes the
sums over its batches.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from llm_bench_fixtures.results.record import Record

Tokens = tuple[float, ...]
OfRound: TypeAlias = Callable[[Record, Sequence[Tokens]], float | None]


def median_of_rounds(record: Record, of_round: OfRound) -> float | None:
    """The median over a record's rounds that have such a value; None where none has."""
    values = per_round(record, of_round)
    return statistics.median(values) if values else None


def per_round(record: Record, of_round: OfRound) -> list[float]:
    """The value of each round that has one."""
    values = (of_round(record, batches) for batches in record.tokens_s)
    return [value for value in values if value is not None]


def prefill_s(_: Record, batches: Sequence[Tokens]) -> float:
    """Seconds of all batches up to their first tokens."""
    return sum(tokens[0] for tokens in batches)


def decode_s(_: Record, batches: Sequence[Tokens]) -> float | None:
    """Seconds of all batches from their first to their last tokens; None if no batch has a second token."""
    return sum(tokens[-1] - tokens[0] for tokens in batches) if any(len(tokens) > 1 for tokens in batches) else None


def ttft_s(record: Record, batches: Sequence[Tokens]) -> float:
    """Mean over the prompts of the seconds from their batch's start to its first token."""
    return mean_over_prompts([(rows, tokens[0]) for rows, tokens in _with_rows(record, batches)])


def tpot_s(record: Record, batches: Sequence[Tokens]) -> float | None:
    """Mean over the prompts of the seconds per token after the first; None if no batch has a second token, and without
    the batches that have none."""
    decoding = [(rows, tokens) for rows, tokens in _with_rows(record, batches) if len(tokens) > 1]
    if not decoding:
        return None
    return mean_over_prompts([(rows, (tokens[-1] - tokens[0]) / (len(tokens) - 1)) for rows, tokens in decoding])


def decode_tokens_per_s(record: Record, batches: Sequence[Tokens]) -> float | None:
    """All prompts' tokens after their first / seconds of decode."""
    seconds = decode_s(record, batches)
    if not seconds:
        return None
    return sum(rows * (len(tokens) - 1) for rows, tokens in _with_rows(record, batches)) / seconds


def gaps_s(record: Record) -> list[float]:
    """The seconds between each two tokens that follow each other, of all rounds and batches."""
    return [after - before for batches in record.tokens_s for tokens in batches for before, after in pairwise(tokens)]


def _with_rows(record: Record, batches: Sequence[Tokens]) -> list[tuple[int, Tokens]]:
    """Each batch with how many prompts it has."""
    return list(zip(record.batch_rows, batches, strict=True))


def mean_over_prompts(of_batches: Sequence[tuple[int, float]]) -> float:
    """of_batches: how many prompts each has, and the value of each of these."""
    return sum(rows * value for rows, value in of_batches) / sum(rows for rows, _ in of_batches)
