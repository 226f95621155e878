"""Astha as the registry sees it: how far each component has come, what was given up, what changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import Format, out, print_csv, print_json, print_records, print_table
from lakebed.cli.terminal import (
    EXIT_REFUSED,
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    DryRun,
    Limit,
    Output,
    TableName,
    Url,
    Warehouse,
    choose_format,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from lakebed.core.errors import LakebedError
    from lakebed.core.events import Component, Event
    from lakebed.core.rows import Row
    from lakebed.lake import Lake
    from lakebed.registry.journal.cursors import LaneStates

astha = typer.Typer(help="Delivery of changes to the components.", no_args_is_help=True)

_LANES = ("table", "component", "behind", "needs_refresh", "parked", "reason")
_LETTERS = ("at", "component", "table", "seq", "attempts", "resolved", "error")
_CHANGES = ("at", "table", "seq", "registry_table", "operation", "what")
_FOLLOW_S = 1.0  # Astha's own sweep is as slow


@astha.command("status")
def status(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """How far each component has come, and who runs them.

    Example: lakebed astha status
    """
    from lakebed.registry.journal.cursors import read_lane_states  # noqa: PLC0415 - after the registry is there
    from lakebed.registry.journal.leases import find_holder  # noqa: PLC0415
    from lakebed.registry.snapshots.foreign import list_stops  # noqa: PLC0415

    with opened(registry, warehouse) as lake:
        states, holder = read_lane_states(lake.registry), find_holder(lake.registry, "astha")
        stops, names = list_stops(lake.registry), _names(lake)
    lanes = [
        {
            "table": names[table_id], "component": str(component), "behind": states.ends.get(table_id, 0) - cursor.seq,
            "needs_refresh": cursor.needs_refresh, "parked": (component, table_id) in states.parked,
            "reason": _say_why(component, table_id, states, stops),
        }
        for (component, table_id), cursor in sorted(states.cursors.items(), key=lambda item: (item[0][1], item[0][0]))
        if table_id in names
    ]  # fmt: skip
    if as_json:
        print_json({"holder": holder, "lanes": lanes})
        return
    out().print(f"run by {holder}" if holder else "no process runs the components: keep a lake open, or run `lakebed serve`")
    print_table(_LANES, lanes, empty="no component has looked at a table yet")


def _say_why(component: Component, table_id: int, states: LaneStates, stops: Mapping[int, LakebedError]) -> str:
    """Why a lane waits for a person; empty where it does not."""
    if component == "iceberg_updater" and table_id in stops:
        return f"{stops[table_id].code}: {stops[table_id]}"
    parked = states.parked.get((component, table_id))
    return "" if parked is None else parked.error


@astha.command("tail")
def tail(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    limit: Limit = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until Ctrl-C; with --json one object per line")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The last changes of a table, or of all.

    Example: lakebed astha tail shop.orders --follow
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        if table is not None:
            lake.table(table)  # one that is not there is refused
        names = _names(lake, table)
        seen, found = _read_last(lake, names, limit=limit)
        if not follow:
            print_records(_CHANGES, found, output=form, empty="no change is kept")
            return
        _print_changes(found, output=form, is_first=True)
        while follow:
            time.sleep(_FOLLOW_S)
            names |= _names(lake, table)  # those that were created meanwhile; of one that was dropped the last changes may be to come
            events = [event for table_id in names for event in _read_next(lake, table_id, seen)]
            if events:
                _print_changes([_change(names[event.table_id], event) for event in sorted(events, key=_in_time)], output=form)


@astha.command("dead-letters")
def dead_letters(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    resolved: Annotated[bool, typer.Option("--resolved", help="those too that a refresh made good")] = False,
    limit: Limit = 1000,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Changes that a component gave up.

    Example: lakebed astha dead-letters --json
    """
    from lakebed.registry.journal.cursors import list_dead_letters  # noqa: PLC0415 - after the registry is there

    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        table_id = None if table is None else lake.table(table).table_id
        letters, names = list_dead_letters(lake.registry, table_id=table_id, open_only=not resolved, limit=limit), _names(lake)
    found = [
        {
            "at": x.at, "component": str(x.component), "table": names.get(x.table_id), "table_id": x.table_id, "seq": x.seq,
            "attempts": x.attempts, "resolved": x.resolved_at is not None, "error": x.error,
        }
        for x in letters
    ]  # fmt: skip
    print_records((*_LETTERS, "table_id"), found, output=form, shown=_LETTERS, empty="no dead letter")


@astha.command("retry")
def retry(
    component: Annotated[str, typer.Argument(help="such as iceberg_updater")],
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Resume delivery for a parked table.

    Example: lakebed astha retry iceberg_updater shop.orders
    """
    from lakebed.core.errors import InvalidValueError  # noqa: PLC0415 - only here
    from lakebed.core.events import Component  # noqa: PLC0415
    from lakebed.registry.journal.cursors import list_parked, request_retry  # noqa: PLC0415

    with opened(registry, warehouse) as lake:
        if component not in set(Component):
            message = f"there is no component {component!a}: the components are {', '.join(Component)}"
            raise InvalidValueError(message)
        wanted = Component(component), lake.table(table).table_id
        parked = wanted in list_parked(lake.registry)
        asked = parked if dry_run else request_retry(lake.registry, *wanted)
    if as_json:
        print_json({"component": component, "table": table, "dry_run": dry_run, "asked": asked and not dry_run, "parked": parked})
    else:
        will = "would" if dry_run else "will"
        out().print(f"{component} {will} try {table} again" if asked else f"{component} is not parked on {table}")
    if not asked:
        raise typer.Exit(EXIT_REFUSED)


def _names(lake: Lake, wanted: str | None = None) -> dict[int, str]:
    names = {row.id: f"{row.database}.{row.name}" for row in lake.tables.list()}
    return names if wanted is None else {table_id: name for table_id, name in names.items() if name == wanted}


def _read_last(lake: Lake, names: dict[int, str], *, limit: int) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """The newest changes in the order of time, and where each journal ends."""
    from lakebed.registry.journal.changes import last_and_purged_numbers, read_changes  # noqa: PLC0415 - after the registry is there

    with lake.registry.read() as reader:
        ends = {table_id: end for table_id, end in last_and_purged_numbers(reader).items() if table_id in names}
        events = [
            event
            for table_id, (last, purged) in ends.items()
            for event in read_changes(reader, table_id, after=max(purged, last - limit), limit=limit)
        ]
    events.sort(key=_in_time)
    seen = {table_id: last for table_id, (last, _) in ends.items()}
    return seen, [_change(names[event.table_id], event) for event in events[-limit:]]


def _in_time(event: Event[Row]) -> tuple[datetime, int, int]:
    return event.timestamp, event.table_id, event.sequence


def _read_next(lake: Lake, table_id: int, seen: dict[int, int]) -> Iterable[Event[Row]]:
    from lakebed.core.errors import JournalGapError  # noqa: PLC0415
    from lakebed.registry.journal.changes import read_changes  # noqa: PLC0415

    try:
        events = read_changes(lake.registry, table_id, after=seen.get(table_id, 0))
    except JournalGapError as exc:  # purged faster than it was looked at
        seen[table_id] = exc.found - 1
        return []
    if events:
        seen[table_id] = events[-1].sequence
    return events


def _change(table: str, event: Event[Row]) -> dict[str, Any]:
    return {
        "at": event.timestamp, "table": table, "seq": event.sequence, "registry_table": str(event.table), "operation": str(event.operation),
        "what": _describe(event.data),
    }  # fmt: skip


def _describe(row: Row) -> str:
    """What a person knows the row by."""
    from lakebed.core.rows import TableFiles, TableMetadata, Tables, TableSnapshots, TableStats  # noqa: PLC0415

    match row:
        case TableFiles():
            return f"{row.file_name} {row.row_count:,} rows{' retired' if row.retired_seq is not None else ''}"
        case TableSnapshots():
            return f"snapshot {row.snapshot_id} {row.operation}"
        case TableMetadata():
            return f"version {row.schema_version} {row.standing}"
        case TableStats():
            return f"{row.partition_path or 'unpartitioned'}: {row.row_count:,} rows in {row.file_count:,} files"
        case Tables():
            return f"{row.row_count:,} rows, group {row.committed_group} of {row.last_group}, {row.state}"


def _print_changes(changes: list[dict[str, Any]], *, output: Format, is_first: bool = False) -> None:
    """Of a stream: one object per line, one header."""
    match output:
        case Format.JSON:
            for change in changes:
                print_json(change)
        case Format.CSV:
            print_csv(_CHANGES, ([change[name] for name in _CHANGES] for change in changes), header=is_first)
        case Format.TABLE:
            print_table(_CHANGES, changes, empty="no change is kept")
