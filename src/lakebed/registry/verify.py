"""Putting the registry's own programs back when somebody took them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import TriggersChangedError
from lakebed.registry.open import HEAD, find_revision, programs, verify_triggers

if TYPE_CHECKING:
    from lakebed.registry.backends.statements import Dialect
    from lakebed.registry.registry import Registry

# what changed while a trigger was away is in no journal: only a refresh shows it
_REFRESH_ALL = "UPDATE subscriber_cursor SET needs_refresh = 1, epoch = epoch + 1"


def restore_programs(registry: Registry) -> tuple[str, ...]:
    """Re-create what is missing or altered, and have every component refresh; the names. Refuses what is not of this program's making."""
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
            registry.backend.script(tx.connection, [_drop(name, expected[name], registry.dialect), expected[name]])
        tx.run(_REFRESH_ALL)


def _drop(name: str, ddl: str, dialect: Dialect) -> str:
    if dialect == "sqlite":
        return f"DROP {'VIEW' if ddl.startswith('CREATE VIEW') else 'TRIGGER'} IF EXISTS {name}"
    if "$$" not in ddl:
        return f"ALTER TABLE partitions DROP CONSTRAINT IF EXISTS {name}"
    return f"DROP FUNCTION IF EXISTS {name} CASCADE"
