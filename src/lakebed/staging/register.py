"""Files that others wrote, registered in place: captured in an isolated process, published in one transaction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import FileConflictError, InvalidValueError, LakebedError, NotIcebergReadyError
from lakebed.core.files import Verify
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.parquet.capture import CapturedFile, capture_foreign
from lakebed.parquet.foreign.preflight import find_obstacles, list_path_fields
from lakebed.registry.files.known_paths import list_swept
from lakebed.registry.files.left_out import drop_records, find_left_out
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import Published, publish_partition
from lakebed.registry.snapshots.pressure import wait_for_room
from lakebed.staging.partition import partition_of, statistics_spec_of
from lakebed.staging.write import new_op_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.core.times import TimeRange
    from lakebed.parquet.inspect import StatisticsSpec
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.storage.protocol import Storage


def register_files(  # noqa: PLR0913 - one keyword per choice
    registry: Registry,
    storage: Storage,
    table: LakeTable,
    paths: Sequence[str],
    *,
    insert_range: TimeRange | None = None,
    instance: str = GLOBAL_INSTANCE,
    replacing: AbstractSet[int] = frozenset(),
    batch: tuple[str, int] | None = None,
    adopt: bool = False,
    verify: str = Verify.FOOTER,
    progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Publish Parquet files that others wrote, in place in the warehouse; one bad file and nothing is registered.

    Each file's partition path is proven by its statistics; one that spans several is refused. `adopt` takes files
    without field ids by their column names. `batch` = (app_id, batch_id): the same batch twice is registered once.
    `verify="pages"` decodes every page of every file first, in the worker that reads the footers.
    """
    depth = Verify.parse(verify)
    if isinstance(paths, str) or not paths:
        message = f"{table.name}: register_files takes a list with at least one path, not {paths!r}"
        raise InvalidValueError(message)
    wait_for_room(registry, table.table_id)
    places = [storage.canonical(path) for path in paths]
    if swept := list_swept(registry, places):
        raise FileConflictError(swept[0], reason="a sweep queued it for deletion: copy it to another path and register that")
    spec = foreign_statistics_spec(table, paths, adopt=adopt)
    captured: list[CapturedFile] = []
    for answer in capture_foreign(storage, paths, table.schema, spec=spec, verify=depth, progress=progress):
        if isinstance(answer, LakebedError):
            raise answer
        captured.append(place_file(answer, table, relative=storage.paths.relative(answer.file.path)))
    app_id, batch_id = batch or (None, None)
    operation = Operation(op_id=new_op_id(registry), kind="register", app_id=app_id, batch_id=batch_id)
    partition = partition_of(table, captured, insert_range=insert_range, instance=instance)
    recorded = sorted(find_left_out(registry, places))
    guard = partial(drop_records, paths=recorded) if recorded else None
    return publish_partition(registry, partition, operation, replacing=replacing, guard=guard)


def foreign_statistics_spec(table: LakeTable, paths: Sequence[str], *, adopt: bool) -> StatisticsSpec:
    sources = {field.field_id for _, field in table.transforms}
    return replace(statistics_spec_of(table), always=frozenset(sources) | list_path_fields(paths, table.schema), require_ids=not adopt)


def place_file(captured: CapturedFile, table: LakeTable, *, relative: str) -> CapturedFile:
    """The file with its partition path, or a refusal that says what to do."""
    partition_path, problems = find_obstacles(relative, captured.file.columns, table.schema, table.partition_by)
    reasons = [str(problem) for problem in problems]
    if table.row.event_time_field is not None and captured.event_range is None:
        reasons.append(f"its footer has no event time of {table.name}: write it again with statistics, and with times in its rows")
    if reasons or partition_path is None:
        raise NotIcebergReadyError(captured.file.path, problems=tuple(reasons))
    return replace(captured, file=replace(captured.file, partition_path=partition_path))
