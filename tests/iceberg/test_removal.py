"""A removal opens the manifests that hold its files, however many there are; ranges that are wrong or unknown cost time alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import ORDERS
from lakebed.core.errors import IcebergDriftError
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.commit.merging import MergeLimits
from lakebed.iceberg.locations import from_uri, to_path
from lakebed.iceberg.manifests.avro import encode_list
from lakebed.iceberg.manifests.file_ids import decode_ranges, encode_ranges, join_ranges, merge_ranges, span
from lakebed.storage.local import LocalStorage
from many_files import Many

if TYPE_CHECKING:
    from collections.abc import Callable

    from ice import IceLake
    from lakebed.iceberg.manifests.file_ids import Ranges

SMALL = MergeLimits(full_files=20)


@dataclass(frozen=True, slots=True)
class CountingStorage(LocalStorage):
    """A real storage that notes what is opened."""

    opened: list[str] = field(default_factory=list)

    def open_input(self, path: str) -> BinaryIO:
        self.opened.append(path)
        return LocalStorage.open_input(self, path)

    @property
    def manifests(self) -> list[str]:
        return [path for path in self.opened if "/metadata/" in path and "-m" in path.rpartition("/")[2]]


def another_committer(ice: IceLake) -> CountingStorage:
    """As of another process, which has nothing at hand."""
    storage = CountingStorage(paths=ice.lake.storage.paths)
    ice.committer = Committer(ice.lake.registry, storage, ice.catalog, limits=SMALL)
    return storage


def make_table(ice: IceLake, directory: Path, *, files: int) -> list[int]:
    """One partition after the other, each of ten files; their ids."""
    many = Many(ice, directory)
    another_committer(ice)
    for _ in range(files // 10):
        many.publish(10)
    ice.seal()
    ice.advance()
    return [p.partition_id for p in ice.lake.list_partitions(str(ORDERS))]


@pytest.mark.parametrize("files", [100, 400, 1600])
@pytest.mark.parametrize("which", [0, -1, 3])
def test_a_removal_reads_the_one_manifest_that_it_rewrites(ice: IceLake, tmp_path: Path, files: int, which: int) -> None:
    partitions = make_table(ice, tmp_path, files=files)
    assert len(ice.manifests()) == files // SMALL.full_files
    storage = another_committer(ice)
    ice.retire(partitions[which])

    done = ice.advance()

    assert done.removed == 10
    assert len(storage.manifests) == 2  # looked into, then rewritten
    assert len(set(storage.manifests)) == 1
    verified = ice.committer.verify(ice.table_id())
    assert verified is not None
    assert verified.clean


def test_one_old_file_after_the_other_is_found_at_once_though_manifests_are_merged_meanwhile(ice: IceLake) -> None:
    limits = MergeLimits(merge_at=3, full_files=9)
    ice.create()
    published = []
    for number in range(24):
        ice.committer = Committer(ice.lake.registry, ice.lake.storage, ice.catalog, limits=limits)
        published.append(ice.write(number))
        ice.seal()
        ice.advance()
    looked = []
    for number in (0, 11, 5, 20, 1, 12):
        storage = another_committer(ice)
        ice.retire(published[number].partition_id)
        ice.advance()
        looked.append(len(storage.manifests))
    assert set(looked) == {2}
    ice.require_true()


def change_ranges(ice: IceLake, change: Callable[[int, Ranges | None], Ranges | None]) -> None:
    """In the manifest list itself."""
    metadata = ice.base().metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    lines = [replace(line, file_ids=change(number, line.file_ids)) for number, line in enumerate(ice.manifests())]
    content = encode_list(lines, snapshot_id=snapshot.snapshot_id, parent_id=None, sequence_number=metadata.last_sequence_number)
    Path(from_uri(snapshot.manifest_list)).write_bytes(content)


@pytest.mark.parametrize(
    "change",
    [lambda *_: None, lambda *_: (), lambda *_: ((1, 2),), lambda number, ranges: None if number % 2 else ranges],
    ids=["unknown", "nothing", "elsewhere", "half unknown"],
)
def test_whatever_the_ranges_say_every_file_is_found(
    ice: IceLake, tmp_path: Path, change: Callable[[int, Ranges | None], Ranges | None]
) -> None:
    partitions = make_table(ice, tmp_path, files=200)
    change_ranges(ice, change)
    another_committer(ice)
    ice.retire(partitions[0], partitions[7], partitions[-1])

    assert ice.advance().removed == 30

    verified = ice.committer.verify(ice.table_id())
    assert verified is not None
    assert verified.clean


def test_ranges_that_were_not_known_are_known_after_a_removal(ice: IceLake, tmp_path: Path) -> None:
    """Tables of earlier versions have none: each removal that had to search writes down what it saw."""
    partitions = make_table(ice, tmp_path, files=100)
    before = {line.manifest_path: line.file_ids for line in ice.manifests()}
    change_ranges(ice, lambda *_: None)
    another_committer(ice)
    ice.retire(partitions[-1])
    ice.advance()

    known = {line.manifest_path: line.file_ids for line in ice.manifests()}

    assert None not in known.values()
    assert all(ranges == before.get(path, ranges) for path, ranges in known.items())
    storage = another_committer(ice)
    ice.retire(partitions[4])
    ice.advance()
    assert len(storage.manifests) == 2


def test_a_file_in_no_manifest_is_drift(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    gone = ice.write(2)
    ice.seal()
    ice.advance()
    lines = ice.manifests()
    snapshot = ice.base().metadata.current_snapshot()
    assert snapshot is not None
    without = [line for line in lines if line.file_ids != ((gone.first_file_id, gone.first_file_id),)]
    content = encode_list(without, snapshot_id=snapshot.snapshot_id, parent_id=None, sequence_number=2)
    Path(from_uri(snapshot.manifest_list)).write_bytes(content)
    another_committer(ice)
    ice.retire(gone.partition_id)

    with pytest.raises(IcebergDriftError, match="1 files to remove are in no manifest"):
        ice.advance()


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 40)), max_size=60), st.integers(1, 8))
def test_joined_ranges_are_few_and_cover_what_they_were_made_of(pairs: list[tuple[int, int]], most: int) -> None:
    ranges = [(first, first + more) for first, more in pairs]

    joined = join_ranges(ranges, most=most)

    assert len(joined) <= most
    assert all(any(low <= first and last <= high for low, high in joined) for first, last in ranges)
    assert list(joined) == sorted(joined)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(joined))
    if len(join_ranges(ranges, most=10**6)) <= most:
        assert span(joined) == len({n for first, last in ranges for n in range(first, last + 1)})


@given(st.lists(st.none() | st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 9)), max_size=5), max_size=5))
def test_ranges_are_read_back_as_they_were_written(lines: list[list[tuple[int, int]] | None]) -> None:
    given_lines = [None if line is None else join_ranges((first, first + more) for first, more in line) for line in lines]

    assert decode_ranges(encode_ranges(given_lines), len(lines)) == given_lines
    assert (merge_ranges(given_lines) is None) == (None in given_lines)


@pytest.mark.parametrize("text", [None, "", "7", "{}", "[[1]]", '[["a","b"]]', "[[1,2],[3,4]]", "[[1,2"])
def test_ranges_that_do_not_fit_their_list_are_unknown(text: str | None) -> None:
    assert decode_ranges(text, 1) == [None]


@pytest.mark.parametrize("spelled", ["/w/a.parquet", "file:/w/a.parquet", "file://host/w/a.parquet", "s3a://b/a.parquet"])
def test_a_location_in_another_spelling_names_no_path_of_the_registry(spelled: str) -> None:
    assert to_path("file:///w/a.parquet") == "/w/a.parquet"
    assert to_path("s3://b/a.parquet") == "s3://b/a.parquet"

    assert not to_path(spelled).startswith(("/", "s3://"))
