"""Whatever a user can call, set, see or be told is documented: enumerated from the program, looked for in the pages."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from pages import PAGES, ROOT, list_blocks, list_commands, section

from face import list_calls
from lakebed.astha.circuit_breaker import BreakerState
from lakebed.core import errors
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Event, RegistryTable
from lakebed.core.results import list_columns
from lakebed.core.tables.compaction import Reason
from lakebed.core.tables.snapshots import Retention, SnapshotPolicy, Trigger
from lakebed.core.tasks import Task
from lakebed.lake import Lake
from lakebed.monitoring.declarations import METRICS
from lakebed.pipeline.sql.functions.answers import FUNCTIONS
from lakebed.registry.backends import constraints
from lakebed.repair.remedies import DAMAGED, FOR_PEOPLE, KNOWN_RULES
from lakebed.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DOCS = ROOT / "docs"
_COMMAND = re.compile(r"\blakebed((?: [a-z][a-z-]+)+)")


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts/build_docs.py"), "--check"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_documented_with_an_example() -> None:
    page = (DOCS / "reference/cli.md").read_text()
    commands = list_commands()
    assert len(commands) > 40

    assert [command for command in commands if f"```console\n{command}" not in section(page, f"## `{command}`")] == []


def test_pages_name_only_commands_that_exist() -> None:
    commands = set(list_commands())
    stems = {tuple(command.split()) for command in commands}
    known = {words[:n] for words in stems for n in range(1, len(words) + 1)}

    unknown = [f"{page.name}: {found}" for page in PAGES for found in _mentioned(page) if not _is_known(found, known)]
    assert unknown == []


def test_every_setting_is_documented_with_its_default() -> None:
    page = (DOCS / "reference/settings.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `")}
    origins = load_settings(environment={}).origins

    assert [one.name for one in origins if f"`{one.name}`" not in rows] == []
    printed = {one.name: rows[f"`{one.name}`"].split("|")[2].strip().strip("`") for one in origins}
    assert {name: value for name, value in printed.items() if value != _default_of(name)} == {}


def test_pages_and_examples_name_only_variables_that_exist() -> None:
    known = {f"LAKEBED_{one.name.upper().replace('.', '_')}" for one in load_settings(environment={}).origins}
    files = [*PAGES, *(path for path in (ROOT / "examples").rglob("*") if path.is_file())]
    found = {name for file in files for name in re.findall(r"\bLAKEBED_[A-Z_]*[A-Z]\b", file.read_text())}
    assert "LAKEBED_REGISTRY_URL" in found

    own = {"LAKEBED_DB_PASSWORD"}  # the compose file's
    assert sorted(found - known - own) == []


def test_every_setting_of_a_table_is_documented() -> None:
    page = section((DOCS / "reference/settings.md").read_text(), "## Settings of a table")
    keys = [f.name for kind in (SnapshotPolicy, Retention) for f in fields(kind)] + list(Trigger)

    assert _missing(keys, page) == []


def test_every_error_code_has_a_meaning_a_cause_and_a_remedy() -> None:
    reference, trouble = (DOCS / "reference/errors.md").read_text(), (DOCS / "troubleshooting.md").read_text()
    classes = [c for module in (errors, constraints) for _, c in inspect.getmembers(module, inspect.isclass)]
    codes = {c.code for c in classes if issubclass(c, errors.LakebedError)} - {"error"}

    assert _missing(sorted(codes), reference) == []
    explained = {row[0] for row in _rows(trouble) if len(row) == 3 and row[1] and row[2]}
    assert sorted(codes - explained) == []
    assert sorted(code for code in _listed_codes(trouble) if code not in codes) == []


def test_every_breaker_state_has_a_cause_and_a_remedy() -> None:
    rows = {row[0]: row for row in _rows(section((DOCS / "troubleshooting.md").read_text(), "## Breaker states"))}

    assert {state.value for state in BreakerState} == rows.keys() - {"state"}
    assert all(row[1] and row[2] for row in rows.values())


def test_every_rule_of_the_check_is_explained() -> None:
    text = "\n".join(module.read_text() for module in (ROOT / "src/lakebed/check").rglob("*.py"))
    rules = re.findall(r'Rule\(\s*name="(\w+)"', text)
    assert len(rules) > 40

    assert _missing(rules, section((DOCS / "troubleshooting.md").read_text(), "## What the check finds")) == []


def test_what_a_repair_fixes_links_to_it_and_the_rest_does_not() -> None:
    rows = _rows(section((DOCS / "troubleshooting.md").read_text(), "## What the check finds"))
    advice = {rule: row[2] for row in rows for rule in re.findall(r"\w+", row[0])}
    mended = {rule for rule in KNOWN_RULES - DAMAGED - FOR_PEOPLE if not advice[rule].startswith("lakebed repair")}

    assert sorted(mended) == []
    assert sorted(rule for rule in FOR_PEOPLE | DAMAGED if advice[rule].startswith("lakebed repair")) == []


def test_every_event_and_subscription_is_documented() -> None:
    page = (DOCS / "reference/events.md").read_text()
    rows = {row[0]: row for row in _rows(section(page, "## Who hears of what"))}

    assert _missing([*RegistryTable, *ChangeKind, *(f.name for f in fields(Event))], page) == []
    assert {c: set(re.findall(r"\w+", rows[c][1])) for c in COMPONENT_SUBSCRIPTIONS} == {
        c: set(tables) for c, tables in COMPONENT_SUBSCRIPTIONS.items()
    }


def test_every_metric_is_documented() -> None:
    page = (DOCS / "reference/metrics.md").read_text()

    assert _missing([metric.name for metric in METRICS], page) == []


def test_no_page_names_a_metric_that_does_not_exist() -> None:
    names = {metric.name for metric in METRICS}
    found = {name for page in PAGES for name in re.findall(r"\blakebed_[a-z_]+\b", page.read_text()) if name.startswith("lakebed_")}

    assert sorted(found - names - {"lakebed_append", "lakebed_fence", "lakebed_spark", "lakebed_template", "lakebed_unchecked"}) == []


def test_every_endpoint_and_task_of_the_service_is_documented() -> None:
    page = (DOCS / "how-to/service.md").read_text()
    paths = re.findall(r'case "(/\w+)"', (ROOT / "src/lakebed/monitoring/endpoints.py").read_text())
    assert len(paths) == 4

    assert _missing([*paths, *Task], page) == []


def test_every_sql_function_is_documented_with_its_arguments_and_columns() -> None:
    page = (DOCS / "reference/sql-functions.md").read_text()

    for function in FUNCTIONS.values():
        text = section(page, f"## {function.name}")
        assert [p.name for p in function.parameters if p.name not in text] == [], function.name
        assert _missing(list_columns(function.row), page) == [], function.name


def test_every_public_member_of_a_lake_is_documented() -> None:
    page = (DOCS / "reference/python.md").read_text()
    members = [name for name, _ in inspect.getmembers(Lake) if not name.startswith("_")]

    assert [name for name in (*members, *list_calls().keys() - {"connect"}) if f"# `lake.{name}`\n" not in page] == []


def test_every_argument_of_a_public_call_has_a_text() -> None:
    page = (DOCS / "reference/python.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `.*` \| (.*)\|$", page, re.MULTILINE)
    listed = sum(len(inspect.signature(call).parameters) for call in list_calls().values())

    assert len(rows) > listed * 0.7  # all but `self`
    assert [name for name, text in rows if not text.strip()] == []


def test_every_public_call_says_what_it_does() -> None:
    assert [name for name, call in list_calls().items() if not inspect.getdoc(call)] == []


def test_every_reason_of_a_compaction_plan_is_explained() -> None:
    assert _missing(list(Reason), (DOCS / "how-to/compaction.md").read_text()) == []


def test_every_how_to_and_reference_is_on_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    pages = [*(DOCS / "how-to").glob("*.md"), *(DOCS / "reference").glob("*.md")]

    assert [page.name for page in pages if f"({page.parent.name}/{page.name})" not in index] == []


def _mentioned(page: Path) -> Iterator[tuple[str, ...]]:
    """Commands in code, fenced or not."""
    text = page.read_text()
    code = [block.text for block in list_blocks(text) if block.language in {"sh", "console"}] + re.findall(r"`(lakebed [^`]+)`", text)
    for piece in code:
        yield from (tuple(("lakebed" + words).split()) for words in _COMMAND.findall(piece))


def _is_known(words: tuple[str, ...], known: set[tuple[str, ...]]) -> bool:
    """A command and perhaps an argument behind it."""
    return any(words[:n] in known and (n > 1 or len(words) == 1) for n in range(len(words), 0, -1)) or words[:1] == words


def _default_of(name: str) -> str:
    value = next(one.value for one in load_settings(environment={}).origins if one.name == name)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _missing(names: Iterable[str], page: str) -> list[str]:
    return sorted({name for name in names if f"`{name}`" not in page})


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]


def _listed_codes(text: str) -> set[str]:
    """What the four tables of codes explain."""
    parts = [section(text, f"## {family}") for family in ("Refused", "Conflict", "Unavailable", "Corruption")]
    return {row[0] for part in parts for row in _rows(part)} - {"code"}
