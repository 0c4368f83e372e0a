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
    INTERRUPTED = 2, "interrupted", "interrupted; what was measured until then is reported"
    USAGE = 4, "can't be done as asked", "something on the command line can't be used"
    REGRESSED = 20, "regressed", "something got worse"
    NO_BASELINE = 21, "no baseline", "there is nothing to compare with"
    NOT_COMPARABLE = (
        22,
        "not comparable with its baseline",
        "what there is to compare with was measured under other conditions",
    )
    COVERAGE = 23, "other tests than in its baseline", "something that was measured before no longer is"
    NOT_MEASURED = 24, "not measured", "nothing was measured that could be compared"
    INCONCLUSIVE = (
        25,
        "inconclusive",
        "nothing is known to have got worse, but not everything is known to be unchanged",
    )
    WORKER_FAILED = 26, "a worker failed", "a test failed, or a process that ran tests died, hung or couldn't start"
    SLIGHTLY_WORSE = 27, "slightly worse", "something got worse, by less than the threshold as far as is known"

    words: str
    """Some words for a title."""
    meaning: str
    """A clause that says the whole."""

    def __new__(cls, status: int, words: str, meaning: str) -> Self:
        member = int.__new__(cls, status)
        member._value_ = status
        member.words, member.meaning = words, meaning
        return member
