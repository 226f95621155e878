"""Finds simple filters in SQL text and converts them into conditions for pruning.

Only conditions that certainly hold for every wanted row are used: conjunctions of comparisons between a column and a
literal. Spark evaluates the whole text afterwards, so a condition that is ignored here only costs time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema import bounds
from lakebed.core.schema.types import Primitive, can_promote
from lakebed.pipeline.sql.predicates import DISCRETE, EXACT_IN_DOUBLE, Condition, Kind, Literal, Span, span_of
from lakebed.registry.queries.plans import ColumnRange, NullTest
from lakebed.storage.partition_paths import decode_partition_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.transforms import Transform
    from lakebed.core.schema.types import Field
    from lakebed.pipeline.spark.zone import Zone

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
_TEXT_KINDS = {
    exp.DType.DATE: Kind.DATE,
    exp.DType.TIMESTAMPTZ: Kind.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: Kind.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: Kind.TIMESTAMP_NTZ,
}
_WHOLE = {exp.DType.TINYINT: 7, exp.DType.SMALLINT: 15, exp.DType.INT: 31, exp.DType.BIGINT: 63}
_CAST_TYPES = {
    exp.DType.INT: "int",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
}
_TOO_LONG = 100_000  # characters: the time of parsing grows with the text, and longer filters are generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions that every wanted row satisfies together."""

    conditions: tuple[Condition, ...] = ()

    @property
    def ranges(self) -> list[ColumnRange]:
        return [made for condition in self.conditions if (made := _range_of(condition)) is not None]

    @property
    def nulls(self) -> list[NullTest]:
        return [NullTest(field_id=c.field.field_id, is_null=c.is_null) for c in self.conditions]

    def without_null_wanted(self) -> Filter:
        """Conditions that still hold for rows that an outer join may fill with NULLs: comparisons reject those, IS NULL accepts them."""
        return Filter(conditions=tuple(c for c in self.conditions if not c.is_null))

    def only(self, names: Iterable[str]) -> Filter:
        kept = frozenset(names)
        return Filter(conditions=tuple(c for c in self.conditions if c.field.name in kept))

    def __and__(self, other: Filter) -> Filter:
        return Filter(conditions=self.conditions + other.conditions)


@dataclass(frozen=True, slots=True)
class Where:
    """A condition as text and as a tree, which is None if it cannot be parsed."""

    text: str
    tree: exp.Expr | None

    @property
    def conjuncts(self) -> list[exp.Expr] | None:
        """None if the condition cannot be parsed."""
        return None if self.tree is None or has_doubtful_quotes(self.text) else list(list_conjuncts(self.tree))

    def find_filter(self, schema: Schema, zone: Zone) -> Filter:
        """The simple conditions over one table; none if the text cannot be parsed."""
        return filter_of(self.conjuncts or (), schema, zone, lambda column: not column.table)


def parse_where(text: str) -> Where:
    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE {text}", read="spark") if len(text) < _TOO_LONG else None
    except (SqlglotError, ValueError, RecursionError):
        return Where(text, None)
    found = tree.args.get("where") if isinstance(tree, exp.Select) else None
    return Where(text, None if found is None else found.this)


def has_doubtful_quotes(text: str) -> bool:
    """The meaning of a backslash or a double quote depends on the session's settings."""
    return "\\" in text or '"' in text


def conditions_of(tree: exp.Expr, schema: Schema, zone: Zone, is_ours: Callable[[exp.Column], bool]) -> Filter:
    """Conditions of the conjuncts that compare a column of the table with literals."""
    return filter_of(list_conjuncts(tree), schema, zone, is_ours)


def filter_of(conjuncts: Iterable[exp.Expr], schema: Schema, zone: Zone, is_ours: Callable[[exp.Column], bool]) -> Filter:
    columns = _Columns(schema, is_ours)
    found = (_condition(conjunct, columns, zone) for conjunct in conjuncts)
    return Filter(conditions=tuple(c for c in found if c is not None))


def prune_paths(paths: Sequence[str], transforms: Sequence[tuple[Transform, Field]], conditions: Sequence[Condition]) -> list[str] | None:
    """The partition paths that may hold wanted rows; None: all of them."""
    allowed = [(t.name, *_partition_values(t, f, conditions)) for t, f in transforms]
    known = {name: (texts, nulls) for name, texts, nulls in allowed if texts is not None or nulls is not None}
    if not known:
        return None
    kept = [path for path in paths if _may_hold(path, known)]
    return kept if len(kept) < len(paths) else None


_Allowed = tuple[frozenset[str] | None, bool | None]  # possible texts, and whether the value is NULL; None: unknown


def _partition_values(transform: Transform, field: Field, conditions: Sequence[Condition]) -> _Allowed:
    """A value determines its partition, so exact values select partitions; NULL has its own."""
    texts: frozenset[str] | None = None
    nulls: bool | None = None
    for condition in conditions:
        if condition.field.field_id != field.field_id or not isinstance(field.type, Primitive):
            continue
        nulls = condition.is_null
        if condition.among is not None and (made := partition_texts(transform, field.type, condition.among)) is not None:
            texts = made if texts is None else texts & made
    return texts, nulls


def partition_texts(transform: Transform, kind: Primitive, values: Sequence[Value]) -> frozenset[str] | None:
    """The partitions of these values; None if one of them has none."""
    try:
        return frozenset(text for value in values if (text := transform.apply(value, kind)) is not None)
    except (InvalidValueError, InvalidOperation, OverflowError, ValueError):
        return None


def _may_hold(path: str, known: dict[str, _Allowed]) -> bool:
    try:
        pairs = decode_partition_path(path)
    except InvalidValueError:
        return True
    for name, value in pairs:
        texts, nulls = known.get(name, (None, None))
        if (nulls is not None and nulls != (value is None)) or (texts is not None and value not in texts):
            return False
    return True


def _range_of(condition: Condition) -> ColumnRange | None:
    kind, low, high = condition.field.type, condition.lower, condition.upper
    if not isinstance(kind, Primitive) or (low is None and high is None):
        return None
    try:
        return ColumnRange(
            field_id=condition.field.field_id,
            lower=None if low is None else bounds.lower_bound(kind, low),
            upper=None if high is None else bounds.upper_bound(kind, high),
            lower_coordinate=None if low is None else bounds.coordinate(kind, low),
            upper_coordinate=None if high is None else bounds.coordinate(kind, high),
        )
    except (InvalidValueError, InvalidOperation, OverflowError):
        return None  # outside the range of the type: Spark decides


class _Columns:
    """Columns of one table as a query may name them; names are case-insensitive in Spark."""

    def __init__(self, schema: Schema, is_ours: Callable[[exp.Column], bool]) -> None:
        self._is_ours = is_ours
        self._fields: dict[str, list[Field]] = {}
        for field in schema.fields:
            self._fields.setdefault(field.name.lower(), []).append(field)

    def find(self, node: exp.Expr) -> Field | None:
        """The column itself, or a cast of it that preserves values."""
        if isinstance(node, exp.Paren):
            return self.find(node.this)
        if isinstance(node, exp.Cast) and (field := self.find(node.this)) is not None:
            target = _CAST_TYPES.get(node.to.this)
            return field if target is not None and can_promote(field.type, Primitive(name=target)) else None
        if not isinstance(node, exp.Column) or not self._is_ours(node):
            return None
        found = self._fields.get(node.name.lower(), [])
        return found[0] if len(found) == 1 and isinstance(found[0].type, Primitive) else None


def list_conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            waiting.append(node.this)
        else:
            yield node


def _condition(node: exp.Expr, columns: _Columns, zone: Zone) -> Condition | None:
    match node:
        case exp.Is() | exp.Not():
            return _null_condition(node, columns)
        case exp.Between():
            return _between(node, columns, zone)
        case exp.In():
            return _among(node, columns, zone)
        case exp.EQ() | exp.NullSafeEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _comparison(type(node), node.this, node.expression, columns, zone) or _comparison(
                _FLIPPED.get(type(node), type(node)), node.expression, node.this, columns, zone
            )
        case _:
            return None


def _null_condition(node: exp.Is | exp.Not, columns: _Columns) -> Condition | None:
    test = node.this if isinstance(node, exp.Not) else node
    if not isinstance(test, exp.Is) or not isinstance(test.expression, exp.Null):
        return None
    field = columns.find(test.this)
    return None if field is None else Condition(field=field, is_null=test is node)


def _between(node: exp.Between, columns: _Columns, zone: Zone) -> Condition | None:
    ends = [literal_of(node.args["low"]), literal_of(node.args["high"])]
    low = _comparison(exp.GTE, node.this, node.args["low"], columns, zone)
    high = _comparison(exp.LTE, node.this, node.args["high"], columns, zone)
    if low is None or high is None or node.args.get("symmetric") or not _compare_alike(ends):
        return None
    return replace(low, upper=high.upper)


def _among(node: exp.In, columns: _Columns, zone: Zone) -> Condition | None:
    field = columns.find(node.this)
    if (
        field is None
        or not isinstance(field.type, Primitive)
        or node.args.get("query")
        or node.args.get("unnest")
        or node.args.get("field")
    ):
        return None
    literals = [literal_of(item) for item in node.expressions if not isinstance(item, exp.Null)]  # NULL equals nothing
    spans = [None if literal is None else span_of(field.type, literal, zone) for literal in literals]
    if None in spans or not _compare_alike(literals):
        return None
    return _condition_among(field, [span for span in spans if span is not None])


def _compare_alike(literals: Sequence[Literal | None]) -> bool:
    """Spark uses one type for the whole list: with a double in it, integers of more than 53 bits lose digits."""
    values = [literal.value for literal in literals if literal is not None]
    if not any(isinstance(value, float) for value in values):
        return True
    return all(isinstance(value, int | float | Decimal) and abs(float(value)) < EXACT_IN_DOUBLE for value in values)


def _condition_among(field: Field, spans: list[Span]) -> Condition | None:
    if not spans:
        return None
    among = tuple(span.low for span in spans) if all(span.exact for span in spans) else None
    lower = min((span.low for span in spans), key=_sort_key)
    upper = max((span.high for span in spans), key=_sort_key)
    return Condition(field=field, lower=lower, upper=upper, among=among)


def _sort_key(value: Value) -> Any:
    return value.encode() if isinstance(value, str) else value


def _comparison(operator: type[exp.Expr], left: exp.Expr, right: exp.Expr, columns: _Columns, zone: Zone) -> Condition | None:
    literal = literal_of(right)
    if literal is None:
        return None
    if (timed := _dated_column(left)) is not None and (field := columns.find(timed)) is not None:
        return _on_day(field, operator, literal, zone)
    field = columns.find(left)
    if field is None or not isinstance(field.type, Primitive):
        return None
    span = span_of(field.type, literal, zone)
    return None if span is None else _bounded(field, field.type, operator, span)


def _dated_column(node: exp.Expr) -> exp.Expr | None:
    """The argument of `CAST(ts AS DATE)`, `date(ts)` and `to_date(ts)`."""
    is_cast = isinstance(node, exp.Cast) and node.to.this == exp.DType.DATE
    is_call = isinstance(node, exp.TsOrDsToDate) and not node.args.get("format")
    found = node.this if is_cast or is_call else None
    return found if isinstance(found, exp.Column) else None


def _on_day(field: Field, operator: type[exp.Expr], literal: Literal, zone: Zone) -> Condition | None:
    """A day is the time between two midnights in the session's zone."""
    if not isinstance(field.type, Primitive) or field.type.name not in {"timestamp", "timestamptz"} or literal.kind is not Kind.DATE:
        return None
    try:
        following = (date.fromisoformat(str(literal.value)) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None
    first, last = (span_of(field.type, Literal(day, Kind.DATE), zone) for day in (str(literal.value), following))
    if first is None or last is None:
        return None
    begin, end = _bounded(field, field.type, exp.GTE, first), _bounded(field, field.type, exp.LT, last)
    if operator in {exp.EQ, exp.NullSafeEQ}:
        return Condition(field=field, lower=begin.lower, upper=end.upper)
    if operator in {exp.GTE, exp.LTE}:
        return begin if operator is exp.GTE else end
    return _bounded(field, field.type, *((exp.GTE, last) if operator is exp.GT else (exp.LT, first)))


def _bounded(field: Field, kind: Primitive, operator: type[exp.Expr], span: Span) -> Condition:
    step = 1 if kind.name in DISCRETE and span.exact else 0
    if operator in {exp.LT, exp.LTE}:
        return Condition(field=field, upper=_shifted(span.high, -step if operator is exp.LT else 0))
    if operator in {exp.GT, exp.GTE}:
        return Condition(field=field, lower=_shifted(span.low, step if operator is exp.GT else 0))
    return Condition(field=field, lower=span.low, upper=span.high, among=(span.low,) if span.exact else None)


def _shifted(value: Value, step: int) -> Value:
    return value + step if step and isinstance(value, int) else value


def literal_of(node: exp.Expr) -> Literal | None:
    """The literal with Spark's type for it; None for any other expression."""
    match node:
        case exp.Paren():
            return literal_of(node.this)
        case exp.Boolean():
            return Literal(bool(node.this))
        case exp.Neg():
            inner = literal_of(node.this)
            return None if inner is None or isinstance(inner.value, bool | str) else Literal(-inner.value)
        case exp.Literal():
            return Literal(str(node.this)) if node.is_string else _number(str(node.this))
        case exp.Cast():
            return _cast_literal(node)
        case _:
            return None


def _number(text: str) -> Literal | None:
    try:
        if text.isdigit():
            return Literal(int(text))
        return Literal(float(text)) if "e" in text.lower() else Literal(Decimal(text))
    except (ValueError, InvalidOperation):
        return None


def _cast_literal(node: exp.Cast) -> Literal | None:
    """`DATE '...'`, `TIMESTAMP '...'` and the suffixes of numbers; every other cast may change the value."""
    inner, target = literal_of(node.this), node.to.this
    if inner is None or inner.kind is not Kind.PLAIN or node.args.get("format"):
        return None
    if isinstance(inner.value, str):
        return Literal(inner.value, _TEXT_KINDS[target]) if target in _TEXT_KINDS else None
    if isinstance(inner.value, bool):
        return None
    if target in _WHOLE:
        fits = isinstance(inner.value, int) and abs(inner.value) < 1 << _WHOLE[target]
        return inner if fits else None
    if target == exp.DType.DOUBLE:
        return Literal(float(inner.value))
    if target == exp.DType.FLOAT:
        return Literal(struct.unpack("f", struct.pack("f", float(inner.value)))[0])
    return None
