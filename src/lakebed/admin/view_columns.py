"""Which view sets a change of a table's columns breaks, by the names in their queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.schema.restoring import list_lost_names
from lakebed.registry.tables.view_sets import list_all_definitions

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from lakebed.core.names import TableName
    from lakebed.core.schema.schema import Schema
    from lakebed.core.tables.view_sets import Definition
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader


def list_broken_views(reader: Reader, table: LakeTable, schema: Schema) -> tuple[str, ...]:
    """View sets whose query names a column that `schema` lacks, or one that it gains beside another table's of that name."""
    lost = {name.lower() for name in list_lost_names(table.schema, schema)}
    gained = {name.lower() for name in list_lost_names(schema, table.schema)}
    if not lost and not gained:
        return ()
    reading = [(view, one) for view, one in list_all_definitions(reader) if table.name in one.inputs]
    return tuple(sorted({str(view) for view, one in reading if _breaks(one, table.name, lost=lost, gained=gained)}))


def _breaks(definition: Definition, table: TableName, *, lost: AbstractSet[str], gained: AbstractSet[str]) -> bool:
    import sqlglot  # noqa: PLC0415 - only here: rolling back a table without views needs no parser
    from sqlglot import exp  # noqa: PLC0415

    tree = sqlglot.parse_one(definition.sql, read="spark")
    others = {t.alias_or_name.lower() for t in tree.find_all(exp.Table) if t.db and f"{t.db}.{t.name}".lower() != str(table).lower()}
    if lost and any(isinstance(star.parent, exp.Select | exp.Column) for star in tree.find_all(exp.Star)):  # not that of count(*)
        return True
    ambiguous = gained if len(definition.inputs) > 1 else frozenset[str]()
    columns: list[exp.Column | exp.Dot] = [*tree.find_all(exp.Column), *tree.find_all(exp.Dot)]
    for column in columns:
        names = [part.name.lower() for part in column.parts]
        if names[0] not in others and not lost.isdisjoint(names):
            return True
        if len(names) == 1 and names[0] in ambiguous:
            return True
    return False
