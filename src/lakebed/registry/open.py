"""Opening a registry: create it, or make sure that it is the one this program can write to."""

from __future__ import annotations

import re
import secrets
import sqlite3
from functools import lru_cache
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryMissingError, RegistryNewerError, RegistryOlderError, RegistryRefusedError, TriggersChangedError
from lakebed.registry.backends.sqlite import SqliteBackend
from lakebed.registry.registry import Registry, parse_url, read_host_clock
from lakebed.registry.schema.append_function import append_function
from lakebed.registry.schema.journal_triggers import hash_triggers, postgres_triggers, sqlite_triggers
from lakebed.registry.schema.rule_triggers import postgres_rules, sqlite_rules, table_options

if TYPE_CHECKING:
    from lakebed.core.times import Clock
    from lakebed.registry.backends.protocol import Backend, Connection
    from lakebed.registry.backends.statements import Dialect

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")  # stored in alembic_version: never rename
HEAD = REVISIONS[-1]
_CREATE_LOCK = 7_521_903  # PostgreSQL: two processes must not create the same registry at once
_TYPES = {"BIGINT": "bigint", "TEXT": "text", "BYTEA": "bytea", "BLOB": "bytea", "SMALLINT": "smallint", "INTEGER": "bigint"}


def open_registry(
    url: str,
    *,
    clock: Clock | None = None,
    host_clock: Clock = read_host_clock,
    timeout_s: float = 30.0,
    strict: bool = False,
    verify: bool = True,
    migrate: bool = True,
    create: bool = False,
) -> Registry:
    """Open `url`; a place without a registry is refused, or with `create=True` gets an empty one.

    An older one is migrated only where nobody else can be using it.
    """
    backend = open_backend(url, timeout_s=timeout_s, strict=strict)
    registry = Registry(backend, clock=clock, host_clock=host_clock)
    try:
        found = find_revision(registry)
        if found is None:
            _require_creating(backend, create=create)
            _create(registry)
        elif found != HEAD:
            _catch_up(registry, url, found, migrate=migrate)
        if verify:
            verify_triggers(registry)
    except BaseException:
        registry.close()
        raise
    return registry


def _require_creating(backend: Backend, *, create: bool) -> None:
    if not create:
        raise RegistryMissingError(backend.shown_url)


def open_backend(url: str, *, timeout_s: float = 30.0, strict: bool = False) -> Backend:
    where = parse_url(url)
    if isinstance(where, str):
        from lakebed.registry.backends.postgres import PostgresBackend  # noqa: PLC0415 - its driver takes as long to load as everything else

        return PostgresBackend(where, types=column_types(), timeout_s=timeout_s)
    return SqliteBackend(where, timeout_s=timeout_s, strict=strict)


def has_registry(url: str) -> bool:
    """Whether there is one of any revision; nothing is created."""
    try:
        require_registry(url)
    except RegistryMissingError:
        return False
    return True


def require_registry(url: str) -> None:
    """Refuse a place without one; nothing is created, and none is migrated."""
    registry = Registry(open_backend(url))
    try:
        if find_revision(registry) is None:
            raise RegistryMissingError(registry.backend.shown_url)
    finally:
        registry.close()


def find_revision(registry: Registry) -> str | None:
    """The registry's revision; None where there is none, not even an empty database; refuses a database that is not ours."""
    if isinstance(registry.backend, SqliteBackend) and registry.backend.is_empty():
        return None
    names = {row[0] for row in registry.query(_LIST_TABLES[registry.dialect])}
    if "alembic_version" in names:
        rows = registry.query("SELECT version_num FROM alembic_version")
        return str(rows[0][0]) if rows else None
    if names:
        message = f"{registry.backend.shown_url} holds other tables ({', '.join(sorted(names)[:3])}): give Lakebed a database of its own"
        raise RegistryRefusedError(message)
    return None


def require_known(found: str) -> None:
    if found not in REVISIONS:
        raise RegistryNewerError(found, known=HEAD)


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
    """Everything in the database that acts by itself, and that start-up therefore verifies."""
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


def verify_triggers(registry: Registry) -> None:
    """Every rule and journal trigger is there, enabled and unaltered; else writing would lose changes silently."""
    expected = programs(registry.dialect)
    found = _found_sqlite(registry) if registry.dialect == "sqlite" else _found_postgres(registry)
    wanted = expected if registry.dialect == "sqlite" else {name: _postgres_shape(ddl) for name, ddl in expected.items()}
    missing = tuple(sorted(wanted.keys() - found.keys()))
    changed = tuple(sorted(name for name, ddl in wanted.items() if name in found and _squeeze(found[name]) != _squeeze(ddl)))
    # SQLite must trust its schema for JSON inside triggers, so nothing may be there that we did not write
    changed += tuple(sorted(found.keys() - wanted.keys())) if registry.dialect == "sqlite" else ()
    stored = registry.query("SELECT value FROM registry_facts WHERE key = 'trigger_hash'")
    if not stored or stored[0][0] != hash_triggers(expected):
        changed = changed or ("the stored hash",)
    if missing or changed:
        raise TriggersChangedError(missing=missing, changed=changed)


def stamp_facts(connection: Connection, dialect: Dialect) -> None:
    """What start-up compares: the triggers' hash and the registry's identity."""
    expected = programs(dialect)
    upsert = "INSERT INTO registry_facts (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    connection.run(upsert, {"key": "trigger_hash", "value": hash_triggers(expected)})
    keep = "INSERT INTO registry_facts (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING"
    connection.run(keep, {"key": "registry_id", "value": secrets.token_hex(16)})


def read_facts(registry: Registry) -> dict[str, str]:
    """What the registry remembers of itself: its id, and the id of the warehouse that it belongs to."""
    return dict(registry.query("SELECT key, value FROM registry_facts"))


_LIST_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}


def _create(registry: Registry) -> None:
    backend = registry.backend
    if isinstance(backend, SqliteBackend):
        backend.create_file()
    connection = backend.connect()
    try:
        backend.begin_write(connection, ())
        if registry.dialect == "postgresql":
            connection.run(f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})")
        if find_revision(registry) is not None:  # somebody else created it while we waited
            backend.rollback(connection)
            return
        backend.script(
            connection,
            [
                *statements(registry.dialect),
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL CONSTRAINT alembic_version_pkc PRIMARY KEY)",
            ],
        )
        connection.run("INSERT INTO alembic_version (version_num) VALUES (:head)", {"head": HEAD})
        stamp_facts(connection, registry.dialect)
        backend.commit(connection)
    except BaseException:
        backend.rollback(connection)
        raise
    finally:
        connection.close()


def _catch_up(registry: Registry, url: str, found: str, *, migrate: bool) -> None:
    require_known(found)
    if not migrate or not _alone(registry):
        raise RegistryOlderError(found, known=HEAD)
    from lakebed.registry.migrate import migrate_registry  # noqa: PLC0415 - Alembic is loaded only when there is something to do

    migrate_registry(url)


def _alone(registry: Registry) -> bool:
    """Only SQLite can tell that no other process has the registry open: an exclusive lock is granted."""
    if not isinstance(registry.backend, SqliteBackend):
        return False
    for connection in registry.take_idle():
        connection.close()
    probe = sqlite3.connect(registry.backend.path, timeout=0, isolation_level=None)
    try:
        probe.execute("PRAGMA locking_mode=EXCLUSIVE")
        probe.execute("BEGIN EXCLUSIVE")
        probe.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        probe.close()
    return True


def _squeeze(ddl: str) -> str:
    return " ".join(ddl.split())


def _postgres_shape(ddl: str) -> str:
    """A function's body and its trigger's words in any order, because PostgreSQL tells them in its own; of a constraint its being there."""
    if "$$" not in ddl:
        return ""
    _, body, _ = ddl.split("$$")
    from lakebed.registry.backends.postgres import split_script  # noqa: PLC0415 - only where there is a PostgreSQL

    return _shape(body, split_script(ddl)[-1] if "TRIGGER" in ddl else "")


def _shape(body: str, declaration: str) -> str:
    return f"{body} {' '.join(sorted(re.findall(r'[a-z_]+', declaration.lower())))}"


def _found_sqlite(registry: Registry) -> dict[str, str]:
    return {row[0]: row[1] for row in registry.query("SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')")}


def _found_postgres(registry: Registry) -> dict[str, str]:
    rows = registry.query(
        "SELECT t.tgname, p.prosrc, pg_get_triggerdef(t.oid, true) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid "
        "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')"
    )
    constraints = registry.query(
        "SELECT k.conname FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace "
        "WHERE n.nspname = current_schema() AND k.contype = 'x'"
    )
    functions = registry.query(
        "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = current_schema() AND p.proname LIKE 'lakebed%'"
    )
    shapes = {row[0]: _shape(row[1], row[2]) for row in rows}
    return shapes | {row[0]: "" for row in constraints} | {row[0]: _shape(row[1], "") for row in functions}
