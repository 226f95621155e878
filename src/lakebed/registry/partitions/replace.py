"""Overwriting partition paths: the files of some paths leave their partitions, whatever else these hold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core import fingerprints
from lakebed.core.errors import VictimsChangedError
from lakebed.core.times import TimeRange
from lakebed.registry.ids import ids_of_table
from lakebed.registry.partitions.retire import DEFAULT_GRACE_US, PartitionsToRetire, retire_loaded
from lakebed.registry.schema.predicates import VISIBLE_HASHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.partitions.publish import RetireAlso
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Reader, Transaction

_PARTITIONS = f"""SELECT id FROM partitions
WHERE table_id = :table_id AND {ids_of_table()} AND view_instance_id = :instance AND schema_hash IN ({VISIBLE_HASHES})"""
# As they stood at the journal number `since`; the instance of a partition that is gone since is unknown, so its files count
_SEEN = f"""SELECT f.id, f.partition_id, f.retired_seq FROM table_files f LEFT JOIN partitions p ON p.id = f.partition_id
WHERE f.table_id = :table_id AND {ids_of_table("f.")} AND f.partition_path IN (:paths*) AND f.added_seq <= :since
AND (f.retired_seq IS NULL OR f.retired_seq > :since) AND f.schema_hash IN ({VISIBLE_HASHES})
AND (p.id IS NULL OR p.view_instance_id = :instance)"""
_LIVE = "SELECT id, partition_id, row_count FROM table_files WHERE partition_id IN (:ids*) AND retired_seq IS NULL"
_COLUMNS = (
    "id", "table_id", "scope_id", "view_instance_id", "begin_insert_time", "end_insert_time", "min_event_time", "max_event_time",
    "schema_hash", "source_data_hash", "lookup_hash", "fingerprint", "num_rows", "file_count", "partition_format_version", "updated",
)  # fmt: skip
_ROWS = f"SELECT {', '.join(_COLUMNS)} FROM partitions WHERE id IN (:ids*)"
_REPARENT = "UPDATE table_files SET partition_id = :p, modified_at = :now WHERE id IN (:ids*)"


def list_visible_partitions(registry: Registry, table_id: int, *, instance: str) -> frozenset[int]:
    """What an overwrite of the whole table replaces, empty partitions too."""
    return frozenset(row[0] for row in registry.query(_PARTITIONS, {"table_id": table_id, "instance": instance}))


def retire_in_paths(paths: Iterable[str], *, since: int, instance: str, grace_us: int = DEFAULT_GRACE_US) -> RetireAlso:
    """Retires exactly the visible files of these paths that were live at `since`; refuses when one of them is gone.

    Files that were added meanwhile stay: they were not seen, so they are not lost.
    """
    wanted = sorted(set(paths))

    def retire(tx: Transaction, table: LockedTable, group: int) -> None:
        params = {"table_id": table.table_id, "paths": wanted, "since": since, "instance": instance}
        seen = tx.query(_SEEN, params)
        if gone := tuple(sorted(row[0] for row in seen if row[2] is not None)):
            raise VictimsChangedError(str(table.name), missing=gone, what="files")
        _shrink(tx, table, {row[0]: row[1] for row in seen}, group=group, grace_us=grace_us)

    return retire


def _shrink(tx: Transaction, table: LockedTable, retiring: dict[int, int], *, group: int, grace_us: int) -> None:
    """A partition that loses files is replaced by one of the same slice with the others.

    Its id changes, so that a caller that planned to replace it by its earlier content is refused.
    """
    touched = sorted(set(retiring.values()))
    left: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for file_id, partition_id, rows in tx.query(_LIVE, {"ids": touched}) if touched else ():
        if file_id not in retiring:
            left[partition_id].append((file_id, rows))
    before = tx.query(_ROWS, {"ids": sorted(left)}) if left else []
    kept = tuple(sorted(file_id for files in left.values() for file_id, _ in files))
    retire_loaded(
        tx, table, PartitionsToRetire(partition_ids=tuple(touched), kept_ids=kept), reason="overwritten", grace_us=grace_us, group=group
    )
    for row in before:
        _put_back(tx, table, row, left[row[0]])


def _put_back(tx: Transaction, table: LockedTable, row: tuple[Any, ...], files: list[tuple[int, int]]) -> None:
    """Its event range stays as wide as it was, which prunes too little and never too much."""
    changed = {
        "id": table.allocate_id(),
        "fingerprint": fingerprints.make_fingerprint(has_rows=True),
        "num_rows": sum(rows for _, rows in files),
        "file_count": len(files),
        "updated": tx.now,
    }
    tx.insert("partitions", _COLUMNS, [tuple({**dict(zip(_COLUMNS, row, strict=True)), **changed}.values())])
    tx.send(_REPARENT, {"p": changed["id"], "now": tx.now, "ids": [file_id for file_id, _ in files]})


_HOLDERS = """SELECT id, view_instance_id, begin_insert_time, end_insert_time, schema_hash, min_event_time, max_event_time FROM partitions
WHERE table_id = :table_id AND id IN (SELECT partition_id FROM table_files WHERE file_path IN (:paths*) AND retired_seq IS NULL)
ORDER BY view_instance_id, begin_insert_time, id"""
_STILL_LIVE = "SELECT id FROM table_files WHERE id IN (:ids*) AND retired_seq IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePartition:
    """A live partition that holds some files."""

    partition_id: int
    instance: str
    insert_range: TimeRange
    schema_hash: str
    event_range: tuple[int, int] | None


def list_visible(reader: Queryable, file_ids: Sequence[int]) -> frozenset[int]:
    """Those of the files that are neither retired nor gone."""
    return frozenset(row[0] for row in reader.query(_STILL_LIVE, {"ids": list(file_ids)})) if file_ids else frozenset()


def list_holders(reader: Reader, table_id: int, paths: Sequence[str]) -> list[LivePartition]:
    """The partitions that hold these files, in the order of their slices."""
    if not paths:
        return []
    return [
        LivePartition(
            partition_id=r[0],
            instance=r[1],
            insert_range=TimeRange(begin=r[2], end=r[3]),
            schema_hash=r[4],
            event_range=None if r[5] is None else (r[5], r[6]),
        )
        for r in reader.query(_HOLDERS, {"table_id": table_id, "paths": list(paths)})
    ]
