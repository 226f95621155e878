"""The journal's triggers, generated from the row dataclasses.

Every change of a monitored row becomes one `change_log` row in the same transaction, numbered
densely per lake table. Images are JSON arrays in the order of the dataclass; those of an UPDATE leave
out what the database refuses to change: the before-image always, the after-image of `PARTIAL_IMAGE` rows.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lakebed.core.events import ROW_TYPES, ChangeKind, RegistryTable
from lakebed.core.rows import PARTIAL_IMAGE, Row, list_changing_columns, list_columns
from lakebed.registry.ids import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANNEL = "lakebed_journal"  # PostgreSQL's NOTIFY channel; stored in triggers: never rename
_BYTES = frozenset({"schema"})  # binary columns travel as hex


def sqlite_triggers() -> dict[str, str]:
    """Trigger name to DDL. Row triggers: SQLite has no others."""
    made: dict[str, str] = {}
    for table, row in ROW_TYPES.items():
        for operation in ChangeKind:
            name = _name(table, operation)
            made[name] = _sqlite_capture(name, table, operation, row)
        made[f"frozen_{table}"] = (
            f"CREATE TRIGGER frozen_{table} BEFORE UPDATE OF {', '.join(_frozen(row))} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'frozen_column: {table}'); END"
        )
    return made


def postgres_triggers() -> dict[str, str]:
    """Trigger name to DDL of its function and trigger. Statement triggers: a row trigger would update one counter per row."""
    made: dict[str, str] = {}
    for table, row in ROW_TYPES.items():
        for operation in ChangeKind:
            name = _name(table, operation)
            made[name] = _postgres_capture(name, table, operation, row)
        made[f"frozen_{table}"] = (
            f"CREATE FUNCTION frozen_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION 'frozen_column: {table}' USING ERRCODE = 'check_violation'; END $$;\n"
            f"CREATE TRIGGER frozen_{table} BEFORE UPDATE OF {', '.join(_frozen(row))} ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION frozen_{table}()"
        )
    return made


def hash_triggers(triggers: dict[str, str]) -> str:
    """One hash over all of them: what the registry stores and start-up compares."""
    listed = "\n".join(f"{name}\n{_squeeze(ddl)}" for name, ddl in sorted(triggers.items()))
    return hashlib.sha256(listed.encode()).hexdigest()


def _squeeze(ddl: str) -> str:
    return " ".join(ddl.split())


def _name(table: RegistryTable, operation: ChangeKind) -> str:
    return f"capture_{table}_{operation.lower()}"


def _frozen(row: type[Row]) -> list[str]:
    changing = set(list_changing_columns(row))
    return [column for column in list_columns(row) if column not in changing]


def _image(alias: str, columns: tuple[str, ...], *, function: str, hexed: str) -> str:
    return f"{function}({', '.join(_values(alias, columns, hexed))})"


def _values(alias: str, columns: tuple[str, ...], hexed: str) -> Iterator[str]:
    for column in columns:
        value = f"{alias}.{column}"
        yield hexed.format(value) if column in _BYTES else value


def _after_update(row: type[Row]) -> tuple[str, ...]:
    return list_changing_columns(row) if row in PARTIAL_IMAGE else list_columns(row)


def _table_id(table: RegistryTable) -> str:
    return "id" if table is RegistryTable.TABLES else "table_id"


def _sqlite_capture(name: str, table: RegistryTable, operation: ChangeKind, row: type[Row]) -> str:
    alias = "OLD" if operation is ChangeKind.DELETE else "NEW"
    owner = f"{alias}.{_table_id(table)}"

    def image(of: str, columns: tuple[str, ...]) -> str:
        return _image(of, columns, function="json_array", hexed="hex({})")

    before = {
        ChangeKind.INSERT: "NULL",
        ChangeKind.UPDATE: image("OLD", list_changing_columns(row)),
        ChangeKind.DELETE: image("OLD", list_columns(row)),
    }[operation]
    after = {
        ChangeKind.INSERT: image("NEW", list_columns(row)),
        ChangeKind.UPDATE: image("NEW", _after_update(row)),
        ChangeKind.DELETE: "NULL",
    }[operation]
    return (
        f"CREATE TRIGGER {name} AFTER {operation} ON {table} BEGIN "
        f"UPDATE table_seq SET last_seq = last_seq + 1 WHERE table_id = {owner}; "
        "INSERT INTO change_log (id, registry_table, operation, row_id, before, after, at) "
        f"SELECT (table_id << {ID_BITS}) + last_seq, '{table}', '{operation}', {alias}.id, {before}, {after}, "
        "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) "
        f"FROM table_seq WHERE table_id = {owner}; END"
    )


def _postgres_capture(name: str, table: RegistryTable, operation: ChangeKind, row: type[Row]) -> str:
    owner = _table_id(table)

    def image(of: str, columns: tuple[str, ...]) -> str:
        return _image(of, columns, function="json_build_array", hexed="encode({}, 'hex')") + "::text"

    before, after, source, referencing = {
        ChangeKind.INSERT: ("NULL", image("n", list_columns(row)), "new_rows n", "NEW TABLE AS new_rows"),
        ChangeKind.UPDATE: (
            image("o", list_changing_columns(row)),
            image("n", _after_update(row)),
            "new_rows n JOIN old_rows o ON o.id = n.id",
            "NEW TABLE AS new_rows OLD TABLE AS old_rows",
        ),
        ChangeKind.DELETE: (image("n", list_columns(row)), "NULL", "old_rows n", "OLD TABLE AS old_rows"),
    }[operation]
    return f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WITH bumped AS (
    UPDATE table_seq s SET last_seq = s.last_seq + c.changes
    FROM (SELECT n.{owner} AS owner, count(*) AS changes FROM {source} GROUP BY 1) c WHERE s.table_id = c.owner
    RETURNING s.table_id, s.last_seq - c.changes AS base, pg_notify('{CHANNEL}', s.table_id::text))
  INSERT INTO change_log (id, registry_table, operation, row_id, before, after, at)
  SELECT (b.table_id << {ID_BITS}) + b.base + row_number() OVER (PARTITION BY b.table_id ORDER BY n.id),
         '{table}', '{operation}', n.id, {before}, {after},
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  FROM {source} JOIN bumped b ON b.table_id = n.{owner};
  RETURN NULL;
END $$;
CREATE TRIGGER {name} AFTER {operation} ON {table} REFERENCING {referencing} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"""
