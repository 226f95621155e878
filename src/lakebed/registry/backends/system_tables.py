"""Read the system catalogs of SQLite and PostgreSQL: tables, indexes and programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakebed.registry.backends.protocol import Queryable

_SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_SQLITE_PROGRAMS = "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')"
_POSTGRES_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_POSTGRES_TRIGGERS = (
    "SELECT t.tgname, p.prosrc, pg_get_triggerdef(t.oid, true) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid "
    "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')"
)
_POSTGRES_CONSTRAINTS = "SELECT k.conname FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace WHERE n.nspname = current_schema() AND k.contype = 'x'"
_POSTGRES_FUNCTIONS = (
    "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
    "WHERE n.nspname = current_schema() AND p.proname LIKE 'lakebed%'"
)
_POSTGRES_INVALID = """SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND NOT (i.indisvalid AND i.indisready)"""


class SqliteSystem:
    """`sqlite_master` keeps every statement as it was written."""

    def list_tables(self, source: Queryable) -> set[str]:
        return {row[0] for row in source.query(_SQLITE_TABLES)}

    def list_programs(self, source: Queryable) -> dict[str, str]:
        return {row[0]: _squeeze(row[1]) for row in source.query(_SQLITE_PROGRAMS)}

    def shape_of(self, ddl: str) -> str:
        return _squeeze(ddl)

    def find_strangers(self, found: Collection[str], expected: Collection[str]) -> set[str]:
        """SQLite must trust its schema for JSON inside triggers, so only Lakebed's own programs are allowed."""
        return set(found) - set(expected)

    def drop_program(self, name: str, ddl: str) -> str:
        return f"DROP {'VIEW' if ddl.startswith('CREATE VIEW') else 'TRIGGER'} IF EXISTS {name}"

    def list_reindexing(self, source: Queryable) -> list[str]:  # noqa: ARG002 - it rebuilds all of them in one statement
        return ["REINDEX"]


class PostgresSystem:
    """The system catalog of the current schema."""

    def list_tables(self, source: Queryable) -> set[str]:
        return {row[0] for row in source.query(_POSTGRES_TABLES)}

    def list_programs(self, source: Queryable) -> dict[str, str]:
        shapes = {row[0]: _shape(row[1], row[2]) for row in source.query(_POSTGRES_TRIGGERS)}
        constraints = {row[0]: "" for row in source.query(_POSTGRES_CONSTRAINTS)}
        return shapes | constraints | {row[0]: _shape(row[1], "") for row in source.query(_POSTGRES_FUNCTIONS)}

    def shape_of(self, ddl: str) -> str:
        """A function's body and its trigger's words in any order, because PostgreSQL writes them its own way; of a constraint its being there."""
        if "$$" not in ddl:
            return ""
        _, body, _ = ddl.split("$$")
        return _shape(body, split_script(ddl)[-1] if "TRIGGER" in ddl else "")

    def find_strangers(self, found: Collection[str], expected: Collection[str]) -> set[str]:  # noqa: ARG002 - others may add theirs
        return set()

    def drop_program(self, name: str, ddl: str) -> str:
        if "$$" not in ddl:
            return f"ALTER TABLE partitions DROP CONSTRAINT IF EXISTS {name}"
        return f"DROP FUNCTION IF EXISTS {name} CASCADE"

    def list_reindexing(self, source: Queryable) -> list[str]:
        return [f'REINDEX INDEX "{name}"' for (name,) in source.query(_POSTGRES_INVALID)]


def split_script(statement: str) -> list[str]:
    """A function and its trigger are two statements; inside `$$` a semicolon does not end one."""
    parts, inside = [""], False
    for line in statement.split("\n"):
        if line.count("$$") % 2:
            inside = not inside
        parts[-1] += line + "\n"
        if not inside and line.rstrip().endswith(";"):
            parts.append("")
    return [part for part in (p.strip().removesuffix(";") for p in parts) if part]


def _shape(body: str, declaration: str) -> str:
    return _squeeze(f"{body} {' '.join(sorted(re.findall(r'[a-z_]+', declaration.lower())))}")


def _squeeze(ddl: str) -> str:
    return " ".join(ddl.split())
