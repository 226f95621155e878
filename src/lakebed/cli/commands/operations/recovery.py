"""When something is wrong: check, repair, why, doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json, print_rows, print_table
from lakebed.cli.terminal import (
    EXIT_DRIFT,
    EXIT_REFUSED,
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    Execute,
    Url,
    Warehouse,
    Yes,
    asks,
    confirm,
    opened,
    showing,
)

if TYPE_CHECKING:
    from lakebed.check import CheckReport
    from lakebed.lake import Lake
    from lakebed.repair import RepairOptions, RepairResult

Deep = Annotated[bool, typer.Option("--deep", help="read every file whole and compare its SHA-256")]


Pages = Annotated[bool, typer.Option("--pages", help="decode every page of every Parquet file, in a process of its own")]


def check(
    registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, deep: Deep = False, pages: Pages = False, as_json: AsJson = False
) -> None:
    """Compare registry, files, footers and journal with each other. Exit 3 when they differ. Example: lakebed check --deep."""
    with opened(registry, warehouse, verify=False) as lake:
        report = _check(lake, deep=deep, pages=pages)
    _render_check(report, as_json=as_json)
    if not report.clean:
        raise typer.Exit(EXIT_DRIFT)


def repair(  # noqa: PLR0913 - one option per choice
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    how: Annotated[
        str | None, typer.Option("--how", help="of one Iceberg table: refresh, rebuild, adopt_foreign or discard_foreign")
    ] = None,
    execute: Execute = False,
    retire_damaged: Annotated[bool, typer.Option("--retire-damaged", help="retire partitions whose files are lost or changed")] = False,
    give_up_newer: Annotated[
        bool, typer.Option("--give-up-newer", help="give up files that a registry restored from a backup never heard of")
    ] = False,
    deep: Deep = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show how to fix what `check` reports; `--execute` applies the fixes. Exit 3 when something is left. Example: lakebed repair --execute."""
    chosen: dict[str, Any] = {"deep": deep, "retire_damaged": retire_damaged, "give_up_newer": give_up_newer}
    options: RepairOptions = {**chosen, "how": how}  # type: ignore[typeddict-item] # any other word is refused there
    with opened(registry, warehouse, verify=False) as lake:
        with showing("checking") as progress:
            options["progress"] = progress
            planned = lake.repair(table, **options)
        if execute and planned.steps:
            if not as_json and asks(yes=yes):
                _render_steps(planned)
            confirm(f"repair {sum(step.subjects for step in planned.steps)} thing(s) in {len(planned.steps)} step(s)?", yes=yes)
        done = planned
        if execute:
            with showing("repairing and checking") as progress:
                options["dry_run"], options["progress"] = False, progress
                done = lake.repair(table, **options)
    if as_json:
        print_json(_as_json(done))
    else:
        _render_repair(done)
    if not done.clean and not (how is not None and done.dry_run):
        raise typer.Exit(EXIT_DRIFT)


def why(
    file: Annotated[str, typer.Argument(help="a path in the warehouse, in any spelling")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """Every event of a file, from the intent of its writer to its deletion. Example: lakebed why warehouse/shop/orders-1/data/.../part-00000.parquet."""
    with opened(registry, warehouse) as lake:
        found = lake.files.why(file if "://" in file else str(Path.cwd() / file))
    if as_json:
        facts = {"path": found.path, "table": found.table, "state": found.state, "because": found.because}
        print_json({**facts, "events": [asdict(event) for event in found.events]})
    else:
        out().print(f"{found.path}\n{found.table or 'no table'}: {found.state}, {found.because}", markup=False, soft_wrap=True)
        print_rows(found.events, columns=("at", "what", "detail", "source"))
    if found.state == "unknown":
        raise typer.Exit(EXIT_REFUSED)


def doctor(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """Look at this host, the registry and the warehouse; exit 3 when one of them is not fit for work. Example: lakebed doctor."""
    from lakebed.admin.doctor import examine  # noqa: PLC0415 - brings pyarrow

    lines = examine(registry, warehouse)
    if as_json:
        print_json([asdict(line) for line in lines])
    else:
        marks = {"ok": "ok", "warn": "warn", "bad": "BAD"}
        print_table(
            ("health", "name", "found", "remedy"),
            [{"health": marks[x.health], "name": x.name, "found": x.found, "remedy": x.remedy} for x in lines],
        )
    if any(line.health == "bad" for line in lines):
        raise typer.Exit(EXIT_DRIFT)


def _check(lake: Lake, *, deep: bool, pages: bool = False) -> CheckReport:
    from lakebed.check import check as run  # noqa: PLC0415 - after the lake is open

    with showing("checking") as progress:
        return run(lake.registry, lake.storage, deep=deep, pages=pages, progress=progress)


def _render_check(report: CheckReport, *, as_json: bool) -> None:
    if as_json:
        found = [
            {"rule": f.rule, "table": f.table, "subject": f.subject, "message": f.message, "severity": str(f.severity)}
            for f in report.findings
        ]
        print_json({"clean": report.clean, "checked": dict(report.checked), "findings": found})
        return
    console = out()
    for finding in report.findings:
        console.print(f"{finding.severity}  {finding.rule}  {finding.table or ''}  {finding.message}", markup=False, soft_wrap=True)
        console.print(f"    {finding.subject}", markup=False, soft_wrap=True)
    if not report.clean:
        console.print("`lakebed repair` shows what can be repaired")
    rules = len(report.checked)
    console.print(
        f"{'clean' if report.clean else 'NOT clean'}: {rules} rules, {sum(report.checked.values()):,} subjects, {report.seconds:.2f} s"
    )


def _as_json(done: RepairResult) -> dict[str, Any]:
    return {
        "dry_run": done.dry_run,
        "clean": done.clean,
        "run_id": done.run_id,
        "elsewhere": done.elsewhere,
        "steps": [asdict(step) for step in done.steps],
        "left": [asdict(left) for left in done.left],
    }


def _render_steps(done: RepairResult) -> None:
    console = out()
    for step in done.steps:
        message = f": {step.told}" if step.told else ""
        console.print(f"{step.outcome}  {step.table or 'registry'}  {step.what} ({step.subjects}){message}", markup=False, soft_wrap=True)


def _render_repair(done: RepairResult) -> None:
    console = out()
    _render_steps(done)
    for left in done.left:
        console.print(f"left  {left.table or 'registry'}  {left.rule}  {left.subject}", markup=False, soft_wrap=True)
        console.print(f"    {left.advice}", markup=False, soft_wrap=True)
    if done.dry_run and done.steps:
        console.print("nothing was changed: `--execute` does it")
    elif not done.left and done.clean:
        console.print("clean" if done.steps else "clean: nothing to repair")
    if done.elsewhere:
        console.print(f"{done.elsewhere:,} finding(s) are about other tables or the registry itself: `lakebed check` names them")
