"""What tests of retiring by call share: filled tables, and short ways to call."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from builders import (
    ORDERS,
    START,
    fake_file,
    make_table,
    make_view,
    promote,
    publish,
    stage,
)
from lakebed import admin

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.admin import Retirement
    from lakebed.registry.registry import Registry


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def retire_hours(registry: Registry, begin: int, end: int, *, dry_run: bool = False, atomic: bool = False) -> Retirement:
    return admin.retire_partitions(registry, str(ORDERS), insert_begin=hour(begin), insert_end=hour(end), dry_run=dry_run, atomic=atomic)


def fill(registry: Registry, hours: int) -> None:
    """Odd hours are empty."""
    table = make_table(registry)
    for h in range(hours):
        publish(registry, table, *([] if h % 2 else [fake_file(h)]), hours=(h, h + 1))


def outcomes(done: Retirement) -> list[str]:
    return [o.outcome for o in done.outcomes]


def left_behind(registry: Registry) -> tuple[str, str]:
    """Hours 0 (full) and 1 (empty) of a definition that serves no more."""
    view = make_view(registry)
    publish(registry, view, fake_file(1), hours=(0, 1))
    publish(registry, view, hours=(1, 2))
    later = stage(registry)
    publish(registry, view, fake_file(3), hours=(0, 1), schema_hash=later)
    promote(registry, later)
    return view.schema_hash, later
