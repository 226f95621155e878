"""The partition key: all transforms of a row in one text column, and back from its directory name to the partition path.

Per transform the key holds `n` for NULL or `v` and hexadecimal digits, joined by `_`: NULL differs from an empty text, and
no user value appears in a path. It is reversed: values often differ only at their end, and Spark sorts by the first
eight bytes faster than by the rest. NULL in an optional column is a legal partition value with a path of its own; NULL in a
required column is refused by the row checks before.

All is SQL text of built-in functions, which needs no Python worker and one call to build. Only decimals are
truncated and hashed in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from lakebed.core.errors import CorruptionError
from lakebed.core.schema.decimals import decimal_text, truncate_decimal
from lakebed.core.schema.murmur3 import C1, C2, F1, F2, bucket_of, decimal_bytes
from lakebed.core.schema.schema import RESERVED
from lakebed.core.schema.transforms import Transform, calendar_text, text_of
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US, HOUR_US
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import refusal
from lakebed.pipeline.spark.shipping import ship
from lakebed.storage.partition_paths import encode_partition_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Field

KEY = f"{RESERVED}key"  # stored in directory names: never rename
_LONGEST = 240  # a directory name has at most 255 bytes
_MASK = 0xFFFFFFFF
# Spark's hash starts from 42 and hashes each argument with the last one's result as its seed. This number hashes to 0,
# so what follows it is hashed from 0, as Iceberg does.
_TO_ZERO = -1693959553
# inverses of the multiplications of the last mixing step
_UNDO_F1, _UNDO_F2 = pow(F1, -1, 1 << 32), pow(F2, -1, 1 << 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """The key of a table's rows; without transforms there is none."""

    transforms: tuple[tuple[Transform, Field], ...]

    def sql(self) -> str:
        """The key of a row whose columns have their physical names; never NULL."""
        parts = [f"coalesce(concat('v', hex({_sql(transform, field)})), 'n')" for transform, field in self.transforms]
        joined = parts[0] if len(parts) == 1 else f"concat_ws('_', {', '.join(parts)})"
        key = f"reverse({joined})"
        if not self._may_be_long():
            return key
        names = ", ".join(transform.name for transform, _ in self.transforms)
        message = f"the partition values of {names} are longer than {_LONGEST // 2} bytes: partition by truncate or bucket instead"
        length = " + ".join(["-1", *(f"2 + 2 * {_octets(transform, field)}" for transform, field in self.transforms)])
        # computed from the values, not from the key: Spark has no compiled function that could reuse the key
        return f"CASE WHEN {length} > {_LONGEST} THEN raise_error({literal(refusal(message))}) ELSE {key} END"

    def add_to(self, df: DataFrame) -> DataFrame:
        """`df` with its key column last; the others keep their metadata."""
        computed = {_temporary(t): _python_transform(t, f) for t, f in self.transforms if _is_python(t, f)}
        if not computed:
            return df.selectExpr("*", f"{self.sql()} AS {KEY}")
        return df.withColumns(computed).selectExpr("*", f"{self.sql()} AS {KEY}").drop(*computed)

    def partition_path(self, directory: str) -> str:
        """The canonical partition path for the name of a file's directory, `lakebed__key=...`."""
        parts = directory.removeprefix(f"{KEY}=")[::-1].split("_")
        if not directory.startswith(f"{KEY}=") or len(parts) != len(self.transforms):
            message = f"the directory {directory!a} is not a partition key of this table: report it"
            raise CorruptionError(message)
        return encode_partition_path(
            [(transform.name, _decode(transform, field, part)) for (transform, field), part in zip(self.transforms, parts, strict=True)]
        )

    def _may_be_long(self) -> bool:
        lengthy = {"string", "binary", "fixed"}
        return any(isinstance(f.type, Primitive) and f.type.name in lengthy and t.kind != "bucket" for t, f in self.transforms)


def literal(text: str) -> str:
    """SQL text of a string; the backslash escapes in Spark's literals."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def let(value: str, name: str, body: str) -> str:
    """`body` with `name` bound to `value`, which is computed once: otherwise the nested hash would have exponential length."""
    return f"transform(array({value}), {name} -> {body})[0]"


def _decode(transform: Transform, field: Field, part: str) -> str | None:
    if part == "n":
        return None
    raw = bytes.fromhex(part.removeprefix("v"))
    kind = field.type
    assert isinstance(kind, Primitive)  # noqa: S101 - resolve_transforms takes no other
    if transform.kind == "bucket":
        return raw.decode()
    if transform.kind in {"day", "hour", "month", "year"}:
        return calendar_text(transform.kind, int(raw))
    return text_of(_value(kind, raw), kind)


def _value(kind: Primitive, raw: bytes) -> Value:
    match kind.name:
        case "binary" | "fixed" | "uuid":
            return raw
        case "string":
            return raw.decode()
        case "boolean":
            return raw == b"true"
        case "decimal":
            return Decimal(raw.decode())
        case _:
            return int(raw)


def _sql(transform: Transform, field: Field) -> str:
    """One transform as text or binary, for `hex`."""
    column, kind = quote(field.physical_name), field.type
    assert isinstance(kind, Primitive)  # noqa: S101 - resolve_transforms takes no other
    if _is_python(transform, field):
        return _temporary(transform)
    match transform.kind:
        case "identity":
            return _plain(column, kind)
        case "truncate":
            return _truncated(column, kind, transform.argument)
        case "bucket":
            return f"CAST(pmod({_hash(column, kind)} & 2147483647, {transform.argument}) AS STRING)"
        case calendar:
            return f"CAST({_ordinal(calendar, column, kind)} AS STRING)"


def _octets(transform: Transform, field: Field) -> str:
    """The length of the text of one transform; for a bucket, which is costly to compute twice, the maximum length."""
    return str(len(str(transform.argument - 1))) if transform.kind == "bucket" else f"coalesce(octet_length({_sql(transform, field)}), 0)"


def _plain(column: str, kind: Primitive) -> str:
    match kind.name:
        case "string" | "binary" | "fixed" | "uuid":
            return column
        case "date":
            return f"CAST(unix_date({column}) AS STRING)"
        case "timestamp" | "timestamptz":
            return f"CAST({micros_sql(column, kind)} AS STRING)"
        case _:
            return f"CAST({column} AS STRING)"


def _truncated(column: str, kind: Primitive, width: int) -> str:
    if kind.name in {"string", "binary"}:
        return f"substring({column}, 1, {width})"
    return f"CAST(CAST({column} AS BIGINT) - pmod(CAST({column} AS BIGINT), {width}L) AS STRING)"


def micros_sql(column: str, kind: Primitive) -> str:
    """Microseconds since 1970 of a timestamp of either kind."""
    if kind.name == "timestamptz":
        return f"unix_micros({column})"
    # without a zone: a cast to TIMESTAMP would apply the session's
    seconds = f"unix_date(CAST({column} AS DATE)) * 86400L + hour({column}) * 3600 + minute({column}) * 60"
    return f"(({seconds}) * 1000000L + CAST(extract(SECOND FROM {column}) * 1000000 AS BIGINT))"


def _day(column: str, kind: Primitive) -> str:
    if kind.name == "timestamptz":
        return f"((unix_micros({column}) - pmod(unix_micros({column}), {DAY_US}L)) DIV {DAY_US}L)"
    return f"unix_date(CAST({column} AS DATE))"


def _ordinal(unit: str, column: str, kind: Primitive) -> str:
    match unit:
        case "day":
            return _day(column, kind)
        case "hour" if kind.name == "timestamptz":
            return f"((unix_micros({column}) - pmod(unix_micros({column}), {HOUR_US}L)) DIV {HOUR_US}L)"
        case "hour":
            return f"({_day(column, kind)} * 24L + hour({column}))"
        case _:
            day = f"date_from_unix_date(CAST({_day(column, kind)} AS INT))"
            return f"(year({day}) - 1970)" if unit == "year" else f"((year({day}) - 1970) * 12 + month({day}) - 1)"


def _hash(column: str, kind: Primitive) -> str:
    """Iceberg's 32-bit hash, NULL for NULL."""
    match kind.name:
        case "string":
            return _hash_bytes(f"encode({column}, 'UTF-8')")
        case "binary" | "fixed" | "uuid":
            return _hash_bytes(column)
        case "date":
            number = f"CAST(unix_date({column}) AS BIGINT)"
        case "timestamp" | "timestamptz":
            number = micros_sql(column, kind)
        case _:
            number = f"CAST({column} AS BIGINT)"
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE hash({_TO_ZERO}, {number}) END"


def _hash_bytes(content: str) -> str:
    """Spark hashes whole words as murmur3 does, but the last one to three bytes differently; those are mixed in here."""
    whole = "(octet_length(b) - octet_length(b) % 4)"
    tail = " + ".join(
        f"coalesce(shiftleft(CAST(conv(hex(substring(b, {whole} + {n + 1}, 1)), 16, 10) AS BIGINT), {8 * n}), 0L)" for n in range(3)
    )
    start = let(f"CAST(hash({_TO_ZERO}, substring(b, 1, {whole})) AS BIGINT) & {_MASK}L", "h", _unfinished("h"))
    mixed = let(tail, "t", let(_times("t", C1), "m", _times("((shiftleft(m, 15) | shiftright(m, 17)) & 4294967295L)", C2)))
    ending = let(f"(({start}) ^ {whole} ^ ({mixed}) ^ octet_length(b))", "e", _finished("e"))
    return f"CASE WHEN {content} IS NULL THEN NULL ELSE {let(content, 'b', ending)} END"


def _times(word: str, factor: int) -> str:
    """A product modulo 2^32 whose partial products stay inside 64 bits, where ANSI arithmetic would raise."""
    low, high = factor & 0xFFFF, factor >> 16
    return f"(({word} * {low}L + shiftleft(({word} * {high}L) & 65535L, 16)) & {_MASK}L)"


def _finished(word: str) -> str:
    first = let(f"{word} ^ shiftright({word}, 16)", "f1", _times("f1", F1))
    second = let(first, "f2", let("f2 ^ shiftright(f2, 13)", "f3", _times("f3", F2)))
    return let(second, "f4", "f4 ^ shiftright(f4, 16)")


def _unfinished(word: str) -> str:
    """The input of the last mixing step."""
    first = let(f"{word} ^ shiftright({word}, 16)", "u1", _times("u1", _UNDO_F2))
    second = let(first, "u2", let("u2 ^ shiftright(u2, 13) ^ shiftright(u2, 26)", "u3", _times("u3", _UNDO_F1)))
    return let(second, "u4", "u4 ^ shiftright(u4, 16)")


def _is_python(transform: Transform, field: Field) -> bool:
    return transform.kind in {"bucket", "truncate"} and isinstance(field.type, Primitive) and field.type.name == "decimal"


def _temporary(transform: Transform) -> str:
    return f"{RESERVED}{transform.kind}_{transform.column.encode().hex()}"


def _python_transform(transform: Transform, field: Field) -> Column:
    kind = field.type
    assert isinstance(kind, Primitive)  # noqa: S101 - decimals only
    apply = _decimal_transform(transform.kind, transform.argument, kind.scale)
    return F.udf(ship(apply), "string", useArrow=False)(F.col(quote(field.physical_name)))


def _decimal_transform(kind: str, argument: int, scale: int) -> Callable[[Decimal | None], str | None]:
    """`Transform.apply` for executors: it refers only to modules that are pickled by value."""
    if kind == "bucket":
        return lambda value: None if value is None else str(bucket_of(decimal_bytes(value, scale), argument))
    return lambda value: None if value is None else decimal_text(truncate_decimal(value, argument, scale), scale)


def gather_by_key(df: DataFrame) -> DataFrame:
    """About one file per path and target size: rows of one key go to one task, and Spark splits large keys again."""
    return df.hint("rebalance", F.col(KEY))
