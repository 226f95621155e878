"""Results as frozen values: single ones in one line or as a table in a notebook, rows as Arrow or pandas too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

RowT = TypeVar("RowT")
KindT = TypeVar("KindT")
_SHOWN = 50
_LISTED = 3  # items of a field; of more, their number
_CHARS = 80
_OPTIONAL = " | None"


class Rows(Sequence[RowT], Generic[RowT]):
    """Dataclass rows of one kind. The kind gives the columns, so that the schema is right when there is no row."""

    __slots__ = ("_kind", "_rows")

    def __init__(self, kind: type[RowT], rows: Iterable[RowT] = ()) -> None:
        self._kind, self._rows = kind, tuple(rows)

    @overload
    def __getitem__(self, index: int) -> RowT: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[RowT]: ...
    def __getitem__(self, index: int | slice) -> RowT | Rows[RowT]:
        return Rows(self._kind, self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        """Equal to any list or tuple of the same rows: results used to be lists."""
        return tuple(other) == self._rows if isinstance(other, Rows | list | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        more = f", ... {len(self) - _SHOWN} more" if len(self) > _SHOWN else ""
        return f"Rows[{self._kind.__name__}]([{', '.join(map(repr, self._rows[:_SHOWN]))}{more}])"

    @property
    def columns(self) -> tuple[str, ...]:
        return list_columns(self._kind)

    def to_arrow(self) -> pa.Table:
        """Times are UTC timestamps in microseconds; a column that can be None is nullable."""
        import pyarrow as pa  # noqa: PLC0415 - values stay usable without Arrow

        schema = arrow_schema(self._kind)
        return pa.table([pa.array([getattr(row, field.name) for row in self._rows], type=field.type) for field in schema], schema=schema)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; its library publishes no types with it."""
        return self.to_arrow().to_pandas()

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in self._rows[:_SHOWN])
        shown = f", the first {_SHOWN} shown" if len(self) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{len(self)} rows{shown}</p>"

    def _cells(self, row: RowT) -> str:
        return "".join(f"<td>{escape(_show(getattr(row, name)))}</td>" for name in self.columns)


def list_columns(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def arrow_schema(kind: type) -> pa.Schema:
    """The columns of a row type. Annotations are read as text: the types they name need not be imported where rows are used."""
    import pyarrow as pa  # noqa: PLC0415

    known = {
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "str": pa.string(),
        "bytes": pa.binary(),
        "datetime": pa.timestamp("us", tz="UTC"),
    }
    named = [(f.name, str(f.type)) for f in fields(kind)]
    return pa.schema([pa.field(name, known[text.removesuffix(_OPTIONAL)], nullable=text.endswith(_OPTIONAL)) for name, text in named])


def _show(value: object) -> str:
    return "" if value is None else str(value)


def single_result(kind: type[KindT]) -> type[KindT]:
    """Give a dataclass a `repr` of one readable line, and a table in notebooks."""
    setattr(kind, "__repr__", _repr_line)  # noqa: B010 - mypy knows the type's own
    setattr(kind, "_repr_html_", _repr_table)  # noqa: B010
    return kind


def _repr_line(result: Any) -> str:
    return f"{type(result).__name__}({', '.join(f'{name}={text}' for name, text in _shown_fields(result))})"


def _repr_table(result: Any) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in _shown_fields(result))
    return f"<table><caption>{escape(type(result).__name__)}</caption><tbody>{rows}</tbody></table>"


def _shown_fields(result: Any) -> list[tuple[str, str]]:
    return [(one.name, _shorten(getattr(result, one.name))) for one in fields(result) if one.repr]


def _shorten(value: object) -> str:
    if isinstance(value, Collection) and not isinstance(value, str | bytes | range) and len(value) > _LISTED:
        return f"<{len(value)} items>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 4]} ..."
