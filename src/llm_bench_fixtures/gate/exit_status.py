"""Exit statuses of the gates, in pytest and in `llm-bench`, next to pytest's own 0 to 5."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Why a gate ended as it did, one number a reason, so that a job can act on it.

    A gate fails closed: what was not judged does not pass. The stored gate returns one of 20 to 24: If several apply,
    the first of 24, 21, 20, 22, 23 is returned.
    """

    PASSED = 0
    INTERRUPTED = 2
    USAGE = 4
    REGRESSED = 20
    NO_BASELINE = 21
    NOT_COMPARABLE = 22
    COVERAGE = 23
    NOT_MEASURED = 24
    INCONCLUSIVE = 25
    WORKER_FAILED = 26
    SLIGHTLY_WORSE = 27

    @property
    def words(self) -> str:
        """Some words for a title."""
        return _WORDS[self][0]

    @property
    def meaning(self) -> str:
        """A clause that says the whole."""
        return _WORDS[self][1]


_WORDS = {
    ExitStatus.PASSED: ("passed", "nothing got worse"),
    ExitStatus.INTERRUPTED: ("interrupted", "interrupted; what was measured until then is reported"),
    ExitStatus.USAGE: ("can't be done as asked", "something on the command line can't be used"),
    ExitStatus.REGRESSED: ("regressed", "something got worse"),
    ExitStatus.NO_BASELINE: ("no baseline", "there is nothing to compare with"),
    ExitStatus.NOT_COMPARABLE: (
        "not comparable with its baseline",
        "what there is to compare with was measured under other conditions",
    ),
    ExitStatus.COVERAGE: ("other tests than in its baseline", "something that was measured before no longer is"),
    ExitStatus.NOT_MEASURED: ("not measured", "nothing was measured that could be compared"),
    ExitStatus.INCONCLUSIVE: (
        "inconclusive",
        "nothing is known to have got worse, but not everything is known to be unchanged",
    ),
    ExitStatus.WORKER_FAILED: (
        "a worker failed",
        "a test failed, or a process that ran tests died, hung or couldn't start",
    ),
    ExitStatus.SLIGHTLY_WORSE: (
        "slightly worse",
        "something got worse, by less than the threshold as far as is known",
    ),
}
