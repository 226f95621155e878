"""Parses the text of a query: the tables it names and where, conditions that certainly hold for each, and the same text over DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.core.errors import InvalidNameError, QueryRefusedError
from lakebed.core.names import TableName
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.sql.filters import Filter, conditions_of, has_doubtful_quotes, literal_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.core.schema.schema import Schema
    from lakebed.pipeline.spark.zone import Zone

_WRITES = (exp.DML, exp.DDL, exp.Into, exp.Command)
_PIPE = "|>"  # its stages are at other positions than in the tree
_NOT_FILTERED_FIRST = ("pivots", "sample", "joins", "laterals", "version", "when")


@dataclass(frozen=True, slots=True)
class Place:
    """Characters `[begin, end)` of the text."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Mention:
    """A table named in FROM or JOIN, as written; `place` is None if the parser does not report its position."""

    name: str
    place: Place | None
    node: exp.Table

    @property
    def lake_name(self) -> TableName | None:
        """None if the name cannot be that of a lake table, such as parquet.`/a/path`."""
        if not self.node.db or self.node.catalog:
            return None
        try:
            return TableName(self.node.db, self.node.name)
        except InvalidNameError:
            return None


@dataclass(frozen=True, slots=True)
class Call:
    """A table function called with literals; None for an argument that is not a literal."""

    name: str
    place: Place
    node: exp.Table
    arguments: tuple[tuple[object, ...], dict[str, object]] | None


@dataclass(frozen=True, slots=True)
class Query:
    """One statement that only reads. `mentions` are tables outside the text itself, in the order of the parser."""

    text: str
    tree: exp.Query
    mentions: tuple[Mention, ...]
    calls: tuple[Call, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The tables it mentions, each once."""
        return tuple(dict.fromkeys(mention.name for mention in self.mentions))

    def require_place(self, mention: Mention) -> Place:
        if mention.place is None:
            raise QueryRefusedError(self.text, reason=f"the position of {mention.name} in it is unknown")
        return mention.place


def parse_query(text: str) -> Query:
    """Exactly one statement that only reads; anything else is refused."""
    try:
        trees = [tree for tree in sqlglot.parse(text, read="spark") if tree is not None]
    except (SqlglotError, ValueError, RecursionError) as exc:
        raise QueryRefusedError(text, reason=f"it cannot be parsed ({_first_line(exc)})") from exc
    if len(trees) != 1:
        raise QueryRefusedError(text, reason="it holds no statement" if not trees else "it holds several statements; send them one by one")
    tree = trees[0]
    if not isinstance(tree, exp.Query) or any(isinstance(node, _WRITES) and not isinstance(node, exp.Query) for node in tree.walk()):
        raise QueryRefusedError(
            text, reason="only queries are allowed; to write, use insert, create_table and the other methods of the lake"
        )
    return Query(text=text, tree=tree, mentions=tuple(_mentions(tree, text)), calls=tuple(_calls(tree, text)))


def find_conditions(query: Query, mention: Mention, schema: Schema, zone: Zone) -> Filter:
    """Conditions that the WHERE of the SELECT that reads the table certainly imposes on its rows; none if that cannot be proven."""
    select = _select_over(mention.node)
    if select is None or _PIPE in query.text or has_doubtful_quotes(query.text):
        return Filter()
    where = select.args.get("where")
    if where is None or any(mention.node.args.get(key) for key in _NOT_FILTERED_FIRST):
        return Filter()
    is_alone = not select.args.get("joins") and not select.args.get("laterals")
    found = conditions_of(where.this, schema, zone, lambda column: _belongs(column, mention, is_alone=is_alone))
    return found if is_alone else found.without_null_wanted()


def run_query(
    spark: SparkSession, query: Query, frames: Mapping[Place, DataFrame], *, doing: str = "the query", explain: bool = False
) -> DataFrame:
    """The query over these frames in place of its tables. No name stays in the session, not even through Spark Connect."""
    given = {id(frame): frame for frame in frames.values()}
    keys = {key: f"t{number}" for number, key in enumerate(given)}
    text = _with_names(query, {place: keys[id(frame)] for place, frame in frames.items()}) if frames else query.text
    with spark_translated(doing):
        return spark.sql(f"EXPLAIN EXTENDED {text}" if explain else text, None, **{keys[key]: frame for key, frame in given.items()})


def _with_names(query: Query, names: Mapping[Place, str]) -> str:
    """The text with `{name}` in these places, for `spark.sql(text, name=frame)`; otherwise unchanged, with braces doubled."""
    edits = [(place, f"{{{names[place]}}}{_alias(node)}") for node, place in _nodes(query) if place in names]
    edits += [(place, "") for place in _database_prefixes(query, names)]
    pieces, reached = [], 0
    for place, text in sorted(edits, key=lambda edit: edit[0].begin):
        pieces += [_escape_braces(query.text[reached : place.begin]), text]
        reached = place.end
    return "".join([*pieces, _escape_braces(query.text[reached:])])


def _nodes(query: Query) -> Iterator[tuple[exp.Table, Place]]:
    yield from ((mention.node, mention.place) for mention in query.mentions if mention.place is not None)
    yield from ((call.node, call.place) for call in query.calls)


def _alias(node: exp.Table) -> str:
    """The alias keeps `orders.amount` valid. An alias is not allowed after a sample."""
    named = bool(node.alias) or bool(node.args.get("sample")) or not isinstance(node.this, exp.Identifier)
    return "" if named else f" AS {quote(node.name)}"


def _mentions(tree: exp.Expr, text: str) -> Iterator[Mention]:
    hidden = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}  # a common table expression hides a bare name
    for node in tree.find_all(exp.Table):
        if node.find_ancestor(exp.Hint) is not None or not isinstance(node.this, exp.Identifier):
            continue
        if node.db or node.name.lower() not in hidden:
            name = f"{node.db}.{node.name}" if node.db else node.name
            yield Mention(name, _place(node.args.get("db") or node.this, node.this, text), node)


def _calls(tree: exp.Expr, text: str) -> Iterator[Call]:
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Anonymous):
            begin = node.this.meta.get("start")
            end = None if begin is None else _closing(text, begin)
            if begin is not None and end is not None:
                yield Call(node.this.name, Place(begin, end), node, _arguments(node.this.expressions))


def _arguments(nodes: Sequence[exp.Expr]) -> tuple[tuple[object, ...], dict[str, object]] | None:
    positional: list[object] = []
    named: dict[str, object] = {}
    for node in nodes:
        value = node.expression if isinstance(node, exp.Kwarg) else node
        literal = literal_of(value)
        if literal is None and not isinstance(value, exp.Null):
            return None
        given = None if literal is None else literal.value
        if isinstance(node, exp.Kwarg):
            named[node.this.name] = given
        else:
            positional.append(given)
    return tuple(positional), named


def _place(first: exp.Expr, last: exp.Expr, text: str) -> Place | None:
    """The position of the name, if the parser reports it."""
    begin, end = first.meta.get("start"), last.meta.get("end")
    if begin is None or end is None or not _spells(text, first) or not _spells(text, last):
        return None
    return Place(begin, end + 1)


def _spells(text: str, node: exp.Expr) -> bool:
    begin, end = node.meta.get("start"), node.meta.get("end")
    return begin is not None and end is not None and text[begin : end + 1].strip("`").replace("``", "`") == node.name


def _closing(text: str, begin: int) -> int | None:
    """The position after the parenthesis that closes the call."""
    depth = 0
    for token in sqlglot.tokenize(text, read="spark"):
        if token.start < begin:
            continue
        depth += {sqlglot.TokenType.L_PAREN: 1, sqlglot.TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type is sqlglot.TokenType.R_PAREN:
            return int(token.end) + 1
    return None


def _database_prefixes(query: Query, names: Mapping[Place, str]) -> Iterator[Place]:
    """`shop.` in `shop.orders.amount`: the frame that replaces the table is named `orders` only."""
    tables = {(m.node.db.lower(), m.node.name.lower()) for m in query.mentions if m.place in names and m.node.db and not m.node.alias}
    aliases = {node.alias_or_name.lower() for node in query.tree.find_all(exp.Table, exp.Subquery, exp.CTE) if not node.args.get("db")}
    for column in query.tree.find_all(exp.Column):
        database, table = column.args.get("db"), column.args.get("table")
        if database is None or table is None or column.args.get("catalog") or database.name.lower() in aliases:
            continue
        if (database.name.lower(), table.name.lower()) in tables and _spells(query.text, database) and _spells(query.text, table):
            yield Place(database.meta["start"], table.meta["start"])


def _select_over(node: exp.Table) -> exp.Select | None:
    """The SELECT whose FROM or JOIN names the table directly."""
    parent = node.parent
    if isinstance(parent, exp.From | exp.Join) and isinstance(parent.parent, exp.Select):
        return parent.parent
    return None


def _belongs(column: exp.Column, mention: Mention, *, is_alone: bool) -> bool:
    """Whether the column is one of this table: by its qualifier, or because it is the only table."""
    if column.args.get("catalog"):
        return False
    if column.args.get("db"):
        return not mention.node.alias and f"{column.args['db'].name}.{column.table}".lower() == mention.name.lower()
    if column.table:
        return column.table.lower() == (mention.node.alias or mention.node.name).lower()
    return is_alone


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _first_line(exc: BaseException) -> str:
    return next((line.strip() for line in str(exc).splitlines() if line.strip()), type(exc).__name__)
