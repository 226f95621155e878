"""Open a registry: create it, or prove that this program can write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryMissingError, RegistryOlderError
from lakebed.registry.connect import open_backend
from lakebed.registry.registry import Registry, read_host_clock
from lakebed.registry.schema.ddl import statements
from lakebed.registry.verify import HEAD, find_revision, require_known, stamp_facts, verify_triggers

if TYPE_CHECKING:
    from lakebed.core.times import Clock
    from lakebed.registry.backends.protocol import Backend

_CREATE_LOCK = 7_521_903  # PostgreSQL: two processes must not create the same registry at once


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

    An older one is migrated only where no other process can be using it.
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


def _create(registry: Registry) -> None:
    backend = registry.backend
    backend.create()
    connection = backend.connect()
    try:
        backend.begin_write(connection, ())
        connection.lock_key(_CREATE_LOCK)
        if find_revision(registry) is not None:  # another process created it while we waited
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
    if not migrate or not registry.backend.is_alone(registry.take_idle()):
        raise RegistryOlderError(found, known=HEAD)
    from lakebed.registry.migrate import migrate_registry  # noqa: PLC0415 - Alembic is loaded only when there is something to do

    migrate_registry(url)
