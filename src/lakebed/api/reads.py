"""Calls that read, and calls that define and build view sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakebed.api.open_lake import OpenLake
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.tables.snapshots import Trigger
from lakebed.registry.key_values import read_facts
from lakebed.registry.snapshots.waiting import take_snapshot
from lakebed.registry.tables import lake_tables, names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.core.tables.view_sets import Lookups
    from lakebed.core.times import Time
    from lakebed.pipeline.read.explain import Explanation
    from lakebed.pipeline.views.plan import MaterializeResult
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import ViewSet


@refuse_unknown_options
class Reads(OpenLake):
    """Every read is planned on one snapshot of the registry."""

    def table(self, table: str) -> LakeTable:
        """Return the table with its serving schema and counters; a table that does not exist is refused.

        Args:
            table: The table, as `database.name`.

        """
        return lake_tables.require_table(self.registry, TableName.parse(table))

    def read(
        self,
        table: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        where: str | None = None,
        as_of: int | Time | Literal["snapshot"] | None = None,
        instance: str | None = None,
        columns: Sequence[str] | None = None,
        fresh: bool = False,
    ) -> DataFrame:
        """Read a table or view set as a DataFrame. Files that cannot hold such rows are not opened.

        Args:
            table: The table or view set, as `database.name`.
            begin: Only rows whose event time is at or after this.
            end: Only rows whose event time is before this.
            where: A condition in Spark SQL.
            as_of: A snapshot id, a journal number or a time: the rows and columns of that state. `"snapshot"` commits what is pending
                and reads what every other engine reads now.
            instance: Only rows of this instance; default all of them.
            columns: Only these columns.
            fresh: First build what is stale of a view set.

        """
        from lakebed.pipeline.read.read import read

        if fresh and self.table(table).row.kind == "view_set":
            self.materialize(table, upstream=True).raise_failed()
        parsed = names.resolve_name(self.registry, table)
        then = take_snapshot(self.registry, self._commits, parsed, trigger=Trigger.QUERY) if as_of == "snapshot" else as_of
        return read(
            self._context, table, begin=begin, end=end, where=where, as_of=then, instance=instance, columns=columns,
            with_current_columns=as_of == "snapshot",
        )  # fmt: skip

    def sql(self, text: str, *, as_of: Time | None = None) -> DataFrame:
        """Run a query in Spark SQL over lake tables under their names.

        Args:
            text: The query.
            as_of: Read every table as it was at this time.

        """
        from lakebed.pipeline.read.sql import sql

        return sql(self._context, text, as_of=as_of)

    def explain(self, text: str, *, as_of: Time | None = None) -> Explanation:
        """Show which files a query would scan and why others are pruned, without running it.

        Args:
            text: The query.
            as_of: Plan against every table as it was at this time.

        """
        from lakebed.pipeline.read.explain import explain

        return explain(self._context, text, as_of=as_of)

    def reading(self) -> AbstractContextManager[None]:
        """`with lake.reading():` protects the files of the queries that the block plans until the block ends."""
        return self._context.lease.reading()

    def register_functions(self, spark: SparkSession | None = None) -> tuple[str, ...]:
        """Register `list_partitions()`, `retire_partitions(...)` and the other SQL functions in a session; return their names.

        A session whose Python workers lack Lakebed, or an environment that names this lake, is refused.

        Args:
            spark: The session; default the session of this lake.

        """
        from lakebed.pipeline.sql.functions.register import register_functions

        return register_functions(spark or self.spark, read_facts(self.registry)["registry_id"])

    def create_view_set(
        self,
        name: str,
        *,
        sql: str,
        over: str,
        event_time: str | None = None,
        slice: str | int | timedelta = "1h",  # noqa: A002 - the public name
        combine: str | None = None,
        lookups: Lookups = "ignore",
        partial: bool = False,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        promote: Literal["auto", "now"] = "auto",
    ) -> ViewSet:
        """Define a view set, or stage a new definition beside the serving one. No Spark job runs.

        Args:
            name: The view set, as `database.name`.
            sql: The query that builds one slice.
            over: The table whose insert time is sliced; every other table in the query is read whole.
            event_time: The column of the result that says when a row happened.
            slice: The length of a slice, such as `"1h"`.
            combine: The query that joins partial results, over the table `partials`; needed where `sql` aggregates.
            lookups: `"ignore"`, or `"track"`: changes of the other tables make slices stale.
            partial: Store partial results although there is no `combine`.
            partition_by: Iceberg transforms, as for `create_table`.
            sort_by: The columns by which Spark sorts each file.
            promote: `"auto"` serves a new definition once it covers the same windows, `"now"` at once.

        """
        from lakebed.pipeline.views.define import create_view_set

        return create_view_set(
            self._context, name, sql=sql, over=over, event_time=event_time, slice=slice, combine=combine, lookups=lookups,
            partial=partial, partition_by=partition_by, sort_by=sort_by, promote=promote,
        )  # fmt: skip

    def materialize(
        self,
        view: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        insert_begin: Time | None = None,
        insert_end: Time | None = None,
        instance: str | None = GLOBAL_INSTANCE,
        regenerate: bool = False,
        parallel: int = 2,
        upstream: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MaterializeResult:
        """Build the stale slices of a view set. A slice that fails does not affect the others.

        Args:
            view: The view set, as `database.name`.
            begin: Only slices with event times at or after this.
            end: Only slices with event times before this.
            insert_begin: Only slices whose insert time is at or after this.
            insert_end: Only slices whose insert time is before this.
            instance: Build from the partitions of this instance; None for all of them.
            regenerate: Build fresh slices again, too.
            parallel: How many slices are built at the same time.
            upstream: First build the view sets that this one reads.
            progress: Called with the number of slices done and of all slices.

        """
        from lakebed.pipeline.views.build import materialize

        return materialize(
            self._context, view, begin=begin, end=end, insert_begin=insert_begin, insert_end=insert_end, instance=instance,
            regenerate=regenerate, parallel=parallel, upstream=upstream, progress=progress,
        )  # fmt: skip
