"""Entries that one manifest takes over from another as bytes are what decoding and encoding them would have given."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ice import ROWS, IceLake
from lakebed.core.errors import FileChangedError
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.commit.merging import MergeLimits
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.manifests.avro import DELETED, EXISTING, Manifest, ManifestFormat, decode_manifest
from lakebed.iceberg.manifests.carry import carry, find_locations
from lakebed.iceberg.manifests.container import read_container
from lakebed.iceberg.manifests.writer import EXISTING_BLOCKS, ManifestWriter
from lakebed.iceberg.types.partitions import make_partitioning
from lakebed.iceberg.types.schemas import to_iceberg

if TYPE_CHECKING:
    from lakebed.iceberg.manifests.avro import Entry
    from lakebed.iceberg.manifests.data_file import DataFile

LONG, STRING = Primitive(name="long"), Primitive(name="string")
SCHEMA = Schema(fields=(Field(field_id=1, name="id", type=LONG), Field(field_id=2, name="country", type=STRING)))
ADDED_BY, REMOVED_BY = 5 << 50, 7 << 50


def make_form(*partition_by: str, with_instance: bool = False) -> ManifestFormat:
    schema = to_iceberg(SCHEMA, schema_id=0, with_instance=with_instance)
    return ManifestFormat.of(
        make_partitioning(SCHEMA, partition_by, with_instance=with_instance, spec_id=1 if with_instance else 0), schema
    )


FORM = make_form("country")


def location(number: int) -> str:
    return f"file:///w/shop/orders-1/data/part-{number:06d}.parquet"


def data_file(number: int) -> DataFile:
    bounds = [{"key": 1, "value": number.to_bytes(8, "little")}]
    counts = [{"key": 1, "value": number}]
    return {
        "content": 0, "file_path": location(number), "file_format": "PARQUET", "partition": {"country": None if number % 5 == 0 else f"c{number:04d}"},
        "record_count": number + 1, "file_size_in_bytes": 1000 + number, "column_sizes": counts, "value_counts": counts,
        "null_value_counts": counts, "nan_value_counts": [], "lower_bounds": bounds, "upper_bounds": bounds, "key_metadata": None,
        "split_offsets": [4], "equality_ids": None, "sort_order_id": None,
    }  # fmt: skip


def finish(writer: ManifestWriter) -> tuple[bytes, Manifest]:
    content = writer.encode()
    return content, writer.describe(location=f"file:///w/{writer.snapshot_id}-{writer.sequence_number}.avro", length=len(content))


def added(numbers: range, *, sequence: int = 3) -> tuple[bytes, Manifest]:
    writer = ManifestWriter(FORM, snapshot_id=ADDED_BY + sequence, sequence_number=sequence)
    for number in numbers:
        writer.add(number, data_file(number))
    return finish(writer)


def carried(
    *sources: tuple[bytes, Manifest], gone: frozenset[str] = frozenset(), form: ManifestFormat = FORM, sequence: int = 9
) -> tuple[bytes, Manifest, list[Entry]]:
    writer = ManifestWriter(form, snapshot_id=REMOVED_BY + sequence, sequence_number=sequence)
    removed = [entry for content, manifest in sources for entry in carry(writer, manifest, content, gone=gone)]
    return *finish(writer), removed


def expected(*sources: tuple[bytes, Manifest], gone: frozenset[str] = frozenset()) -> list[tuple[object, ...]]:
    """What Iceberg's rules say of each entry, by a generic reader."""
    entries = [entry for content, manifest in sources for entry in decode_manifest(content, manifest)]
    return sorted(_facts({**e, "status": EXISTING}) for e in entries if e["data_file"]["file_path"] not in gone)


def _facts(entry: Entry) -> tuple[object, ...]:
    numbers = (entry["snapshot_id"], entry["sequence_number"], entry["file_sequence_number"])
    return (entry["data_file"]["file_path"], entry["status"], *numbers, repr(entry["data_file"]))


def everything_in(content: bytes) -> list[Entry]:
    return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]


def facts_of(content: bytes) -> list[tuple[object, ...]]:
    return sorted(_facts(entry) for entry in everything_in(content) if entry["status"] != DELETED)


def test_what_one_snapshot_added_becomes_existing_with_its_own_numbers() -> None:
    source = added(range(1, 400))

    content, manifest, removed = carried(source)

    assert facts_of(content) == expected(source)
    assert {(e["sequence_number"], e["file_sequence_number"], e["snapshot_id"]) for e in everything_in(content)} == {(3, 3, ADDED_BY + 3)}
    assert removed == []
    assert (manifest.existing_files_count, manifest.added_files_count, manifest.min_sequence_number) == (399, 0, 3)
    assert manifest.existing_rows_count == sum(number + 1 for number in range(1, 400))


@given(st.lists(st.sets(st.integers(0, 299), max_size=60), min_size=1, max_size=4))
def test_any_removals_one_after_the_other_leave_what_decoding_would_leave(rounds: list[set[int]]) -> None:
    content, manifest = added(range(300))
    held = set(range(300))
    for number, chosen in enumerate(rounds):
        leaving = held & chosen
        before = (content, manifest)
        content, manifest, removed = carried(before, gone=frozenset(map(location, leaving)), sequence=10 + number)
        held -= leaving
        assert facts_of(content) == expected(before, gone=frozenset(map(location, leaving)))
        assert {entry["data_file"]["file_path"] for entry in removed} == set(map(location, leaving))
        deleted = [entry for entry in everything_in(content) if entry["status"] == DELETED]
        assert {(e["data_file"]["file_path"], e["snapshot_id"]) for e in deleted} == {
            (location(n), REMOVED_BY + 10 + number) for n in leaving
        }
        assert {e["sequence_number"] for e in deleted} <= {3}
        assert (manifest.existing_files_count, manifest.deleted_files_count) == (len(held), len(leaving))
        assert manifest.existing_rows_count == sum(n + 1 for n in held)
        assert manifest.deleted_rows_count == sum(n + 1 for n in leaving)
        if not held:
            return


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(0, 30))
def test_merged_manifests_hold_every_live_file_once_with_its_own_numbers(sizes: list[int], leaving: int) -> None:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    sources = [added(range(start, start + size), sequence=3 + i) for i, (start, size) in enumerate(zip(starts, sizes, strict=True))]
    gone = frozenset(location(n) for n in range(min(leaving, sizes[0] - 1)))
    first = carried(sources[0], gone=gone)[:2]

    content, manifest, _ = carried(first, *sources[1:], sequence=20)

    assert facts_of(content) == sorted([*expected(sources[0], gone=gone), *expected(*sources[1:])])
    assert manifest.deleted_files_count == 0
    assert manifest.min_sequence_number == 3
    assert manifest.file_ids is not None
    assert all(any(low <= n <= high for low, high in manifest.file_ids) for n in range(len(gone), sum(sizes)))


def test_partition_bounds_cover_all_and_are_made_again_when_half_of_the_files_left() -> None:
    source = added(range(1, 101))
    few = carried(source, gone=frozenset(map(location, range(90, 100))))
    many = carried(few[:2], gone=frozenset(map(location, range(30, 90))))

    assert [bounds(few[1]), bounds(many[1])] == [(True, b"c0001", b"c0099"), (True, b"c0001", b"c0089")]
    assert bounds(carried(many[:2])[1]) == (True, b"c0001", b"c0029")


def bounds(manifest: Manifest) -> tuple[bool, bytes, bytes]:
    (summary,) = manifest.partitions
    return summary["contains_null"], summary["lower_bound"], summary["upper_bound"]


def test_blocks_that_hold_existing_entries_alone_are_copied_as_they_are() -> None:
    before = carried(added(range(3_000)))
    content, _, _ = carried(before[:2], gone=frozenset({location(1_500)}))

    old, new = read_container(before[0], "old"), read_container(content, "new")
    assert len(old.blocks) > 10
    assert (
        len(set(new.blocks) - set(old.blocks)) == 3
    )  # the rest of the block that held it, its deletion, and the last one, which was small
    assert int(new.header[EXISTING_BLOCKS]) == len(new.blocks) - 1


def test_a_file_of_another_writer_is_decoded() -> None:
    """The same records in blocks and a header of fastavro's."""
    content, manifest, _ = carried(added(range(50)), gone=frozenset({location(7)}))
    target = io.BytesIO()
    schema = fastavro.reader(io.BytesIO(content)).writer_schema
    assert schema is not None
    fastavro.writer(target, schema, everything_in(content), codec="null")
    foreign = (target.getvalue(), replace(manifest, file_ids=None))

    again, line, removed = carried(foreign, gone=frozenset({location(8)}), sequence=30)

    assert find_locations(FORM, foreign[1], foreign[0], [location(7), location(8), location(9)]) == {location(8), location(9)}
    assert facts_of(again) == expected(foreign, gone=frozenset({location(8)}))
    assert len(removed) == 1
    assert line.file_ids is None


def test_entries_of_another_partition_spec_get_the_instance_that_all_of_them_had() -> None:
    source = added(range(50))

    content, manifest, _ = carried(source, form=make_form("country", with_instance=True))

    assert {entry["data_file"]["partition"]["_lakebed_instance"] for entry in everything_in(content)} == {"global"}
    assert len(manifest.partitions) == 2


@pytest.mark.parametrize("wanted", [[3], [3, 400], list(range(0, 500, 2))])
def test_live_files_are_found_and_deleted_ones_are_not(wanted: list[int]) -> None:
    content, manifest, _ = carried(added(range(300)), gone=frozenset({location(2), location(3)}))

    found = find_locations(FORM, manifest, content, [location(n) for n in wanted])

    assert found == {location(n) for n in wanted if n < 300 and n not in (2, 3)}


@pytest.mark.parametrize("damage", ["cut", "empty", "block", "marker", "nonsense"])
def test_a_damaged_manifest_is_an_error_that_names_it(damage: str) -> None:
    content, manifest = added(range(500))
    packed = read_container(content, "").blocks[0].packed
    at = content.index(packed)
    damaged = {
        "cut": content[:-20],
        "empty": b"",
        "block": content[:at] + b"\xff" * len(packed) + content[at + len(packed) :],
        "marker": content[:-1] + bytes([content[-1] ^ 1]),
        "nonsense": b"{}",
    }[damage]

    with pytest.raises(FileChangedError, match=from_uri(manifest.manifest_path)):
        carried((damaged, manifest), gone=frozenset({location(1)}))


def test_a_damaged_block_is_not_copied_into_another_manifest() -> None:
    content, manifest, _ = carried(added(range(500)))
    packed = read_container(content, "").blocks[0].packed
    damaged = content.replace(packed, b"\xff" * len(packed))

    with pytest.raises(FileChangedError, match=from_uri(manifest.manifest_path)):
        carried((damaged, manifest))


def test_a_table_that_is_rewritten_again_and_again_says_the_same_as_its_registry(ice: IceLake) -> None:
    ice.committer = Committer(ice.lake.registry, ice.lake.storage, ice.catalog, limits=MergeLimits(merge_at=3, full_files=12))
    ice.create(partition_by=("country",))
    published = []
    for number in range(14):
        published.append(ice.write(number, country=f"c{number % 3}"))
        ice.seal()
        ice.advance()
        if number % 4 == 3:
            ice.retire(published[number // 2].partition_id)
            ice.advance()
    ice.require_true()

    entries = ice.entries()
    assert len({entry["sequence_number"] for entry in entries}) == len(entries)
    assert all(entry["file_sequence_number"] == entry["sequence_number"] for entry in entries)
    added_by = {s.sequence_number: s.snapshot_id for s in ice.base().metadata.snapshots}
    assert all(entry["snapshot_id"] == added_by[entry["sequence_number"]] for entry in entries)
    assert ice.static().scan().to_arrow().num_rows == len(entries) * ROWS
    assert ice.lake.check(deep=True).findings == ()
    assert all(Path(from_uri(m.manifest_path)).stat().st_size == m.manifest_length for m in ice.manifests())
