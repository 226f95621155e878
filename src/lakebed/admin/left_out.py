"""Files that an import or an adoption left out: listed, and given up only when a person says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.admin.audit import find_actor
from lakebed.admin.lists import MAX_LIMIT, find_id
from lakebed.core.errors import InvalidValueError
from lakebed.core.results import Rows
from lakebed.registry.files.left_out import LeftOutFile, drop_records, list_left_out
from lakebed.registry.maintenance.runs import add_run, finish_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The files that left the record, or would; they stay where they are until a sweep takes them."""

    files: Rows[LeftOutFile]
    dry_run: bool


def list_left_out_files(registry: Registry, table: str | None = None, *, after: str = "", limit: int = MAX_LIMIT) -> Rows[LeftOutFile]:
    """Files in the warehouse that an import or an adoption did not register, in the order of their paths.

    No check, sweep or repair treats them as orphans. `after` a path gives the next page.
    """
    return list_left_out(registry, table_id=find_id(registry, table) or 0, after=after, limit=limit)


def forget_left_out_files(
    registry: Registry, storage: Storage, paths: Sequence[str], *, dry_run: bool = True, actor: str | None = None
) -> Forgotten:
    """Give files up: they leave the record, and a later sweep may delete them. A preview unless `dry_run=False`."""
    wanted = {storage.canonical(path) for path in paths}
    files = [row for row in list_left_out(registry, limit=MAX_LIMIT) if row.file_path in wanted]
    if unknown := sorted(wanted - {row.file_path for row in files}):
        message = f"{unknown[0]} is not on record as left out: `lakebed files left-out` lists those that are"
        raise InvalidValueError(message)

    def body(tx: Transaction) -> None:
        run = add_run(tx, "forget_left_out", actor=find_actor(actor), plan={"files": sorted(wanted)})
        finish_run(tx, run, state="done", result={"forgotten": drop_records(tx, sorted(wanted))})

    if files and not dry_run:
        registry.transact(body, tables=[])
    return Forgotten(files=Rows(LeftOutFile, files), dry_run=dry_run)
