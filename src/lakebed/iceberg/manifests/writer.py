"""One manifest in the making: entries are packed as they come, so that it holds a few bytes of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.iceberg.manifests.avro import ADDED, DELETED, EXISTING, Manifest, added_entry
from lakebed.iceberg.manifests.container import BlockBuilder, write_container
from lakebed.iceberg.manifests.file_ids import Ranges, join_ranges, merge_ranges
from lakebed.iceberg.types.values import decode, encode

if TYPE_CHECKING:
    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Primitive
    from lakebed.iceberg.manifests.avro import Entry, ManifestFormat
    from lakebed.iceberg.manifests.container import Block
    from lakebed.iceberg.manifests.data_file import DataFile

EXISTING_BLOCKS = "lakebed.existing-blocks"  # the first blocks, which hold existing entries alone; stored: never rename
SUMMARIZED = "lakebed.summarized-files"  # how many files the partition summary was made of; stored: never rename
_SMALL_BLOCK = 4 << 10


class ManifestWriter:
    """Files that this snapshot adds, and what is carried over from manifests of its parent."""

    def __init__(self, form: ManifestFormat, *, snapshot_id: int, sequence_number: int) -> None:
        self.form, self.snapshot_id, self.sequence_number = form, snapshot_id, sequence_number
        self._existing, self._others = BlockBuilder(), BlockBuilder()
        self._files, self._rows = [0, 0, 0], [0, 0, 0]
        self._least = sequence_number
        self._bounds = [_Bounds(column.kind) for column in form.partitioning.columns]
        self._summarized = 0
        self._ids: list[tuple[int, int]] = []
        self._carried_ids: Ranges | None = ()

    @property
    def entries(self) -> int:
        return sum(self._files)

    @property
    def packed_bytes(self) -> int:
        return self._existing.packed_bytes + self._others.packed_bytes

    def add(self, file_id: int, data_file: DataFile) -> None:
        """A file that this snapshot adds; the next one has a greater id."""
        self.put_whole(added_entry(data_file, self.snapshot_id))
        if self._ids and file_id == self._ids[-1][1] + 1:
            self._ids[-1] = (self._ids[-1][0], file_id)
        else:
            self._ids.append((file_id, file_id))

    def put_whole(self, entry: Entry) -> None:
        """One that the partition summary must cover."""
        self.put(entry, self.form.encode_entry(entry))
        self.count_rows(entry["status"], entry["data_file"]["record_count"])
        partition = entry["data_file"]["partition"]
        for name, bounds in zip(self.form.partition_names, self._bounds, strict=True):
            bounds.add(partition[name])
        self._summarized += 1

    def put(self, entry: Entry, encoded: bytes) -> None:
        """An encoded entry of a manifest that `cover` is called for, or a part of `put_whole`."""
        (self._existing if entry["status"] == EXISTING else self._others).add(encoded)
        self._files[entry["status"]] += 1

    def put_existing(self, encoded: bytes, count: int) -> None:
        """Any number of existing entries in one piece."""
        self._existing.add(encoded, count)
        self._files[EXISTING] += count

    def put_block(self, block: Block) -> None:
        """Existing entries as another manifest has packed them; small blocks are joined."""
        if len(block.packed) < _SMALL_BLOCK:
            self.put_existing(block.unpack(), block.count)
        else:
            self._existing.copy(block)
            self._files[EXISTING] += block.count

    def count_rows(self, status: int, rows: int) -> None:
        self._rows[status] += rows

    def see(self, manifest: Manifest) -> None:
        """What it says of its files holds for those that are carried over, too."""
        self._least = min(self._least, manifest.min_sequence_number)
        self._carried_ids = merge_ranges([self._carried_ids, manifest.file_ids])

    def cover(self, manifest: Manifest, *, summarized: int) -> None:
        """Widen the partition summary by that of a manifest whose entries are copied as they are."""
        for summary, bounds in zip(manifest.partitions, self._bounds, strict=True):
            bounds.add_summary(summary)
        self._summarized += summarized

    def encode(self) -> bytes:
        existing = self._existing.finish()
        own = {EXISTING_BLOCKS: str(len(existing)).encode(), SUMMARIZED: str(self._summarized).encode()}
        return write_container({**self.form.header, **own}, [*existing, *self._others.finish()])

    def describe(self, *, location: str, length: int) -> Manifest:
        """The line of the manifest list for it."""
        return Manifest(
            manifest_path=location,
            manifest_length=length,
            partition_spec_id=self.form.spec_id,
            sequence_number=self.sequence_number,
            min_sequence_number=self._least,
            added_snapshot_id=self.snapshot_id,
            added_files_count=self._files[ADDED],
            existing_files_count=self._files[EXISTING],
            deleted_files_count=self._files[DELETED],
            added_rows_count=self._rows[ADDED],
            existing_rows_count=self._rows[EXISTING],
            deleted_rows_count=self._rows[DELETED],
            partitions=tuple(bounds.summary() for bounds in self._bounds),
            file_ids=merge_ranges([self._carried_ids, join_ranges(self._ids)]),
        )


@dataclass(slots=True)
class _Bounds:
    """Least and greatest value of one partition field."""

    kind: Primitive
    lower: Any = None
    upper: Any = None
    has_null: bool = False

    def add(self, value: Value | None) -> None:
        if value is None:
            self.has_null = True
            return
        self.lower = value if self.lower is None else min(self.lower, value)
        self.upper = value if self.upper is None else max(self.upper, value)

    def add_summary(self, summary: dict[str, Any]) -> None:
        self.has_null = self.has_null or bool(summary["contains_null"])
        for bound in (summary["lower_bound"], summary["upper_bound"]):
            if bound is not None:
                self.add(decode(self.kind, bound))

    def summary(self) -> dict[str, Any]:
        """What a planner needs to skip the whole manifest."""
        return {
            "contains_null": self.has_null,
            "contains_nan": False,
            "lower_bound": None if self.lower is None else encode(self.kind, self.lower),
            "upper_bound": None if self.upper is None else encode(self.kind, self.upper),
        }
