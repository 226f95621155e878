"""`replace` promises readers that no row changed: it is said only when every change behind a commit is known to have kept the rows."""

from __future__ import annotations

import pyarrow.parquet as pq

from builders import ORDERS, writing_path
from ice import SHOP, IceLake, shop_rows

NAME = str(ORDERS)


def _fill(ice: IceLake, count: int) -> list[int]:
    """That many files of as many rows, all in one snapshot; their partitions."""
    ice.create()
    ids = [ice.write(number).partition_id for number in range(1, count + 1)]
    ice.seal()
    ice.advance()
    return ids


def _register_in_place(ice: IceLake, number: int) -> None:
    """A file of another program, in a directory that no operation made."""
    path = writing_path(f"{ice.lake.storage.paths.root}/incoming/{number}.parquet")
    pq.write_table(shop_rows(SHOP, number), path)
    ice.lake.files.register(NAME, [path])


def _count_kinds(ice: IceLake) -> int:
    return int(ice.lake.registry.query("SELECT count(*) FROM table_groups")[0][0])


def test_a_compaction_alone_is_a_replace(ice: IceLake) -> None:
    _fill(ice, 4)
    ice.lake.compact(NAME)

    assert ice.advance().operation == "replace"
    assert _count_kinds(ice) == 0  # what is committed needs no kind
    assert ice.lake.check().clean


def test_a_compaction_beside_rows_that_came_and_as_many_that_went_is_an_overwrite(ice: IceLake) -> None:
    first, *_ = _fill(ice, 4)
    ice.retire(first)
    _register_in_place(ice, 50)
    ice.lake.compact(NAME)
    ice.seal()

    done = ice.advance()

    assert done.operation == "overwrite"
    ids = set(ice.static().scan().to_arrow()["id"].to_pylist())
    assert 1000 not in ids
    assert 50_000 in ids
    assert ice.lake.check().clean


def test_rows_that_came_and_went_through_a_compaction_before_the_commit_are_no_replace(ice: IceLake) -> None:
    """The file that brought them is gone again, and as many others went: only its group shows that rows came."""
    first, *_ = _fill(ice, 3)
    ice.write(50)
    ice.seal()
    ice.lake.compact(NAME)
    (merged,) = (row.partition_id for row in ice.lake.list_partitions(NAME))
    ice.write(60, replacing=frozenset({merged}))

    assert ice.advance().operation == "overwrite"
    assert first != merged
    assert ice.lake.check().clean


def test_an_overwrite_by_as_many_rows_is_an_overwrite(ice: IceLake) -> None:
    first, *_ = _fill(ice, 2)
    ice.write(50, replacing=frozenset({first}))

    assert ice.advance().operation == "overwrite"


def test_a_change_whose_kind_is_not_recorded_is_never_a_replace(ice: IceLake) -> None:
    """As of a registry that was migrated while a compaction waited for its commit."""
    _fill(ice, 4)
    ice.lake.compact(NAME)
    with ice.lake.registry.write() as tx:
        tx.run("DELETE FROM table_groups")

    assert ice.advance().operation == "overwrite"


def test_a_rollback_to_as_many_rows_is_an_overwrite(ice: IceLake) -> None:
    first, *_ = _fill(ice, 2)
    before = ice.base().metadata.current_snapshot_id
    assert before is not None
    ice.write(50, replacing=frozenset({first}))
    ice.advance()

    ice.lake.snapshots.rollback(NAME, before)

    assert ice.advance().operation == "overwrite"
    assert ice.lake.check().clean
