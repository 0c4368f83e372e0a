"""Where a run's numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_bench_fixtures.measure.tasks import TaskFacts
from llm_bench_fixtures.reading import Count, Figure, Text


@dataclass(frozen=True)
class Commit:
    """The commit that is measured, in the fields that a run's provenance has of it."""

    commit: str = ""
    """Full id; empty outside a repository."""
    branch: str = ""
    """Empty where no branch is checked out."""
    dirty: bool = False
    """Whether there are changes that aren't committed."""
    changes: str = ""
    """A digest of these changes, and of Python files that git doesn't track; empty where there are none, or they are
    not known."""

    @property
    def state(self) -> str:
        return f"{self.commit}+{self.changes}"


@dataclass(frozen=True)
class Provenance:
    """Where a run's numbers come from."""

    started: Text
    """ISO 8601 in UTC."""
    model: Text
    random_weights: bool
    """The weights are random, so that quality says nothing about the model."""
    device: Text
    hardware: Text
    """The processor and its number of cores, and the accelerator."""
    threads: int
    """Threads that torch computes with."""
    platform: Text
    """The operating system and its C library."""
    python: Text
    libraries: Mapping[Text, Text]
    """Version by the library's name."""
    commit: Text = ""
    """Full id of the commit that was measured; empty outside a git repository."""
    branch: Text = ""
    dirty: bool = False
    """There were changes that were not committed."""
    changes: Text = ""
    """A digest of these changes, and of Python files that git doesn't track; empty where there are none, or they are
    not known."""
    corpus: Text = ""
    """The texts that quality was measured on, with their digest and how they were cut."""
    prompts: Text = ""
    """The user's own prompts with their file's digest, or their shapes, and which were left out; empty without any."""
    choices: Text = ""
    """The questions of multiple choice that were asked, with their digest; empty where none were."""
    tasks: tuple[TaskFacts, ...] = ()
    """The tasks of lm-evaluation-harness that were asked."""
    command: Text = ""
    """The command line of the run."""
    options: Mapping[Text, Text] = field(default_factory=dict)
    """Options that change figures and stand nowhere else here: what was given, by name."""
    isolated: bool = False
    """Each variant ran in a process of its own."""
    attention: Text = ""
    """The attention implementation that was asked for; empty where it was the model's own choice."""
    chat: bool = False
    """Prompts were turns in the model's chat template."""
    need: Text = ""
    """Limits that a variant had to keep to be recommended, as typed; empty where nothing was asked."""
    want: Text = ""
    """What the answer was to name first, as it was typed; empty where nothing was asked."""
    energy: Text = ""
    """Where joules were read, or why they were not."""
    model_digests: Mapping[Text, Text] = field(default_factory=dict)
    """Digests of samples of the model's `config`, `tokenizer` and `weights`; empty in older files."""
    passed_over: tuple[Text, ...] = ()
    """Candidates for the model that were not used, each with the reason."""
    memory_bytes: Count | None = None
    """Free on the device before anything was loaded."""
    fit_bytes: Count | None = None
    """The memory that the model is to fit into, where one was given."""
    read_bytes_per_s: Figure | None = None
    """The most that this machine reads from memory, as measured in this run."""
    matmul_flops_per_s: Mapping[Text, Figure] = field(default_factory=dict)
    """The most that this machine computes, by dtype, as measured in this run."""
