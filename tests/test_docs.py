"""The docs say what the code does, and lead to each other."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import llm_bench_fixtures
from llm_bench_fixtures.measure.equivalence import Equivalence
from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.measure.own_prompts import LENGTHS
from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.models.needs import LayerCache, Parts, Taken
from llm_bench_fixtures.models.variants import DEFAULT
from llm_bench_fixtures.options.table import OPTIONS, flag_of, ini_of
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.metrics import METRICS, Kind
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import MemoryFacts, Record, Run, Session, VariantResult, WorkloadFacts

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *PAGES]
PACKAGE = llm_bench_fixtures.__name__
MOST_WORDS = 35_000


def stored_fields(kind: type[Any]) -> set[str]:
    """Names in a file of what a value of the class holds."""
    names = set(getattr(kind, "__struct_encode_fields__", ())) or {field.name for field in fields(kind)}
    return names - ({"source"} if kind is Run else set())


RECORDED = (Record, WorkloadFacts, Work, MemoryFacts)
OF_ORIGIN = (Provenance, Session, TaskFacts, TaskMetric)
STORED = (Run, *OF_ORIGIN, LoadPoint, Request, VariantResult, Parts, LayerCache, Taken, Equivalence, *RECORDED)
FIELDS = {
    name
    for stored in (*STORED, llm_bench_fixtures.ModelFacts, llm_bench_fixtures.ModelSource, llm_bench_fixtures.Reply)
    for name in stored_fields(stored)
} | {*LENGTHS}
NAMES = {DEFAULT, *BACKENDS, *(variant.id for variant in CATALOGUE)}
MEASURED_BY_DOCS = {
    "answer_length",
    "accuracy",
    "bigram",
    "bigram-int8",
    "endpoint-vllm",
    "endpoint-llamacpp",
}  # the examples' own metrics and variants


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def wrong_by_file(paths: Sequence[Path], wrong: Callable[[str], Iterable[object]]) -> dict[str, list[object]]:
    """What `wrong` finds in each file, without the files in which it finds nothing."""
    found = {name_of(path): list(wrong(read(path))) for path in paths}
    return {name: objects for name, objects in found.items() if objects}


WRITE_DOCS = tool("write_docs")


@pytest.mark.parametrize("page", WRITE_DOCS.PAGES)
def test_the_pages_that_are_written_from_the_code_are_up_to_date(page: str) -> None:
    text = read(DOCS / page)
    assert WRITE_DOCS.render(page, text) == text, "run: python tools/write_docs.py"


def in_nav(node: Any) -> Iterator[str]:
    """The pages of mkdocs' navigation."""
    if isinstance(node, str):
        yield node
    else:
        for child in node.values() if isinstance(node, dict) else node:
            yield from in_nav(child)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load(read(ROOT / "mkdocs.yml"))["nav"]
    assert sorted(in_nav(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_each_page_is_of_one_of_the_four_kinds() -> None:
    kinds = {page.relative_to(DOCS).parts[0] for page in PAGES}
    assert kinds == {"index.md", "tutorial", "how-to", "reference", "explanation"}


def test_no_table_is_broken_by_an_empty_line() -> None:
    """Bug: rows that had been cut left a gap, and what came behind it was no table."""
    row_alone = re.compile(r"^\n(\|.*)\n(?!\|[-:| ]+\n)", re.MULTILINE)
    assert wrong_by_file(TEXTS, row_alone.findall) == {}


def test_the_readme_fits_one_screen() -> None:
    assert len(read(ROOT / "README.md").split()) <= 600


def test_all_texts_together_can_be_read_in_an_afternoon() -> None:
    """As `wc -w` counts them. What is said should stand on one page, and others link to it."""
    words = {name_of(path): len(read(path).split()) for path in TEXTS}
    assert sum(words.values()) <= MOST_WORDS, f"the longest: {sorted(words, key=words.__getitem__)[-5:]}"


def test_every_relative_link_leads_somewhere() -> None:
    """mkdocs checks the pages' own links; this also those of what is outside of the site."""
    links = [(path, target) for path in TEXTS for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", read(path))]
    assert [link for link in links if not (link[0].parent / link[1]).exists()] == []


def test_every_docs_path_that_the_code_names_exists() -> None:
    def missing(code: str) -> list[str]:
        return [name for name in re.findall(r"\bdocs/[\w./-]*\w", code) if not (ROOT / name).exists()]

    assert wrong_by_file(sorted((ROOT / "src").rglob("*.py")), missing) == {}


def test_no_text_names_an_option_that_is_not_there() -> None:
    flags = set(map(flag_of, OPTIONS))
    assert wrong_by_file(TEXTS, lambda text: set(re.findall(r"--llm-[a-z-]+", text)) - flags) == {}


def test_no_text_names_an_ini_value_that_is_not_there() -> None:
    """Bug: a page turned off, by -o, an option that was gone."""
    values = set(map(ini_of, OPTIONS))
    named = re.compile(r"(?:^|-o\s+)(llm_[a-z_]+) ?=", re.MULTILINE)
    assert wrong_by_file(TEXTS, lambda text: set(named.findall(text)) - values) == {}


def test_no_page_uses_a_term_that_only_insiders_understand() -> None:
    """What the code writes is read in the code."""
    terms = re.compile(r"\b(taken apart|is told|are told|undisturbed|patience|beside|pays off)\b", re.IGNORECASE)
    assert wrong_by_file(TEXTS, lambda text: terms.findall(text.split(WRITE_DOCS.MARK)[0])) == {}


def test_no_text_names_a_variant_that_is_not_there() -> None:
    def unknown(text: str) -> set[str]:
        listed = re.findall(r"--(?:llm-variants|variant)[ =]([a-z0-9,-]+)", text)
        alone = re.findall(r"`((?:fp|bf|autocast-|ort-|bnb-)[a-z0-9-]+)`", text)
        named = {re.sub(r"(-[0-9]+t)?(-passive)?$", "", name) for name in (*",".join(listed).split(","), *alone)}
        return named - {""} - NAMES - MEASURED_BY_DOCS

    assert wrong_by_file(TEXTS, unknown) == {}


def test_no_text_names_a_metric_that_is_not_there() -> None:
    """Also what looks like one: a name in backticks that ends with a unit is a metric, or a field of a saved run."""
    metrics = {metric.name for metric in METRICS} | MEASURED_BY_DOCS
    settings = {*OPTIONS, *map(ini_of, OPTIONS)}

    def unknown(text: str) -> set[str]:
        followed = re.findall(r"--metric ([a-z0-9_,]+)", text)
        ruled = re.findall(r"(?:[\",]|\w/)([a-z0-9_]+):(?:\d[\d.]*%|advisory|blocking|off)", text)
        marked = re.findall(r"llm_gate\(([^)]*)\)", text)
        with_unit = re.findall(r"`([a-z0-9_]+_(?:s|j|bytes|flops|share|error|ratio|tokens|passes))`", text)
        return (
            {name for names in followed for name in names.split(",")} - metrics
            | {*ruled, *re.findall(r"([a-z0-9_]+)=", "".join(marked))} - metrics - set(Kind)
            | set(with_unit) - metrics - FIELDS - settings
        )

    assert wrong_by_file(TEXTS, unknown) == {}


def examples(text: str) -> Iterator[ast.Module]:
    """The Python code of a text."""
    for code in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield ast.parse(code)


def own_imports(text: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import from this package in a text's Python code."""
    for module in examples(text):
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
                yield from ((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == PACKAGE)


def test_examples_import_public_names_only() -> None:
    public = {(PACKAGE, name) for name in ("", *llm_bench_fixtures.__all__)}
    assert wrong_by_file(TEXTS, lambda text: set(own_imports(text)) - public) == {}


def test_the_page_of_variants_names_each_in_the_catalogues_order() -> None:
    rows = re.findall(r"^- `([a-z0-9_-]+)`: ", read(DOCS / "reference" / "variants.md"), re.MULTILINE)
    assert rows == [variant.id for variant in CATALOGUE]


@pytest.mark.slow("imports all that is public")
def test_the_page_of_public_names_has_all_of_them_with_a_sentence() -> None:
    rows = dict(WRITE_DOCS.public_names())
    assert list(rows) == sorted(llm_bench_fixtures.__all__)
    assert [name for name, sentence in rows.items() if not sentence] == []


@pytest.mark.slow("imports all that is public")
def test_the_page_of_public_names_explains_constants() -> None:
    page = "\n".join(WRITE_DOCS.public_name_lists())
    assert "- `EDGE_PROMPTS`: Names of the unusual prompts that `llm_prompts.edge` makes." in page


def test_the_schema_names_each_phase_of_a_session() -> None:
    (row,) = re.findall(r"^- `phase_s`: (?:.+\n)+?(?=-)", read(DOCS / "reference" / "results.md"), re.MULTILINE)
    assert {phase.value for phase in Phase} <= set(re.findall(r"`([a-z]+)`", row))


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.__name__)
def test_the_schema_explains_each_field(stored: type) -> None:
    text = read(DOCS / "reference" / "results.md")
    explained = set(re.findall(r"`([a-z_0-9]+)`", " ".join(re.findall(r"^- (`.*?): ", text, re.MULTILINE))))
    assert stored_fields(stored) <= explained


@pytest.mark.parametrize(
    "markup",
    [
        '<link rel="stylesheet" href="https://example.org/a.css">',
        '<link rel="preconnect" href="//example.org" crossorigin>',
        '<script src="https://example.org/a.js"></script>',
        '<img alt="" src="http://example.org/a.png">',
        "<style>@import 'https://example.org/a.css';</style>",
        '<p style="background: url(https://example.org/a.png)">',
    ],
)
def test_the_check_of_the_site_finds_what_a_page_would_fetch(markup: str) -> None:
    addresses = tool("check_site").foreign_addresses("page.html", f"<html>{markup}</html>")
    assert len(addresses) == 1


def test_the_check_of_the_site_lets_links_and_own_files_pass() -> None:
    page = '<a href="https://example.org">it</a><link rel="icon" href="icon.png"><img src="../a.png"><style>a{}</style>'
    assert tool("check_site").foreign_addresses("page.html", page) == []


def test_no_text_names_a_member_of_a_public_enum_that_is_not_there() -> None:
    """Bug: an example went on to name a table after the table was renamed."""
    public = {name: getattr(llm_bench_fixtures, name) for name in llm_bench_fixtures.__all__}
    enums = {name: set(value.__members__) for name, value in public.items() if hasattr(value, "__members__")}

    def unknown(text: str) -> list[str]:
        named = re.findall(rf"\b({'|'.join(enums)})\.([A-Z][A-Z0-9_]*)\b", text)
        return [f"{name}.{member}" for name, member in named if member not in enums[name]]

    assert wrong_by_file(TEXTS, unknown) == {}
