"""Exit statuses of the gates, in pytest and in `llm-bench`, next to pytest's own 0 to 5."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitStatus(IntEnum):
    """Why a gate ended as it did, one number a reason, so that a job can act on it.

    A gate fails closed: what was not judged does not pass. The stored gate returns one of 20 to 24: If several apply,
    the first of 24, 21, 20, 22, 23 is returned.
    """

    PASSED = 0, "passed", "nothing got worse"
    INTERRUPTED = 2, "interrupted", "interrupted; results so far are reported"
    USAGE = 4, "can't be done as asked", "something on the command line can't be used"
    REGRESSED = 20, "regressed", "something got worse"
    NO_BASELINE = 21, "no baseline", "there is nothing to compare with"
    NOT_COMPARABLE = (
        22,
        "not comparable with its baseline",
        "values could not be compared, because workloads or conditions differ",
    )
    COVERAGE = 23, "other tests than in its baseline", "a test or value is missing, skipped, failed or new"
    NOT_MEASURED = 24, "not measured", "nothing was measured that could be compared"
    INCONCLUSIVE = 25, "inconclusive", "no regression was found, but some comparisons are inconclusive"
    WORKER_FAILED = 26, "a worker failed", "a test failed, or a process that ran tests died, hung or couldn't start"
    SLIGHTLY_WORSE = (
        27,
        "slightly worse",
        "something got worse by less than the threshold, though its interval reaches beyond it",
    )

    words: str
    """Some words for a title."""
    meaning: str
    """A clause that says the whole."""

    def __new__(cls, status: int, words: str, meaning: str) -> Self:
        member = int.__new__(cls, status)
        member._value_ = status
        member.words, member.meaning = words, meaning
        return member
