"""Combines partial results: the `combine` query of a view set, over any number of its slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from lakebed.core.errors import DefinitionRefusedError
from lakebed.core.tables.view_sets import find_definition
from lakebed.pipeline.rows.types import quote, to_spark_nullable
from lakebed.pipeline.sql.definitions import PARTIALS, list_grouping_columns, parse_definition, run_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.pipeline.context import Context
    from lakebed.pipeline.sql.parse import Query
    from lakebed.registry.tables.lake_tables import LakeTable


def combine_partials(context: Context, view: LakeTable, frame: DataFrame) -> DataFrame:
    """`frame` (rows of the view under their current names) after the definition's combine query; unchanged if there is none.

    The rows must be whole slices: only filters on `find_keys` may be applied before it, all others after it.
    """
    combine = find_combine(view)
    if combine is None:
        return frame
    name = str(view.name)
    combined = run_definition(context.spark, name, parse_combine(name, combine), {PARTIALS: frame})
    wanted = to_spark_nullable(view.schema).fields
    # the type of a sum of decimals grows with every combination: the stored type is the first one
    return combined.select(*(F.col(quote(field.name)).cast(field.dataType).alias(field.name) for field in wanted))


def find_combine(view: LakeTable) -> str | None:
    definition = find_definition(view.metadata.properties)
    return definition.combine if definition is not None else None


def find_keys(view: LakeTable) -> frozenset[str] | None:
    """Columns that combining leaves unchanged, so that slices may be pruned by them; None if nothing is combined."""
    combine = find_combine(view)
    return None if combine is None else list_grouping_columns(parse_combine(str(view.name), combine))


def parse_combine(view: str, text: str) -> Query:
    query = parse_definition(view, text)
    if query.names != (PARTIALS,):
        raise DefinitionRefusedError(view, reason=f"combine must read {PARTIALS!r} and nothing else")
    return query
