"""`lake.views`: the calls for view sets beside `create_view_set`, `materialize` and `list_view_sets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.times import TimeRange

if TYPE_CHECKING:
    from lakebed.api.open_lake import OpenLake
    from lakebed.core.results import Rows
    from lakebed.core.times import Time
    from lakebed.pipeline.views.plan import MaterializePlan
    from lakebed.registry.queries.listing import ViewSetRow
    from lakebed.registry.tables.view_sets import ViewSet


@refuse_unknown_options
class Views:
    """A view set is a table with a definition, materialized slice by slice."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def list(self) -> Rows[ViewSetRow]:
        """List the view sets, with the serving version and the staged one, if there is one."""
        return admin.list_view_sets(self._lake.registry)

    def promote(self, view: str) -> ViewSet:
        """Serve the staged definition from now on, whether or not it covers the same slices yet.

        Args:
            view: The view set, as `database.name`.

        """
        from lakebed.pipeline.views.define import promote

        return promote(self._lake._context, view)

    def plan(
        self,
        view: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        insert_begin: Time | None = None,
        insert_end: Time | None = None,
        instance: str | None = GLOBAL_INSTANCE,
        regenerate: bool = False,
    ) -> MaterializePlan:
        """Return what `materialize` would build, slice by slice with the reason, from the registry alone.

        Args:
            view: The view set, as `database.name`.
            begin: Only slices with event times at or after this.
            end: Only slices with event times before this.
            insert_begin: Only slices whose insert time is at or after this.
            insert_end: Only slices whose insert time is before this.
            instance: Build from the partitions of this instance; None for all of them.
            regenerate: Build fresh slices again, too.
        """
        from lakebed.pipeline.views.plan import plan_materialize

        events, inserts = TimeRange.open_ended(begin, end), TimeRange.open_ended(insert_begin, insert_end)
        context = self._lake._context
        return plan_materialize(context, view, events=events, inserts=inserts, instance=instance, regenerate=regenerate)

    def list_upstream(self, view: str) -> tuple[str, ...]:
        """List the view sets that this one reads, directly or indirectly, each after those that it reads itself.

        Args:
            view: The view set, as `database.name`.
        """
        from lakebed.pipeline.views.build import list_upstream

        return tuple(map(str, list_upstream(self._lake._context, TableName.parse(view))))
