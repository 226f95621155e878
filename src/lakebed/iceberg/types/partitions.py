"""Partition specs, and the typed values that a file's partition path spells out."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.transforms import parse_transform

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Primitive
from lakebed.core.times import days_of, micros_of
from lakebed.iceberg.types.schemas import INSTANCE_COLUMN, INSTANCE_FIELD_ID, INSTANCE_KIND
from lakebed.storage.partition_paths import decode_partition_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.transforms import Transform

_INT, _DATE = Primitive(name="int"), Primitive(name="date")
_MONTHS, _HOURS, _FIRST_YEAR = 12, 24, 1970
_CALENDAR = frozenset({"year", "month", "hour", "bucket"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumn:
    """One field of a spec: what its values are, and which transform spelled them; None for the instance."""

    kind: Primitive
    source: Primitive
    transform: Transform | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """A table's spec beside what is needed to type a partition path."""

    spec: PartitionSpec
    columns: tuple[PartitionColumn, ...]

    @property
    def with_instance(self) -> bool:
        return any(field.source_id == INSTANCE_FIELD_ID for field in self.spec.fields)

    def values(self, partition_path: str, instance: str) -> tuple[Value | None, ...]:
        """The file's partition tuple, in the order of the spec's fields."""
        texts = decode_partition_path(partition_path)
        wanted = [column for column in self.columns if column.transform is not None]
        if len(texts) != len(wanted):
            message = f"partition path {partition_path!a} has {len(texts)} values, the table is partitioned by {len(wanted)}"
            raise InvalidValueError(message)
        rest = iter(texts)
        return tuple(
            instance if column.transform is None else _value(column.transform, column.source, next(rest)[1]) for column in self.columns
        )


def make_partitioning(schema: Schema, partition_by: Sequence[str], *, with_instance: bool, spec_id: int) -> Partitioning:
    """Field ids count from 1000 in the order of the transforms; the instance comes last, so that adding it moves none."""
    fields: list[PartitionField] = []
    columns: list[PartitionColumn] = []
    for transform, source in resolve_transforms(schema, partition_by):
        assert isinstance(source.type, Primitive)  # noqa: S101 - resolving has refused everything else
        spelled = f"{transform.kind}[{transform.argument}]" if transform.argument else transform.kind
        fields.append(PartitionField(source.field_id, PARTITION_FIELD_ID_START + len(fields), parse_transform(spelled), transform.name))
        columns.append(PartitionColumn(kind=_result(transform, source.type), source=source.type, transform=transform))
    if with_instance:
        number = PARTITION_FIELD_ID_START + len(fields)
        fields.append(PartitionField(INSTANCE_FIELD_ID, number, parse_transform("identity"), INSTANCE_COLUMN))
        columns.append(PartitionColumn(kind=INSTANCE_KIND, source=INSTANCE_KIND, transform=None))
    return Partitioning(spec=PartitionSpec(*fields, spec_id=spec_id), columns=tuple(columns))


def _result(transform: Transform, source: Primitive) -> Primitive:
    if transform.kind in _CALENDAR:
        return _INT
    return _DATE if transform.kind == "day" else source


def _value(transform: Transform, source: Primitive, text: str | None) -> Value | None:
    if text is None:
        return None
    match transform.kind:
        case "bucket":
            return int(text)
        case "year" | "month" | "day" | "hour":
            return _ordinal(transform.kind, text)
        case _:
            return parse_value(source, text)


def _ordinal(kind: str, text: str) -> int:
    """Back from 2026, 2026-11, 2026-11-15 or 2026-11-15-23."""
    parts = [int(part) for part in text.split("-")]
    match kind:
        case "year":
            return parts[0] - _FIRST_YEAR
        case "month":
            return (parts[0] - _FIRST_YEAR) * _MONTHS + parts[1] - 1
        case "day":
            return days_of(date(*parts[:3]))
        case _:
            return days_of(date(*parts[:3])) * _HOURS + parts[3]


def parse_value(source: Primitive, text: str) -> Value:
    """Back from the canonical text of one value; days and microseconds are numbers, as Avro holds them."""
    match source.name:
        case "boolean":
            return text == "true"
        case "int" | "long":
            return int(text)
        case "decimal":
            return Decimal(text)
        case "date":
            return days_of(date.fromisoformat(text))
        case "timestamp" | "timestamptz":
            return micros_of(datetime.fromisoformat(text))
        case "uuid":
            return UUID(text).bytes
        case "fixed" | "binary":
            return base64.b64decode(text)
        case _:
            return text
