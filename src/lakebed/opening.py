"""Open the registry and the warehouse of a lake, and make sure that they belong together."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakebed.core.errors import PathRefusedError, RegistryMissingError, RegistryRefusedError
from lakebed.registry.key_values import add_fact, find_fact, read_facts
from lakebed.registry.open import has_registry, open_registry, require_registry
from lakebed.storage.open import find_place, mark_warehouse, open_storage, read_marker

if TYPE_CHECKING:
    from lakebed.core.times import Clock
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


def open_registry_and_storage(
    url: str,
    warehouse: str,
    *,
    clock: Clock | None = None,
    timeout_s: float = 30.0,
    create: bool = True,
    verify: bool = True,
) -> tuple[Registry, Storage]:
    """Registry and warehouse; `create` makes both where neither exists. They belong to each other for life.

    One that exists is never given a new counterpart: its name was misspelled, or its counterpart is unavailable. `verify=False` opens a registry whose triggers were altered, for repair.
    """
    with ExitStack() as stack:

        def open_one(*, create: bool) -> Registry:
            return stack.enter_context(closing(open_registry(url, clock=clock, timeout_s=timeout_s, verify=verify, create=create)))

        opening = _Opening(url, open_one)
        storage = _find_storage(opening, warehouse, create=create)
        registry = opening.require_registry(storage, create=create)
        _bind(registry, storage)
        stack.pop_all()
        return registry, storage


def adopt_warehouse(url: str, warehouse: str, *, legacy: str | None = None, timeout_s: float = 30.0) -> int:
    """Make a place that holds the registry's files its warehouse; how many files were compared, 0 if it was that already.

    `legacy` names the registry of an older lake whose files are there instead: a registry of its own is created for them.
    """
    from lakebed.legacy.ownership import require_legacy_files, require_own_files  # noqa: PLC0415 - brings what reads strangers' files

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


def _find_storage(opening: _Opening, warehouse: str, *, create: bool) -> Storage:
    try:
        return open_storage(warehouse, create=create, owner=opening.own, claims=opening.claims, allow=opening.require_unbound)
    except PathRefusedError:
        if not create:
            require_registry(opening.url)  # where neither is there, the lake is missing, and not its warehouse alone
        raise


class _Open(Protocol):
    """Opens the registry."""

    def __call__(self, *, create: bool) -> Registry: ...


@dataclass(slots=True)
class _Opening:
    """The registry is opened last, unless a new warehouse needs its id."""

    url: str
    open: _Open
    _registry: Registry | None = field(default=None)

    def require_registry(self, storage: Storage, *, create: bool) -> Registry:
        if self._registry is None:
            is_owned = create and read_marker(storage).registry_id is not None
            try:
                self._registry = self.open(create=create and not is_owned)
            except RegistryMissingError as exc:
                raise RegistryMissingError(exc.url, warehouse=storage.paths.root if is_owned else None) from None
        return self._registry

    def require_unbound(self, storage: Storage) -> None:
        """Before a warehouse is made: the registry, if it is there, has none yet."""
        if self._registry is None and not has_registry(self.url):
            return
        self._registry = registry = self._registry or self.open(create=False)
        # The marker is written before the registry is bound to it, so one that another process makes now is seen here
        if "warehouse_id" in read_facts(registry) and storage.find_marker() is None:
            raise RegistryRefusedError(_describe_mismatch(registry, storage))

    def own(self) -> str:
        """The id of the registry, for a warehouse that is being made."""
        self._registry = self._registry or self.open(create=True)
        return read_facts(self._registry)["registry_id"]

    def claims(self, storage: Storage) -> bool:
        """Whether the files at an unmarked place are those of a registry that has no warehouse yet: one of an early revision, migrated."""
        from lakebed.legacy.ownership import require_own_files  # noqa: PLC0415 - as above

        if self._registry is None and not has_registry(self.url):
            return False
        self._registry = self._registry or self.open(create=False)
        if not _is_unbound(self._registry):
            return False
        require_own_files(self._registry, storage)
        return True


def _is_unbound(registry: Registry) -> bool:
    """Whether it has files and was never bound to a warehouse: registries of early revisions knew no marker."""
    return "warehouse_id" not in read_facts(registry) and bool(
        registry.query("SELECT 1 FROM table_files WHERE retired_seq IS NULL LIMIT 1")
    )


def _bind(registry: Registry, storage: Storage) -> None:
    """A registry opened with another warehouse would judge its own files lost and the others orphans; so would two registries of one warehouse."""
    marker, shown, facts = read_marker(storage), registry.backend.shown_url, read_facts(registry)
    if marker.registry_id is not None and marker.registry_id != facts["registry_id"]:
        message = f"{storage.paths.root} holds the files of another registry than {shown}, which would take them for orphans: give both as they were created"
        raise RegistryRefusedError(message)
    bound = facts.get("warehouse_id")
    if bound is None:
        with registry.write() as tx:
            add_fact(tx, "warehouse_id", marker.warehouse_id)
            bound = find_fact(tx, "warehouse_id")
    if bound != marker.warehouse_id:
        raise RegistryRefusedError(_describe_mismatch(registry, storage))


def _describe_mismatch(registry: Registry, storage: Storage) -> str:
    return f"{registry.backend.shown_url} belongs to another warehouse than {storage.paths.root}: give both as they were created"
