"""The tables that a process remembers, and the lookup of a table by name, as Spark's catalog does it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from lakebed.core.errors import TableNotFoundError
from lakebed.core.names import TableName
from lakebed.core.suggestions import list_near

if TYPE_CHECKING:
    from lakebed.registry.backends.protocol import Queryable

_EXACT = "SELECT id, database, name FROM tables WHERE database = :database AND name = :name AND dropped_at IS NULL"
# No index knows this: asked only where the exact spelling is unknown. Names are ASCII, and some locales fold that otherwise
_FOLDED = {
    "sqlite": "SELECT id, database, name FROM tables WHERE lower(database) = :database AND lower(name) = :name AND dropped_at IS NULL",
    "postgresql": """SELECT id, database, name FROM tables
WHERE lower(database COLLATE "C") = :database AND lower(name COLLATE "C") = :name AND dropped_at IS NULL""",
}
_ALL = "SELECT database, name FROM tables WHERE dropped_at IS NULL ORDER BY database, name"


class TableCache:
    """Found once, looked up by every call after it. Another process may drop a table meanwhile, which its lock detects."""

    def __init__(self) -> None:
        self._ids: dict[TableName, int] = {}
        self.indexed_fields: dict[int, tuple[int, ...]] = {}
        self.scopes: OrderedDict[tuple[int, str, str], int] = OrderedDict()

    def find_id(self, source: Queryable, name: TableName) -> int | None:
        if (known := self._ids.get(name)) is not None:
            return known
        if (found := find_named(source, name)) is None:
            return None
        table_id, spelled = found
        self._ids[spelled] = table_id
        return table_id

    def knows(self, name: TableName) -> bool:
        """Whether this spelling was found before; the table may have been dropped since."""
        return name in self._ids

    def forget(self, name: TableName) -> None:
        self._ids.pop(name, None)


def find_named(source: Queryable, name: TableName) -> tuple[int, TableName] | None:
    """The table's id and its name as the registry spells it; None also where several differ from `name` only in case."""
    rows = source.query(_EXACT, {"database": name.database, "name": name.name}) or list_folded(source, name)
    return (rows[0][0], TableName(rows[0][1], rows[0][2])) if len(rows) == 1 else None


def missing_table(source: Queryable, name: TableName) -> TableNotFoundError:
    """The error that names the tables nearby."""
    known = [f"{database}.{found}" for database, found in source.query(_ALL)]
    return TableNotFoundError(str(name), near=list_near(str(name), known))


def list_folded(source: Queryable, name: TableName) -> list[tuple[int, str, str]]:
    """Id, database and name of the tables whose name differs from `name` only in case, or not at all."""
    params = {"database": name.database.lower(), "name": name.name.lower()}
    return [(row[0], row[1], row[2]) for row in source.query(_FOLDED[source.dialect], params)]
