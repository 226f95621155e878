"""Manifests and manifest lists as Avro: what Iceberg's readers plan from.

Entries are plain records. PyIceberg's own writer opens a block per entry and walks a tree of visitors for each, which
is most of the time that its appends take.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import fastavro

from lakebed.core.errors import FileChangedError
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.manifests.container import CODEC, encode_long, read_container
from lakebed.iceberg.manifests.file_ids import FILE_IDS, decode_ranges, encode_ranges
from lakebed.iceberg.pyiceberg_internals import FORMAT_VERSION, entry_schema, list_schema
from lakebed.iceberg.types.values import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyiceberg.schema import Schema as IcebergSchema

    from lakebed.iceberg.manifests.data_file import DataFile
    from lakebed.iceberg.manifests.file_ids import Ranges
    from lakebed.iceberg.types.partitions import Partitioning

EXISTING, ADDED, DELETED = 0, 1, 2
_DATA_CONTENT = 0
_KEPT = ("file_path", "partition", "record_count", "file_size_in_bytes")  # what a commit must know of a file that it carries over
_LISTS = (
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets",
)  # fmt: skip
Entry = dict[str, Any]  # one `manifest_entry` record
AVRO_ERRORS = (ValueError, EOFError, OSError, LookupError, TypeError, StopIteration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One line of a manifest list, by the names of its Avro fields; `file_ids` is kept in the list's header, None where it is not known."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    partitions: tuple[dict[str, Any], ...] = ()
    content: int = _DATA_CONTENT
    key_metadata: bytes | None = None
    file_ids: Ranges | None = None

    @property
    def live_files(self) -> int:
        return self.added_files_count + self.existing_files_count

    @property
    def live_rows(self) -> int:
        return self.added_rows_count + self.existing_rows_count


_LINE = tuple(name for name in Manifest.__slots__ if name != "file_ids")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManifestFormat:
    """How manifests of one partition spec are written: made once per table, because Avro's schema is slow to parse."""

    partitioning: Partitioning
    avro: dict[str, Any]
    abridged: dict[str, Any]  # the same without what a commit need not know of a file
    header: Mapping[str, bytes]
    partition_names: tuple[str, ...]

    @classmethod
    def of(cls, partitioning: Partitioning, schema: IcebergSchema) -> ManifestFormat:
        avro = entry_schema(partitioning.spec, schema)
        partition = next(field for field in _data_file(avro)["fields"] if field["name"] == "partition")
        return cls(
            partitioning=partitioning,
            avro=avro,
            abridged=_abridge(avro),
            header=_header(partitioning, schema, avro),
            partition_names=tuple(field["name"] for field in partition["type"]["fields"]),
        )

    @property
    def spec_id(self) -> int:
        return self.partitioning.spec.spec_id

    def encode_entry(self, entry: Entry) -> bytes:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, self.avro, _name_branches(entry))
        return target.getvalue()

    def decode_entries(self, raw: bytes, count: int) -> Iterator[tuple[Entry, int, int]]:
        """Abridged entries of an unpacked block, with where each begins and ends."""
        source, begin = io.BytesIO(raw), 0
        for _ in range(count):
            entry: Any = fastavro.schemaless_reader(source, self.avro, self.abridged)
            yield entry, begin, source.tell()
            begin = source.tell()


def _data_file(avro: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(field for field in avro["fields"] if field["name"] == "data_file")["type"]
    return found


def _abridge(avro: Mapping[str, Any]) -> dict[str, Any]:
    kept = {**_data_file(avro), "fields": [field for field in _data_file(avro)["fields"] if field["name"] in _KEPT]}
    fields = [{**field, "type": kept} if field["name"] == "data_file" else field for field in avro["fields"]]
    parsed: dict[str, Any] = fastavro.parse_schema({"type": "record", "name": avro["name"], "fields": fields})  # type: ignore[assignment]
    return parsed


def _header(partitioning: Partitioning, schema: IcebergSchema, avro: dict[str, Any]) -> dict[str, bytes]:
    fields = ",".join(field.model_dump_json() for field in partitioning.spec.fields)
    metadata = {
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": f"[{fields}]",
        "partition-spec-id": str(partitioning.spec.spec_id),
        "format-version": str(FORMAT_VERSION),
        "content": "data",
    }
    return dict(read_container(_encode(avro, (), metadata), "").header)


def added_entry(data_file: DataFile, snapshot_id: int) -> Entry:
    """Its sequence numbers are those of the manifest list that will hold it."""
    return {"status": ADDED, "snapshot_id": snapshot_id, "sequence_number": None, "file_sequence_number": None, "data_file": data_file}


def with_status(entry: Entry, status: int, *, snapshot_id: int) -> Entry:
    """An entry of an older manifest, carried over as existing or as deleted by this snapshot."""
    return {**entry, "status": status, "snapshot_id": snapshot_id if status == DELETED else entry["snapshot_id"]}


def encode_head(entry: Entry) -> bytes:
    """All of an entry that stands before its data file: what changes when it is carried over."""
    numbers = (entry["snapshot_id"], entry["sequence_number"], entry["file_sequence_number"])
    return encode_long(entry["status"]) + b"".join(encode_long(0) if n is None else encode_long(1) + encode_long(n) for n in numbers)


def decode_manifest(content: bytes, manifest: Manifest) -> list[Entry]:
    """Live entries, with what they inherit from the manifest list written out."""
    entries = _decode(content, manifest.manifest_path)
    return [inherit(entry, manifest) for entry in entries if entry["status"] != DELETED]


def decode_locations(content: bytes, manifest: Manifest) -> list[str]:
    """Of the live files, without the rest."""
    reader = read_container(content, manifest.manifest_path).header.get("avro.schema", b"")
    return [e["data_file"]["file_path"] for e in _decode(content, manifest.manifest_path, _abridged_of(reader)) if e["status"] != DELETED]


@lru_cache(maxsize=64)
def _abridged_of(schema: bytes) -> dict[str, Any] | None:
    """None where the schema is not one that can be abridged."""
    try:
        return _abridge(json.loads(schema))
    except (ValueError, LookupError, TypeError, StopIteration):
        return None


def encode_list(manifests: Sequence[Manifest], *, snapshot_id: int, parent_id: int | None, sequence_number: int) -> bytes:
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(FORMAT_VERSION),
        FILE_IDS: encode_ranges([manifest.file_ids for manifest in manifests]),
    }
    return _encode(list_schema(), [_line(manifest) for manifest in manifests], metadata)


def decode_list(content: bytes, location: str) -> tuple[Manifest, ...]:
    lines = _decode(content, location)
    known = read_container(content, location).header.get(FILE_IDS)
    file_ids = decode_ranges(None if known is None else known.decode(errors="replace"), len(lines))
    return tuple(
        Manifest(**{name: line[name] for name in _LINE} | {"partitions": tuple(line["partitions"] or ())}, file_ids=ids)
        for line, ids in zip(lines, file_ids, strict=True)
    )


def _line(manifest: Manifest) -> dict[str, Any]:
    return {**{name: getattr(manifest, name) for name in _LINE}, "partitions": list(manifest.partitions)}


def inherit(entry: Entry, manifest: Manifest) -> Entry:
    """With the numbers that it takes from the manifest list, and its partition as plain numbers."""
    for key in ("sequence_number", "file_sequence_number"):
        if entry[key] is None:
            entry[key] = manifest.sequence_number
    if entry["snapshot_id"] is None:
        entry["snapshot_id"] = manifest.added_snapshot_id
    partition = entry["data_file"]["partition"]
    for name, value in partition.items():
        partition[name] = to_plain(value)
    return entry


def _name_branches(entry: Entry) -> Entry:
    """Lists with the name of their type: else the writer compares each of their elements with every branch of the union."""
    data_file = entry["data_file"]
    named = {key: ("array", data_file[key]) for key in _LISTS if data_file[key] is not None}
    return {**entry, "data_file": {**data_file, **named}}


def _encode(schema: dict[str, Any], records: Iterable[dict[str, Any]], metadata: dict[str, str]) -> bytes:
    target = io.BytesIO()
    fastavro.writer(target, schema, records, codec=CODEC.decode(), metadata=metadata)
    return target.getvalue()


def _decode(content: bytes, location: str, reader_schema: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    try:
        return list(fastavro.reader(io.BytesIO(content), reader_schema=reader_schema))  # type: ignore[arg-type]
    except AVRO_ERRORS as exc:
        raise FileChangedError(from_uri(location), reason="it cannot be read as an Avro file") from exc
