"""The text of a view set's query: which tables it reads, what makes it unfit for slices, and the same text over DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.core.errors import DefinitionRefusedError
from lakebed.core.names import TableName
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import spark_translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

PARTIALS = "partials"  # the name of the partial results inside `combine`: users write it, never rename
_SEES_ALL = (exp.Distinct, exp.AggFunc, exp.Window, exp.Limit, exp.Fetch, exp.Offset)
_PLAIN_PARTS = frozenset({"expressions", "from_", "where", "group", "having", "order"})
_QUERIES = (exp.Select, exp.SetOperation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parsed query. `names` are the tables it mentions, in the order of the text, each once."""

    view: str
    text: str
    tree: exp.Query
    names: tuple[str, ...]


def parse_query(view: str, text: str) -> Query:
    """One statement that only reads."""
    try:
        trees = [tree for tree in sqlglot.parse(text, read="spark") if tree is not None]
    except (SqlglotError, ValueError, RecursionError) as exc:
        raise DefinitionRefusedError(view, reason=f"the SQL cannot be parsed: {_first_line(exc)}") from exc
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise DefinitionRefusedError(view, reason="the SQL must be exactly one SELECT")
    if any(isinstance(node, exp.DML | exp.DDL | exp.Into) and not isinstance(node, exp.Query) for node in trees[0].walk()):
        raise DefinitionRefusedError(view, reason="the SQL may only read")
    found = [name for _, name in _mentions(trees[0], view)]
    return Query(view=view, text=text, tree=trees[0], names=tuple(dict.fromkeys(found)))


def parse_sources(view: TableName, text: str) -> tuple[Query, tuple[TableName, ...]]:
    """A definition's query and the lake tables it reads; anything that is no `database.table` is refused."""
    query = parse_query(str(view), text)
    if bare := [name for name in query.names if "." not in name]:
        raise DefinitionRefusedError(str(view), reason=f"{bare[0]!a} is no lake table: write it as database.name")
    return query, tuple(TableName.parse(name) for name in query.names)


def run_query(spark: SparkSession, query: Query, frames: Mapping[str, DataFrame], *, explain: bool = False) -> DataFrame:
    """The query over these frames in place of its tables. No name is left behind in the session, also through Spark Connect."""
    keys = {name: f"t{n}" for n, name in enumerate(query.names)}
    pieces = ["EXPLAIN EXTENDED "] if explain else []
    reached = 0
    for table, name in sorted(_mentions(query.tree, query.view), key=lambda found: _start(found[0])):
        begin, end = _start(table), _end(table)
        alias = "" if table.alias else f" AS {quote(table.name)}"  # so that `orders.amount` goes on meaning its column
        pieces += [_escaped(query.text[reached:begin]), f"{{{keys[name]}}}{alias}"]
        reached = end + 1
    pieces.append(_escaped(query.text[reached:]))
    with spark_translated(query.view):
        return spark.sql("".join(pieces), None, **{keys[name]: _frame_of(frames, name) for name in query.names})


def _frame_of(frames: Mapping[str, DataFrame], name: str) -> DataFrame:
    """Names ignore case; where two differ in nothing else, each is itself."""
    found = frames.get(name)
    return found if found is not None else {known.lower(): frame for known, frame in frames.items()}[name.lower()]


def find_aggregates(query: Query, driving: str) -> str | None:
    """Why rows of one slice are not enough for this query: what it says of rows beyond, or None.

    Only what stands over the driving source counts: lookups are read whole.
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
    """Whether a function may be an aggregate that only Spark knows."""
    return any(query.tree.find_all(exp.Anonymous))


def list_grouping_columns(query: Query) -> frozenset[str]:
    """Output columns that are grouping keys taken over unchanged: filters on them may be applied before grouping."""
    tree = query.tree
    group = tree.args.get("group")
    if not isinstance(tree, exp.Select) or group is None or not _groups_plainly(tree, group):
        return frozenset()
    keys = [_grouped(tree, key) for key in group.expressions]
    return frozenset(key.name for key in keys if isinstance(key, exp.Column))


def _groups_plainly(tree: exp.Select, group: exp.Expr) -> bool:
    """One table, one grouping, nothing that looks at several groups or at rows beside them."""
    used = {key for key, value in tree.args.items() if value}
    is_one_table = isinstance(tree.args["from_"].this, exp.Table) and len(list(tree.find_all(exp.Table, exp.Window))) == 1
    return is_one_table and used <= _PLAIN_PARTS and not any(value for key, value in group.args.items() if key != "expressions")


def _grouped(tree: exp.Select, key: exp.Expr) -> exp.Expr | None:
    """The projection that a grouping expression stands for, if it is the column itself under its own name."""
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
            return f"{part.sql(dialect='spark')} looks at all rows"
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
            return "it keeps rows of a lookup by what the driving source has or lacks"
        driven = driven or joined
    return None


def _asks_elsewhere(node: exp.Select, tainted: frozenset[str]) -> str | None:
    """A subquery beside FROM: whether it finds a row depends on the slice."""
    places = [node.args.get("where"), node.args.get("qualify"), *node.expressions]
    if any(_reads(place, tainted) for place in places if place is not None):
        return "a subquery outside FROM asks the driving source"
    return None


def _reads(node: exp.Expr, tainted: frozenset[str]) -> bool:
    return any(_name(table).lower() in tainted for table in node.find_all(exp.Table))


def _tainted_names(tree: exp.Expr, driving: str) -> frozenset[str]:
    """The driving source and every common table expression that reads it, in any number of steps."""
    tainted = {driving.lower()}
    while added := {cte.alias.lower() for cte in tree.find_all(exp.CTE) if _reads(cte, frozenset(tainted))} - tainted:
        tainted |= added
    return frozenset(tainted)


def _mentions(tree: exp.Expr, view: str) -> Iterator[tuple[exp.Table, str]]:
    """Tables outside the text itself; a common table expression hides a bare name."""
    hidden = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or (not table.db and table.name.lower() in hidden):
            continue
        if table.catalog:
            raise DefinitionRefusedError(view, reason=f"{table.sql()} has three parts: write database.name")
        if any(table.args.get(key) for key in ("sample", "version", "when", "pivots", "changes")):
            raise DefinitionRefusedError(
                view, reason=f"{table.sql(dialect='spark')}: samples, versions and pivots of a table cannot be sliced"
            )
        yield table, _name(table)


def _name(table: exp.Table) -> str:
    return f"{table.db}.{table.name}" if table.db else table.name


def _start(table: exp.Table) -> int:
    part = table.args.get("db") or table.this
    return int(part.meta["start"])


def _end(table: exp.Table) -> int:
    return int(table.this.meta["end"])


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _first_line(exc: Exception) -> str:
    return next(iter(str(exc).splitlines()), type(exc).__name__)[:300]
