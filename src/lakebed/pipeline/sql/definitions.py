"""The query of a view set: the tables it reads, whether it can be sliced, and the same query over DataFrames."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from lakebed.core.errors import DefinitionRefusedError, QueryRefusedError
from lakebed.core.names import TableName
from lakebed.pipeline.sql.parse import parse_query, run_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.pipeline.sql.parse import Mention, Query

PARTIALS = "partials"  # the name of the partial results inside `combine`: users write it, never rename
_SEES_ALL = (exp.Distinct, exp.AggFunc, exp.Window, exp.Limit, exp.Fetch, exp.Offset)
_PLAIN_PARTS = frozenset({"expressions", "from_", "where", "group", "having", "order"})
_QUERIES = (exp.Select, exp.SetOperation)


@lru_cache(maxsize=64)
def parse_definition(view: str, text: str) -> Query:
    """One statement that only reads, with plain table names."""
    try:
        query = parse_query(text)
    except QueryRefusedError as exc:
        raise DefinitionRefusedError(view, reason=f"the SQL must be exactly one SELECT: {exc.reason}") from exc
    for mention in query.mentions:
        _require_plain(mention, view)
    return query


def parse_sources(view: TableName, text: str) -> tuple[Query, tuple[TableName, ...]]:
    """A definition's query and the lake tables it reads; names other than `database.table` are refused."""
    query = parse_definition(str(view), text)
    if bare := [name for name in query.names if "." not in name]:
        raise DefinitionRefusedError(str(view), reason=f"{bare[0]!a} is not a lake table: write it as database.name")
    return query, tuple(TableName.parse(name) for name in query.names)


def run_definition(spark: SparkSession, view: str, query: Query, frames: Mapping[str, DataFrame], *, explain: bool = False) -> DataFrame:
    """The query over these frames in place of the tables of these names."""
    placed = {query.require_place(mention): _frame_of(frames, mention.name) for mention in query.mentions}
    return run_query(spark, query, placed, doing=view, explain=explain)


def _frame_of(frames: Mapping[str, DataFrame], name: str) -> DataFrame:
    """Names are case-insensitive; if two differ only in case, each is matched exactly."""
    found = frames.get(name)
    return found if found is not None else {known.lower(): frame for known, frame in frames.items()}[name.lower()]


def find_aggregates(query: Query, driving: str) -> str | None:
    """Why the rows of one slice are not enough for this query, or None.

    Only operations on the driving source count: lookups are read whole.
    """
    tainted = _tainted_names(query.tree, driving)
    for node in query.tree.find_all(*_QUERIES):
        if _reads(node, tainted) and (reason := _reason(node, tainted)) is not None:
            return reason
    return None


def _reason(node: exp.Expr, tainted: frozenset[str]) -> str | None:
    if isinstance(node, exp.Select):
        return _aggregates_itself(node) or _joins_badly(node, tainted) or _asks_elsewhere(node, tainted)
    is_plain = isinstance(node, exp.Union) and not any(node.args.get(key) for key in ("distinct", "limit", "offset"))
    return None if is_plain else "it compares rows of different slices (UNION, EXCEPT or INTERSECT)"


def has_unknown_functions(query: Query) -> bool:
    """Whether a function may be an aggregate known only to Spark."""
    return any(query.tree.find_all(exp.Anonymous))


def list_grouping_columns(query: Query) -> frozenset[str]:
    """Output columns that are unchanged grouping keys: filters on them may be applied before grouping."""
    tree = query.tree
    group = tree.args.get("group")
    if not isinstance(tree, exp.Select) or group is None or not _groups_plainly(tree, group):
        return frozenset()
    keys = [_grouped(tree, key) for key in group.expressions]
    return frozenset(key.name for key in keys if isinstance(key, exp.Column))


def _groups_plainly(tree: exp.Select, group: exp.Expr) -> bool:
    """One table and one grouping, without anything that combines several groups."""
    used = {key for key, value in tree.args.items() if value}
    is_one_table = isinstance(tree.args["from_"].this, exp.Table) and len(list(tree.find_all(exp.Table, exp.Window))) == 1
    return is_one_table and used <= _PLAIN_PARTS and not any(value for key, value in group.args.items() if key != "expressions")


def _grouped(tree: exp.Select, key: exp.Expr) -> exp.Expr | None:
    """The projection of a grouping expression, if it is the column itself under its own name."""
    if isinstance(key, exp.Literal) and not key.is_string and 1 <= int(key.name) <= len(tree.selects):
        key = tree.selects[int(key.name) - 1]
    found = key.unalias() if isinstance(key, exp.Alias) else key
    shown = next((s for s in tree.selects if s.alias_or_name == found.name), None)
    return found if shown is not None and shown.unalias() == found else None


def _aggregates_itself(node: exp.Select) -> str | None:
    if node.args.get("group") is not None or node.args.get("having") is not None:
        return "it groups rows"
    for part in node.walk(prune=lambda n: n is not node and isinstance(n, _QUERIES)):
        if isinstance(part, _SEES_ALL):
            return f"{part.sql(dialect='spark')} needs all rows"
    return None


def _joins_badly(node: exp.Select, tainted: frozenset[str]) -> str | None:
    """A row of a lookup without a match in this slice may have one in another."""
    first = node.args.get("from_")
    driven = first is not None and _reads(first, tainted)
    for join in node.args.get("joins") or ():
        joined = _reads(join.this, tainted)
        if driven and joined:
            return "it joins the driving source with itself"
        kept = joined and (join.side == "LEFT" or join.kind in {"SEMI", "ANTI"})
        if kept or (driven and join.side == "RIGHT") or ((driven or joined) and join.side == "FULL"):
            return "it keeps or drops rows of a lookup depending on the driving source"
        driven = driven or joined
    return None


def _asks_elsewhere(node: exp.Select, tainted: frozenset[str]) -> str | None:
    """A subquery beside FROM: whether it finds a row depends on the slice."""
    places = [node.args.get("where"), node.args.get("qualify"), *node.expressions]
    if any(_reads(place, tainted) for place in places if place is not None):
        return "a subquery outside FROM reads the driving source"
    return None


def _reads(node: exp.Expr, tainted: frozenset[str]) -> bool:
    return any(_name(table).lower() in tainted for table in node.find_all(exp.Table))


def _tainted_names(tree: exp.Expr, driving: str) -> frozenset[str]:
    """The driving source and every common table expression that reads it, directly or not."""
    tainted = {driving.lower()}
    while added := {cte.alias.lower() for cte in tree.find_all(exp.CTE) if _reads(cte, frozenset(tainted))} - tainted:
        tainted |= added
    return frozenset(tainted)


def _require_plain(mention: Mention, view: str) -> None:
    table = mention.node
    if table.catalog:
        raise DefinitionRefusedError(view, reason=f"{table.sql()} has three parts: write database.name")
    if any(table.args.get(key) for key in ("sample", "version", "when", "pivots", "changes")):
        raise DefinitionRefusedError(view, reason=f"{table.sql(dialect='spark')}: samples, versions and pivots of a table cannot be sliced")


def _name(table: exp.Table) -> str:
    return f"{table.db}.{table.name}" if table.db else table.name
