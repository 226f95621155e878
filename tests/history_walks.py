"""Random histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import HOUR
from history_model import (
    INSTANCES,
    PARTITION_PATHS,
    READERS,
    FileShape,
    Table,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from histories import History


def wander(history: History, chance: random.Random, moves: int) -> Iterator[None]:
    """A random history that depends on nothing but `chance`: every kind of move, refused ones too; pauses after each."""
    for is_view in (False, True, False):
        history.create(is_view=is_view)
        history.note()
    for _ in range(moves):
        _move(history, chance.choice(history.tables), chance)
        history.note()
        yield


def _move(history: History, table: Table, chance: random.Random) -> None:
    hours = (begin := chance.randrange(9), begin + chance.randrange(1, 4))
    instance, grace_us = chance.choice(INSTANCES), chance.choice([0, HOUR, 24 * HOUR])
    shapes = [
        FileShape(chance.randrange(1, 6), chance.choice(PARTITION_PATHS), chance.random() < 0.3, chance.random() < 0.2)
        for _ in range(chance.randrange(4))
    ]
    publishing: list[Callable[[], None]] = [
        lambda: history.publish(table, shapes, hours=hours, instance=instance, use_staged=chance.random() < 0.5),
        lambda: history.publish(table, shapes, hours=None, instance=instance),
    ]
    others: list[Callable[[], None]] = [
        lambda: history.seal(table),
        lambda: history.commit_groups(table, behind=chance.randrange(3)),
        lambda: history.expire_snapshots(table, keep=min(1, len(table.snapshots))),
        lambda: history.stage(table) if table.is_view else history.evolve(table),
        lambda: history.promote(table),
        lambda: history.hold(chance.choice(READERS), [table], ttl_us=HOUR),
        lambda: history.end(chance.choice(READERS)),
        lambda: history.clock.advance(seconds=chance.choice([1e-6, 1800.0, 30 * 3600.0])),
        lambda: history.clean(limit=chance.choice([2, 100]), refused=chance.randrange(2)),
        lambda: history.swap_stale(table, pick=chance.randrange(9)),
        lambda: history.publish_into_unserved(table),
        lambda: history.publish_a_known_path(table),
        lambda: history.retire_unknown_key(table),
        lambda: history.retire_range(table, hours, instance=chance.choice([None, instance]), grace_us=grace_us),
        lambda: history.retire_old(table, hour=chance.randrange(6), grace_us=grace_us),
    ]
    if table.partitions:
        one = chance.choice(list(table.partitions.values()))
        alike = sorted((p for p in table.partitions.values() if p.scope == one.scope), key=lambda p: p.insert_range.begin)
        others += [
            lambda: history.swap(table, alike[: chance.randrange(1, 4)], shapes, keep=chance.randrange(3)),
            lambda: history.swap(table, alike[-1:], shapes, keep=chance.randrange(2)),
            lambda: history.retire_key(table, one, name_schema=chance.random() < 0.5, grace_us=grace_us),
            lambda: history.retire_ids(table, alike[:2], add_gone=chance.random() < 0.3, exactly=chance.random() < 0.5, grace_us=grace_us),
        ]
    chance.choice(publishing if chance.random() < 0.4 else others)()
