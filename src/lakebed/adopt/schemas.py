"""One schema for many files: their common columns, their differences, and the columns of their paths. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.adopt.hive_paths import infer_type
from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.evolution import evolve, show_type
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, Primitive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of one file: those inside it, and those of its path."""

    schema: Schema
    has_ids: bool
    path: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The schema that fits most files, and why it does not fit the others (by their schema)."""

    schema: Schema
    path_columns: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    obstacles: dict[Schema, str] = field(default_factory=dict)


def merge_columns(name: str, files: Sequence[Columns], *, types: Mapping[str, str]) -> Merged:
    """The columns of a new table: those of most files first, widened for the other files as far as type promotion allows."""
    counts = Counter(file.schema for file in files)
    order = sorted(counts, key=lambda schema: (-counts[schema], schema.to_json()))
    merged, obstacles = order[0], dict[Schema, str]()
    for other in order[1:]:
        try:
            merged = evolve(name, merged, other, history=())
        except SchemaRefusedError as exc:
            obstacles[other] = str(exc)
    paths = [file.path for file in files if file.schema not in obstacles]
    schema = add_path_columns(merged, paths, types=types)
    names = tuple(name for name in _order_of(paths, types) if schema.find(name) is not None)
    differences = tuple(_list_differences(merged, counts, obstacles))
    return Merged(schema=schema, path_columns=names, differences=differences, obstacles=obstacles)


def add_path_columns(schema: Schema, paths: Sequence[Mapping[str, str | None]], *, types: Mapping[str, str]) -> Schema:
    """`schema` with a column for every name of the paths that it lacks."""
    missing = [name for name in _order_of(paths, types) if schema.find(name) is None]
    last = max(f.field_id for f in walk(schema.fields))
    added = tuple(
        Field(field_id=last + n, name=name, type=_type_of(name, paths, types)) for n, name in enumerate(missing, start=1)
    )  # fmt: skip
    return replace(schema, fields=(*schema.fields, *added))


def ids_disagree(found: Schema, table: Schema) -> str | None:
    """The first column whose id in the file names another column of the table; None when ids and names agree."""
    by_id = table.by_id
    by_name = {f.physical_name: f for f in table.fields}
    for column in found.fields:
        known = by_name.get(column.name)
        if known is not None and known.field_id != column.field_id:
            return f"column {column.name!a} has the field id {column.field_id}, in the table it is {known.field_id}"
        if known is None and column.field_id in by_id:
            return f"column {column.name!a} has the field id {column.field_id}, which is {by_id[column.field_id].name!a} in the table"
        if known is not None and {f.field_id for f in walk([known])} != {f.field_id for f in walk([column])}:
            return f"the columns inside {column.name!a} have other field ids than in the table"
    return None


def describe_columns(schema: Schema) -> tuple[str, ...]:
    return tuple(f"{f.name} {show_type(f.type)}" for f in schema.fields)


def _order_of(paths: Iterable[Mapping[str, str | None]], types: Mapping[str, str]) -> list[str]:
    names = dict.fromkeys(name for path in paths for name in path)
    return [name for name in names if types.get(name) != IGNORE]


def _type_of(name: str, paths: Sequence[Mapping[str, str | None]], types: Mapping[str, str]) -> Primitive:
    if name in types:
        return Primitive.parse(types[name])
    return infer_type(path[name] for path in paths if name in path)


def _list_differences(merged: Schema, counts: Mapping[Schema, int], obstacles: Mapping[Schema, str]) -> list[str]:
    """One sentence per column that differs between files."""
    differences: defaultdict[str, int] = defaultdict(int)
    for schema, files in counts.items():
        if schema in obstacles:
            differences[f"refused: {obstacles[schema]}"] += files
            continue
        for wanted in merged.fields:
            found = next((f for f in schema.fields if f.name.lower() == wanted.name.lower()), None)
            if found is None:
                differences[f"column {wanted.name!a} is missing and reads as NULL"] += files
            elif show_type(found.type) != show_type(wanted.type):
                differences[f"column {wanted.name!a} is {show_type(found.type)} and is read as {show_type(wanted.type)}"] += files
    return [f"{files} files: {text}" for text, files in sorted(differences.items())]
