"""Queue entries for tests of clean-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import (
    ORDERS,
    fake_file,
    make_table,
    publish,
    within,
)
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def queue_fakes(registry: Registry, many: int) -> None:
    """Queue entries that are deletable at once."""
    table = make_table(registry)
    done = publish(registry, table, *[fake_file(n) for n in range(many)])
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}, grace_us=0))
