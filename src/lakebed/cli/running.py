"""The service, Astha as the registry sees it, and where settings come from."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer
from rich.table import Table

from lakebed.cli.terminal import EXIT_REFUSED, URL, WAREHOUSE, AsJson, TableName, Url, Warehouse, errors, opened, out, print_json

astha = typer.Typer(help="Delivery of changes to the components.", no_args_is_help=True)
config = typer.Typer(help="Settings.", no_args_is_help=True)


def serve(registry: Url = URL, warehouse: Warehouse = WAREHOUSE) -> None:
    """Run Astha and all components until the process is told to stop. Example: lakebed serve --registry sqlite:///lake.db."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with opened(registry, warehouse) as lake, lake.service() as service:
        active = service.status().active
        out().print(f"serving {lake.registry.backend.shown_url}: {'active' if active else 'standing by for the process that is'}")
        stop.wait()
        out().print("stopping")


def repair(
    table: TableName,
    how: Annotated[str, typer.Option("--how", help="refresh, rebuild, adopt_foreign or discard_foreign")] = "refresh",
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """Make a table's Iceberg metadata equal to the registry again. Example: lakebed repair shop.orders --how discard_foreign."""
    with opened(registry, warehouse) as lake:
        done = lake.repair(table, how)  # type: ignore[arg-type] # any other word is refused there
    if as_json:
        print_json({"table": table, "how": how, "changed": done is not None, "snapshot_id": None if done is None else done.snapshot_id})
    else:
        out().print(f"{table} was as it should be" if done is None else f"{table} stands at group {done.group} again")


@astha.command("status")
def status(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """How far each component has come, and who runs them. Example: lakebed astha status."""
    from lakebed.registry.deliveries import read_standing  # noqa: PLC0415 - after the registry is there
    from lakebed.registry.leases import find_holder  # noqa: PLC0415

    with opened(registry, warehouse) as lake:
        standing, holder = read_standing(lake.registry), find_holder(lake.registry, "astha")
        names = {row.id: f"{row.database}.{row.name}" for row in lake.list_tables()}
    lanes = [
        {
            "table": names[table_id], "component": str(component), "behind": standing.ends.get(table_id, 0) - cursor.seq,
            "needs_refresh": cursor.needs_refresh, "parked": (component, table_id) in standing.parked,
        }
        for (component, table_id), cursor in sorted(standing.cursors.items(), key=lambda item: (item[0][1], item[0][0]))
        if table_id in names
    ]  # fmt: skip
    if as_json:
        print_json({"holder": holder, "lanes": lanes})
        return
    out().print(f"run by {holder}" if holder else "nobody runs the components: keep a lake open, or `lakebed serve`")
    out().print(_table(("table", "component", "behind", "needs_refresh", "parked"), lanes))


@astha.command("dead-letters")
def dead_letters(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """Changes that a component gave up. Example: lakebed astha dead-letters --json."""
    from lakebed.registry.deliveries import list_dead_letters  # noqa: PLC0415 - after the registry is there

    with opened(registry, warehouse) as lake:
        letters = list_dead_letters(lake.registry)
    found = [
        {"component": str(x.component), "table_id": x.table_id, "seq": x.seq, "attempts": x.attempts, "error": x.error} for x in letters
    ]
    if as_json:
        print_json(found)
    else:
        out().print(_table(("component", "table_id", "seq", "attempts", "error"), found) if found else "no dead letter")


@astha.command("retry")
def retry(
    component: Annotated[str, typer.Argument(help="such as iceberg_updater")],
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """Take a parked table up again. Example: lakebed astha retry iceberg_updater shop.orders."""
    from lakebed.core.errors import InvalidValueError  # noqa: PLC0415 - only here
    from lakebed.core.events import Component  # noqa: PLC0415
    from lakebed.registry.deliveries import request_retry  # noqa: PLC0415

    with opened(registry, warehouse) as lake:
        if component not in set(Component):
            message = f"there is no component {component!a}: the components are {', '.join(Component)}"
            raise InvalidValueError(message)
        asked = request_retry(lake.registry, Component(component), lake.table(table).table_id)
    if as_json:
        print_json({"component": component, "table": table, "asked": asked})
    else:
        out().print(f"{component} will try {table} again" if asked else f"{component} is not parked on {table}")
    if not asked:
        raise typer.Exit(EXIT_REFUSED)


@config.command("show")
def show(*, as_json: AsJson = False) -> None:
    """Every setting, its value and where it came from. Example: lakebed config show."""
    from lakebed.registry.postgres import hide_password  # noqa: PLC0415 - brings psycopg
    from lakebed.settings import load_settings  # noqa: PLC0415

    with errors():
        origins = load_settings().origins
    found = [
        {
            "setting": one.name,
            "value": hide_password(one.value) if one.name == "registry_url" and one.value else one.value,
            "origin": one.origin,
        }
        for one in origins
    ]
    if as_json:
        print_json(found)
    else:
        out().print(_table(("setting", "value", "origin"), found))


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    shown = Table(*columns)
    for row in rows:
        shown.add_row(*(str(row[column]) for column in columns))
    return shown
