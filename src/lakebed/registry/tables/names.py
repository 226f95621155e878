"""Looking tables up by name, as Spark's catalog does: the exact spelling first, then the one that differs in case alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import TableExistsError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.core.suggestions import list_near

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

_EXACT = "SELECT id, database, name FROM tables WHERE database = :database AND name = :name AND dropped_at IS NULL"
# No index knows this: asked only where the exact spelling is unknown. Names are ASCII, and some locales fold that otherwise
_FOLDED = {
    "sqlite": "SELECT id, database, name FROM tables WHERE lower(database) = :database AND lower(name) = :name AND dropped_at IS NULL",
    "postgresql": """SELECT id, database, name FROM tables
WHERE lower(database COLLATE "C") = :database AND lower(name COLLATE "C") = :name AND dropped_at IS NULL""",
}
_ALL = "SELECT database, name FROM tables WHERE dropped_at IS NULL ORDER BY database, name"
_LOCK_NAME = "SELECT pg_advisory_xact_lock(CAST(:room AS integer), hashtext(:name))"
_ROOM = 7_521_904  # of PostgreSQL's advisory locks: never change, other versions of this program take them too


def find_named(source: Registry | Reader | Transaction, name: TableName) -> tuple[int, TableName] | None:
    """The table's id and its name as the registry spells it; None also where several differ from `name` in case alone."""
    rows = source.query(_EXACT, {"database": name.database, "name": name.name}) or _list_folded(source, name)
    return (rows[0][0], TableName(rows[0][1], rows[0][2])) if len(rows) == 1 else None


def resolve_name(registry: Registry, text: str | TableName) -> TableName:
    """The name as the registry spells it, or as it was given where there is no such table."""
    name = text if isinstance(text, TableName) else TableName.parse(text)
    if registry.knows_table(name):
        return name
    found = find_named(registry, name)
    return name if found is None else found[1]


def require_free_name(tx: Transaction, name: TableName) -> None:
    """Refuse a name that a table has in any case. Until the transaction ends nobody else makes one of that name."""
    if tx.dialect == "postgresql":  # on SQLite there is one writer at a time
        tx.query(_LOCK_NAME, {"room": _ROOM, "name": str(name).lower()})
    for _, database, found in _list_folded(tx, name):
        raise TableExistsError(str(name), found=f"{database}.{found}")


def missing_table(source: Registry | Reader | Transaction, name: TableName) -> TableNotFoundError:
    """The error that names the tables nearby."""
    known = [f"{database}.{found}" for database, found in source.query(_ALL)]
    return TableNotFoundError(str(name), near=list_near(str(name), known))


def _list_folded(source: Registry | Reader | Transaction, name: TableName) -> list[tuple[int, str, str]]:
    params = {"database": name.database.lower(), "name": name.name.lower()}
    return [(row[0], row[1], row[2]) for row in source.query(_FOLDED[source.dialect], params)]
