"""Entries of one manifest in another: as bytes wherever all that changes is known without decoding them.

Two kinds of blocks are. In those that hold existing entries alone nothing changes. In those that hold nothing but what one
snapshot added, every entry begins with the same bytes, which are exchanged. Iceberg requires that: in its new manifest a file
keeps the snapshot that added it and that one's sequence number, which it took from the manifest list before.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.errors import FileChangedError
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.manifests.avro import (
    ADDED,
    AVRO_ERRORS,
    DELETED,
    EXISTING,
    decode_locations,
    decode_manifest,
    encode_head,
    inherit,
    with_status,
)
from lakebed.iceberg.manifests.container import Container, encode_bytes, read_container
from lakebed.iceberg.manifests.writer import EXISTING_BLOCKS, SUMMARIZED
from lakebed.iceberg.types.schemas import INSTANCE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from collections.abc import Set as AbstractSet

    from lakebed.iceberg.manifests.avro import Entry, Manifest, ManifestFormat
    from lakebed.iceberg.manifests.container import Block
    from lakebed.iceberg.manifests.writer import ManifestWriter

_FEW = 32  # locations to look for: from then on decoding is faster
_BROKEN = (*AVRO_ERRORS, zlib.error)


def find_locations(form: ManifestFormat, manifest: Manifest, content: bytes, wanted: Collection[str]) -> set[str]:
    """Those of the wanted files that the manifest holds and has not deleted."""
    container = read_container(content, manifest.manifest_path)
    if not _is_like(form, manifest, container):
        return set(wanted).intersection(decode_locations(content, manifest))
    needles = [encode_bytes(location.encode()) for location in wanted] if len(wanted) <= _FEW else None
    with _readable(manifest):
        return {
            entry["data_file"]["file_path"]
            for block in container.blocks
            if (raw := block.unpack()) and (needles is None or any(needle in raw for needle in needles))
            for entry, _, _ in form.decode_entries(raw, block.count)
            if entry["status"] != DELETED and entry["data_file"]["file_path"] in wanted
        }


def carry(writer: ManifestWriter, manifest: Manifest, content: bytes, *, gone: AbstractSet[str] = frozenset()) -> list[Entry]:
    """Every live entry, those that are gone as deleted by this snapshot; the latter."""
    container = read_container(content, manifest.manifest_path)
    writer.see(manifest)
    with _readable(manifest):
        summarized = int(container.header.get(SUMMARIZED, str(manifest.live_files)))
        is_summary_stale = (manifest.live_files - len(gone)) * 2 < summarized  # made again as files leave, but rarely
        if is_summary_stale or not _is_like(writer.form, manifest, container):
            return list(_carry_whole(writer, manifest, content, gone))
        writer.cover(manifest, summarized=summarized)
        return _Copy(writer, manifest, container, gone).run()


class _Copy:
    def __init__(self, writer: ManifestWriter, manifest: Manifest, container: Container, gone: AbstractSet[str]) -> None:
        self._writer, self._manifest, self._container, self._gone = writer, manifest, container, gone
        self._needles = [encode_bytes(location.encode()) for location in gone] if len(gone) <= _FEW else None
        self._removed: list[Entry] = []
        self._existing_rows = manifest.live_rows
        self._was, self._becomes = _heads(manifest)

    def run(self) -> list[Entry]:
        existing = int(self._container.header.get(EXISTING_BLOCKS, b"0"))
        for number, block in enumerate(self._container.blocks):
            self._take(block, is_existing=number < existing)
        self._writer.count_rows(EXISTING, self._existing_rows)
        return self._removed

    def _take(self, block: Block, *, is_existing: bool) -> None:
        raw = block.unpack()  # of a block that is copied too: what cannot be unpacked must not be carried into another manifest
        if is_existing and not self._gone:
            self._writer.put_block(block)
            return
        if self._needles is None or any(needle in raw for needle in self._needles):
            self._take_singly(raw, block.count)
        elif is_existing:
            self._writer.put_block(block)
        elif self._was and raw.startswith(self._was) and raw.count(self._was) == block.count:
            self._writer.put_existing(raw.replace(self._was, self._becomes), block.count)
        else:
            self._take_singly(raw, block.count)

    def _take_singly(self, raw: bytes, count: int) -> None:
        for entry, begin, end in self._writer.form.decode_entries(raw, count):
            head = encode_head(entry)
            if not raw.startswith(head, begin):
                raise ValueError(head)
            if entry["status"] != DELETED:
                self._put(inherit(entry, self._manifest), raw[begin + len(head) : end])

    def _put(self, entry: Entry, data_file: bytes) -> None:
        is_gone = entry["data_file"]["file_path"] in self._gone
        carried = with_status(entry, DELETED if is_gone else EXISTING, snapshot_id=self._writer.snapshot_id)
        self._writer.put(carried, encode_head(carried) + data_file)
        if is_gone:
            rows = entry["data_file"]["record_count"]
            self._writer.count_rows(DELETED, rows)
            self._existing_rows -= rows
            self._removed.append(carried)


def _heads(manifest: Manifest) -> tuple[bytes, bytes]:
    """How each entry begins in a manifest that one snapshot filled, and how it begins once carried over; empty for other manifests."""
    if manifest.existing_files_count or manifest.deleted_files_count:
        return b"", b""
    entry: Entry = {"snapshot_id": manifest.added_snapshot_id, "sequence_number": None, "file_sequence_number": None}
    number = {"sequence_number": manifest.sequence_number, "file_sequence_number": manifest.sequence_number}
    return encode_head({**entry, "status": ADDED}), encode_head({**entry, **number, "status": EXISTING})


def _carry_whole(writer: ManifestWriter, manifest: Manifest, content: bytes, gone: AbstractSet[str]) -> Iterator[Entry]:
    """Decoded and encoded again, under the writer's partition spec."""
    for entry in decode_manifest(content, manifest):
        if writer.form.partitioning.with_instance:
            entry["data_file"]["partition"].setdefault(INSTANCE_COLUMN, GLOBAL_INSTANCE)
        is_gone = entry["data_file"]["file_path"] in gone
        carried = with_status(entry, DELETED if is_gone else EXISTING, snapshot_id=writer.snapshot_id)
        writer.put_whole(carried)
        if is_gone:
            yield carried


def _is_like(form: ManifestFormat, manifest: Manifest, container: Container) -> bool:
    """Whether its entries are encoded as the form encodes them."""
    is_same = container.header.get("avro.schema") == form.header["avro.schema"]
    return is_same and container.is_packed and manifest.partition_spec_id == form.spec_id


@contextmanager
def _readable(manifest: Manifest) -> Iterator[None]:
    try:
        yield
    except _BROKEN as exc:
        raise FileChangedError(from_uri(manifest.manifest_path), reason="its entries cannot be read any more") from exc
