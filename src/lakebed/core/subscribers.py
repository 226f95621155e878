"""What a component is to Astha: four methods, and rows it can handle, checked when types are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from lakebed.core.rows import Row

if TYPE_CHECKING:
    from lakebed.core.events import Event, RegistryTable

RowT = TypeVar("RowT", bound=Row, contravariant=True)  # noqa: PLC0105 - one name for the one type variable of subscribers


class Subscriber(Protocol[RowT]):
    """A component. Every call may come again: what it makes true must be true once."""

    def on_event(self, event: Event[RowT]) -> None:
        """One change, in the order of its lake table; raises when it could not be handled."""

    def on_health(self) -> None:
        """Returns at once when well, raises when not."""

    def on_refresh(self, table_id: int) -> int:
        """Read the table's state from the registry in one read transaction and make it ours.

        The journal number that this state reflects: delivery goes on behind it. Also how a component starts.
        """

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        """Must equal the constant, else Astha refuses to start."""
