"""Names of tables: spelled as the registry has them, and free for a new table only if no other differs only in case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import TableExistsError
from lakebed.core.names import TableName
from lakebed.registry.table_cache import find_named, list_folded

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_ROOM = 7_521_904  # of PostgreSQL's advisory locks: never change, other versions of this program take them too


def resolve_name(registry: Registry, text: str | TableName) -> TableName:
    """The name as the registry spells it, or as it was given where there is no such table."""
    name = text if isinstance(text, TableName) else TableName.parse(text)
    if registry.tables.knows(name):
        return name
    found = find_named(registry, name)
    return name if found is None else found[1]


def require_free_name(tx: Transaction, name: TableName) -> None:
    """Refuse a name that a table has in any case. Until the transaction ends no other transaction creates one of that name."""
    tx.lock_key(_ROOM, str(name).lower())
    for _, database, found in list_folded(tx, name):
        raise TableExistsError(str(name), found=f"{database}.{found}")
