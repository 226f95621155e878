"""A lake with its committer, on both databases."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest
from ice import IceLake, open_ice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.lake import Lake


@pytest.fixture
def ice(lake: Lake) -> Iterator[IceLake]:
    opened = open_ice(lake)
    yield opened
    opened.catalog.close()


@pytest.fixture
def another_ice(lake: Lake) -> Iterator[Callable[[], IceLake]]:
    """Opens a second committer of the same lake, as another process would."""
    with ExitStack() as stack:

        def opener() -> IceLake:
            opened = open_ice(lake)
            stack.enter_context(closing(opened.catalog))
            return opened

        yield opener
