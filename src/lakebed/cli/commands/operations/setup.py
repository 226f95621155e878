"""Setting a lake up, keeping its registry up to date, and where settings come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.rendering import err, out, print_json, print_records
from lakebed.cli.terminal import (
    EXIT_DRIFT,
    URL,
    WAREHOUSE,
    AsJson,
    DryRun,
    Output,
    Url,
    Warehouse,
    choose_format,
    errors,
    fail,
    opened,
    showing,
)
from lakebed.core.errors import LakebedError
from lakebed.settings import load_command_settings

if TYPE_CHECKING:
    from lakebed.registry.files.footers import FooterUpgrade

config = typer.Typer(help="Settings.", no_args_is_help=True)


AdoptWarehouse = Annotated[
    bool, typer.Option("--adopt-warehouse", help="the place holds the registry's files already: compare, then mark it")
]
Legacy = Annotated[
    str | None, typer.Option("--legacy", metavar="URL", help="with --adopt-warehouse: the files are those of this older registry")
]


def init(
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    adopt_warehouse: AdoptWarehouse = False,
    legacy: Legacy = None,
    as_json: AsJson = False,
) -> None:
    """Create a registry and a warehouse, or say that they are there.

    Example: lakebed init --registry sqlite:///lake.db
    """
    if legacy is not None and not adopt_warehouse:
        message = "--legacy goes with --adopt-warehouse"
        raise typer.BadParameter(message)
    if adopt_warehouse:
        _adopt(registry, warehouse, legacy)
    with opened(registry, warehouse, create=True) as lake:
        where, root, tables = lake.registry.backend.shown_url, lake.storage.paths.root, len(lake.tables.list())
    if as_json:
        print_json({"registry": where, "warehouse": root, "tables": tables})
    else:
        out().print(f"registry {where} and warehouse {root} are ready", soft_wrap=True)


def _adopt(registry: str, warehouse: str, legacy: str | None) -> None:
    from lakebed.opening import adopt_warehouse  # noqa: PLC0415 - brings pyarrow

    with errors():
        adopt_warehouse(registry, warehouse, legacy=legacy)


def demo(*, as_json: AsJson = False) -> None:
    """Walk through everything that is there, on real files in a temporary directory.

    Example: lakebed demo
    """
    from lakebed.cli.demo.demo import run_demo  # noqa: PLC0415 - brings pyarrow

    clean = run_demo(err() if as_json else out())
    if as_json:
        print_json({"clean": clean})
    if not clean:
        raise typer.Exit(EXIT_DRIFT)


def migrate(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Bring an older registry up to date; can be interrupted and run again.

    A warehouse that has no marker yet is marked, after its files were compared with the registry.

    Example: lakebed migrate --dry-run
    """
    from lakebed.registry.migrate import list_pending, migrate_registry  # noqa: PLC0415 - brings Alembic

    with errors():
        applied = list_pending(registry) if dry_run else migrate_registry(registry, report=err().print)
    marked = None if dry_run else _mark_migrated(registry, warehouse)
    if as_json:
        print_json({"dry_run": dry_run, "revisions": applied, "warehouse": marked})
    elif applied:
        out().print(f"{'would apply' if dry_run else 'applied'} {', '.join(applied)}")
    else:
        out().print("the registry is up to date")


def _mark_migrated(registry: str, warehouse: str) -> str | None:
    from lakebed.opening import adopt_migrated  # noqa: PLC0415 - brings pyarrow

    try:
        return adopt_migrated(registry, warehouse)
    except LakebedError as exc:
        err().print("the registry is up to date; its warehouse is not ready:")
        fail(exc)


def migrate_footers(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Upgrade stored footers of format version 1 in bounded batches; can be run again.

    Example: lakebed migrate-footers --dry-run
    """
    from lakebed.registry.files.footers import count_old_footers  # noqa: PLC0415 - brings pyarrow
    from lakebed.registry.files.footers import migrate_footers as upgrade  # noqa: PLC0415

    with opened(registry, warehouse) as lake:
        waiting, done = count_old_footers(lake.registry), None
        if not dry_run:
            with showing("upgrading footers") as progress:
                done = upgrade(lake.registry, progress=progress)
    if done is not None:
        _render_upgrade(done, as_json=as_json)
    elif as_json:
        print_json({"dry_run": True, "upgraded": waiting, "skipped": 0, "failed": {}})
    else:
        out().print(f"would upgrade {waiting:,} footers")


@config.command("show")
def show_config(*, output: Output = None, as_json: AsJson = False) -> None:
    """Every setting, its value and where it came from.

    Example: lakebed config show
    """
    from lakebed.registry.backends.postgres_url import hide_password  # noqa: PLC0415 - brings psycopg

    form = choose_format(output, as_json=as_json)
    with errors():
        origins = load_command_settings().origins
    found = [
        {
            "setting": one.name,
            "value": hide_password(one.value) if one.name == "registry_url" and one.value else one.value,
            "origin": one.origin,
        }
        for one in origins
    ]
    print_records(("setting", "value", "origin"), found, output=form)


def _render_upgrade(done: FooterUpgrade, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": False, "upgraded": done.upgraded, "skipped": done.skipped, "failed": done.failed})
    else:
        out().print(f"{done.upgraded} upgraded, {done.skipped} skipped, {len(done.failed)} failed")
        for path, reason in done.failed.items():
            out().print(f"  {path}: {reason}", style="red", markup=False, soft_wrap=True)
    if done.failed:
        raise typer.Exit(EXIT_DRIFT)
