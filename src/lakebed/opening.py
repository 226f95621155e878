"""Opening the two halves of a lake, and making sure that they belong together."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryRefusedError
from lakebed.registry.create import has_registry, open_registry, read_facts
from lakebed.storage.connect import find_place, mark_warehouse, open_storage, read_marker

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
        halves = _Halves(url, lambda: stack.enter_context(closing(open_registry(url, clock=clock, timeout_s=timeout_s, verify=verify))))
        storage = open_storage(warehouse, create=create, owner=halves.registry_id, claims=halves.claims)
        _bind(halves.registry, storage)
        stack.pop_all()
        return halves.registry, storage


def adopt_warehouse(url: str, warehouse: str, *, legacy: str | None = None, timeout_s: float = 30.0) -> int:
    """Make a place that holds the registry's files its warehouse; how many files were compared, 0 if it was that already.

    `legacy` names the registry of an older lake whose files are there instead: a registry of its own is created for them.
    """
    from lakebed.adopting.ownership import require_legacy_files, require_own_files  # noqa: PLC0415 - brings what reads strangers' files

    storage, compared, is_new = find_place(warehouse), 0, False
    if legacy is not None and storage.find_marker() is None:
        compared, is_new = require_legacy_files(legacy, storage, timeout_s=timeout_s), True
    with closing(open_registry(url, timeout_s=timeout_s, create=is_new)) as registry:
        if storage.find_marker() is None:
            compared = compared or require_own_files(registry, storage)
            facts = read_facts(registry)
            mark_warehouse(storage, registry_id=facts["registry_id"], warehouse_id=facts.get("warehouse_id"))
        _bind(registry, storage)
    return compared


def adopt_migrated(url: str, warehouse: str) -> str | None:
    """After a migration: mark the warehouse of a registry that has files and none yet; its root, None where there is nothing to do."""
    if not has_registry(url):
        return None
    with closing(open_registry(url)) as registry:
        if not _is_unbound(registry):
            return None
    adopt_warehouse(url, warehouse)
    return find_place(warehouse).paths.root


@dataclass
class _Halves:
    """The registry is opened last, unless a new warehouse wants to know whose it is."""

    url: str
    open: Callable[[], Registry]

    @cached_property
    def registry(self) -> Registry:
        return self.open()

    def registry_id(self) -> str:
        return read_facts(self.registry)["registry_id"]

    def claims(self, storage: Storage) -> bool:
        """Whether the files at an unmarked place are those of a registry that has no warehouse yet: one of an early revision, migrated."""
        from lakebed.adopting.ownership import require_own_files  # noqa: PLC0415 - as above

        if not has_registry(self.url) or not _is_unbound(self.registry):
            return False
        require_own_files(self.registry, storage)
        return True


def _is_unbound(registry: Registry) -> bool:
    """Whether it has files and never met a warehouse: registries of early revisions knew no marker."""
    return "warehouse_id" not in read_facts(registry) and bool(
        registry.query("SELECT 1 FROM table_files WHERE retired_seq IS NULL LIMIT 1")
    )


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
