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


def test_the_tests_that_traceability_names_exist() -> None:
    page = (ROOT / "docs/traceability.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 50

    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists()
        or (
            f"def {test}(" not in (ROOT / path).read_text()
            and f"class {test}" not in (ROOT / path).read_text()
            and f"{test} =" not in (ROOT / path).read_text()
        )
    ]
    assert missing == []


def test_traceability_covers_every_number() -> None:
    page = (ROOT / "docs/traceability.md").read_text()
    last = {"R": 138, "F": 40, "B": 31, "I": 25, "N": 6}
    wanted = [f"{letter}{n}" for letter, count in last.items() for n in range(1, count + 1)]

    assert [number for number in wanted if f"\n| {number} | " not in page] == []


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
