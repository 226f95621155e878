"""The whole schema of today as each database spells it: tables, indexes, and triggers, functions and constraints."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lakebed.registry.schema.append_function import append_function
from lakebed.registry.schema.journal_triggers import postgres_triggers, sqlite_triggers
from lakebed.registry.schema.rule_triggers import postgres_rules, sqlite_rules, table_options

if TYPE_CHECKING:
    from lakebed.registry.backends.statements import Dialect

_TYPES = {"BIGINT": "bigint", "TEXT": "text", "BYTEA": "bytea", "BLOB": "bytea", "SMALLINT": "smallint", "INTEGER": "bigint"}


def statements(dialect: Dialect) -> list[str]:
    """The whole schema of today, in order."""
    return [*table_ddl(dialect), *table_options(dialect), *programs(dialect).values()]


def freeze() -> dict[str, dict[str, dict[str, str]]]:
    """Today's schema as `migrations/schema_<revision>.json` keeps it for the migration that introduces it."""
    dialects: tuple[Dialect, ...] = ("sqlite", "postgresql")
    return {
        dialect: {
            "tables": {str(number): ddl for number, ddl in enumerate([*table_ddl(dialect), *table_options(dialect)])},
            "triggers": programs(dialect),
        }
        for dialect in dialects
    }


def table_ddl(dialect: Dialect) -> list[str]:
    """Imports SQLAlchemy, and only when a registry is made."""
    from sqlalchemy.dialects import postgresql, sqlite  # noqa: PLC0415
    from sqlalchemy.schema import CreateIndex, CreateTable  # noqa: PLC0415

    from lakebed.registry.schema.tables import METADATA  # noqa: PLC0415

    spoken = sqlite.dialect() if dialect == "sqlite" else postgresql.dialect()  # type: ignore[no-untyped-call]
    made: list[str] = []
    for table in METADATA.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=spoken)).strip())
        made.extend(str(CreateIndex(index).compile(dialect=spoken)) for index in sorted(table.indexes, key=lambda i: str(i.name)))
    return made


def rules(dialect: Dialect) -> dict[str, str]:
    return sqlite_rules() if dialect == "sqlite" else postgres_rules()


def triggers(dialect: Dialect) -> dict[str, str]:
    return sqlite_triggers() if dialect == "sqlite" else postgres_triggers()


def programs(dialect: Dialect) -> dict[str, str]:
    """Triggers, functions and constraints, which start-up verifies."""
    return {**rules(dialect), **triggers(dialect), **(append_function() if dialect == "postgresql" else {})}


@lru_cache(maxsize=1)
def column_types() -> dict[str, dict[str, str]]:
    """PostgreSQL's type of every column, for inserts from arrays."""
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - as above

    from lakebed.registry.schema.tables import METADATA  # noqa: PLC0415

    spoken = postgresql.dialect()  # type: ignore[no-untyped-call]
    return {
        table.name: {column.name: _TYPES[column.type.compile(dialect=spoken)] for column in table.columns}
        for table in METADATA.tables.values()
    }
