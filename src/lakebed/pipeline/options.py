"""The keyword options of the longer public calls; importing this module does not import Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from lakebed.core.times import Time


FileFormat = Literal["parquet", "json"]


class MaterializeOptions(TypedDict, total=False):
    begin: Time | None
    end: Time | None
    insert_begin: Time | None
    insert_end: Time | None
    instance: str | None
    regenerate: bool
    parallel: int
    upstream: bool
    progress: Callable[[int, int], None] | None


class MergeOptions(TypedDict, total=False):
    insert_begin: Time | None
    insert_end: Time | None
    instance: str | None  # None: all
    window: str | int | timedelta | None  # shorter than the table's merge window
    target_bytes: int
    progress: Callable[[int, int], None] | None
