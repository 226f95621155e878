"""Repairs of one Iceberg table by hand, beside or without a running service."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Literal, get_args

from lakebed.core.errors import InvalidValueError
from lakebed.core.events import Component
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.registry.journal.cursors import request_retry

if TYPE_CHECKING:
    from lakebed.iceberg.commit.results import Advanced
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

Repair = Literal["refresh", "rebuild", "adopt_foreign", "discard_foreign"]


def repair_table(registry: Registry, storage: Storage, table_id: int, how: Repair) -> Advanced | None:
    """Make Iceberg equal to the registry again; None when it was so already. A lane that was parked is taken up again.

    `refresh` compares and repairs, `rebuild` gives up the earlier snapshots; `adopt_foreign` registers the files that another program
    committed, `discard_foreign` goes back to our last snapshot and keeps the other as a tag.
    """
    if how not in get_args(Repair):
        message = f"repair {how!a} is not known: give one of {', '.join(get_args(Repair))}"
        raise InvalidValueError(message)
    with closing(open_catalog(registry, storage)) as catalog:
        committer = Committer(registry, storage, catalog)
        steps = {
            "refresh": committer.refresh,
            "rebuild": committer.rebuild,
            "adopt_foreign": committer.adopt_foreign,
            "discard_foreign": committer.discard_foreign,
        }
        done = steps[how](table_id)
    request_retry(registry, Component.ICEBERG_UPDATER, table_id)
    return done
