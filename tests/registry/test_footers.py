from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import zstandard

from builders import ORDERS, make_table, write_partition
from lakebed.core.errors import FooterCorruptError, FooterNotFoundError, FooterRowsError
from lakebed.parquet.cache import FooterCache
from lakebed.registry.connect import open_backend
from lakebed.registry.files.footers import FooterIndex, load_footer, migrate_footers
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake

_SET = """UPDATE partition_metadata SET metadata = :metadata, partition_format_version = :version, footer_length = :length,
checksum = :checksum WHERE file_path = :path"""


def publish_files(lake: Lake, count: int) -> list[str]:
    make_table(lake.registry)
    for number in range(count):
        write_partition(lake, number)
    return sorted(f.file_path for f in lake.files.list(str(ORDERS)))


def store(lake: Lake, path: str, footer: bytes, *, version: int) -> None:
    values = {"metadata": zstandard.compress(footer), "length": len(footer), "checksum": hashlib.sha256(footer).hexdigest()}
    with lake.registry.write() as tx:
        tx.run(_SET, {**values, "version": version, "path": path})


def make_v1(lake: Lake, path: str) -> bytes:
    """Store the file's footer as version 1 kept it: bare FileMetaData."""
    bare = load_footer(lake.registry, path)[:-8]
    store(lake, path, bare, version=1)
    return bare


def test_a_stored_footer_is_the_tail_of_its_file(lake: Lake) -> None:
    (path,) = publish_files(lake, 1)

    footer = load_footer(lake.registry, path)

    assert Path(path).read_bytes().endswith(footer)
    assert lake.files.footer(path).equals(pq.read_metadata(path))


def test_a_footer_that_was_never_stored_is_a_typed_error(lake: Lake) -> None:
    with pytest.raises(FooterNotFoundError, match="never registered"):
        lake.files.footer(f"{lake.storage.paths.root}/shop/orders-1/data/none.parquet")


def test_the_second_load_comes_from_the_cache(lake: Lake) -> None:
    (path,) = publish_files(lake, 1)

    assert lake.files.footer(path) is lake.files.footer(path)
    assert lake._cache.counters.hits == 1


def damage_missing(lake: Lake, path: str) -> None:
    with lake.registry.write() as tx:
        tx.run("DELETE FROM partition_metadata WHERE file_path = :path", {"path": path})


def damage_truncated(lake: Lake, path: str) -> None:
    with lake.registry.write() as tx:
        tx.run("UPDATE partition_metadata SET metadata = :short WHERE file_path = :path", {"short": b"\x28\xb5", "path": path})


def damage_flipped(lake: Lake, path: str) -> None:
    footer = bytearray(load_footer(lake.registry, path))
    footer[7] ^= 1
    values: dict[str, Any] = {"flipped": zstandard.compress(bytes(footer)), "path": path}
    with lake.registry.write() as tx:
        tx.run("UPDATE partition_metadata SET metadata = :flipped WHERE file_path = :path", values)


def damage_version(lake: Lake, path: str) -> None:
    store(lake, path, load_footer(lake.registry, path), version=99)


DAMAGES: dict[str, Callable[[Lake, str], None]] = {
    "missing": damage_missing,
    "truncated": damage_truncated,
    "flipped": damage_flipped,
    "version 99": damage_version,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_query_survives_a_footer_row_that_is(lake: Lake, damage: str) -> None:
    (path,) = publish_files(lake, 1)
    expected = pq.read_metadata(path)
    DAMAGES[damage](lake, path)

    assert lake._footers.load(path).equals(expected)

    counted = lake._footers.fallbacks
    assert counted.missing + counted.damaged == 1
    with pytest.raises((FooterNotFoundError, FooterCorruptError)):
        load_footer(lake.registry, path)


def test_a_footer_of_a_later_version_is_refused_with_those_that_are_known(lake: Lake) -> None:
    (path,) = publish_files(lake, 1)
    damage_version(lake, path)

    with pytest.raises(FooterCorruptError, match="has format version 99, this program knows 1 to 2: upgrade Lakebed"):
        load_footer(lake.registry, path)


def test_switching_the_footer_table_off_changes_no_answer(lake: Lake) -> None:
    paths = publish_files(lake, 3)
    plain = FooterIndex(lake.registry, lake.storage, cache=FooterCache(), enabled=False)

    assert all(plain.load(path).equals(lake._footers.load(path)) for path in paths)
    assert plain.fallbacks.missing == 0


def test_a_version_1_footer_reads_like_the_file(lake: Lake) -> None:
    (path,) = publish_files(lake, 1)
    make_v1(lake, path)

    metadata = lake.files.footer(path)

    assert metadata.num_rows == pq.read_metadata(path).num_rows
    assert metadata.num_row_groups == pq.read_metadata(path).num_row_groups


def test_a_version_1_footer_that_disagrees_with_the_registry_is_an_error(lake: Lake) -> None:
    (path,) = publish_files(lake, 1)
    make_v1(lake, path)
    with lake.registry.write() as tx:
        tx.run("UPDATE partition_metadata SET num_rows = 999 WHERE file_path = :path", {"path": path})

    with pytest.raises(FooterRowsError, match="999"):
        lake.files.footer(path)


def test_footers_of_both_versions_load_after_their_partition_was_retired(lake: Lake) -> None:
    first, second = publish_files(lake, 2)
    make_v1(lake, first)
    ids = {p.partition_id for p in lake.list_partitions(str(ORDERS))}

    with lake.registry.write([ORDERS]) as tx:
        retire_by_ids(tx, ORDERS, ids)

    assert lake.list_partitions(str(ORDERS)) == []
    assert lake.files.footer(first).num_rows == lake.files.footer(second).num_rows == 50
    assert lake.check().clean


def test_the_upgrade_job_is_bounded_and_a_second_run_changes_nothing(lake: Lake) -> None:
    paths = publish_files(lake, 7)
    for path in paths[:5]:
        make_v1(lake, path)

    reported: list[tuple[int, int]] = []
    first = migrate_footers(lake.registry, batch=2, progress=lambda done, total: reported.append((done, total)))
    second = migrate_footers(lake.registry, batch=2)

    assert reported == [(2, 5), (4, 5), (5, 5)]
    assert (first.upgraded, first.failed, second.upgraded) == (5, {}, 0)
    versions = lake.registry.query("SELECT DISTINCT partition_format_version FROM partition_metadata")
    assert versions == [(2,)]
    assert all(lake.files.footer(path).num_rows == 50 for path in paths)


def test_a_footer_that_another_process_upgraded_meanwhile_is_left_alone(lake: Lake, url: str) -> None:
    for path in publish_files(lake, 2):
        make_v1(lake, path)
    steps = Steps(at=2, act=lambda _: assert_upgraded(lake, 2))

    with closing(Registry(SteppedBackend(open_backend(url), steps))) as late:
        done = migrate_footers(late)

    assert steps.done[1] == "begin"  # behind reading the old ones, before writing the first
    assert (done.upgraded, done.skipped, done.failed) == (0, 2, {})
    assert lake.check().clean


def assert_upgraded(lake: Lake, many: int) -> None:
    assert migrate_footers(lake.registry).upgraded == many


def test_the_upgrade_job_leaves_what_it_cannot_read_and_says_so(lake: Lake) -> None:
    good, bad = publish_files(lake, 2)
    make_v1(lake, good)
    store(lake, bad, b"no thrift at all", version=1)

    done = migrate_footers(lake.registry)

    assert (done.upgraded, list(done.failed)) == (1, [bad])
    assert lake._footers.load(bad).num_rows == 50


def test_finalizing_a_deletion_removes_the_footer_with_the_file_row(lake: Lake) -> None:
    (path,) = publish_files(lake, 1)
    ids = {p.partition_id for p in lake.list_partitions(str(ORDERS))}
    with lake.registry.write([ORDERS]) as tx:
        retire_by_ids(tx, ORDERS, ids, grace_us=0)

    assert lake.delete_expired_temporary_files().deleted == 1

    for table in ("partition_metadata", "table_files", "file_columns", "file_ranges", "temporary_files"):
        assert lake.registry.query(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert not Path(path).exists()
    assert lake.check().clean
