"""An append on PostgreSQL as one statement that is its own transaction: one round trip, the shortest lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.registry.backends.statements import array_literal
from lakebed.registry.files.footers import compress_footer
from lakebed.registry.files.range_index import bins_of
from lakebed.registry.schema.append_function import CALL, order_arguments
from lakebed.registry.tables.counters import count_by_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.core.files import NewFile
    from lakebed.core.partitions import NewPartition
    from lakebed.registry.backends.statements import Value
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
    values = order_arguments({
        "p_timeout": str(max(1, int(registry.backend.timeout_s * 1000))), "p_table": table_id, "p_scope": scope,
        "p_instance": partition.instance, "p_hash": partition.schema_hash, "p_now": registry.given_now(), "p_low": low, "p_high": high,
        "p_source": partition.source_data_hash, "p_lookup": partition.lookup_hash, "p_fingerprint": partition.fingerprint,
        "p_op": operation.op_id, "p_intent": operation.has_intent, "p_kind": operation.kind, "p_staging": operation.staging_path,
        "p_mode": operation.mode, "p_app": operation.app_id, "p_batch": operation.batch_id,
        **_file_arrays(table_id, partition.files, indexed),
    })  # fmt: skip
    answer = registry.call(CALL, values, table_id=table_id, op_id=operation.op_id)
    return None if answer is None else json.dumps(answer)


def _file_arrays(table_id: int, files: Sequence[NewFile], indexed: Sequence[int]) -> dict[str, str]:
    """One array per column; rows name their file by its place, because ids are allocated by the server."""
    with_footers = [(f, f.footer) for f in files if f.footer is not None]
    columns = [(n, c) for n, f in enumerate(files) for c in f.columns]
    counted = sorted(count_by_path(files).items())
    ranges = bins_of(table_id, list(enumerate(files)), indexed)
    arrays: dict[str, Iterable[Value]] = {
        "f_name": [f.name for f in files], "f_path": [f.path for f in files], "f_size": [f.size_bytes for f in files],
        "f_type": [f.file_type.value for f in files], "f_values": [f.partition_path for f in files], "f_rows": [f.row_count for f in files],
        "f_sum": [f.checksum for f in files], "f_kind": [f.checksum_kind.value for f in files],
        "f_zip": [int(f.is_compressed) for f in files],
        "m_path": [f.path for f, _ in with_footers], "m_size": [f.size_bytes for f, _ in with_footers],
        "m_data": [compress_footer(footer) for _, footer in with_footers], "m_length": [footer.length for _, footer in with_footers],
        "m_rows": [footer.num_rows for _, footer in with_footers], "m_sum": [footer.checksum for _, footer in with_footers],
        "c_file": [n for n, _ in columns], "c_field": [c.field_id for _, c in columns], "c_nulls": [c.null_count for _, c in columns],
        "c_values": [c.value_count for _, c in columns], "c_lower": [c.lower for _, c in columns], "c_upper": [c.upper for _, c in columns],
        "r_file": [r[0] for r in ranges], "r_scope": [r[1] for r in ranges], "r_level": [r[2] for r in ranges],
        "r_prefix": [r[3] for r in ranges],
        "s_values": [path for path, _ in counted], "s_rows": [c.rows for _, c in counted], "s_files": [c.files for _, c in counted],
        "s_small": [c.small for _, c in counted], "s_bytes": [c.bytes for _, c in counted],
    }  # fmt: skip
    return {name: array_literal(column) for name, column in arrays.items()}
