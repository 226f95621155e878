"""Prove that this program can write to a registry: its revision, its identity, and the programs in its database."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryNewerError, RegistryRefusedError, TriggersChangedError
from lakebed.registry.key_values import add_fact, find_fact, set_fact
from lakebed.registry.schema.ddl import programs
from lakebed.registry.schema.journal_triggers import hash_triggers

if TYPE_CHECKING:
    from lakebed.registry.backends.protocol import Connection
    from lakebed.registry.backends.statements import Dialect
    from lakebed.registry.registry import Registry

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")  # stored in alembic_version: never rename
HEAD = REVISIONS[-1]
# what changed while a trigger was away is in no journal: only a refresh shows it
_REFRESH_ALL = "UPDATE subscriber_cursor SET needs_refresh = 1, epoch = epoch + 1"


def find_revision(registry: Registry) -> str | None:
    """The registry's revision; None where there is none, not even an empty database; refuses a database that is not ours."""
    if registry.backend.is_empty():
        return None
    names = registry.backend.system.list_tables(registry)
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


def verify_triggers(registry: Registry) -> None:
    """Every rule and journal trigger is there, enabled and unaltered; otherwise writes would lose changes silently."""
    system, expected = registry.backend.system, programs(registry.dialect)
    found, wanted = system.list_programs(registry), {name: system.shape_of(ddl) for name, ddl in expected.items()}
    missing = tuple(sorted(wanted.keys() - found.keys()))
    changed = tuple(sorted(name for name, shape in wanted.items() if name in found and found[name] != shape))
    changed += tuple(sorted(system.find_strangers(found, wanted)))
    if find_fact(registry, "trigger_hash") != hash_triggers(expected):
        changed = changed or ("the stored hash",)
    if missing or changed:
        raise TriggersChangedError(missing=missing, changed=changed)


def stamp_facts(connection: Connection, dialect: Dialect) -> None:
    """What start-up compares: the triggers' hash and the registry's identity."""
    expected = programs(dialect)
    set_fact(connection, "trigger_hash", hash_triggers(expected))
    add_fact(connection, "registry_id", secrets.token_hex(16))


def restore_programs(registry: Registry) -> tuple[str, ...]:
    """Re-create what is missing or altered, and have every component refresh; the names. Refuses programs that are not Lakebed's."""
    try:
        verify_triggers(registry)
    except TriggersChangedError as found:
        names = (*found.missing, *found.changed)
        if find_revision(registry) != HEAD or not programs(registry.dialect).keys() >= set(names):
            raise
        _recreate(registry, names)
        verify_triggers(registry)
        return names
    return ()


def _recreate(registry: Registry, names: tuple[str, ...]) -> None:
    expected = programs(registry.dialect)
    with registry.write() as tx:
        for name in names:
            registry.backend.script(tx.connection, [registry.backend.system.drop_program(name, expected[name]), expected[name]])
        tx.run(_REFRESH_ALL)
