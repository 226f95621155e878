"""`lake.administrators`: the actors that may change the lake by administrative calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.api.unknown_options import refuse_unknown_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.api.open_lake import OpenLake


@refuse_unknown_options
class Administrators:
    """Actors name themselves, so this prevents accidents, not attacks: use the roles of the database for access control."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def list(self) -> tuple[str, ...]:
        """List the administrators. An empty list means that every actor may administer the lake."""
        return admin.list_administrators(self._lake.registry)

    def set(self, actors: Sequence[str], *, actor: str | None = None) -> tuple[str, ...]:
        """Let only these actors retire, sweep, drop, alter, configure and repair. Only an administrator may change the list.

        Args:
            actors: Names such as `["ana@etl-1"]`; an empty list allows every actor.
            actor: Who makes this change; default `user@host`.

        """
        return admin.set_administrators(self._lake.registry, actors, actor=actor)
