"""An append on PostgreSQL as one statement that is its own transaction: one round trip, the shortest lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakebed.registry.backends.statements import transpose
from lakebed.registry.files.footers import compress_footer
from lakebed.registry.files.range_index import bins_of
from lakebed.registry.schema.append_function import CALL
from lakebed.registry.tables.counters import count_by_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.files import NewFile
    from lakebed.core.partitions import NewPartition
    from lakebed.registry.files.operations import Operation
    from lakebed.registry.registry import Registry


def try_append(registry: Registry, partition: NewPartition, operation: Operation) -> str | None:
    """The stored result of the append, or None with nothing done: the general path then decides, or says what is wrong.

    Only a table and scope that this process has published to before are tried: their numbers never change. Batches of a stream
    are compared with the newest one first, in the general path.
    """
    if not registry.backend.is_server or partition.insert_range is not None or operation.is_streamed:
        return None
    table_id = registry.find_table_id(partition.table)
    scope = registry.tables.scopes.get((table_id or 0, partition.instance, partition.schema_hash))
    indexed = registry.tables.indexed_fields.get(table_id or 0)
    if table_id is None or scope is None or indexed is None:
        return None
    low, high = partition.event_range or (None, None)
    values: list[Any] = [
        str(max(1, int(registry.backend.timeout_s * 1000))), table_id, scope, partition.instance, partition.schema_hash,
        registry.given_now(), low, high, partition.source_data_hash, partition.lookup_hash, partition.fingerprint,
        operation.op_id, operation.has_intent, operation.kind, operation.staging_path, operation.mode, operation.app_id, operation.batch_id,
        *_file_arrays(table_id, partition.files, indexed),
    ]  # fmt: skip
    answer = registry.call(CALL, values, table_id=table_id, op_id=operation.op_id)
    return None if answer is None else json.dumps(answer)


def _file_arrays(table_id: int, files: Sequence[NewFile], indexed: Sequence[int]) -> list[str]:
    """One array per column; rows name their file by its place, because ids are drawn by the server."""
    described = [
        (f.name, f.path, f.size_bytes, f.file_type.value, f.partition_path, f.row_count, f.checksum, f.checksum_kind.value, int(f.is_compressed))
        for f in files
    ]  # fmt: skip
    footers = [
        (f.path, f.size_bytes, compress_footer(f.footer), f.footer.length, f.footer.num_rows, f.footer.checksum)
        for f in files
        if f.footer is not None
    ]
    columns = [(n, c.field_id, c.null_count, c.value_count, c.lower, c.upper) for n, f in enumerate(files) for c in f.columns]
    counted = [(path, t.rows, t.files, t.small, t.bytes) for path, t in sorted(count_by_path(files).items())]
    return [
        *(transpose(described) or ["{}"] * 9),
        *(transpose(footers) or ["{}"] * 6),
        *(transpose(columns) or ["{}"] * 6),
        *(transpose(bins_of(table_id, list(enumerate(files)), indexed)) or ["{}"] * 4),
        *(transpose(counted) or ["{}"] * 5),
    ]
