"""Column types: Iceberg's, because every engine understands them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.suggestions import suggest

_SIMPLE = frozenset({"boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "uuid", "binary"})
_ALSO = {"bigint": "long", "integer": "int", "smallint": "int", "tinyint": "int", "bool": "boolean", "varchar": "string"}  # SQL's words
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)", re.ASCII)
_FIXED = re.compile(r"fixed\[(\d{1,9})\]", re.ASCII)
_MAX_PRECISION = 38
_PROMOTIONS = frozenset({("int", "long"), ("float", "double")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """A type without children; `precision`, `scale` and `length` only where the name needs them."""

    name: str
    precision: int = 0
    scale: int = 0
    length: int = 0

    @classmethod
    def parse(cls, text: str) -> Primitive:
        if text in _SIMPLE:
            return cls(name=text)
        if found := _DECIMAL.fullmatch(text):
            precision, scale = int(found[1]), int(found[2])
            if 1 <= precision <= _MAX_PRECISION and scale <= precision:
                return cls(name="decimal", precision=precision, scale=scale)
        if found := _FIXED.fullmatch(text):
            return cls(name="fixed", length=int(found[1]))
        near = suggest(text, _SIMPLE)
        meant = f"did you mean {_ALSO[text]}? " if text in _ALSO else f"{near} " if near else ""
        message = f"type {text!r} is not supported: {meant}use {', '.join(sorted(_SIMPLE))}, decimal(p,s) or fixed[n]"
        raise SchemaRefusedError(message)

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "fixed":
                return f"fixed[{self.length}]"
            case name:
                return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    element: Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    key: Field
    value: Field


Type = Primitive | Struct | List | Map


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column. `field_id` and `physical_name` are fixed for life; `name` may change."""

    field_id: int
    name: str
    type: Type
    required: bool = False
    physical_name: str = ""

    def __post_init__(self) -> None:
        if not self.physical_name:
            object.__setattr__(self, "physical_name", self.name)

    @property
    def children(self) -> tuple[Field, ...]:
        match self.type:
            case Struct(fields=fields):
                return fields
            case List(element=element):
                return (element,)
            case Map(key=key, value=value):
                return (key, value)
            case Primitive():
                return ()

    def renamed(self, name: str) -> Field:
        return replace(self, name=name)


def can_promote(old: Type, new: Type) -> bool:
    """Whether values written as `old` are read unchanged as `new`; children are compared by their ids elsewhere."""
    match old, new:
        case Primitive(), Primitive():
            if old == new or (old.name, new.name) in _PROMOTIONS:
                return True
            return old.name == new.name == "decimal" and old.scale == new.scale and old.precision <= new.precision
        case _:
            return type(old) is type(new)
