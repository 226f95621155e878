"""Files of which every row satisfies a condition, found from statistics and partition paths without opening them.

All rows of a file match if it cannot hold a row that breaks a conjunct or makes it NULL. So this relies on the
same pruning as reads, with negated conditions. Iceberg calls it a strict evaluation of metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.types import Primitive
from lakebed.pipeline.sql.filters import Filter, conditions_of, partition_texts
from lakebed.pipeline.sql.predicates import Condition
from lakebed.registry.queries.plans import read_plan
from lakebed.storage.partition_paths import decode_partition_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.transforms import Transform
    from lakebed.core.schema.types import Field
    from lakebed.pipeline.read.planning import ResolvedScan, ScanRequest
    from lakebed.pipeline.spark.zone import Zone
    from lakebed.pipeline.sql.filters import Where
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import LiveFile
    from lakebed.registry.transaction import Reader

_Transforms = tuple[tuple["Transform", "Field"], ...]
_BREAKS: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = {
    exp.LT: (exp.GTE,),
    exp.LTE: (exp.GT,),
    exp.GT: (exp.LTE,),
    exp.GTE: (exp.LT,),
    exp.EQ: (exp.LT, exp.GT),
    exp.NullSafeEQ: (exp.LT, exp.GT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictMetrics:
    """One conjunct. A row that does not satisfy it satisfies one of `broken` (None: unknown).

    `values` are partition fields by identity with the texts that satisfy it: such a path has the value of every row.
    """

    broken: tuple[Filter, ...] | None = ()
    values: tuple[tuple[str, frozenset[str]], ...] = ()

    def hold_for_path(self, partition_path: str) -> bool:
        if not self.values:
            return False
        try:
            values = dict(decode_partition_path(partition_path))
        except InvalidValueError:
            return False
        return any(values.get(name) in texts for name, texts in self.values)


def list_strict_metrics(where: Where, table: LakeTable, zone: Zone) -> list[StrictMetrics] | None:
    """How each conjunct could be proven; None if one of them cannot be."""
    if (conjuncts := where.conjuncts) is None:
        return None
    metrics = [_strict_metrics(conjunct, table.schema, table.transforms, zone) for conjunct in conjuncts]
    known = [one for one in metrics if one is not None]
    return known if len(known) == len(metrics) else None


def find_fully_matching(
    reader: Reader, request: ScanRequest, scan: ResolvedScan, metrics: Sequence[StrictMetrics] | None, files: Sequence[LiveFile]
) -> frozenset[str]:
    """The paths of those `files` whose rows satisfy every conjunct."""
    every = frozenset(file.path for file in files)
    if metrics is None or not every:
        return frozenset()
    matching = every
    for one in metrics:
        by_path = frozenset(file.path for file in files if one.hold_for_path(file.partition_path))
        cleared = frozenset() if one.broken is None else every.difference(*(_suspects(reader, request, scan, b) for b in one.broken))
        matching &= by_path | cleared
    return matching


def _suspects(reader: Reader, request: ScanRequest, scan: ResolvedScan, broken: Filter) -> list[str]:
    """Files that may hold a row which breaks the conjunct."""
    both = scan.used & broken
    plan = read_plan(
        reader, request.name, ranges=both.ranges, nulls=both.nulls, partition_paths=scan.partition_paths, instance=request.instance
    )  # fmt: skip
    return plan.paths


def _strict_metrics(node: exp.Expr, schema: Schema, transforms: _Transforms, zone: Zone) -> StrictMetrics | None:
    if isinstance(node, exp.Boolean) and node.this:
        return StrictMetrics()
    found = _conditions(node, schema, zone)
    if not found:
        return None
    return StrictMetrics(broken=_broken(node, found[0], schema, zone), values=_path_values(found[0], transforms))


def _broken(node: exp.Expr, condition: Condition, schema: Schema, zone: Zone) -> tuple[Filter, ...] | None:
    filters = [Filter(conditions=_conditions(other, schema, zone)) for other in _opposites(node)]
    if not filters or not all(f.conditions for f in filters):
        return None
    if isinstance(node, exp.Is | exp.Not):
        return tuple(filters)
    return (*filters, Filter(conditions=(Condition(field=condition.field, is_null=True),)))


def _opposites(node: exp.Expr) -> list[exp.Expr]:
    """Conditions of the rows that break the conjunct, except those for which it is NULL."""
    match node:
        case exp.Is():
            return [exp.Not(this=node.copy())]
        case exp.Not():
            return [node.this.copy()]
        case exp.Between():
            below, above = node.args["low"], node.args["high"]
            return [exp.LT(this=node.this.copy(), expression=below.copy()), exp.GT(this=node.this.copy(), expression=above.copy())]
        case _:
            return [kind(this=node.this.copy(), expression=node.expression.copy()) for kind in _BREAKS.get(type(node), ())]


def _conditions(node: exp.Expr, schema: Schema, zone: Zone) -> tuple[Condition, ...]:
    return conditions_of(node, schema, zone, lambda column: not column.table).conditions


def _path_values(condition: Condition, transforms: _Transforms) -> tuple[tuple[str, frozenset[str]], ...]:
    kind = condition.field.type
    if condition.among is None or not isinstance(kind, Primitive):
        return ()
    identities = [t for t, source in transforms if t.kind == "identity" and source.field_id == condition.field.field_id]
    found = [(transform.name, partition_texts(transform, kind, condition.among)) for transform in identities]
    return tuple((name, texts) for name, texts in found if texts is not None)
