"""The keyword options of the longer public calls; importing this module does not import Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from lakebed.core.tables.view_sets import Lookups
    from lakebed.core.times import Time
    from lakebed.pipeline.results import InsertResult


FileFormat = Literal["parquet", "json"]


class WriterOptions(TypedDict, total=False):
    rotate_after: float  # seconds
    rotate_bytes: int
    format: FileFormat  # default "parquet"
    instance: str
    on_rotate: Callable[[InsertResult], None] | None


class DeleteOptions(TypedDict, total=False):
    dry_run: bool  # default False; True: only count the rows
    instance: str | None  # None: all
    max_partitions: int  # default 10,000: refuse to touch more
    metadata_mode: Literal["async", "sync"] | None
    actor: str | None  # default user@host


class ViewSetOptions(TypedDict, total=False):
    event_time: str | None
    slice: str | int | timedelta  # default one hour
    combine: str | None  # how to combine partial results, over the table `partials`
    lookups: Lookups  # default "ignore"
    partial: bool  # accept an aggregate without `combine`
    partition_by: Sequence[str]
    sort_by: Sequence[str]
    promote: Literal["auto", "now"]


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
