"""`lake.columns`: list and change the columns of a plain table. Every partition stays readable, and no file is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.api.unknown_options import refuse_unknown_options

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.admin import Alteration, ColumnRow
    from lakebed.api.open_lake import OpenLake
    from lakebed.core.results import Rows
    from lakebed.core.schema.altering import Change
    from lakebed.core.schema.types import Type


@refuse_unknown_options
class Columns:
    """Each change makes a new schema version in one transaction. `a.b` names the field b of the struct a."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def list(self, table: str) -> Rows[ColumnRow]:
        """List the columns with their types, field ids and roles; nested ones under their paths.

        Args:
            table: The table or view set, as `database.name`.

        """
        return admin.list_columns(self._lake.registry, table)

    def add(self, table: str, column: str, kind: str | Type | pa.DataType, *, dry_run: bool = False) -> Alteration:
        """Add an optional column.

        Args:
            table: The table, as `database.name`.
            column: The name of the new column; `a.b` adds b to the struct a.
            kind: Its type: a name such as `"decimal(10,2)"`, a type of the lake, or a type of Arrow.
            dry_run: Only return what the columns would be.

        """
        return admin.add_column(self._lake.registry, table, column, kind, dry_run=dry_run)

    def rename(self, table: str, column: str, to: str, *, dry_run: bool = False) -> Alteration:
        """Rename a column. Files keep the physical name, so none is rewritten.

        Args:
            table: The table, as `database.name`.
            column: The column as it is called now.
            to: The new name; for a nested field the last part of its path.
            dry_run: Only return what the columns would be.

        """
        return admin.rename_column(self._lake.registry, table, column, to, dry_run=dry_run)

    def drop(self, table: str, column: str, *, dry_run: bool = False) -> Alteration:
        """Drop a column. Earlier states can still be read with it.

        Args:
            table: The table, as `database.name`.
            column: The column; the event time, partition sources and sort columns are refused.
            dry_run: Only return what the columns would be.

        """
        return admin.drop_column(self._lake.registry, table, column, dry_run=dry_run)

    def widen(self, table: str, column: str, kind: str | Type | pa.DataType, *, dry_run: bool = False) -> Alteration:
        """Promote a column: int to long, float to double, a decimal to a wider one of the same scale.

        Args:
            table: The table, as `database.name`.
            column: The column to promote.
            kind: The wider type.
            dry_run: Only return what the columns would be.

        """
        return admin.widen_column(self._lake.registry, table, column, kind, dry_run=dry_run)

    def make_optional(self, table: str, column: str, *, dry_run: bool = False) -> Alteration:
        """Allow NULL in a required column.

        Args:
            table: The table, as `database.name`.
            column: The column that may be NULL from now on.
            dry_run: Only return what the columns would be.

        """
        return admin.make_column_optional(self._lake.registry, table, column, dry_run=dry_run)

    def alter(self, table: str, *changes: Change, dry_run: bool = False, actor: str | None = None) -> Alteration:
        """Apply several changes as one new version, or refuse them all.

        Args:
            table: The table, as `database.name`.
            changes: `AddColumn`, `RenameColumn`, `DropColumn`, `WidenColumn` or `MakeOptional`, applied in this order.
            dry_run: Only return what the columns would be.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.alter_table(self._lake.registry, table, *changes, dry_run=dry_run, actor=actor)
