"""The commands that repeat a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.text import printable

OWN = "llm-bench-fixtures"
BUILD = re.compile(r"cpu|xpu|cu\d+|rocm\d+(\.\d+)*")  # of torch: the name of an index of PyTorch's own
TORCH_INDEX = "https://download.pytorch.org/whl/"


def repeat_command(run: Run) -> str:
    """A line for each step, for a shell: the commit, what was installed, and the run itself. Each word is quoted, as a
    saved run may come from anybody."""
    return "\n".join(_lines(run))


def _lines(run: Run) -> Iterator[str]:
    provenance = run.provenance
    if provenance.commit:
        yield shlex.join(["git", "switch", "--detach", printable(provenance.commit)])
        if provenance.dirty:
            yield "# and the changes that were not committed"
    libraries = dict(provenance.libraries)
    if provenance.commit and libraries.pop(OWN, ""):
        yield "pip install -e ."
    if libraries:
        yield shlex.join(["pip", "install", *map(printable, _requirements(libraries))])
    yield shlex.join(map(printable, _words(run)))


def _requirements(libraries: Mapping[str, str]) -> Iterator[str]:
    """Each at its version. No index has a local version (`+cpu`) but PyTorch's own, by the tag's name."""
    for name, version in libraries.items():
        public, _, tag = version.partition("+")
        yield f"{name}=={public}"
        if name == "torch" and BUILD.fullmatch(tag):
            yield from ("--extra-index-url", f"{TORCH_INDEX}{tag}")


def _words(run: Run) -> list[str]:
    """Of the command line; of what it selected, where the line can't be read as a shell would."""
    try:
        return shlex.split(run.provenance.command)
    except ValueError:
        return ["pytest", *run.selection]
