"""Calls that were methods of `Lake` before related calls were grouped. Version 1.0 removes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Moved:
    """The present place of a call; `arguments` puts arguments of the earlier order into the present one."""

    path: str
    arguments: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]] | None = None

    def bind(self, lake: object) -> Any:
        found = attrgetter(self.path)(lake)
        return found if self.arguments is None else partial(self._call, found)

    def _call(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        assert self.arguments is not None  # noqa: S101 - checked by `bind`
        given, named = self.arguments(*args, **options)
        return function(*given, **named)


def _table_first(directory: str, table: str, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (table, directory), options


def _retention_by_name(retention: Any, table: str | None = None, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (table,), {"retention": retention, **options}


def _as_json(table: str, df: Any, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (table, df), {"format": "json", **options}


MOVED = {
    "list_tables": Moved("tables.list"),
    "configure": Moved("tables.configure"),
    "drop_table": Moved("tables.drop"),
    "adopt": Moved("tables.adopt", _table_first),
    "import_legacy": Moved("tables.import_legacy"),
    "alter": Moved("columns.alter"),
    "add_column": Moved("columns.add"),
    "rename_column": Moved("columns.rename"),
    "drop_column": Moved("columns.drop"),
    "widen_column": Moved("columns.widen"),
    "make_column_optional": Moved("columns.make_optional"),
    "insert_json": Moved("insert", _as_json),
    "register_files": Moved("files.register"),
    "list_files": Moved("files.list"),
    "plan": Moved("files.plan"),
    "load_partition_metadata": Moved("files.footer"),
    "why": Moved("files.why"),
    "recover": Moved("files.recover"),
    "sweep_orphans": Moved("files.sweep_orphans"),
    "list_left_out_files": Moved("files.list_left_out"),
    "forget_left_out_files": Moved("files.forget_left_out"),
    "merge": Moved("partitions.merge"),
    "retire_expired_partitions": Moved("partitions.retire_expired", _retention_by_name),
    "promote": Moved("views.promote"),
    "tag": Moved("snapshots.tag"),
    "untag": Moved("snapshots.untag"),
    "expire_snapshots": Moved("snapshots.expire"),
    "rollback": Moved("snapshots.rollback"),
    "list_administrators": Moved("administrators.list"),
    "set_administrators": Moved("administrators.set"),
}
