"""Opening the two halves of a lake, and making sure that they belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryRefusedError
from lakebed.registry.create import open_registry
from lakebed.storage.connect import open_storage, read_marker

if TYPE_CHECKING:
    from lakebed.core.times import Clock
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

_KEEP = "INSERT INTO registry_facts (key, value) VALUES ('warehouse_id', :id) ON CONFLICT (key) DO NOTHING"


def open_halves(
    url: str, warehouse: str, *, clock: Clock | None = None, timeout_s: float = 30.0, create: bool = True
) -> tuple[Registry, Storage]:
    """Registry and warehouse, created where there are none. A registry belongs to one warehouse for life."""
    storage = open_storage(warehouse, create=create)
    registry = open_registry(url, clock=clock, timeout_s=timeout_s)
    try:
        _bind(registry, storage)
    except BaseException:
        registry.close()
        raise
    return registry, storage


def _bind(registry: Registry, storage: Storage) -> None:
    """A registry that met another warehouse would judge its files as lost and the others as orphans."""
    found = read_marker(storage).warehouse_id
    with registry.write() as tx:
        tx.run(_KEEP, {"id": found})
        ((bound,),) = tx.query("SELECT value FROM registry_facts WHERE key = 'warehouse_id'")
    if bound != found:
        message = f"{registry.backend.shown_url} belongs to another warehouse than {storage.paths.root}: give both as they were created"
        raise RegistryRefusedError(message)
