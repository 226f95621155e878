"""The command line: parse, call, render. Commands that touch no data start no JVM."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebed import __version__
from lakebed.cli.commands.columns import columns
from lakebed.cli.commands.configure import configure
from lakebed.cli.commands.data.adopt import adopt, import_legacy
from lakebed.cli.commands.data.files import files
from lakebed.cli.commands.data.insert import insert
from lakebed.cli.commands.data.reading import explain, read_with, sql
from lakebed.cli.commands.operations.astha import astha
from lakebed.cli.commands.operations.recovery import check, doctor, repair, why
from lakebed.cli.commands.operations.serve import serve
from lakebed.cli.commands.operations.setup import config, demo, init, migrate, migrate_footers
from lakebed.cli.commands.operations.upkeep import clean, compaction
from lakebed.cli.commands.partitions import partitions
from lakebed.cli.commands.snapshots import rollback, snapshots
from lakebed.cli.commands.tables import tables
from lakebed.cli.commands.views import views


def print_version(value: bool) -> None:  # noqa: FBT001 - as typer calls it
    if value:
        typer.echo(f"lakebed {__version__}")
        raise typer.Exit


app = typer.Typer(
    help="Lakebed: a transactional catalog for Parquet files written by Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def lakebed(
    *, version: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help="print the version and exit")] = False
) -> None:
    """Lakebed: a transactional catalog for Parquet files written by Spark."""


app.command()(init)
app.command()(demo)
app.command()(migrate)
app.command("migrate-footers")(migrate_footers)
app.command("read-with")(read_with)
app.command()(explain)
app.command()(adopt)
app.command("import-legacy")(import_legacy)
app.command()(insert)
app.command()(sql)
app.command()(configure)
app.command()(rollback)
app.add_typer(tables, name="tables")
app.add_typer(columns, name="columns")
app.add_typer(files, name="files")
app.add_typer(partitions, name="partitions")
app.add_typer(views, name="views")
app.add_typer(snapshots, name="snapshots")
app.add_typer(compaction, name="compact")
app.add_typer(clean, name="clean")
app.add_typer(astha, name="astha")
app.add_typer(config, name="config")
app.command()(serve)
app.command()(check)
app.command()(repair)
app.command()(why)
app.command()(doctor)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
