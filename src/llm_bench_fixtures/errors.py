"""One small class for each failure. Every message says what was wanted, what was tried and what to do."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Iterable, Sequence

from llm_bench_fixtures.text import harmless_text, some_of, without_middle

LONGEST_LINE = 400  # characters
LONGEST_REASON = 1000  # characters: a dozen lines of a terminal
PROCESS_LIMIT = " (most often a limit on processes and threads: ulimit -u, or the container's)"
MOST_LISTED = 50  # names, next to one that was probably meant
LEAST_ALIKE = 0.7  # similarity of two names, one of which is a typing error of the other


def first_line(text: object) -> str:
    """The first line of a message, which may have many; of bounded length."""
    return without_middle(str(text).strip().split("\n", 1)[0], LONGEST_REASON)


def reason_of(error: BaseException) -> str:
    """The first line of what an error says, after its type where the text alone may be no more than a name."""
    text = first_line(error)
    speaks = isinstance(error, (LlmBenchError, OSError, ValueError)) and text
    return (text if speaks else f"{type(error).__name__}: {text}".rstrip(": ")) + _hint(error)


def last_line(error: BaseException) -> str:
    """Last line of a traceback: the error's type and the first line of what it says, of bounded length."""
    said = next(filter(None, map(str.strip, str(error).splitlines())), "")
    line = without_middle(harmless_text(f"{type(error).__name__}: {said}".removesuffix(": ")), LONGEST_LINE)
    return line + _hint(error)


def _hint(error: BaseException) -> str:
    """Hint that the words of Python and of libraries in Rust for a limit of the system leave out. An error of this
    package that quotes them has it already."""
    return PROCESS_LIMIT if is_process_limit(error) and not isinstance(error, LlmBenchError) else ""


def is_process_limit(error: BaseException) -> bool:
    """Whether the system refused another process or thread, in the words of Python or of a library in Rust."""
    again = errno.EAGAIN
    text = str(error)
    of_python = error.args == (again, os.strerror(again)) or text == "can't start new thread"
    return of_python or ("ThreadPoolBuildError" in text and os.strerror(again) in text)


def named(error: BaseException) -> str:
    """An error's type and all that it says."""
    text = str(error).strip()
    return text if isinstance(error, WorkerFailed) else f"{type(error).__name__}: {text}{_hint(error)}"


class LlmBenchError(Exception):
    """Base of every error that this package raises on purpose. Its message may quote untrusted text."""

    def __str__(self) -> str:
        return harmless_text(without_middle(super().__str__()))


class InvalidSetting(LlmBenchError, ValueError, argparse.ArgumentTypeError):
    """An option, an ini value or what a hook gives that can't be used. argparse shows its message."""


class HookFailed(InvalidSetting):
    """A project's own hook raised, or returned what can't be used."""


class UnknownName(InvalidSetting):
    """A name that isn't in the list it was looked up in. The message gives the nearest, and the list; a long one only
    where nothing is near.

    near: what was probably meant; without any, the name that is spelled most alike.
    """

    def __init__(self, kind: str, given: str, known: Iterable[str], near: Sequence[str] = ()) -> None:
        from difflib import get_close_matches

        names = list(dict.fromkeys(known))
        others = [name for name in names if name != given]  # where it is known, but not for this
        near = near or get_close_matches(given, others, n=1, cutoff=LEAST_ALIKE)
        meant = f" Did you mean {alternatives(near)}?" if near else ""
        is_shown = names and not (near and len(names) > MOST_LISTED)
        listed = f" Known: {', '.join(names)}" if is_shown else ""
        super().__init__(f"unknown {kind} {given!r}.{meant}{listed}")


def alternatives(names: Sequence[str]) -> str:
    """The names in a question: "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class BackendUnavailable(LlmBenchError):
    """A variant that can't run here, with the reason. The plugin turns it into a skip."""


class WorkloadUnsupported(LlmBenchError):
    """A workload that this variant can't run by its nature. The plugin turns it into a skip."""


class NotReached(LlmBenchError):
    """What the run had no time for. The plugin turns it into a skip, which is a status of its own in the report.

    limit: the run's time. why: a clause, where it isn't just that this was over.
    """

    def __init__(self, limit: str, why: str = "") -> None:
        super().__init__(": ".join(filter(None, (f"not reached in {limit}", why))))
        self.why = why or f"{limit} were over"


class TimeUp(BaseException):
    """The run's time is over in the middle of a step; no Exception, which would be taken for a variant's failure."""


class CandidateFailed(LlmBenchError):
    """One candidate can't be used as the model, and why."""


class TokenizerFailed(LlmBenchError):
    """A model's tokenizer couldn't encode or decode, or took more time or memory than it may."""


class EndpointFailed(LlmBenchError):
    """A server that can't be reached, or didn't answer a request as it should. Its answer is quoted without the key.

    status: of its answer by HTTP; 0 where there was none, or where it was no error's.
    is_clients: whether this machine had no more file descriptors or ports, which tells nothing of the server.
    """

    def __init__(self, text: str, status: int = 0, *, is_clients: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.is_clients = is_clients


class NotCausal(CandidateFailed):
    """A model that doesn't continue a text, as it looks ahead in it."""


class UntrustedCode(CandidateFailed):
    """A model that would run code of its author's, which the user has not allowed.

    what: the end of a sentence on what would run.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: give --llm-trust-remote-code to allow that, for a model whose code you trust")


class NoCandidateLoaded(LlmBenchError):
    """None of the candidates could be loaded."""

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"No candidate could be loaded:\n{in_columns(failures)}\n"
            "Give --llm-model a folder, or --llm-model tiny for the embedded model."
        )


class IncompleteWeights(LlmBenchError):
    """The model's files lack some of its weights."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(f"the model's files lack {some_of(missing)}: download or save it again")


class AnotherModel(LlmBenchError):
    """What an engine made of a model computes something else than that model."""


class OutOfMemory(MemoryError, LlmBenchError):
    """An allocation failed, or would have; says how much was asked for.

    MemoryError makes its objects in a way of its own, and stands first so that one can be made without a constructor.
    """


class WorkerDied(LlmBenchError):
    """A process that holds a model ended or was killed before it answered.

    how: the end of a sentence that `what` begins.
    """

    def __init__(self, what: str, how: str = "") -> None:
        super().__init__(f"{what} {how}".strip())
        self.how = how


class WorkerFailed(LlmBenchError):
    """Something failed in a variant's own process. Says its type, the first line of its message, and where its
    traceback is."""

    traceback = ""
    """The whole, its chain of causes and all lines of its message, up to a bound."""


class MeasuredBefore(LlmBenchError):
    """A test that has measured one benchmark begins another."""

    def __init__(self, test: str) -> None:
        super().__init__(
            f"{test} calls llm_benchmark again: a test is one benchmark, with rounds and a row of its own. Write a "
            "test for each, or one test that @pytest.mark.parametrize runs once for each value"
        )


class GenerationMismatch(LlmBenchError):
    """`generate` returned another number of tokens than was asked for."""


class CorpusTooShort(LlmBenchError, ValueError):
    """A corpus with too few tokens to score."""


class ReferenceMismatch(LlmBenchError, ValueError):
    """A reference's distributions are of other positions, or over another vocabulary, than what they are to judge."""


class OtherTokens(ReferenceMismatch):
    """A reference over another vocabulary, or of other tokens of the corpus: there is nothing to compare."""


class QualityCollapsed(LlmBenchError):
    """A quantized artifact whose loss is too far from its base to be used."""


class UnreadableResults(LlmBenchError, ValueError):
    """A results file that isn't one of ours, or is of another schema version, or is damaged."""


class DamagedResults(UnreadableResults):
    """JSON that has not the shape of a run: a field is missing or of another type."""


class GitFailed(LlmBenchError):
    """git couldn't do what was asked of it."""


class MissingLibrary(LlmBenchError, ImportError):
    """A library that an optional part needs isn't installed."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}: pip install 'llm-bench-fixtures[{extra}]'")


class UnwritableFile(LlmBenchError, OSError):
    """A file that can't be written where it was asked for."""


class NoRoom(UnwritableFile):
    """A disk is full; says which folder is on it."""


class NotOurResults(UnreadableResults):
    """A whole file in which this package measured nothing: another program's, or other tests' of pytest-benchmark."""


class StorageNotFound(LlmBenchError, FileNotFoundError):
    """No folder of saved runs where they were looked for."""


class HistoryUnavailable(LlmBenchError, OSError):
    """A database of saved runs that can't be reached, read or written. reason: why, without naming the database."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class UnusableHistory(HistoryUnavailable):
    """A database of saved runs that waiting doesn't mend: it is read-only or damaged, or refuses what was asked."""


class RunNotFound(LlmBenchError, LookupError):
    """No saved run has the given name."""


class NothingToShow(LlmBenchError, LookupError):
    """There are saved runs, but none of what was asked for is in them."""


class AmbiguousRun(LlmBenchError, LookupError):
    """Several saved runs have the given name."""

    def __init__(self, given: str, storage: object, found: Sequence[str]) -> None:
        super().__init__(f"{given!r} is several runs in {storage}. Give more of one's name:\n{indented(found)}")


def indented(names: Sequence[str], most: int = 12) -> str:
    """Up to `most` names, the last ones, on a line each; a line above them counts the others."""
    left_out = [f"  ({len(names) - most} others)"] if len(names) > most else []
    return "\n".join([*left_out, *(f"  {name}" for name in names[-most:])])


def in_columns(reasons: Sequence[tuple[str, str]]) -> str:
    """A name and a reason on each line."""
    width = max(len(name) for name, _ in reasons)
    return "\n".join(f"  {name:{width}}  {reason}" for name, reason in reasons)


class ChannelClosed(LlmBenchError):
    """The other end of a conversation between processes is gone.

    last_words: what it said of that, where it could.
    """

    def __init__(self, last_words: str = "") -> None:
        super().__init__("the other end is gone")
        self.last_words = last_words


class LockHeld(LlmBenchError):
    """Another process holds what this one has to wait for, and doesn't work. Says which, and what it does instead."""


class NoAnswer(LlmBenchError, TimeoutError):
    """The other end of a conversation between processes said nothing in time."""


class MalformedMessage(LlmBenchError, ValueError):
    """The other end of a conversation between processes said what this version doesn't understand."""

    def __init__(self, line: bytes) -> None:
        super().__init__(f"not a message: {line[:100]!r}")


class UnknownSide(InvalidSetting):
    """What was given as a version to measure is no git ref, folder or interpreter."""

    def __init__(self, given: str, tried: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"{given!r} can't be measured:\n{in_columns(tried)}\n"
            "Give a git ref (main, HEAD~1, v1.2), a folder (../other) or a Python interpreter (.venv/bin/python)."
        )


class SideFailed(LlmBenchError):
    """A worker of one side couldn't start, died, hung or sent nonsense. Says in which test, and what it last wrote."""

    def __init__(self, side: str, reason: str, test: str = "", last_words: str = "") -> None:
        where = f" in {test}" if test else ""
        words = "".join(f"\n  | {line}" for line in last_words.splitlines())
        super().__init__(f"{side}{where}: {reason}{words}")
        self.reason = reason


class PlatformUnsupported(LlmBenchError):
    """What was asked for can't be done on this operating system."""
