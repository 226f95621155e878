"""Taking a dropped table out of the catalog, so that no engine finds it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileMissingError
from lakebed.core.names import TableName
from lakebed.iceberg.catalog import looking_at_catalog
from lakebed.iceberg.metadata.load import TableOpener
from lakebed.iceberg.metadata.ownership import belongs
from lakebed.registry.tables.lake_tables import find_table, list_all_tables

if TYPE_CHECKING:
    from lakebed.iceberg.catalog import LakeCatalog
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


def forget_table(registry: Registry, storage: Storage, name: TableName, table_id: int) -> bool:
    """Remove the pointer of a table that the registry has dropped; False when there is none, or it is another table's by now.

    A reader that opened the table before reads on until the grace of its files ends.
    """
    with looking_at_catalog(registry, storage) as catalog:
        pointer = None if catalog is None else catalog.find_pointer(name)
        if catalog is None or pointer is None or not _is_ours(registry, storage, catalog, name, table_id):
            return False
        catalog.create_tables()  # pointers that another program restored may lack the fence
        return catalog.forget(name, old=pointer.location, epoch=catalog.raise_fence(name))


def forget_dropped(registry: Registry, storage: Storage) -> int:
    """Remove the pointers that a drop which was killed left behind; how many."""
    dropped = [table for table in list_all_tables(registry) if table.dropped_at is not None]
    with looking_at_catalog(registry, storage) as catalog:
        if catalog is None:
            return 0
        left = [table for table in dropped if catalog.find_pointer(TableName(table.database, table.name)) is not None]
    return sum(forget_table(registry, storage, TableName(table.database, table.name), table.id) for table in left)


def _is_ours(registry: Registry, storage: Storage, catalog: LakeCatalog, name: TableName, table_id: int) -> bool:
    """By its metadata; where that cannot be read, by there being no other table of the name."""
    try:
        base = TableOpener(registry, storage, catalog).find(name)
    except (FileMissingError, CorruptionError):
        base = None
    if base is None:
        return find_table(registry, name) is None
    return belongs(base.metadata, table_id)
