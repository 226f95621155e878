"""Manifests and manifest lists as Avro: what Iceberg's readers plan from.

Entries are plain records. PyIceberg's own writer opens a block per entry and walks a tree of visitors for each, which
is most of the time that its appends take.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import fastavro

from lakebed.core.errors import FileChangedError
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.pyiceberg_internals import FORMAT_VERSION, entry_schema, list_schema
from lakebed.iceberg.types.values import encode, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.schema import Schema as IcebergSchema

    from lakebed.core.schema.bounds import Value
    from lakebed.iceberg.manifests.data_file import DataFile
    from lakebed.iceberg.types.partitions import Partitioning

EXISTING, ADDED, DELETED = 0, 1, 2
_DATA_CONTENT = 0
_CODEC = "deflate"
_LISTS = (
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets",
)  # fmt: skip
Entry = dict[str, Any]  # one `manifest_entry` record
_AVRO_ERRORS = (ValueError, EOFError, OSError, LookupError, TypeError, StopIteration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One line of a manifest list, by the names of its Avro fields."""

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

    @property
    def live_files(self) -> int:
        return self.added_files_count + self.existing_files_count

    @property
    def live_rows(self) -> int:
        return self.added_rows_count + self.existing_rows_count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManifestFormat:
    """How manifests of one partition spec are written: made once per table, because Avro's schema is slow to parse."""

    partitioning: Partitioning
    schema_text: str
    schema_id: int
    avro: dict[str, Any]
    partition_names: tuple[str, ...]

    @classmethod
    def of(cls, partitioning: Partitioning, schema: IcebergSchema) -> ManifestFormat:
        avro = entry_schema(partitioning.spec, schema)
        data_file = next(field for field in avro["fields"] if field["name"] == "data_file")
        partition = next(field for field in data_file["type"]["fields"] if field["name"] == "partition")
        return cls(
            partitioning=partitioning,
            schema_text=schema.model_dump_json(),
            schema_id=schema.schema_id,
            avro=avro,
            partition_names=tuple(field["name"] for field in partition["type"]["fields"]),
        )

    def encode(self, entries: Sequence[Entry]) -> bytes:
        spec = self.partitioning.spec
        fields = ",".join(field.model_dump_json() for field in spec.fields)
        metadata = {
            "schema": self.schema_text,
            "schema-id": str(self.schema_id),
            "partition-spec": f"[{fields}]",
            "partition-spec-id": str(spec.spec_id),
            "format-version": str(FORMAT_VERSION),
            "content": "data",
        }
        return _encode(self.avro, map(_name_branches, entries), metadata)

    def summarize(self, entries: Iterable[Entry]) -> tuple[dict[str, Any], ...]:
        """What a planner needs to skip the whole manifest: least and greatest value of each partition field."""
        tuples = [tuple(entry["data_file"]["partition"][name] for name in self.partition_names) for entry in entries]
        columns = zip(self.partitioning.columns, zip(*tuples, strict=True), strict=True) if tuples else ()
        return tuple(_summary(column.kind, values) for column, values in columns)


def added_entry(data_file: DataFile, snapshot_id: int) -> Entry:
    """Its sequence numbers are those of the manifest list that will hold it."""
    return {"status": ADDED, "snapshot_id": snapshot_id, "sequence_number": None, "file_sequence_number": None, "data_file": data_file}


def with_status(entry: Entry, status: int, *, snapshot_id: int) -> Entry:
    """An entry of an older manifest, carried over as existing or as deleted by this snapshot."""
    return {**entry, "status": status, "snapshot_id": snapshot_id if status == DELETED else entry["snapshot_id"]}


def describe_manifest(
    form: ManifestFormat, entries: Sequence[Entry], *, location: str, length: int, snapshot_id: int, sequence_number: int
) -> Manifest:
    """The line of the manifest list for a manifest that was just written."""
    files, rows = [0, 0, 0], [0, 0, 0]
    for entry in entries:
        files[entry["status"]] += 1
        rows[entry["status"]] += entry["data_file"]["record_count"]
    known = [entry["sequence_number"] for entry in entries if entry["status"] != DELETED and entry["sequence_number"] is not None]
    return Manifest(
        manifest_path=location,
        manifest_length=length,
        partition_spec_id=form.partitioning.spec.spec_id,
        sequence_number=sequence_number,
        min_sequence_number=min(known, default=sequence_number),
        added_snapshot_id=snapshot_id,
        added_files_count=files[ADDED],
        existing_files_count=files[EXISTING],
        deleted_files_count=files[DELETED],
        added_rows_count=rows[ADDED],
        existing_rows_count=rows[EXISTING],
        deleted_rows_count=rows[DELETED],
        partitions=form.summarize(entries),
    )


def decode_manifest(content: bytes, manifest: Manifest) -> list[Entry]:
    """Live entries, with what they inherit from the manifest list written out."""
    entries = _decode(content, manifest.manifest_path)
    return [_inherit(entry, manifest) for entry in entries if entry["status"] != DELETED]


def encode_list(manifests: Sequence[Manifest], *, snapshot_id: int, parent_id: int | None, sequence_number: int) -> bytes:
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(FORMAT_VERSION),
    }
    return _encode(list_schema(), [_line(manifest) for manifest in manifests], metadata)


def decode_list(content: bytes, location: str) -> tuple[Manifest, ...]:
    names = Manifest.__slots__
    lines = _decode(content, location)
    return tuple(replace(Manifest(**{name: line[name] for name in names}), partitions=tuple(line["partitions"] or ())) for line in lines)


def _line(manifest: Manifest) -> dict[str, Any]:
    return {**{name: getattr(manifest, name) for name in Manifest.__slots__}, "partitions": list(manifest.partitions)}


def _inherit(entry: Entry, manifest: Manifest) -> Entry:
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


def _summary(kind: Any, values: Sequence[Value | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "contains_null": len(known) < len(values),
        "contains_nan": False,
        "lower_bound": encode(kind, min(known)) if known else None,
        "upper_bound": encode(kind, max(known)) if known else None,
    }


def _encode(schema: dict[str, Any], records: Iterable[dict[str, Any]], metadata: dict[str, str]) -> bytes:
    target = io.BytesIO()
    fastavro.writer(target, schema, records, codec=_CODEC, metadata=metadata)
    return target.getvalue()


def _decode(content: bytes, location: str) -> list[dict[str, Any]]:
    try:
        return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]
    except _AVRO_ERRORS as exc:
        raise FileChangedError(from_uri(location), reason="it is no readable Avro file any more") from exc
