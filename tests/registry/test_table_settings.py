"""What `configure` and `create_table` accept as settings, and what they refuse before anything is changed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS, SCHEMA, make_table, make_view, promote, stage, write_partition
from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError, TagNotFoundError
from lakebed.registry.snapshots.requests import change_requests
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.view_sets import merge_window

if TYPE_CHECKING:
    from lakebed.core.tables.snapshots import SnapshotRequests
    from lakebed.lake import Lake

NAME = str(ORDERS)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"retire_afer": "90d"}, "did you mean retire_after"),
    ({"Snapshot": {}}, "did you mean snapshot"),
    ({"registry": 1}, "the settings are snapshot, retention, retire_after"),
    ({"snapshot": {"triger": "time"}}, "did you mean trigger"),
    ({"snapshot": {"trigger": "tme"}}, "did you mean time"),
    ({"snapshot": "manual"}, "snapshot"),
    ({"snapshot": {"files": "many"}}, "number"),
    ({"retention": {"dayly_s": 1}}, "did you mean daily_s"),
    ({"retention": [1]}, "retention"),
    ({"retire_after": "soon"}, "retire_after"),
    ({"merge_window_us": "1 month"}, "merge_window_us"),
    ({"wishes": {}}, "internal"),
    ({"indexed": [1]}, "internal"),
    ({"definition": "SELECT 1"}, "internal"),
    ({"lakebed.table-id": "7"}, "internal"),
    ({"owner": "ann"}, "properties={'owner': ...}"),
    ({"properties": {"wishes": {}}}, "internal"),
    ({"properties": {"Indexed": []}}, "internal"),
    ({"properties": {"legacy": {}}}, "internal"),
    ({"properties": {"LAKEBED.written": ""}}, "internal"),
    ({"properties": {"retention": {"all_s": 1}}}, "is a setting"),
    ({"properties": {"": 1}}, "property"),
    ({"properties": {3: 1}}, "property"),
    ({"properties": {"owner": object()}}, "JSON"),
    ({"properties": {"share": float("nan")}}, "JSON"),
    ({"properties": ["owner"]}, "properties"),
]


def stored(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(require_table(lake.registry, ORDERS).metadata.properties)
    return found


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_wrong_setting_is_refused_with_the_right_one_and_nothing_changes(lake: Lake, given: dict[str, Any], said: str) -> None:
    make_table(lake.registry)
    before = stored(lake)

    with pytest.raises(InvalidValueError) as refused:
        lake.tables.configure(NAME, retire_after="7d", **given) if "retire_after" not in given else lake.tables.configure(NAME, **given)

    assert said in str(refused.value)
    assert stored(lake) == before


def test_settings_and_free_properties_stand_beside_each_other(lake: Lake) -> None:
    make_table(lake.registry)
    lake.tables.configure(
        NAME, snapshot={"trigger": "manual"}, retire_after=timedelta(days=1), merge_window_us="12h", properties={"owner": "ann"}
    )
    lake.tables.configure(NAME, properties={"team": ["a", {"b": None}], "cost": 1.5})
    assert merge_window(require_table(lake.registry, ORDERS)) == 12 * 3600 * 10**6

    lake.tables.configure(NAME, snapshot=None, merge_window_us=None, properties={"cost": None})

    found = {key: value for key, value in stored(lake).items() if key != "indexed"}
    assert found == {"retire_after": 86_400_000_000, "owner": "ann", "team": ["a", {"b": None}]}


def test_properties_none_takes_all_free_ones_away_and_no_other(lake: Lake) -> None:
    make_table(lake.registry)
    lake.tables.configure(NAME, retire_after="7d", properties={"owner": "ann", "team": "x"})
    before = stored(lake)

    lake.tables.configure(NAME, properties=None)

    assert stored(lake) == {key: value for key, value in before.items() if key in {"indexed", "retire_after"}}


def test_a_staged_definition_survives_new_settings(lake: Lake) -> None:
    view = make_view(lake.registry).name
    stage(lake.registry)
    lake.tables.configure(str(view), properties={"owner": "ann"})
    lake.tables.configure(str(view), properties=None)
    assert "definition" in require_table(lake.registry, view).metadata.properties


def test_settings_and_tags_made_while_a_definition_is_staged_stay_when_it_serves(lake: Lake) -> None:
    view = make_view(lake.registry)
    staged = stage(lake.registry)
    lake.tables.configure(str(view.name), retire_after="7d", properties={"owner": "ann"})
    change_requests(lake.registry, view.table_id, lambda requested: replace(requested, tags={"kept": 1}))

    promote(lake.registry, staged)

    found = json.loads(require_table(lake.registry, view.name).metadata.properties)
    assert (found["retire_after"], found["owner"], found["wishes"]["tags"]) == ("7d", "ann", {"kept": 1})
    assert found["definition"] == "SELECT 2"


@pytest.mark.parametrize("key", ["wishes", "indexed", "definition", "legacy", "lakebed.x", "retention"])
def test_a_new_table_takes_free_properties_alone(lake: Lake, key: str) -> None:
    with pytest.raises(InvalidValueError, match=key):
        lake.create_table(NAME, SCHEMA, properties={key: {}})
    assert lake.tables.list() == []

    lake.create_table(NAME, SCHEMA, properties={"owner": "ann"})
    assert stored(lake)["owner"] == "ann"


def test_a_misspelled_option_of_a_new_table_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidValueError, match="did you mean partition_by"):
        lake.create_table(NAME, SCHEMA, partition_bye=["day(ts)"])  # type: ignore[call-arg] # that is what is tested
    assert lake.tables.list() == []


def test_a_misspelled_option_of_a_retirement_is_refused(lake: Lake) -> None:
    make_table(lake.registry)
    with pytest.raises(InvalidValueError, match="did you mean dry_run"):
        lake.retire_incompatible_partitions(NAME, dryrun=False)  # type: ignore[call-arg]
    with pytest.raises(InvalidValueError, match="did you mean retire_damaged"):
        lake.repair(NAME, retire_damage=True)  # type: ignore[call-arg]


def tagged(lake: Lake, **tags: int) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)

    def body(requested: SnapshotRequests) -> SnapshotRequests:
        return type(requested)(tags=tags)

    change_requests(lake.registry, lake.table(NAME).table_id, body)


def test_a_tag_needs_an_id_and_only_untag_takes_one_off(lake: Lake) -> None:
    tagged(lake, audit=7)
    with pytest.raises(InvalidValueError, match="untag"):
        lake.snapshots.tag(NAME, "audit", None)  # type: ignore[arg-type]
    with pytest.raises(SnapshotNotFoundError):
        lake.snapshots.tag(NAME, "audit", 8)
    assert stored(lake)["wishes"]["tags"] == {"audit": 7}

    lake.snapshots.untag(NAME, "audit")

    assert stored(lake)["wishes"]["tags"] == {}


def test_an_unknown_tag_cannot_be_taken_off(lake: Lake) -> None:
    tagged(lake, audit_2026=7)
    with pytest.raises(TagNotFoundError, match="did you mean audit_2026") as refused:
        lake.snapshots.untag(NAME, "audit_206")
    assert (refused.value.tag, refused.value.near) == ("audit_206", ("audit_2026",))
    assert stored(lake)["wishes"]["tags"] == {"audit_2026": 7}
