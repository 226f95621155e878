"""Branches, tags and properties of other programs: kept, with all that they lead to, beside everything that Lakebed does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS
from ice import ROWS, SHOP, IceLake, shop_rows
from lakebed import admin
from lakebed.core.errors import FileMissingError, InvalidValueError
from lakebed.core.tables.snapshots import KeptSnapshot, Retention, SnapshotRequests, plan_expiry
from lakebed.iceberg.locations import from_uri
from lakebed.registry.snapshots.foreign import read_refs
from lakebed.registry.snapshots.history import list_queued, list_snapshots
from lakebed.registry.snapshots.requests import change_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

NAME = str(ORDERS)


def _refs(ice: IceLake) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in ice.base().metadata.refs.items() if name != "main"}


def _tag(table: Table, name: str) -> int:
    current = table.current_snapshot()
    assert current is not None
    with table.manage_snapshots() as manage:
        manage.create_tag(current.snapshot_id, name)
    return current.snapshot_id


def _branch(table: Table, name: str, number: int) -> int:
    """A branch of another program with rows of its own; its newest snapshot."""
    current = table.current_snapshot()
    assert current is not None
    with table.manage_snapshots() as manage:
        manage.create_branch(current.snapshot_id, name)
    table.append(shop_rows(SHOP, number), branch=name)
    return table.refresh().metadata.refs[name].snapshot_id


def _files_of(ice: IceLake, snapshot_id: int) -> set[Path]:
    tasks = ice.static().scan(snapshot_id=snapshot_id).plan_files()
    return {Path(from_uri(task.file.file_path)) for task in tasks}


def test_a_branch_a_tag_and_a_property_of_another_program_stay(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first = ice.insert(1).snapshot_id
    theirs = stranger.load_table(NAME)
    _tag(theirs, "audit")
    head = _branch(theirs, "theirs", 50)
    with theirs.transaction() as change:
        change.set_properties({"owner": "ann"})

    ice.insert(2)
    ice.insert(3)

    assert _refs(ice) == {"audit": first, "theirs": head}
    assert ice.base().metadata.properties["owner"] == "ann"
    ids = ice.static().scan(snapshot_id=head).to_arrow()["id"].to_pylist()
    assert set(ids) == {*range(1000, 1000 + ROWS), *range(50_000, 50_000 + ROWS)}
    assert {row.snapshot_id for row in list_snapshots(ice.lake.registry, ice.table_id())} >= {head}
    assert read_refs(ice.lake.registry, ice.table_id()).refs == _refs(ice)
    ice.require_true()
    assert ice.lake.check().clean


def test_our_tags_come_and_go_beside_theirs(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first = ice.insert(1).snapshot_id
    assert first is not None
    _tag(stranger.load_table(NAME), "audit")

    admin.tag_snapshot(ice.lake.registry, NAME, "ours", first)
    ice.advance()
    tagged = _refs(ice)
    admin.untag_snapshot(ice.lake.registry, NAME, "ours")
    ice.advance()

    assert tagged == {"audit": first, "ours": first}
    assert _refs(ice) == {"audit": first}
    assert ice.lake.check().clean


def test_a_ref_of_another_program_can_be_neither_taken_nor_removed_here(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first = ice.insert(1).snapshot_id
    _tag(stranger.load_table(NAME), "audit")
    second = ice.insert(2).snapshot_id
    assert second is not None

    with pytest.raises(InvalidValueError, match="another program"):
        admin.tag_snapshot(ice.lake.registry, NAME, "audit", second)
    with pytest.raises(InvalidValueError, match="another program"):
        admin.untag_snapshot(ice.lake.registry, NAME, "audit")

    ice.insert(3)
    assert _refs(ice) == {"audit": first}


def test_a_tag_of_ours_that_another_program_moved_is_theirs(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first, second = ice.insert(1).snapshot_id, ice.insert(2).snapshot_id
    assert first is not None
    admin.tag_snapshot(ice.lake.registry, NAME, "shared", first)
    ice.advance()
    with stranger.load_table(NAME).manage_snapshots() as manage:
        manage.remove_tag("shared")
    with stranger.load_table(NAME).manage_snapshots() as manage:
        manage.create_tag(second, "shared")  # type: ignore[arg-type]

    ice.insert(3)

    assert _refs(ice) == {"shared": second}


def test_a_tag_of_ours_that_another_program_removed_comes_back(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first = ice.insert(1).snapshot_id
    assert first is not None
    admin.tag_snapshot(ice.lake.registry, NAME, "ours", first)
    ice.advance()
    with stranger.load_table(NAME).manage_snapshots() as manage:
        manage.remove_tag("ours")

    ice.insert(2)

    assert _refs(ice) == {"ours": first}


def test_what_a_ref_of_another_program_leads_to_never_expires(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first = ice.insert(1).snapshot_id
    theirs = stranger.load_table(NAME)
    _tag(theirs, "audit")
    below = _branch(theirs, "theirs", 50)
    theirs.append(shop_rows(SHOP, 51), branch="theirs")
    head = theirs.refresh().metadata.refs["theirs"].snapshot_id
    second, last = ice.insert(2).snapshot_id, ice.insert(3).snapshot_id
    assert second is not None

    with pytest.raises(InvalidValueError, match="audit"):
        admin.expire_snapshots(ice.lake.registry, NAME, snapshot_ids=[first])  # type: ignore[list-item]
    change_requests(ice.lake.registry, ice.table_id(), lambda _: SnapshotRequests(expire=(first, below, head, second)))  # type: ignore[arg-type]
    ice.advance()

    assert {s.snapshot_id for s in ice.base().metadata.snapshots} == {first, below, head, last}
    assert ice.static().scan(snapshot_id=head).to_arrow().num_rows == 3 * ROWS
    assert ice.lake.check().clean


def test_files_that_a_branch_of_another_program_reaches_outlive_retirement_and_clean_up(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    gone = ice.write(1)
    ice.seal()
    first = ice.advance().snapshot_id
    head = _branch(stranger.load_table(NAME), "theirs", 50)
    ice.retire(gone.partition_id)
    ice.advance()
    change_requests(ice.lake.registry, ice.table_id(), lambda _: SnapshotRequests(expire=(first,)))  # type: ignore[arg-type]
    ice.advance()

    ice.lake.delete_expired_temporary_files()
    ice.lake.files.sweep_orphans(dry_run=False)
    ice.lake.delete_expired_temporary_files()

    assert first not in {s.snapshot_id for s in ice.base().metadata.snapshots}
    assert all(path.exists() for path in _files_of(ice, head))
    assert ice.static().scan(snapshot_id=head).to_arrow().num_rows == 2 * ROWS
    assert ice.lake.check().clean


def test_a_registered_file_that_only_a_ref_of_another_program_reaches_is_not_deleted(ice: IceLake, stranger: SqlCatalog) -> None:
    """Registered after the branch was made: no group of ours says that the branch needs it."""
    ice.create()
    ice.insert(1)
    head = _branch(stranger.load_table(NAME), "theirs", 50)
    (path,) = (p for p in _files_of(ice, head) if not any(row.file_path == str(p) for row in ice.lake.files.list(NAME)))
    adopted = ice.lake.files.register(NAME, [str(path)], adopt=True)
    ice.seal()
    ice.advance()
    ice.retire(adopted.partition_id)
    ice.advance()
    change_requests(
        ice.lake.registry, ice.table_id(), lambda _: SnapshotRequests(expire=tuple(s.snapshot_id for s in ice.base().metadata.snapshots))
    )
    ice.advance()

    assert ice.lake.delete_expired_temporary_files().deleted == 0

    assert path.exists()
    assert ice.lake.check().clean


def test_a_branch_that_its_program_dropped_expires_and_its_files_go(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    ice.insert(1)
    theirs = stranger.load_table(NAME)
    head = _branch(theirs, "theirs", 50)
    ice.insert(2)
    (path,) = (p for p in _files_of(ice, head) if not any(row.file_path == str(p) for row in ice.lake.files.list(NAME)))
    with theirs.refresh().manage_snapshots() as manage:
        manage.remove_branch("theirs")
    ice.insert(3)

    admin.expire_snapshots(ice.lake.registry, NAME, snapshot_ids=[head], dry_run=False)
    ice.advance()

    assert head not in {s.snapshot_id for s in ice.base().metadata.snapshots}
    assert str(path) in list_queued(ice.lake.registry, ice.table_id())
    assert path.exists()  # until its grace is over
    assert ice.lake.check().clean


def test_no_repair_gives_up_what_other_programs_keep_unless_it_is_asked_for(
    ice: IceLake, another_ice: Callable[[], IceLake], stranger: SqlCatalog
) -> None:
    table = ice.create()
    ice.insert(1)
    head = _branch(stranger.load_table(NAME), "theirs", 50)
    ice.insert(2)
    current = ice.base().metadata.current_snapshot()
    assert current is not None
    Path(from_uri(current.manifest_list)).unlink()
    other = another_ice()

    with pytest.raises(FileMissingError):
        other.committer.refresh(table.table_id)

    assert _refs(other) == {"theirs": head}
    assert other.static().scan(snapshot_id=head).to_arrow().num_rows == 2 * ROWS
    other.committer.rebuild(table.table_id)
    assert _refs(other) == {}
    other.require_true()


def test_a_snapshot_of_another_program_is_not_read_as_one_of_ours(ice: IceLake, stranger: SqlCatalog) -> None:
    """The registry knows only the files that it shares with us."""
    ice.create()
    ice.insert(1)
    head = _branch(stranger.load_table(NAME), "theirs", 50)
    ice.insert(2)

    with pytest.raises(InvalidValueError, match="another program"):
        ice.lake.snapshots.rollback(NAME, head)


def test_retention_counts_snapshots_of_other_programs_for_nothing() -> None:
    """One that no ref leads to goes when it is older than all that is kept for its age; it never takes the place of one of ours."""
    day = 24 * 3600 * 1_000_000
    ours = [KeptSnapshot(snapshot_id=n, at=n * day) for n in (1, 2)]
    theirs = [KeptSnapshot(snapshot_id=10, at=2 * day + 1, is_foreign=True), KeptSnapshot(snapshot_id=11, at=0, is_foreign=True)]

    at_once = plan_expiry([*ours, *theirs], Retention(), now=3 * day)
    later = plan_expiry([*ours, *theirs], Retention(), now=33 * day, protected={10})

    assert at_once == ()
    assert later == (11, 1)
