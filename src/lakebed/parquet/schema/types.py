"""What a stored column is in the table's words, and how its raw statistics become values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING

from lakebed.core.schema.types import Primitive, can_promote
from lakebed.parquet.schema.tree import Physical

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.schema.bounds import Value
    from lakebed.parquet.schema.tree import Annotation, Node

    Convert = Callable[[Value], Value]

_UUID_BYTES = 16
_SMALL_BITS = 16
_WIDE = Context(prec=80)  # the default context would round a 38-digit decimal
_NAMES = {0: "boolean", 1: "int32", 2: "int64", 3: "int96", 4: "float", 5: "double", 6: "byte array", 7: "fixed byte array"}
_TEXTS = frozenset({"string", "enum", "json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """From the raw minimum and maximum of a column chunk to values; None where they are values already."""

    lower: Convert | None = None
    upper: Convert | None = None


def stored_type(node: Node) -> Primitive | None:
    """The table type that reads this leaf unchanged; None when there is none."""
    match node.physical:
        case Physical.INT32:
            return _int32_type(node.annotation)
        case Physical.INT64:
            return _int64_type(node.annotation)
        case Physical.BYTE_ARRAY | Physical.FIXED:
            return _bytes_type(node)
        case Physical.BOOLEAN | Physical.FLOAT | Physical.DOUBLE if not node.annotation.name:
            return Primitive(name=_NAMES[node.physical])
        case _:
            return None


def can_read(stored: Primitive | None, wanted: Primitive) -> bool:
    """Whether a leaf stored as `stored` holds valid values of the table's type `wanted`."""
    if stored is None:
        return False
    is_unnamed_uuid = wanted.name == "uuid" and stored == Primitive(name="fixed", length=_UUID_BYTES)
    return is_unnamed_uuid or can_promote(stored, wanted)


def describe(node: Node) -> str:
    """How a leaf is stored, for people."""
    annotation = node.annotation
    physical = _NAMES.get(-1 if node.physical is None else node.physical, "an unknown type")
    match annotation.name:
        case "":
            return f"{physical} of {node.length} bytes" if node.physical == Physical.FIXED else physical
        case "decimal":
            return f"decimal({annotation.precision},{annotation.scale})"
        case "time" | "timestamp":
            return f"{annotation.name} in {annotation.unit} {'with' if annotation.is_utc else 'without'} time zone"
        case "integer":
            return f"{'' if annotation.is_signed else 'unsigned '}{annotation.bits}-bit integer"
        case name:
            return f"{physical} ({name})"


def conversion_of(node: Node) -> Conversion:
    match node.annotation.name:
        case "decimal":
            convert = _decimal_from(node.annotation.scale)
            return Conversion(lower=convert, upper=convert)
        case "timestamp":
            return _TIMES.get(node.annotation.unit, Conversion())
        case name if name in _TEXTS:
            return Conversion(lower=_text, upper=_text)
        case _:
            return Conversion()


def _int32_type(annotation: Annotation) -> Primitive | None:
    match annotation.name:
        case "date":
            return Primitive(name="date")
        case "decimal":
            return _decimal_type(annotation)
        case "integer" if not annotation.is_signed and annotation.bits > _SMALL_BITS:
            return None  # its upper half would be read as negative
        case "" | "integer":
            return Primitive(name="int")
        case _:
            return None


def _int64_type(annotation: Annotation) -> Primitive | None:
    match annotation.name:
        case "timestamp":
            return Primitive(name="timestamptz" if annotation.is_utc else "timestamp")
        case "decimal":
            return _decimal_type(annotation)
        case "":
            return Primitive(name="long")
        case "integer":
            return Primitive(name="long") if annotation.is_signed else None
        case _:
            return None


def _bytes_type(node: Node) -> Primitive | None:
    is_fixed = node.physical == Physical.FIXED
    match node.annotation.name:
        case "decimal":
            return _decimal_type(node.annotation)
        case "":
            return Primitive(name="fixed", length=node.length) if is_fixed else Primitive(name="binary")
        case "uuid" if is_fixed and node.length == _UUID_BYTES:
            return Primitive(name="uuid")
        case name if name in _TEXTS and not is_fixed:
            return Primitive(name="string")
        case "bson" if not is_fixed:
            return Primitive(name="binary")
        case _:
            return None


def _decimal_type(annotation: Annotation) -> Primitive:
    return Primitive(name="decimal", precision=annotation.precision, scale=annotation.scale)


def _decimal_from(scale: int) -> Convert:
    def convert(raw: Value) -> Value:
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal(_require_int(unscaled)).scaleb(-scale, _WIDE)

    return convert


def _text(raw: Value) -> Value:
    return raw.decode() if isinstance(raw, bytes) else raw


def _from_millis(raw: Value) -> Value:
    return _require_int(raw) * 1000


def _floor_nanos(raw: Value) -> Value:
    return _require_int(raw) // 1000


def _ceil_nanos(raw: Value) -> Value:
    return -(-_require_int(raw) // 1000)


def _require_int(raw: Value) -> int:
    if not isinstance(raw, int):
        message = f"expected a whole number, got {raw!r}"
        raise TypeError(message)
    return raw


_TIMES = {
    "millis": Conversion(lower=_from_millis, upper=_from_millis),
    "nanos": Conversion(lower=_floor_nanos, upper=_ceil_nanos),
}
