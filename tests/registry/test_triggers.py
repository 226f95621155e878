"""The triggers are generated from the row types and verified at start: lost capture never goes unnoticed."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from builders import make_table
from lakebed.core.errors import TriggersChangedError
from lakebed.core.events import ROW_TYPES, ChangeKind, RegistryTable
from lakebed.core.rows import PARTIAL_IMAGE, list_changing_columns, list_columns
from lakebed.registry.connect import open_backend
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.open import open_registry
from lakebed.registry.registry import Registry
from lakebed.registry.schema.ddl import rules, triggers
from lakebed.registry.schema.tables import METADATA

if TYPE_CHECKING:
    from lakebed.registry.backends.statements import Dialect


def tamper(url: str, *statements: str) -> None:
    with closing(Registry(open_backend(url))) as registry, registry.write() as tx:
        for statement in statements:
            tx.run(statement)


def drop(kind: str, trigger: str, table: str) -> str:
    return f"DROP TRIGGER {trigger}" if kind == "sqlite" else f"DROP TRIGGER {trigger} ON {table}"


@pytest.mark.parametrize("table", RegistryTable)
def test_a_dropped_trigger_is_named_at_start(url: str, kind: str, table: RegistryTable) -> None:
    tamper(url, drop(kind, f"capture_{table}_update", table), drop(kind, f"frozen_{table}", table))

    with pytest.raises(TriggersChangedError, match="writes are refused until then") as refused:
        open_registry(url)

    assert refused.value.missing == (f"capture_{table}_update", f"frozen_{table}")


def test_an_altered_trigger_is_named_at_start(url: str, kind: str) -> None:
    name = "capture_table_files_insert"
    if kind == "sqlite":
        tamper(url, f"DROP TRIGGER {name}", f"CREATE TRIGGER {name} AFTER INSERT ON table_files BEGIN SELECT 1; END")
    else:
        tamper(url, f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")

    with pytest.raises(TriggersChangedError) as refused:
        open_registry(url)

    assert refused.value.changed == (name,)


def test_a_trigger_that_no_longer_fires_for_every_row_is_named_at_start(url: str, kind: str) -> None:
    name = "capture_table_files_update"
    if kind == "sqlite":
        found = triggers("sqlite")[name].replace(" BEGIN", " WHEN NEW.id > 10 BEGIN", 1)
        tamper(url, f"DROP TRIGGER {name}", found)
    else:
        tamper(
            url,
            f"DROP TRIGGER {name} ON table_files",
            f"CREATE TRIGGER {name} AFTER UPDATE ON table_files REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows "
            f"FOR EACH STATEMENT WHEN (1 = 2) EXECUTE FUNCTION {name}()",
        )

    with pytest.raises(TriggersChangedError):
        open_registry(url)


def test_a_disabled_trigger_is_named_at_start(url: str, kind: str) -> None:
    """SQLite has no disabled triggers; renaming the table takes one away all the same."""
    statement = "DROP TRIGGER capture_tables_insert" if kind == "sqlite" else "ALTER TABLE tables DISABLE TRIGGER capture_tables_insert"
    tamper(url, statement)

    with pytest.raises(TriggersChangedError) as refused:
        open_registry(url)

    assert refused.value.missing == ("capture_tables_insert",)


@pytest.mark.parametrize("rule", ["partition_overlap", "partition_moved", "partition_event_range", "partition_has_no_file"])
def test_a_rule_that_was_taken_away_is_named_at_start(url: str, kind: str, rule: str) -> None:
    table = "table_files" if rule == "partition_has_no_file" else "partitions"
    is_constraint = kind == "postgresql" and rule == "partition_overlap"
    tamper(url, f"ALTER TABLE {table} DROP CONSTRAINT {rule}" if is_constraint else drop(kind, rule, table))

    with pytest.raises(TriggersChangedError) as refused:
        open_registry(url)

    assert refused.value.missing == (rule,)


def test_a_stored_hash_of_another_program_is_noticed(url: str) -> None:
    tamper(url, "UPDATE registry_facts SET value = 'other' WHERE key = 'trigger_hash'")

    with pytest.raises(TriggersChangedError, match="stored hash"):
        open_registry(url)


def test_a_foreign_trigger_in_a_sqlite_registry_is_refused(url: str, kind: str) -> None:
    """SQLite must trust its schema for JSON inside triggers, so nothing may be there that we did not write."""
    if kind == "sqlite":
        tamper(url, "CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM change_log; END")
        with pytest.raises(TriggersChangedError, match="evil"):
            open_registry(url)
    else:
        tamper(url, "CREATE VIEW ours AS SELECT 1")
        open_registry(url).close()


def test_a_good_registry_opens_and_unverified_opening_is_possible_for_repair(url: str, kind: str) -> None:
    open_registry(url).close()
    tamper(url, drop(kind, "capture_tables_insert", "tables"))

    open_registry(url, verify=False).close()


def test_altering_a_registry_table_sends_no_event(registry: Registry) -> None:
    make_table(registry)
    before = last_journal_numbers(registry)

    with registry.write() as tx:
        tx.run("ALTER TABLE table_files ADD COLUMN extra TEXT")
        tx.run("CREATE INDEX extra_index ON table_files (extra)")

    assert last_journal_numbers(registry) == before


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
@pytest.mark.parametrize("table", RegistryTable)
def test_every_field_of_the_row_type_is_in_the_images_in_its_order(table: RegistryTable, dialect: Dialect) -> None:
    made, row = triggers(dialect), ROW_TYPES[table]

    images = {operation: _images(made[f"capture_{table}_{operation.lower()}"]) for operation in ChangeKind}

    every, changing = [*list_columns(row)], [*list_changing_columns(row)]
    assert images[ChangeKind.INSERT] == [every]
    assert images[ChangeKind.UPDATE] == [changing, changing if row in PARTIAL_IMAGE else every]
    assert images[ChangeKind.DELETE] == [every]


def _images(ddl: str) -> list[list[str]]:
    """The columns of each JSON image in a trigger, in order."""
    found = re.findall(r"json(?:_build)?_array\(((?:[^()]|\([^()]*\))*)\)", ddl)
    return [re.findall(r"(?:NEW|OLD|n|o)\.(\w+)", image) for image in found]


@pytest.mark.parametrize("table", RegistryTable)
def test_the_row_type_and_the_database_have_the_same_columns(table: RegistryTable) -> None:
    assert [c.name for c in METADATA.tables[table].columns] == [*list_columns(ROW_TYPES[table])]


def test_every_monitored_table_is_captured_for_every_operation() -> None:
    wanted = {f"capture_{table}_{operation.lower()}" for table in RegistryTable for operation in ChangeKind}
    wanted |= {f"frozen_{table}" for table in RegistryTable}

    assert set(triggers("sqlite")) == set(triggers("postgresql")) == wanted
    assert set(rules("sqlite")) == set(rules("postgresql"))
