"""A change of what is Lakebed's alone stops the table, says so to every process, and can be settled without a trace of damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType
from sqlalchemy import text

from builders import ORDERS
from ice import ROWS, SHOP, IceLake, shop_rows
from lakebed import admin
from lakebed.check import Severity
from lakebed.core.errors import ForeignCommitError, InvalidValueError
from lakebed.core.names import TableName
from lakebed.iceberg.locations import MetadataFiles, from_uri, parse_version, read_metadata_text
from lakebed.registry.snapshots.foreign import find_stop
from lakebed.registry.snapshots.history import list_queued, list_snapshots
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

NAME = str(ORDERS)
RETURNS = TableName("shop", "returns")


def _add_column(table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("theirs", StringType())


def _change_spec(table: Table) -> None:
    with table.update_spec() as change:
        change.add_field("country", IdentityTransform())


def _sort(table: Table) -> None:
    with table.update_sort_order() as change:
        change.asc("id", IdentityTransform())


def _set(key: str, value: str) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        with table.transaction() as changing:
            changing.set_properties({key: value})

    return change


def _remove(key: str) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        with table.transaction() as changing:
            changing.remove_properties(key)

    return change


def _move(table: Table) -> None:
    with table.transaction() as changing:
        changing.update_location(f"{table.location()}/elsewhere")


CHANGES = {
    "schema": _add_column,
    "partition spec": _change_spec,
    "sort order": _sort,
    "main": lambda table: table.append(shop_rows(SHOP, 50)),
    "lakebed.* properties": _set("lakebed.committed-group", "0"),
    "lakebed.* properties, added": _set("lakebed.note", "theirs"),
    "lakebed.* properties, table id": _set("lakebed.table-id", "77"),
    "lakebed.* properties, record": _remove("lakebed.written"),
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_a_change_of_what_is_ours_alone_stops_that_table_and_discarding_undoes_it(
    ice: IceLake, another_ice: Callable[[], IceLake], stranger: SqlCatalog, what: str
) -> None:
    table = ice.create()
    ice.create(RETURNS)
    ice.insert(1)
    schema, spec = ice.base().metadata.schema(), ice.base().metadata.spec().fields
    CHANGES[what](stranger.load_table(NAME))
    ice.write(2)
    ice.seal()

    with pytest.raises(ForeignCommitError) as caught:
        ice.committer.advance(table.table_id)

    assert caught.value.changed[0] == what.partition(",")[0]
    assert "discard_foreign" in str(caught.value)
    ice.insert(9, RETURNS)
    stop = find_stop(ice.lake.registry, table.table_id)
    assert stop is not None
    assert str(stop) == str(caught.value)
    assert [finding.rule for finding in ice.lake.check().findings] == ["iceberg_foreign"]
    (step,) = ice.lake.repair(NAME, how="discard_foreign", dry_run=False).steps
    assert what.partition(",")[0] in step.told
    ice = another_ice()  # the repair took the table over
    assert ice.base().metadata.schema() == schema
    assert ice.base().metadata.spec().fields == spec
    assert ice.base().metadata.default_sort_order_id == 0
    assert require_table(ice.lake.registry, ORDERS).row.state == "ok"
    assert find_stop(ice.lake.registry, table.table_id) is None
    ice.insert(3)
    assert ice.static().scan().to_arrow().num_rows == 3 * ROWS
    ice.require_true()
    assert ice.lake.check().clean


def _edit(ice: IceLake, **changes: object) -> None:
    """Metadata as a program would write it that knows more than PyIceberg lets callers change."""
    base = ice.base()
    found = json.loads(read_metadata_text(ice.lake.storage, base.location)) | {key.replace("_", "-"): v for key, v in changes.items()}
    files = MetadataFiles(ice.lake.storage, ice.lake.storage.paths.metadata_directory(ice.table_id(), ORDERS), {})
    location = files.write_metadata(parse_version(base.location) + 1, json.dumps(found))
    with ice.catalog.engine.begin() as connection:
        connection.execute(text("UPDATE iceberg_tables SET metadata_location = :new"), {"new": location})


@pytest.mark.parametrize(
    ("what", "changes"),
    [("uuid", {"table_uuid": "11111111-2222-3333-4444-555555555555"}), ("location", {"location": "file:///elsewhere"})],
)
def test_a_table_that_changed_its_identity_stops_and_gets_it_back(
    ice: IceLake, another_ice: Callable[[], IceLake], what: str, changes: dict[str, object]
) -> None:
    table = ice.create()
    ice.insert(1)
    before = ice.base().metadata
    _edit(ice, **changes)
    other = another_ice()

    with pytest.raises(ForeignCommitError) as caught:
        other.committer.advance(table.table_id)
    assert caught.value.changed == (what,)
    other.committer.discard_foreign(table.table_id)

    assert (other.base().metadata.table_uuid, other.base().metadata.location) == (before.table_uuid, before.location)
    assert other.lake.check().clean


def test_a_table_of_another_format_version_is_not_taken_for_damage(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    table = ice.create()
    ice.insert(1)
    _edit(ice, format_version=3, next_row_id=0)
    pointer = ice.catalog.find_pointer(ORDERS)
    other = another_ice()

    for call in (other.committer.advance, other.committer.refresh, other.committer.discard_foreign):
        with pytest.raises(ForeignCommitError, match="rebuild") as caught:
            call(table.table_id)
        assert caught.value.changed == ("format version",)
    assert other.catalog.find_pointer(ORDERS) == pointer
    assert [finding.rule for finding in other.lake.check().findings if finding.severity is not Severity.INFO] == ["iceberg_foreign"]
    other.lake.repair(NAME, how="rebuild", dry_run=False)

    assert other.static().scan().to_arrow().num_rows == ROWS
    assert other.lake.check().clean


def test_only_files_can_be_adopted(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    theirs = stranger.load_table(NAME)
    _add_column(theirs)
    theirs.append(shop_rows(SHOP, 50))

    with pytest.raises(InvalidValueError, match=r"schema.*discard_foreign"):
        ice.committer.adopt_foreign(table.table_id)


def test_a_change_that_its_program_took_back_lets_the_table_go_on(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    theirs = stranger.load_table(NAME)
    _set("lakebed.note", "theirs")(theirs)
    with pytest.raises(ForeignCommitError):
        ice.committer.advance(table.table_id)
    _remove("lakebed.note")(theirs)

    ice.insert(2)

    assert require_table(ice.lake.registry, ORDERS).row.state == "ok"
    assert find_stop(ice.lake.registry, table.table_id) is None
    assert ice.lake.check().clean


@pytest.mark.parametrize("how", ["adopt_foreign", "discard_foreign"])
def test_after_a_repair_the_lake_is_clean_and_the_tag_can_go_with_all_it_kept(
    ice: IceLake, another_ice: Callable[[], IceLake], stranger: SqlCatalog, how: str
) -> None:
    ice.create()
    kept = ice.insert(1).snapshot_id
    theirs = stranger.load_table(NAME)
    theirs.append(shop_rows(SHOP, 50))
    foreign = theirs.metadata.current_snapshot_id
    assert foreign is not None
    (path,) = {Path(from_uri(task.file.file_path)) for task in theirs.scan().plan_files()} - {
        Path(row.file_path) for row in ice.lake.files.list(NAME)
    }

    result = ice.lake.repair(NAME, how=how, dry_run=False)  # type: ignore[arg-type]
    ice = another_ice()  # the repair took the table over
    ice.seal()
    ice.committer.advance(ice.table_id())

    assert result.clean
    assert ice.lake.check().clean
    tag = f"foreign-{foreign}"
    assert {row.snapshot_id for row in ice.lake.snapshots(NAME)} >= {kept, foreign}
    assert next(row.tags for row in ice.lake.snapshots(NAME) if row.snapshot_id == foreign) == tag
    with pytest.raises(InvalidValueError, match=tag):
        ice.lake.snapshots.expire(NAME, snapshot_ids=[foreign])
    ice.lake.snapshots.untag(NAME, tag)
    ice.advance()
    assert tag not in ice.base().metadata.refs
    ice.lake.snapshots.expire(NAME, snapshot_ids=[foreign], dry_run=False)
    ice.advance()
    assert foreign not in {row.snapshot_id for row in list_snapshots(ice.lake.registry, ice.table_id())}
    assert kept in {row.snapshot_id for row in list_snapshots(ice.lake.registry, ice.table_id())}
    assert (str(path) in list_queued(ice.lake.registry, ice.table_id())) is (how == "discard_foreign")
    ice.lake.files.sweep_orphans(dry_run=False)
    assert ice.static().scan().to_arrow().num_rows == (2 if how == "adopt_foreign" else 1) * ROWS
    assert ice.lake.check().clean


def test_a_tag_of_an_earlier_version_can_be_taken_off_too(ice: IceLake, stranger: SqlCatalog) -> None:
    """Discarding used to make the tag without recording that it was ours."""
    ice.create()
    ice.insert(1)
    _edit_properties_away(ice)
    with stranger.load_table(NAME).manage_snapshots() as manage:
        manage.create_tag(ice.base().metadata.current_snapshot_id or 0, "foreign-7")
    ice.insert(2)

    admin.untag_snapshot(ice.lake.registry, NAME, "foreign-7")
    ice.advance()

    assert list(ice.base().metadata.refs) == ["main"]
    assert ice.lake.check().clean


def _edit_properties_away(ice: IceLake) -> None:
    """As the table was before Lakebed recorded what it wrote."""
    found = json.loads(read_metadata_text(ice.lake.storage, ice.base().location))
    found["properties"].pop("lakebed.written")
    for snapshot in found["snapshots"]:
        snapshot["summary"].pop("lakebed.format")
    _edit(ice, **{key.replace("-", "_"): found[key] for key in ("properties", "snapshots")})


def test_a_table_of_an_earlier_version_goes_on_and_its_unknown_refs_stay(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    first = ice.insert(1).snapshot_id
    assert first is not None
    ice.lake.snapshots.tag(NAME, "ours", first)
    ice.advance()
    with stranger.load_table(NAME).manage_snapshots() as manage:
        manage.create_tag(first, "theirs")
    _edit_properties_away(ice)

    ice.insert(2)
    ice.lake.snapshots.untag(NAME, "ours")
    ice.advance()

    assert {name: ref.snapshot_id for name, ref in ice.base().metadata.refs.items() if name != "main"} == {"theirs": first}
    assert ice.lake.check().clean


def test_a_schema_of_another_program_stops_a_table_of_an_earlier_version_too(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    _edit_properties_away(ice)
    _add_column(stranger.load_table(NAME))

    with pytest.raises(ForeignCommitError) as caught:
        ice.committer.advance(table.table_id)

    assert caught.value.changed == ("schema",)
