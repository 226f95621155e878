"""The types of arguments, known when Spark analyses a query, kept for the worker that receives their values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType, TimestampType
from pyspark.sql.udtf import AnalyzeResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.udtf import AnalyzeArgument

    Arguments = tuple[list[Any], dict[str, Any]]


@dataclass
class TypedResult(AnalyzeResult):  # Spark requires this class
    """The columns, and which arguments are instants: their values arrive as wall time of the worker's zone."""

    instants: tuple[int, ...] = field(default=())
    named_instants: frozenset[str] = field(default=frozenset())

    def fix(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Arguments:
        return (
            [to_instant(value) if place in self.instants else value for place, value in enumerate(positional)],
            {name: to_instant(value) if name in self.named_instants else value for name, value in named.items()},
        )


def describe_types(schema: StructType, positional: Sequence[AnalyzeArgument], named: Mapping[str, AnalyzeArgument]) -> TypedResult:
    return TypedResult(
        schema=schema,
        instants=tuple(place for place, argument in enumerate(positional) if isinstance(argument.dataType, TimestampType)),
        named_instants=frozenset(name for name, argument in named.items() if isinstance(argument.dataType, TimestampType)),
    )


def to_instant(value: Any) -> Any:
    """Wall time of this process's zone as UTC; `fold` distinguishes the two equal hours of an autumn night."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
