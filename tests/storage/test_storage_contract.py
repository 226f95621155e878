"""What both kinds of storage promise alike."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest
from pyarrow import parquet

from lakebed.core.errors import (
    FileConflictError,
    FileMissingError,
    InvalidValueError,
    NotAFileError,
    PathRefusedError,
    StorageUnavailableError,
)
from lakebed.storage.protocol import Deletion
from lakebed.storage.s3 import ObjectStorage

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage

pytest_plugins = ["storage_fixtures"]


def lose_marker(storage: Storage) -> None:
    if isinstance(storage, ObjectStorage):
        storage.client.delete_file(storage.paths.marker.removeprefix("s3://"))
    else:
        Path(storage.paths.marker).unlink()


def put(storage: Storage, path: str, content: bytes = b"x") -> str:
    storage.create_exclusive(path, content)
    return path


def list_paths(storage: Storage, directory: str) -> set[str]:
    return {facts.path for facts in storage.list_files(directory)}


def test_a_created_file_is_described_and_read_back(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/part-00000.parquet", b"0123456789")

    facts = storage.stat(path)

    assert (facts.path, facts.size_bytes) == (path, 10)
    assert facts.modified_micros > 1_700_000_000_000_000
    assert storage.sha256(path) == hashlib.sha256(b"0123456789").hexdigest()


def test_the_etag_follows_the_content_where_there_is_one(objects: ObjectStorage) -> None:
    operation = f"{objects.paths.root}/shop/orders-7/data/{uuid4().hex}"

    first, same, other = (objects.stat(put(objects, f"{operation}/{n}", content)).etag for n, content in enumerate([b"a", b"a", b"b"]))

    assert first is not None
    assert first == same != other


@pytest.mark.parametrize(
    ("offset", "length", "expected"), [(0, 4, b"0123"), (7, 3, b"789"), (8, 99, b"89"), (10, 5, b""), (50, 5, b""), (3, 0, b"")]
)
def test_a_range_is_cut_only_where_the_file_ends(storage: Storage, operation: str, offset: int, length: int, expected: bytes) -> None:
    path = put(storage, f"{operation}/a", b"0123456789")

    assert storage.read_range(path, offset, length) == expected


def test_a_negative_range_is_refused(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/a")

    with pytest.raises(InvalidValueError):
        storage.read_range(path, -1, 1)


def test_many_files_are_read_in_their_order_up_to_the_one_that_is_missing(storage: Storage, operation: str) -> None:
    paths = [put(storage, f"{operation}/{name}", name.encode()) for name in ("b/2", "a/1", "b/3", "4")]

    assert list(storage.read_files((path, 2) for path in paths)) == [b"b/", b"a/", b"b/", b"4"]
    reading = storage.read_files([(paths[0], 99), (f"{operation}/none/5", 99)])
    assert next(reading) == b"b/2"
    with pytest.raises(FileMissingError):
        next(reading)
    with pytest.raises(PathRefusedError):
        next(storage.read_files([(f"{storage.paths.root}/../x", 1)]))


def test_objects_do_not_change(objects: ObjectStorage) -> None:
    path = put(objects, f"{objects.paths.root}/shop/orders-7/data/{uuid4().hex}/a", b"0123")

    with pytest.raises(InvalidValueError, match="cannot be changed"):
        objects.replace_end(path, 2, b"x")

    assert objects.read_range(path, 0, 9) == b"0123"


def test_pyarrow_reads_parquet_from_an_open_input(storage: Storage, operation: str) -> None:
    sink = io.BytesIO()
    parquet.write_table(pa.table({"n": [1, 2, 3]}), sink)
    path = put(storage, f"{operation}/part-00000.parquet", sink.getvalue())

    with storage.open_input(path) as source:
        assert parquet.ParquetFile(source).read().to_pydict() == {"n": [1, 2, 3]}


def test_a_taken_path_is_a_conflict_and_keeps_its_bytes(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/a", b"first")

    with pytest.raises(FileConflictError) as caught:
        storage.create_exclusive(path, b"second")

    assert caught.value.path == path
    assert storage.read_range(path, 0, 99) == b"first"
    assert list_paths(storage, operation) == {path}


def test_an_empty_file_can_be_created(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/empty", b"")

    assert storage.stat(path).size_bytes == 0


@pytest.mark.parametrize("call", ["stat", "sha256", "open_input"])
def test_a_missing_file_is_named(storage: Storage, operation: str, call: str) -> None:
    with pytest.raises(FileMissingError) as caught:
        getattr(storage, call)(f"{operation}/nothing")

    assert caught.value.path == f"{operation}/nothing"


@pytest.mark.parametrize("call", ["stat", "sha256", "open_input"])
def test_a_directory_is_not_a_file(storage: Storage, operation: str, call: str) -> None:
    put(storage, f"{operation}/a")

    with pytest.raises(NotAFileError) as caught:
        getattr(storage, call)(operation)

    assert caught.value.found == "directory"


@pytest.mark.parametrize("call", ["stat", "sha256", "open_input", "list_files", "delete_tree"])
def test_every_call_refuses_paths_outside(storage: Storage, call: str) -> None:
    for outside in ("/etc/passwd", f"{storage.paths.root}/../x", f"{storage.paths.root}x/y", "s3://other/key", "relative"):
        with pytest.raises(PathRefusedError):
            getattr(storage, call)(outside)


def test_every_spelling_reaches_the_same_file(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/a b", b"one")
    spellings = (
        [path.replace("s3://", "s3a://"), f"{operation}//./a b/"] if path.startswith("s3") else ["file://" + path.replace(" ", "%20")]
    )

    for spelling in spellings:
        assert storage.stat(spelling).path == path
        assert storage.canonical(spelling) == path


def test_outcomes_come_in_the_order_of_the_paths_whatever_happens_to_each(storage: Storage, operation: str) -> None:
    here, also = put(storage, f"{operation}/a"), put(storage, f"{operation}/sub/b")
    asked = [also, f"{operation}/gone", "/etc/passwd", f"{operation}/sub", here, here]

    outcomes = storage.delete(asked)

    assert [outcome.path for outcome in outcomes] == asked
    assert [outcome.result for outcome in outcomes[:3]] == [Deletion.DELETED, Deletion.MISSING, Deletion.FAILED]
    assert "outside" in outcomes[2].reason or "below the warehouse" in outcomes[2].reason
    assert [outcome.result for outcome in outcomes[4:]] == [Deletion.DELETED, Deletion.MISSING]


def test_a_directory_in_the_place_of_a_file_is_not_deleted(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/sub/a")

    (outcome,) = storage.delete([f"{operation}/sub"])

    assert not outcome.gone
    assert outcome.reason
    assert storage.stat(path).size_bytes == 1


def test_hundreds_of_files_are_deleted_in_one_call(storage: Storage, operation: str) -> None:
    many = 300 if storage.paths.warehouse.is_local else 60
    paths = [put(storage, f"{operation}/{n % 7}/{n}") for n in range(many)]

    outcomes = storage.delete(list(reversed(paths)))

    assert {outcome.result for outcome in outcomes} == {Deletion.DELETED}
    assert list_paths(storage, operation) == set()


def test_deleting_nothing_is_fine(storage: Storage) -> None:
    assert storage.delete([]) == []
    assert storage.remove_empty_directories([]) == []


def test_the_marker_is_neither_listed_nor_deleted(storage: Storage) -> None:
    (outcome,) = storage.delete([storage.paths.marker])

    assert not outcome.gone
    assert storage.find_marker() is not None
    assert list_paths(storage, storage.paths.root) == set()


def test_a_listing_finds_files_at_every_depth(storage: Storage, operation: str) -> None:
    paths = {put(storage, f"{operation}/{name}", b"abc") for name in ("a", "x=1/b", "x=1/y=2/c", "x=%2F/d")}

    listed = list(storage.list_files(operation))

    assert {facts.path for facts in listed} == paths == list_paths(storage, storage.paths.root)
    assert {facts.size_bytes for facts in listed} == {3}


@pytest.mark.parametrize("name", ["/double", "./dot", "../dots", "control\x01", "marker/"])
def test_an_object_that_no_path_names_is_skipped_and_stops_no_listing(objects: ObjectStorage, s3_endpoint: str, name: str) -> None:
    path = put(objects, f"{objects.paths.root}/shop/fine")
    bucket, _, key = objects.paths.root.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    client.put_object(Bucket=bucket, Key=f"{key}/shop/{name}", Body=b"")

    assert list_paths(objects, objects.paths.root) == {path}


def test_listing_a_directory_that_is_not_there_finds_nothing(storage: Storage, operation: str) -> None:
    assert list_paths(storage, operation) == set()


def test_a_tree_is_deleted_whole_and_nothing_beside_it(storage: Storage, operation: str) -> None:
    put(storage, f"{operation}/a")
    put(storage, f"{operation}/x=1/b")
    neighbour = put(storage, f"{operation[:-1]}{'0' if operation[-1] != '0' else '1'}/a")

    assert storage.delete_tree(operation)

    assert list_paths(storage, storage.paths.root) == {neighbour}
    assert not storage.delete_tree(operation)


@pytest.mark.parametrize("up", [1, 2, 3])
def test_only_an_operations_own_directory_can_be_deleted_as_a_tree(storage: Storage, operation: str, up: int) -> None:
    path = put(storage, f"{operation}/sub/a")

    for directory in (operation.rsplit("/", up)[0], f"{operation}/sub", path):
        with pytest.raises(PathRefusedError):
            storage.delete_tree(directory)

    assert storage.stat(path).size_bytes == 1


def test_directories_that_became_empty_go_and_others_stay(storage: Storage, operation: str) -> None:
    emptied = [put(storage, f"{operation}/x=1/a"), put(storage, f"{operation}/b")]
    half = f"{operation[:-4]}0000"
    gone, kept = put(storage, f"{half}/a"), put(storage, f"{half}/b")
    storage.delete([*emptied, gone])

    removed = storage.remove_empty_directories([*emptied, gone])

    assert operation in removed
    assert half not in removed
    assert list_paths(storage, storage.paths.root) == {kept}


def test_syncing_a_finished_tree_succeeds(storage: Storage, operation: str) -> None:
    path = put(storage, f"{operation}/x=1/a")

    storage.sync(path)
    storage.sync_tree(operation)

    assert storage.stat(path).size_bytes == 1


def test_a_lost_warehouse_is_unavailable_never_empty(storage: Storage, operation: str) -> None:
    lose_marker(storage)

    for call in (storage.stat, storage.delete_tree, list_paths.__get__(storage)):
        with pytest.raises(StorageUnavailableError):
            call(operation)


def test_nothing_counts_as_deleted_in_a_lost_warehouse(storage: Storage, operation: str) -> None:
    lose_marker(storage)

    (outcome,) = storage.delete([f"{operation}/a"])

    assert outcome.result is Deletion.FAILED
    assert "nothing" in outcome.reason
