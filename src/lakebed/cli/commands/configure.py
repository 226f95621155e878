"""Settings of a table: show and change them."""

from __future__ import annotations

import json
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import Format, out, print_json, print_records
from lakebed.cli.terminal import URL, WAREHOUSE, AsJson, DryRun, Output, TableName, Url, Warehouse, choose_format, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.core.tables.snapshots import Retention, SnapshotPolicy

_COLUMNS = ("setting", "value", "origin")
_TABLE, _DEFAULT = "table", "default"


class Setting(StrEnum):
    """What `--default` restores."""

    SNAPSHOT = "snapshot"
    RETENTION = "retention"
    RETIRE_AFTER = "retire-after"
    MERGE_WINDOW = "merge-window"
    PROPERTIES = "properties"

    @property
    def key(self) -> str:
        return "merge_window_us" if self is Setting.MERGE_WINDOW else self.value.replace("-", "_")


def _pairs(setting: Setting, texts: Sequence[str]) -> dict[str, Any]:
    """`key=value`; a value that is not JSON is text."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            message = f"--{'property' if setting is Setting.PROPERTIES else setting} {text}: expected KEY=VALUE"
            raise typer.BadParameter(message)
        found[key] = _read_value(value)
    return found


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


Pairs = list[str] | None
SnapshotKeys = Annotated[
    Pairs,
    typer.Option(
        "--snapshot", metavar="KEY=VALUE", help="when pending files become a snapshot, such as trigger=time; give all its keys in one call"
    ),
]
RetentionKeys = Annotated[
    Pairs,
    typer.Option(
        "--retention", metavar="KEY=VALUE", help="which snapshots are kept, such as daily_s=7776000; give all its keys in one call"
    ),
]
RetireAfter = Annotated[
    str | None, typer.Option("--retire-after", metavar="AGE", help="retire partitions this long after their last event: 90d")
]
MergeWindow = Annotated[
    str | None, typer.Option("--merge-window", metavar="SPAN", help="longest range that merging turns into one partition: 7d")
]
OwnProperties = Annotated[
    Pairs, typer.Option("--property", metavar="KEY=JSON", help="a property of your own; may be repeated, null removes it")
]
Defaults = Annotated[list[Setting] | None, typer.Option("--default", help="restore the default of a setting; may be repeated")]


def configure(  # noqa: PLR0913 - one option per setting
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    snapshot: SnapshotKeys = None,
    retention: RetentionKeys = None,
    retire_after: RetireAfter = None,
    merge_window: MergeWindow = None,
    properties: OwnProperties = None,
    default: Defaults = None,
    dry_run: DryRun = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a table, or show them when none is given. They take effect without a restart.

    Example: lakebed configure shop.orders --snapshot trigger=time --snapshot interval_s=60 --retire-after 90d
    """
    from lakebed.core.tables.settings import plan_properties  # noqa: PLC0415 - only here

    form = choose_format(output, as_json=as_json)
    pairs = {Setting.SNAPSHOT: snapshot, Setting.RETENTION: retention, Setting.PROPERTIES: properties}
    texts = {Setting.RETIRE_AFTER: retire_after, Setting.MERGE_WINDOW: merge_window}
    changes = _read_changes(pairs, texts, default or ())
    with opened(registry, warehouse) as lake:
        found = lake.table(table)
        stored = plan_properties(str(found.name), found.properties, changes)
        if changes and not dry_run:
            lake.tables.configure(table, **changes)
            stored = lake.table(table).properties
    _render(str(found.name), list(_list_settings(stored)), sorted(changes), dry_run=dry_run, output=form)


def _read_changes(
    pairs: Mapping[Setting, Sequence[str] | None], texts: Mapping[Setting, str | None], default: Sequence[Setting]
) -> dict[str, Any]:
    given: dict[Setting, Any] = {one: _pairs(one, found) for one, found in pairs.items() if found}
    given |= {one: text for one, text in texts.items() if text is not None}
    if both := sorted(given.keys() & set(default)):
        message = f"--default {both[0]}: the same call sets it"
        raise typer.BadParameter(message)
    return {one.key: value for one, value in given.items()} | {one.key: None for one in default}


def _list_settings(stored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What holds for the table, and whether it was set or is a default."""
    from lakebed.core.tables.settings import list_free  # noqa: PLC0415
    from lakebed.core.tables.snapshots import read_retention, read_snapshot_policy  # noqa: PLC0415
    from lakebed.core.times import DAY_US  # noqa: PLC0415

    yield from _list_keys(Setting.SNAPSHOT, read_snapshot_policy(stored.get("snapshot", {})), stored)
    yield from _list_keys(Setting.RETENTION, read_retention(stored.get("retention", {})), stored)
    yield _row("retire_after", _show_span(stored.get("retire_after")), stored)
    yield _row("merge_window_us", stored.get("merge_window_us", DAY_US), stored)
    for name, value in sorted(list_free(stored).items()):
        yield {"setting": f"properties.{name}", "value": value, "origin": _TABLE}


def _list_keys(setting: Setting, policy: SnapshotPolicy | Retention, stored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    given = stored.get(setting.key, {})
    for one in fields(policy):
        origin = _TABLE if one.name in given else _DEFAULT
        yield {"setting": f"{setting}.{one.name}", "value": getattr(policy, one.name), "origin": origin}


def _row(key: str, value: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    return {"setting": key, "value": value, "origin": _TABLE if key in stored else _DEFAULT}


def _show_span(given: str | int | None) -> str | None:
    from lakebed.core.times import show_duration  # noqa: PLC0415

    return show_duration(given) if isinstance(given, int) else given


def _render(table: str, settings: Sequence[dict[str, Any]], changed: Sequence[str], *, dry_run: bool, output: Format) -> None:
    if output is Format.JSON:
        print_json({"table": table, "dry_run": dry_run, "changed": changed, "settings": settings})
        return
    print_records(_COLUMNS, settings, output=output)
    if changed and output is Format.TABLE:
        out().print(f"\n{table}: {'would change' if dry_run else 'changed'} {', '.join(changed)}")
