from __future__ import annotations

import ast
import re
from pathlib import Path

from pages import PAGES, ROOT

from lakebed.registry.schema.tables import METADATA

LONGEST = 400


def test_every_table_and_column_of_the_registry_is_documented() -> None:
    page = (ROOT / "docs/reference/registry.md").read_text()

    missing = []
    for table in METADATA.tables.values():
        _, found, rest = page.partition(f"## `{table.name}`\n")
        section = rest.partition("\n## ")[0] if found else ""
        missing += [f"{table.name}.{column.name}" for column in table.columns if f"`{column.name}`" not in section]
    assert missing == []


def test_every_room_of_the_package_is_on_the_architecture_page() -> None:
    page, source = (ROOT / "docs/architecture.md").read_text(), ROOT / "src/lakebed"
    rooms = {path.stem for path in source.glob("*.py") if not path.name.startswith("_")}
    rooms |= {".".join(path.parent.relative_to(source).parts) for path in source.rglob("__init__.py")} - {"", "migrations.versions"}

    missing = sorted(room for room in rooms if f"`lakebed.{room}`" not in page and not room.endswith("migrations.versions"))
    assert missing == []


def test_every_module_that_the_architecture_page_names_is_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", page.partition("## Where to change what")[2].partition("\n## ")[0])
    assert len(named) > 20

    assert [name for name in named if not (ROOT / "src/lakebed" / name).exists()] == []


def test_the_tests_that_a_quick_run_leaves_out_are_there() -> None:
    """A renamed one would be run again without a word."""
    named = [line.partition("=")[2] or line for line in (ROOT / "tests/quick.txt").read_text().split()]
    files = {name: ROOT / name.partition("::")[0] for name in named}

    assert [name for name, path in files.items() if not path.exists()] == []
    assert [n for n, path in files.items() if "::" in n and f"def {n.partition('::')[2]}(" not in path.read_text()] == []


def test_every_decision_has_a_number_a_date_and_a_status() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))
    heads = [
        re.match(r"# (\d+)\. .+\n\nDate: (\d{4}-\d\d-\d\d)\. Status: (accepted|superseded|rejected)\b.*\.\n", p.read_text()) for p in pages
    ]

    assert [page.name for page, head in zip(pages, heads, strict=True) if head is None] == []
    assert [int(head[1]) for head in heads if head] == list(range(1, len(pages) + 1))
    assert [head[2] for head in heads if head] == sorted(head[2] for head in heads if head)


def test_no_page_or_module_names_a_machine_path() -> None:
    suspects = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root|tmp)/")
    files = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]

    assert [str(f.relative_to(ROOT)) for f in files if f != Path(__file__) and suspects.search(f.read_text())] == []


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    files = [f for folder in ("src", "bench", "tests", "scripts") for f in (ROOT / folder).rglob("*.py")]

    assert [f"{f.relative_to(ROOT)}: {n}" for f in files if (n := len(f.read_text().splitlines())) > LONGEST] == []


def test_no_statement_takes_a_value_by_formatting() -> None:
    """Only constants and declared names may be formatted into SQL; values are always bound."""
    allowed = re.compile(r"_?[A-Z][A-Z0-9_]*(\[.*\])?$")
    declared = {"columns", "', '.join(_COLUMNS)", "', '.join(METADATA_COLUMNS)", "sql", "source", "' AND '.join(conditions)", "CHANNEL"}
    found = []
    for module in (ROOT / "src/lakebed/registry").rglob("*.py"):
        for call in (n for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.Call)):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr in {"query", "run", "send", "execute"} and call.args):
                continue
            if isinstance(call.args[0], ast.JoinedStr):
                parts = [ast.unparse(v.value) for v in call.args[0].values if isinstance(v, ast.FormattedValue)]
                found += [f"{module.name}: {part}" for part in parts if not allowed.match(part) and part not in declared]
    assert found == []
