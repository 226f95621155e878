"""Opening the two halves of a lake, and making sure that they belong together."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryRefusedError
from lakebed.registry.create import open_registry, read_facts
from lakebed.storage.connect import open_storage, read_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.times import Clock
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

_KEEP = "INSERT INTO registry_facts (key, value) VALUES ('warehouse_id', :id) ON CONFLICT (key) DO NOTHING"


def open_halves(
    url: str,
    warehouse: str,
    *,
    clock: Clock | None = None,
    timeout_s: float = 30.0,
    create: bool = True,
    verify: bool = True,
) -> tuple[Registry, Storage]:
    """Registry and warehouse, created where there are none. They belong to each other for life.

    `verify=False` opens a registry whose triggers were altered, for those who mend it.
    """
    with ExitStack() as stack:
        halves = _Halves(lambda: stack.enter_context(closing(open_registry(url, clock=clock, timeout_s=timeout_s, verify=verify))))
        storage = open_storage(warehouse, create=create, owner=halves.registry_id)
        _bind(halves.registry, storage)
        stack.pop_all()
        return halves.registry, storage


@dataclass
class _Halves:
    """The registry is opened last, unless a new warehouse wants to know whose it is."""

    open: Callable[[], Registry]

    @cached_property
    def registry(self) -> Registry:
        return self.open()

    def registry_id(self) -> str:
        return read_facts(self.registry)["registry_id"]


def _bind(registry: Registry, storage: Storage) -> None:
    """A registry that met another warehouse would judge its files as lost and the others as orphans; two in one warehouse likewise."""
    marker, shown = read_marker(storage), registry.backend.shown_url
    if marker.registry_id is not None and marker.registry_id != read_facts(registry)["registry_id"]:
        message = f"{storage.paths.root} holds the files of another registry than {shown}, which would take them for orphans: give both as they were created"
        raise RegistryRefusedError(message)
    with registry.write() as tx:
        tx.run(_KEEP, {"id": marker.warehouse_id})
        ((bound,),) = tx.query("SELECT value FROM registry_facts WHERE key = 'warehouse_id'")
    if bound != marker.warehouse_id:
        message = f"{shown} belongs to another warehouse than {storage.paths.root}: give both as they were created"
        raise RegistryRefusedError(message)
