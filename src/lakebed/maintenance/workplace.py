"""What tasks work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.compaction import Engines
    from lakebed.pipeline.context import Context
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


def never() -> bool:
    return False


def nothing() -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """`context` gives the way to Spark and is asked only by tasks that build views; `cancelled` is asked often.

    `sweep_leftovers` deletes what killed commits left, which only the owner of the tables may; how many files.
    """

    registry: Registry
    storage: Storage
    context: Callable[[], Context]
    engines: Engines | None = None
    actor: str = "maintenance"
    queues_orphans: bool = False
    cancelled: Callable[[], bool] = never
    sweep_leftovers: Callable[[], int] = nothing
