"""Choose how columns are stored, from a sample of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.parquet.rewrite.target import list_leaf_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLE_ROWS = 5_000
_ZSTD_LEVEL = 3
_LEAST_SAVING = 0.02  # less is not worth compressing every page for, and decompressing it with every read
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}  # as pyarrow calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Leaves that get a dictionary, the codec of each leaf, and how large a row of the sample became."""

    dictionaries: tuple[str, ...]
    codecs: Mapping[str, str]
    row_bytes: float

    def writer_options(self) -> dict[str, Any]:
        levels = {leaf: _ZSTD_LEVEL for leaf, codec in self.codecs.items() if codec == "zstd"}
        return {
            "use_dictionary": list(self.dictionaries) or False,
            "compression": dict(self.codecs),
            "compression_level": levels or None,
            "store_schema": False,
            "store_decimal_as_integer": True,
        }


def choose_packing(rows: pa.Table, compression: str, *, sample_rows: int = SAMPLE_ROWS) -> Packing:
    """The table's codec for the leaves that become smaller by it, and no codec for the others."""
    codec = _CODECS.get(compression, compression)
    sample = rows.slice(0, sample_rows)
    leaves = [leaf for f in rows.schema for leaf in list_leaf_paths(f)]
    tried = Packing(dictionaries=tuple(choose_dictionaries(rows)), codecs=dict.fromkeys(leaves, codec), row_bytes=0.0)
    found = pq.read_metadata(pa.BufferReader(_write_sample(sample, tried)))
    codecs = {leaf: codec if _saves(found, number) else "none" for number, leaf in enumerate(leaves)}
    return Packing(dictionaries=tried.dictionaries, codecs=codecs, row_bytes=_size(found) / max(1, sample.num_rows))


def choose_dictionaries(rows: pa.Table) -> list[str]:
    """Columns whose values repeat, judged by a sample: trying a dictionary on values that do not is most of the work of writing them."""
    sample = rows.slice(0, SAMPLE_ROWS)
    return [leaf for f in rows.schema if _repeats(sample.column(f.name)) for leaf in list_leaf_paths(f)]


def _write_sample(sample: pa.Table, packing: Packing) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, sample.schema, **packing.writer_options()) as writer:
        writer.write_table(sample)
    return sink.getvalue()


def _saves(found: pq.FileMetaData, leaf: int) -> bool:
    if not found.num_row_groups:
        return True
    chunk = found.row_group(0).column(leaf)
    return bool(chunk.total_compressed_size <= (1 - _LEAST_SAVING) * chunk.total_uncompressed_size)


def _size(found: pq.FileMetaData) -> int:
    """Without the footer, which does not grow with the rows."""
    return sum(found.row_group(0).column(leaf).total_compressed_size for leaf in range(found.num_columns)) if found.num_row_groups else 0


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return True
    distinct: int = pc.count_distinct(column, mode="only_valid").as_py()
    return distinct * 2 <= len(column)
