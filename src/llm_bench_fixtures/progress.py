"""What the session is doing, how far it is and for how long: shown where it takes over two seconds, and added up by
phase."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum

TICK_S = 0.5  # how often a shown activity's seconds are renewed


class Phase(StrEnum):
    """The kinds of work by which a session's time is counted."""

    IMPORTING = "importing"
    CHECKING = "checking"
    MEASURING_LIMITS = "limits"
    LOADING = "loading"
    EXPORTING = "exporting"
    QUANTIZING = "quantizing"
    CALIBRATING = "calibrating"
    COMPILING = "compiling"
    LOADING_CODE = "code"  # compiled earlier
    SCORING = "scoring"
    COUNTING = "counting"
    GENERATING = "generating"
    REPORTING = "reporting"


class Milestone(StrEnum):
    """Part of a run whose length can be told from it."""

    VARIANT = "variant"  # loaded
    CASE = "case"  # measured


@dataclass(frozen=True)
class Left:
    """Seconds that something still takes."""

    seconds: float
    is_most: bool = False
    """Whether they are the most that its rounds may take, to which waiting for other work adds; else an estimate."""


@dataclass(frozen=True)
class Ongoing:
    """An activity while it goes on, as a display shows it."""

    text: str
    elapsed_s: float
    place: str = ""
    """Which part of how many it is: "variant 3/11"; empty where that isn't known."""
    step: str = ""
    """How far it is: "round 3/5", "40 %"; empty where that isn't known."""
    detail: str = ""
    """Who is at it: a variant's id."""
    left: Left | None = None
    """Time until the activity ends; None where there is nothing to tell it by."""
    run_left_s: float | None = None
    """Seconds until the run is done, as it is expected; None where nobody knows."""


class ProgressDisplay:
    """Where running and finished activities are shown. The base class shows nothing."""

    def running(self, status: Ongoing) -> None:
        """Called while an activity is the innermost one and has lasted over two seconds, again and again."""

    def finished(self, text: str) -> None:
        """Called at the end of an activity for which `running` was called."""


@dataclass
class Planned:
    """The parts of one kind, and how many are done."""

    total: int = 0
    """0 where nobody has said."""
    done: int = 0
    ended: set[str] = field(default_factory=set)
    """Names of parts that have ended: one that comes again isn't counted again."""
    goes_on: bool = False
    """Whether one of them goes on."""

    def place(self, part: Milestone) -> str:
        return f"{part} {self.done + 1}/{self.total}" if self.goes_on and self.done < self.total else ""


class Progress:
    """Shows long activities on a display and adds up the time of each phase.

    A phase inside another (an export inside a load) counts for the inner one only.
    """

    def __init__(
        self,
        display: ProgressDisplay | None = None,
        show_after_s: float = 2.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.display = display or ProgressDisplay()
        self._show_after_s = show_after_s
        self.clock = clock
        self._inner_s: list[float] = []
        self._activities: list[Step] = []
        self._lock = threading.Lock()
        self.planned = {part: Planned() for part in Milestone}
        self.phase_s: dict[Phase, float] = defaultdict(float)
        self.run_left_s: Callable[[], float | None] = lambda: None
        """Tells how many seconds the run still takes; None where nobody knows."""
        self.cut_at_s = math.inf
        """When, on time.monotonic(), work in other processes is stopped in the middle, as Ctrl-C stops it."""
        self.admit: Callable[[Phase], None] = lambda _: None
        """Called before each activity; what it raises keeps the activity from beginning."""

    @contextmanager
    def activity(self, phase: Phase, text: str) -> Iterator[None]:
        """Count the block for `phase`, and show `text` where the block takes long. Raises as `admit`."""
        self.admit(phase)
        with self.counted(phase), self._shown(text), self.told():
            yield

    @contextmanager
    def counted(self, phase: Phase) -> Iterator[None]:
        """Count the block for `phase` and show nothing; starts no thread, so it can stand around a measurement."""
        started = self.clock()
        self._inner_s.append(0.0)
        try:
            yield
        finally:
            elapsed = self.clock() - started
            self.phase_s[phase] += elapsed - self._inner_s.pop()
            if self._inner_s:
                self._inner_s[-1] += elapsed

    @contextmanager
    def stepped(self, phase: Phase, text: str, *, at_once: bool = False) -> Iterator[Step]:
        """Count the block for `phase`. Each call of what it yields shows `text`, once the block takes long: nothing
        of this process runs between the calls, so it can stand around a measurement.

        at_once: show it from the first call on.
        """
        step = Step(text, self, 0.0 if at_once else self._show_after_s)
        with self.counted(phase):
            try:
                yield step
            finally:
                step.finish()

    def expect(self, part: Milestone, total: int, done: int = 0) -> None:
        """Say how many parts of a kind the run consists of, and how many are done."""
        self.planned[part].total, self.planned[part].done = total, done

    @contextmanager
    def part(self, part: Milestone, name: str = "") -> Iterator[None]:
        """The block is one of the parts. name: what comes again by the same name is the same part."""
        planned = self.planned[part]
        if name in planned.ended:
            planned.done -= 1
        planned.goes_on = True
        try:
            yield
        finally:
            planned.done += 1
            if name:
                planned.ended.add(name)
            planned.goes_on = False

    def tell(self, share: float) -> None:
        """Say how much of the innermost activity is done, from 0 to 1."""
        with self._lock:
            if self._activities:
                self._activities[-1].share = share

    @contextmanager
    def told(self) -> Iterator[None]:
        """Let `tell_share` tell this progress inside the block."""
        token = _TOLD.set(self)
        try:
            yield
        finally:
            _TOLD.reset(token)

    @property
    def place(self) -> str:
        """Which part of how many goes on; empty where that isn't known."""
        return next(filter(None, (planned.place(part) for part, planned in self.planned.items())), "")

    @contextmanager
    def _shown(self, text: str) -> Iterator[None]:
        """Show the block while it is the innermost one. One thread, the outermost block's, shows all of them."""
        activity = Step(text, self, self._show_after_s)
        ended = threading.Event()
        watcher = None
        if not self._activities:
            watcher = threading.Thread(target=self._watch, args=(ended,), name="llm-bench-progress", daemon=True)
        self._activities.append(activity)
        if watcher is not None:
            watcher.start()
        try:
            yield
        finally:
            with self._lock:
                self._activities.pop().finish()
            if watcher is not None:
                ended.set()
                watcher.join()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(min(self._show_after_s, TICK_S)):
            with self._lock:
                if self._activities:
                    self._activities[-1].show_share()


_TOLD: ContextVar[Progress | None] = ContextVar("llm_bench_progress", default=None)


def tell_share(share: float) -> None:
    """Say how much of what goes on is done, from 0 to 1: to whoever shows it, if anybody does."""
    progress = _TOLD.get()
    if progress is not None:
        progress.tell(share)


class Step:
    """Shows an activity, each time that it is called: at most every TICK_S seconds."""

    def __init__(self, text: str, progress: Progress, show_after_s: float) -> None:
        self._text = text
        self._progress = progress
        self._began_s = progress.clock()
        self._next_s = show_after_s
        self._is_shown = False
        self.share = 0.0
        """How much of the activity is done, where somebody tells."""

    @property
    def elapsed_s(self) -> float:
        return self._progress.clock() - self._began_s

    def __call__(self, step: str = "", detail: str = "", left: Left | None = None) -> None:
        """Show the activity. step, detail, left: as in `Ongoing`."""
        elapsed_s = self.elapsed_s
        if elapsed_s >= self._next_s:
            self._show(elapsed_s, step, detail, left)
            self._next_s = elapsed_s + TICK_S

    def show_share(self) -> None:
        """Show the activity once it takes long, with its share and the time that the rest takes at this rate."""
        elapsed_s, share = self.elapsed_s, self.share
        if elapsed_s >= self._next_s:
            left = Left(elapsed_s * (1 - share) / share) if share else None
            self._show(elapsed_s, f"{share * 100:.0f} %" if share else "", "", left)

    def _show(self, elapsed_s: float, step: str, detail: str, left: Left | None) -> None:
        self._is_shown = True
        place, run_left_s = self._progress.place, self._progress.run_left_s()
        self._progress.display.running(Ongoing(self._text, elapsed_s, place, step, detail, left, run_left_s))

    def finish(self) -> None:
        if self._is_shown:
            self._progress.display.finished(self._text)


def about(seconds: float) -> str:
    """Time in whole seconds, from 100 of them on in minutes, from 100 minutes on with hours."""
    if round(seconds) < 100:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
