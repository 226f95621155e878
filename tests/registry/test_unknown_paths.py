"""What the registry knows of paths in the warehouse: a sweep deletes only what it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import ORDERS, fake_file, make_table, op_id, publish, within
from lakebed.registry.files.deletion_queue import queue_files
from lakebed.registry.files.known_paths import list_unknown
from lakebed.registry.files.operations import Operation, finish_rollback, open_operation, start_rollback

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def test_registered_and_queued_files_are_known(registry: Registry) -> None:
    file = fake_file(1)
    publish(registry, make_table(registry), file)
    within(registry, lambda tx: queue_files(tx, 1, {"/w/queued": 5}, reason="lost", grace_us=0))

    assert list_unknown(registry, [file.path, "/w/queued", "/w/stray"]) == {"/w/stray"}


def test_files_where_an_open_operation_writes_are_known_until_it_was_rolled_back(registry: Registry) -> None:
    make_table(registry)
    work = Operation(op_id=op_id(), has_intent=True, staging_path="/w/staged/")
    paths = ["/w/staged/1", "/w/staged.1", "/w/stray"]
    open_operation(registry, ORDERS, work)
    assert list_unknown(registry, paths) == {"/w/staged.1", "/w/stray"}

    within(registry, lambda tx: start_rollback(tx, work.op_id, error="x", abandoned=True))
    assert list_unknown(registry, paths) == {"/w/staged.1", "/w/stray"}

    within(registry, lambda tx: finish_rollback(tx, work.op_id))
    assert list_unknown(registry, paths) == set(paths)
