"""An append on PostgreSQL as one statement that is its own transaction: one round trip, the shortest lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.registry.backends.statements import transpose
from lakebed.registry.files.footers import compress_footer
from lakebed.registry.files.range_index import bins_of
from lakebed.registry.schema.append_function import CALL, order_arguments
from lakebed.registry.tables.counters import count_by_path

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return {
        **_arrays(
            ("f_name", "f_path", "f_size", "f_type", "f_values", "f_rows", "f_sum", "f_kind", "f_zip"),
            [
                (f.name, f.path, f.size_bytes, f.file_type.value, f.partition_path, f.row_count, f.checksum, f.checksum_kind.value, int(f.is_compressed))
                for f in files
            ],
        ),
        **_arrays(
            ("m_path", "m_size", "m_data", "m_length", "m_rows", "m_sum"),
            [
                (f.path, f.size_bytes, compress_footer(f.footer), f.footer.length, f.footer.num_rows, f.footer.checksum)
                for f in files
                if f.footer is not None
            ],
        ),
        **_arrays(
            ("c_file", "c_field", "c_nulls", "c_values", "c_lower", "c_upper"),
            [(n, c.field_id, c.null_count, c.value_count, c.lower, c.upper) for n, f in enumerate(files) for c in f.columns],
        ),
        **_arrays(("r_file", "r_scope", "r_level", "r_prefix"), bins_of(table_id, list(enumerate(files)), indexed)),
        **_arrays(
            ("s_values", "s_rows", "s_files", "s_small", "s_bytes"),
            [(path, c.rows, c.files, c.small, c.bytes) for path, c in sorted(count_by_path(files).items())],
        ),
    }  # fmt: skip


def _arrays(names: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> dict[str, str]:
    """The names of the columns beside their arrays."""
    return dict(zip(names, transpose(rows) or ["{}"] * len(names), strict=True))
