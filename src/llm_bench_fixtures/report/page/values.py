"""What the page is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from llm_bench_fixtures.report.charts.plotly import Json, figures_of
from llm_bench_fixtures.report.charts.spec import Chart, Plot
from llm_bench_fixtures.report.limits import LimitScale
from llm_bench_fixtures.report.page.heatmap import Heatmap
from llm_bench_fixtures.report.renderers.figures import legend
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Table
from llm_bench_fixtures.report.words.answer import Answer


@dataclass(frozen=True)
class Term:
    """What a column's head means: an entry of the glossary."""

    key: str
    """The entry's id in the page."""
    name: str
    meaning: str
    """The formula in words."""
    better: str = ""
    """Which way it is better, as Direction says it; empty where neither is."""
    source: str = ""
    """The publication or the tool that the formula is from."""

    @property
    def hint(self) -> str:
        """All of it on one line, for a browser's own tooltip."""
        parts = (self.name, self.better, self.meaning)
        return ". ".join(f"{part[0].upper()}{part[1:].rstrip('.')}" for part in parts if part) + "."


@dataclass(frozen=True)
class PageTable:
    """A table with what the page adds to it."""

    caption: str
    table: Table
    terms: Mapping[str, Term] = field(default_factory=dict)
    """By a column's name, what it means."""
    narrow: Collection[str] = ()
    """Names of the columns that stay on a narrow window; all without any."""
    of: tuple[str, ...] = ()
    """The variant of each row, which the page's filter goes by, where the column of variants doesn't name it."""

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        return self.table.rows

    @property
    def variants(self) -> list[str]:
        return list(self.of) or [cell.text for cell in self.table.cells(VARIANT)] or [""] * len(self.rows)

    @property
    def group_starts(self) -> set[int]:
        """Rows that begin a group: those that share their first cell, unless each row has one of its own."""
        firsts = [row[0].text for row in self.rows]
        grouped = len(set(firsts)) < len(firsts)
        return {place for place in range(1, len(firsts)) if grouped and firsts[place] != firsts[place - 1]}

    @property
    def legend(self) -> str:
        """A sentence on what its figures are. Beneath a figure of the page its interval has no brackets."""
        words = "; ".join(legend(self.table, interval="below a figure, a–b"))
        return f"{words[:1].upper()}{words[1:]}." if words else ""


@dataclass(frozen=True)
class PageSection:
    """A table that is folded until it is asked for."""

    title: str
    table: PageTable
    note: str = ""
    scenario: str = ""
    """Whose benchmarks these are, which the page's filter goes by; empty for none."""
    plots: tuple[Plot, ...] = ()
    """Pictures for browsers that run no scripts."""


@dataclass(frozen=True)
class Chip:
    """A variant, as the filter offers it."""

    variant: str
    colour: str
    title: str
    """What ran."""


@dataclass(frozen=True)
class Continuation:
    """One text, and the variants that wrote it."""

    variants: tuple[str, ...]
    same: str
    """As far as it is the reference's, or the whole of it where it is the reference's."""
    different: str = ""
    """From the first character on that is another."""
    is_reference: bool = False
    ends_early: bool = False
    """It is all the reference's, which goes on."""


@dataclass(frozen=True)
class PromptTexts:
    """What the variants wrote after one prompt; the reference's text stands first."""

    prompt: str
    texts: tuple[Continuation, ...]


@dataclass(frozen=True)
class MissingBenchmarks:
    """Benchmarks of a variant that were skipped, or failed, for one reason."""

    variant: str
    status: str
    reason: str
    install: str
    """The command that would help; empty where no installation does."""
    benchmarks: str
    """How many."""


@dataclass(frozen=True)
class ChangesPart:
    """The run next to another one."""

    name: str
    """Of the other run."""
    sentence: str
    answer_before: str
    """The other run's answer; empty where it isn't known."""
    against: str
    overview: PageTable
    moved: PageTable
    """What changed and can fail a gate, by cause."""
    advisory: PageTable
    """What changed and fails no gate, by cause; folded."""
    values: PageTable
    """Every value that changed; folded."""
    still: PageTable
    """What did not change or is not known, by cause; folded."""
    tests: PageTable
    """What only one of the runs measured, and why."""
    notes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    """Of the other run."""


@dataclass(frozen=True)
class Page:
    """Everything that report.html shows, from top to bottom."""

    title: str
    header: str
    subtitle: str
    """The machine, and when."""
    warnings: tuple[str, ...]
    answer: Answer
    limits: tuple[LimitScale, ...]
    """The answers under other quality limits."""
    changes: ChangesPart | None
    """None where the run stands alone."""
    takeaways: tuple[str, ...]
    chips: tuple[Chip, ...]
    tradeoff: Chart | None
    tradeoff_plots: tuple[Plot, ...]
    summary: PageTable
    summary_note: str
    heatmap: Heatmap | None
    """The speed-ups of every case."""
    sweeps: tuple[Chart, ...]
    sweep_plots: tuple[Plot, ...]
    machine: tuple[Chart, ...]
    """The roofline, and prefill and decode."""
    machine_plots: tuple[Plot, ...]
    machine_note: str
    agreement: tuple[PageSection, ...]
    """How far pooled runs agree; empty for a single run."""
    texts: tuple[PromptTexts, ...]
    texts_note: str
    """Whose texts are not among them; empty where all are."""
    absences: tuple[MissingBenchmarks, ...]
    scenarios: tuple[tuple[str, str], ...]
    """Name and title of those that have a section."""
    sections: tuple[PageSection, ...]
    reference: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    command: str
    """What repeats the run, for a shell."""
    footnotes: tuple[str, ...]
    glossary: tuple[Term, ...]
    reload_s: int = 0
    """How often it reads itself anew while its run goes on; 0: the run has ended."""

    @property
    def figures(self) -> dict[str, Json]:
        """What the page's script draws."""
        return figures_of([*([self.tradeoff] if self.tradeoff else []), *self.sweeps, *self.machine])
