"""Columns as SQL's DDL names them, `id BIGINT NOT NULL, tags ARRAY<STRING>`: Spark's types, read without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NoReturn

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.schema import MAX_DEPTH, Schema, require_clear_names
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type
from lakebed.core.suggestions import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIMPLE = {
    "boolean": "boolean", "tinyint": "int", "byte": "int", "smallint": "int", "short": "int", "int": "int", "integer": "int",
    "bigint": "long", "long": "long", "float": "float", "real": "float", "double": "double", "date": "date", "timestamp": "timestamptz",
    "timestamp_ltz": "timestamptz", "timestamp_ntz": "timestamp", "string": "string", "binary": "binary", "uuid": "uuid",
}  # fmt: skip
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("char", "character", "varchar")
_NESTED = ("array", "map", "struct")
_TYPES = (*_SIMPLE, *_DECIMALS, *_TEXTS, *_NESTED)
_DEFAULT_DECIMAL = (10, 0)  # Spark's
_MAX_PRECISION = 38
_TOKEN = re.compile(
    r"""\s+|--[^\n]*|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")|(?P<word>\w+)|(?P<mark>[<>(),:])""",
    re.DOTALL,
)
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # quoted, text, word, mark, or end
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark


def parse_columns(text: str, *, table: str) -> Schema:
    """A first version: ids are given in the order of the columns, parents before children. Comments are ignored."""
    schema = Schema(fields=_Parser(text, table).columns())
    require_clear_names(schema)
    return schema


class _Parser:
    def __init__(self, text: str, table: str) -> None:
        self._text, self._table, self._ids = text, table, count(1)
        self._tokens = [*self._split(), _Token("end", "", len(text))]
        self._next = 0

    def columns(self) -> tuple[Field, ...]:
        fields = self._fields(1)
        if self._token.kind != "end":
            self._refuse("expected a comma or the end")
        return fields

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _next_token(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                self._refuse_at(at, "expected a name, a type or a comma")
            if found.lastgroup is not None:
                yield _Token(found.lastgroup, found[0], at)
            at = found.end()

    def _fields(self, depth: int) -> tuple[Field, ...]:
        fields = [self._field(depth)]
        while self._token.is_mark(","):
            self._next_token()
            fields.append(self._field(depth))
        return tuple(fields)

    def _field(self, depth: int) -> Field:
        field_id, name = next(self._ids), self._name()
        if self._token.is_mark(":"):
            self._next_token()
        kind = self._type(depth)
        required = self._is_required()
        if self._token.is_word("comment"):
            self._next_token()
            if self._next_token().kind != "text":
                self._next -= 1
                self._refuse("expected the comment in quotes")
            required = required or self._is_required()
        return Field(field_id=field_id, name=name, type=kind, required=required)

    def _is_required(self) -> bool:
        if self._token.is_word("null"):
            self._next_token()
            return False
        if not self._token.is_word("not"):
            return False
        self._next_token()
        if not self._token.is_word("null"):
            self._refuse("expected NULL after NOT")
        self._next_token()
        return True

    def _name(self) -> str:
        if self._token.kind not in {"word", "quoted"}:
            self._refuse("expected the name of a column")
        token = self._next_token()
        return token.text if token.kind == "word" else token.text[1:-1].replace("``", "`")

    def _type(self, depth: int) -> Type:
        if depth > MAX_DEPTH:
            self._refuse(f"types may be {MAX_DEPTH} levels deep at most")
        name = self._token.text.lower()
        if self._token.kind != "word" or name not in _TYPES:
            near = suggest(name, _TYPES) if self._token.kind == "word" else ""
            self._refuse(f"expected a type; {near}" if near else f"expected a type, one of {', '.join(_TYPES)}")
        self._next_token()
        if name in _NESTED:
            return self._nested(name, depth)
        if name in _DECIMALS:
            return self._decimal()
        if name in _TEXTS:
            self._numbers(1)
            return Primitive(name="string")
        return Primitive(name=_SIMPLE[name])

    def _nested(self, name: str, depth: int) -> Type:
        self._expect("<")
        made: Type
        match name:
            case "array":
                made = List(element=self._child("element", depth))
            case "map":
                key = self._child("key", depth, required=True)
                self._expect(",")
                made = Map(key=key, value=self._child("value", depth))
            case _:
                made = Struct(fields=self._fields(depth + 1))
        self._expect(">")
        return made

    def _child(self, name: str, depth: int, *, required: bool = False) -> Field:
        return Field(field_id=next(self._ids), name=name, type=self._type(depth + 1), required=required)

    def _decimal(self) -> Primitive:
        begin = self._next
        precision, scale = [*self._numbers(2), *_DEFAULT_DECIMAL][:2] if self._token.is_mark("(") else _DEFAULT_DECIMAL
        if self._next - begin == len("(p)"):
            scale = 0
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            self._next = begin
            self._refuse(f"a decimal has 1 to {_MAX_PRECISION} digits, and no more of them behind the point")
        return Primitive(name="decimal", precision=precision, scale=scale)

    def _numbers(self, most: int) -> list[int]:
        """`(n)` or `(n, n)`."""
        self._expect("(")
        found = [self._number()]
        while len(found) < most and self._token.is_mark(","):
            self._next_token()
            found.append(self._number())
        self._expect(")")
        return found

    def _number(self) -> int:
        if not re.fullmatch("[0-9]{1,9}", self._token.text):
            self._refuse("expected a number")
        return int(self._next_token().text)

    def _expect(self, mark: str) -> None:
        if not self._token.is_mark(mark):
            self._refuse(f'expected "{mark}"')
        self._next_token()

    def _refuse(self, why: str) -> NoReturn:
        self._refuse_at(self._token.at, why)

    def _refuse_at(self, at: int, why: str) -> NoReturn:
        rest = self._text[at : at + _SHOWN_CHARS]
        shown = f"at character {at + 1}, {rest!a}" if rest else f"at the end, character {at + 1}"
        message = f"{self._table}: the columns cannot be read {shown}: {why}. Write them as id BIGINT NOT NULL, tags ARRAY<STRING>"
        raise SchemaRefusedError(message)
