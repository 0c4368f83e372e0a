"""Write the reference pages that come from the code: options, metrics, variants, exit statuses, names, commands.

python tools/write_docs.py          # after a change of any of them

A page keeps what stands above its mark, and the rest is written anew.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import llm_bench_fixtures
from llm_bench_fixtures.cli.main import COMMANDS
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.history.storage import RUN_HELP
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.options.table import OPTIONS, Option, flag_of
from llm_bench_fixtures.report.renderers.markdown import escape
from llm_bench_fixtures.results.metrics import METRICS, Direction, Kind, Metric

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BETTER = {Direction.HIGHER_IS_BETTER: "↑", Direction.LOWER_IS_BETTER: "↓", Direction.NEITHER: ""}
SHOWN = {"?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]"}  # by how many of a positional argument there are
LONG_HELP = 100  # characters that are not written on two pages
ON_OTHER_PAGES = ("exit status", "the exit status", "examples:", "llm-bench ")  # how such paragraphs begin
MARK = "<!-- What follows is written by tools/write_docs.py. -->"


def metric_lists() -> Iterator[str]:
    for kind in Kind:
        rows = [(one.name, f"({worth(one)}) {one.formula}{source_of(one)}") for one in METRICS if one.kind is kind]
        if rows:
            yield from (f"## {kind.value.capitalize()}", "")
            yield from bullets((name, escape(text)) for name, text in rows)


def worth(metric: Metric) -> str:
    """The unit and which way is better: `s ↓`."""
    return f"{metric.unit.value} {BETTER[metric.direction]}".strip() or "a number"


def source_of(metric: Metric) -> str:
    return f" ({metric.source})" if metric.source else ""


def option_list() -> Iterator[str]:
    rows = ((typed(name, option), option.default, option.help) for name, option in OPTIONS.items())
    return bullets((flag, escape(f"({default}) {text}" if default else text)) for flag, default, text in rows)


def typed(name: str, option: Option) -> str:
    """The flag with its value, in brackets where it may be left out."""
    value = f"[{option.metavar}]" if option.alone else option.metavar
    return f"{flag_of(name)} {value}".strip()


def variant_list() -> Iterator[str]:
    rows = ((one, (escape(needed_extra(one.backend)), f"from `{one.base}`" if one.base else "")) for one in CATALOGUE)
    return bullets((one.id, escape(one.description) + in_brackets(notes)) for one, notes in rows)


def in_brackets(notes: Iterable[str]) -> str:
    """The notes that aren't empty; nothing where all are."""
    text = ", ".join(filter(None, notes))
    return f" ({text})" if text else ""


def needed_extra(backend: str) -> str:
    """The extra of this package that installs the backend's libraries; empty where the package itself does."""
    extra = BACKENDS[backend].extra
    return f"[{extra}]" if extra else ""


def exit_status_list() -> Iterator[str]:
    yield from (f"- {status:d}, **{status.words}**: {status.meaning}" for status in ExitStatus)
    yield ""


def public_name_lists() -> Iterator[str]:
    """The docstrings are Markdown themselves."""
    yield from (f"- `{name}`: {sentence}" for name, sentence in public_names())
    yield from ("", "## Members of enums", "")
    values = ((name, getattr(llm_bench_fixtures, name)) for name in sorted(llm_bench_fixtures.__all__))
    enums = ((name, value) for name, value in values if inspect.isclass(value) and issubclass(value, Enum))
    yield from (f"- `{name}`: {', '.join(f'`{member}`' for member in enum.__members__)}" for name, enum in enums)
    yield ""


def public_names() -> Iterator[tuple[str, str]]:
    """Each public name with the first paragraph of its docstring."""
    for name in sorted(llm_bench_fixtures.__all__):
        value = getattr(llm_bench_fixtures, name)
        text = docstring_of_constant(name) if kind_of(name) == "constant" else own_docstring(value)
        yield name, text.split("\n\n")[0].replace("\n", " ")


def docstring_of_constant(name: str) -> str:
    """The string literal below its assignment; empty where there is none."""
    texts = (
        path.read_text(encoding="utf-8") for path in sorted(Path(llm_bench_fixtures.__file__).parent.rglob("*.py"))
    )
    for text in (one for one in texts if name in one):
        for assigned, below in pairwise(ast.parse(text).body):
            targets = getattr(assigned, "targets", [getattr(assigned, "target", None)])
            if isinstance(assigned, ast.Assign | ast.AnnAssign) and name in map(ast.unparse, filter(None, targets)):
                return inspect.cleandoc(literal(below))
    return ""


def literal(node: ast.stmt) -> str:
    """The text of a statement that is nothing but a string literal; empty for any other."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


def own_docstring(value: Any) -> str:
    """Docstring of the value itself, without one that a class inherits, or that a dataclass writes for itself."""
    text = inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value) or ""
    return "" if text.startswith(f"{value.__name__}(") else text


def kind_of(name: str) -> str:
    value = getattr(llm_bench_fixtures, name)
    return "class" if inspect.isclass(value) else "function" if inspect.isfunction(value) else "constant"


class ListingParser(argparse.ArgumentParser):
    """Tells the arguments that a command adds."""

    def __init__(self, name: str) -> None:
        super().__init__(prog=f"llm-bench {name}", add_help=False)

    @property
    def added(self) -> list[argparse.Action]:
        """Arguments that were added, those of groups too."""
        return self._actions


def command_reference() -> Iterator[str]:
    """The commands' docstrings without exit statuses and examples, which other pages have, and their arguments with the
    help; help that several commands give stands once."""
    parsers = {name: ListingParser(name) for name in COMMANDS}
    for name, module in COMMANDS.items():
        module.add_arguments(parsers[name])
    texts = Counter(text_of(one) for parser in parsers.values() for one in parser.added)
    shared = {text for text, count in texts.items() if count > 1}
    yield from ("## Options of several commands", "")
    users = {text: [name for name in parsers if text in map(text_of, parsers[name].added)] for text in shared}
    yield from bullets((text[0], f"({', '.join(users[text])}) {text[1]}") for text in texts if text in shared)
    for name, parser in parsers.items():
        paragraphs = inspect.cleandoc(COMMANDS[name].__doc__ or "").split("\n\n")
        told = "\n\n".join(one for one in paragraphs if not one.lower().strip().startswith(ON_OTHER_PAGES))
        yield from (f"## llm-bench {name}", "", "```text", told, "```", "")
        yield from bullets(text for text in map(text_of, parser.added) if text not in shared)


def bullets(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list whose entries begin with code."""
    yield from (f"- `{first}`: {rest}" for first, rest in rows)
    yield ""


def text_of(argument: argparse.Action) -> tuple[str, str]:
    return names_of(argument), help_of(argument)


def names_of(argument: argparse.Action) -> str:
    """Names as they are typed: `-o DIR, --output DIR`, or `RUN [RUN ...]`."""
    if not argument.option_strings:
        return SHOWN.get(str(argument.nargs), "{0}").format(argument.metavar)
    value = "" if argument.nargs == 0 else f" {argument.metavar}"
    return ", ".join(f"{name}{value}" for name in argument.option_strings)


def help_of(argument: argparse.Action) -> str:
    """Help of the argument; what `pytest --help` says of an option with the same meaning is named instead."""
    text = ((argument.help or "") % {**vars(argument)}).replace(RUN_HELP, "a saved run")
    for name, option in OPTIONS.items():
        if len(option.help) > LONG_HELP:
            text = text.replace(option.help, f"as pytest's `{flag_of(name)}`")
    return text


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "reference/command-line.md": command_reference,
    "reference/exit-statuses.md": exit_status_list,
    "reference/metrics.md": metric_lists,
    "reference/options.md": option_list,
    "reference/public-names.md": public_name_lists,
    "reference/variants.md": variant_list,
}


def render(page: str, text: str) -> str:
    """The page with what is written renewed."""
    return text.split(MARK)[0] + "\n".join([MARK, "", *PAGES[page]()])


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(render(page, path.read_text(encoding="utf-8")), encoding="utf-8")
