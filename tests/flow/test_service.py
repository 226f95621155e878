"""The whole loop: what is registered becomes a snapshot, in this process or in another, and nothing runs on afterwards."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from builders import ORDERS, fresh_name, grow_schema, make_table, write_partition
from lakebed.core.errors import CommitTimeoutError, InvalidValueError, SnapshotNotFoundError
from lakebed.lake import connect
from lakebed.registry.snapshots.history import list_snapshots
from retiring import retire_by_ids
from serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.core.names import TableName
    from lakebed.lake import Lake

ORDERS_NAME = str(ORDERS)


@contextmanager
def opened(url: str, tmp_path: Path, **options: Any) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse"), **options) as lake:
        yield lake


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    """One that publishes by itself."""
    with opened(url, tmp_path, service="auto") as made:
        make_table(made.registry)
        yield made


def ids_in_iceberg(lake: Lake, name: TableName = ORDERS) -> list[int]:
    """As a stranger reads them, from the newest metadata file alone."""
    newest = list_snapshots(lake.registry, lake.registry.require_table_id(name))[-1]
    return sorted(StaticTable.from_metadata(newest.metadata_location).scan().to_arrow()["id"].to_pylist())


def ids_of(*numbers: int) -> list[int]:
    return sorted(number * 1000 + i for number in numbers for i in range(50))


def test_what_is_registered_becomes_a_snapshot_by_itself(lake: Lake) -> None:
    write_partition(lake, 1)
    write_partition(lake, 2)

    assert lake.drain(60)

    assert ids_in_iceberg(lake) == ids_of(1, 2)
    assert lake.table(ORDERS_NAME).row.committed_group == lake.table(ORDERS_NAME).row.last_group
    assert lake.check().clean


def test_a_manual_snapshot_returns_the_committed_id_and_a_second_commits_nothing(lake: Lake) -> None:
    lake.tables.configure(ORDERS_NAME, snapshot={"trigger": "manual"})
    write_partition(lake, 1)
    assert lake.drain(60)
    assert lake.snapshots(ORDERS_NAME) == []

    first = lake.snapshot(ORDERS_NAME)

    assert first == lake.snapshots(ORDERS_NAME)[-1].snapshot_id
    assert lake.snapshot(ORDERS_NAME) == first
    assert len(lake.snapshots(ORDERS_NAME)) == 1


def test_a_table_that_never_had_a_file_has_no_snapshot(lake: Lake) -> None:
    assert lake.snapshot(ORDERS_NAME) is None
    assert lake.snapshots(ORDERS_NAME) == []


def test_retiring_takes_rows_out_and_the_old_snapshot_still_has_them(lake: Lake) -> None:
    gone = write_partition(lake, 1)
    write_partition(lake, 2)
    before = lake.snapshot(ORDERS_NAME)
    with lake.registry.write([ORDERS]) as tx:
        retire_by_ids(tx, ORDERS, {gone.partition_id})

    assert lake.drain(60)

    assert ids_in_iceberg(lake) == ids_of(2)
    newest = list_snapshots(lake.registry, lake.registry.require_table_id(ORDERS))[-1]
    old = StaticTable.from_metadata(newest.metadata_location).scan(snapshot_id=before).to_arrow()
    assert sorted(old["id"].to_pylist()) == ids_of(1, 2)
    assert lake.check().clean


def test_rolling_back_is_a_new_commit_with_the_old_rows(lake: Lake) -> None:
    write_partition(lake, 1)
    first = lake.snapshot(ORDERS_NAME)
    assert first is not None
    write_partition(lake, 2)
    second = lake.snapshot(ORDERS_NAME)

    lake.snapshots.rollback(ORDERS_NAME, first)
    third = lake.snapshot(ORDERS_NAME)

    assert ids_in_iceberg(lake) == ids_of(1)
    assert len({first, second, third}) == 3
    assert lake.table(ORDERS_NAME).row.row_count == 50
    assert lake.check(deep=True).clean


def test_rolling_back_refuses_an_id_that_is_not_a_kept_snapshot(lake: Lake) -> None:
    write_partition(lake, 1)
    lake.snapshot(ORDERS_NAME)
    with pytest.raises(InvalidValueError, match="journal number"):
        lake.snapshots.rollback(ORDERS_NAME, 1)
    with pytest.raises(SnapshotNotFoundError):
        lake.snapshots.rollback(ORDERS_NAME, 1 << 50)


def test_a_tag_keeps_its_snapshot_for_every_engine(lake: Lake) -> None:
    write_partition(lake, 1)
    first = lake.snapshot(ORDERS_NAME)
    write_partition(lake, 2)
    lake.snapshot(ORDERS_NAME)

    assert first is not None
    lake.snapshots.tag(ORDERS_NAME, "audit", first)
    assert lake.drain(60)

    assert [row.tags for row in lake.snapshots(ORDERS_NAME)] == ["audit", ""]
    location = pointer_of(lake)
    assert StaticTable.from_metadata(location).refs()["audit"].snapshot_id == first

    lake.snapshots.untag(ORDERS_NAME, "audit")
    assert lake.drain(60)
    assert "audit" not in StaticTable.from_metadata(pointer_of(lake)).refs()


def pointer_of(lake: Lake) -> str:
    from lakebed.iceberg.catalog import open_catalog  # noqa: PLC0415 - only here

    catalog = open_catalog(lake.registry, lake.storage)
    try:
        pointer = catalog.find_pointer(ORDERS)
    finally:
        catalog.close()
    assert pointer is not None
    assert pointer.location is not None
    return pointer.location


def test_a_new_column_reaches_iceberg_with_its_own_id(lake: Lake) -> None:
    write_partition(lake, 1)
    lake.snapshot(ORDERS_NAME)

    grow_schema(lake.registry)
    assert lake.drain(60)

    schema = StaticTable.from_metadata(pointer_of(lake)).schema()
    assert {field.name: field.field_id for field in schema.fields}["note"] == 9
    assert ids_in_iceberg(lake) == ids_of(1)


def test_a_pure_library_leaves_publishing_to_others(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path, service="off") as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
        assert not lake.drain(0.1)
        with pytest.raises(CommitTimeoutError, match="no process publishes"):
            lake.snapshot(ORDERS_NAME, timeout_s=0.1)

        with opened(url, tmp_path, service="auto") as other:
            write_partition(other, 2)
            assert lake.snapshot(ORDERS_NAME, timeout_s=60) is not None

        assert ids_in_iceberg(lake) == ids_of(1, 2)
        assert lake.check().clean


def test_of_two_processes_one_publishes_and_the_other_takes_over(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path, service="auto") as first, opened(url, tmp_path, service="auto") as second:
        make_table(first.registry)
        write_partition(first, 1)
        first.snapshot(ORDERS_NAME)
        write_partition(second, 2)
        second.snapshot(ORDERS_NAME)
        assert sorted(is_active(lake) for lake in (first, second)) == [False, True]

        active, survivor = (first, second) if is_active(first) else (second, first)
        active.close()
        write_partition(survivor, 3)
        survivor.snapshot(ORDERS_NAME, timeout_s=60)

        assert ids_in_iceberg(survivor) == ids_of(1, 2, 3)
        assert survivor.check().clean


def is_active(lake: Lake) -> bool:
    service = lake._embedded.service
    return service is not None and service.astha.is_active


def test_a_whole_service_takes_the_place_of_the_embedded_one_and_hands_back(lake: Lake) -> None:
    write_partition(lake, 1)
    lake.snapshot(ORDERS_NAME)
    with lake.service() as service:
        write_partition(lake, 2)
        lake.snapshot(ORDERS_NAME)
        assert service.status().active
    write_partition(lake, 3)
    lake.snapshot(ORDERS_NAME)
    assert ids_in_iceberg(lake) == ids_of(1, 2, 3)


def test_closing_publishes_what_is_pending_and_leaves_no_thread(url: str, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with opened(url, tmp_path, service="auto") as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
    assert {t.name for t in threading.enumerate() if t not in before} == set()
    with opened(url, tmp_path, service="off") as lake:
        assert ids_in_iceberg(lake) == ids_of(1)


def test_a_burst_of_inserts_becomes_few_commits(lake: Lake) -> None:
    """Groups that wait while a commit runs go together."""
    for number in range(40):
        write_partition(lake, number)
    assert lake.drain(60)
    assert ids_in_iceberg(lake) == ids_of(*range(40))
    assert len(lake.snapshots(ORDERS_NAME)) <= 20


def test_two_tables_are_published_side_by_side(lake: Lake) -> None:
    other = fresh_name()
    make_table(lake.registry, other)
    write_partition(lake, 1)
    with lake.writing(str(other)) as writing:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only here

        from builders import arrow_rows, writing_path  # noqa: PLC0415

        pq.write_table(arrow_rows(7), writing_path(writing.new_path()))
        writing.publish()
    assert lake.drain(60)
    assert ids_in_iceberg(lake) == ids_of(1)
    assert ids_in_iceberg(lake, other) == ids_of(7)
    assert lake.check().clean


def test_a_publisher_whose_start_failed_is_started_again(url: str, tmp_path: Path, kind: str) -> None:
    if kind != "sqlite":
        pytest.skip("on PostgreSQL the catalog is in the registry's own database")
    in_the_way = Path(url.removeprefix("sqlite:///")).with_suffix(".iceberg.db")
    in_the_way.mkdir()
    with opened(url, tmp_path, service="auto") as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
        assert lake._embedded.require_service() is None
        in_the_way.rmdir()

        wait_until(lambda: lake._embedded.require_service() is not None)

        assert lake.drain(60)
        assert ids_in_iceberg(lake) == ids_of(1)
        assert lake.check().clean
