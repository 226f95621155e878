"""A file enters Iceberg under its instance, whatever happens to its partition while the step is committed."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from builders import op_id
from lakebed.core.fingerprints import make_fingerprint
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.times import TimeRange
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.types.schemas import INSTANCE_COLUMN
from lakebed.registry.connect import open_backend
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ice import IceLake
    from lakebed.registry.partitions.publish import Published

TENANT = "tenant-b"


def retire(ice: IceLake, name: TableName, done: Published) -> None:
    """Its partition row is gone, its file stays until Iceberg has let go of it."""
    ice.retire(done.partition_id, name=name)


def move_to_another_partition(ice: IceLake, name: TableName, done: Published) -> None:
    """As a compaction does with a file that is large enough."""
    (row,) = ice.lake.list_partitions(str(name), instance=TENANT)
    partition = NewPartition(
        table=name, schema_hash=row.schema_hash, fingerprint=make_fingerprint(has_rows=True), instance=TENANT,
        insert_range=TimeRange.of(row.begin_insert_time, row.end_insert_time),
    )  # fmt: skip
    replacing, keeping = frozenset({done.partition_id}), frozenset(done.file_ids)
    publish_partition(ice.lake.registry, partition, Operation(op_id=op_id(), kind="compact"), replacing=replacing, keeping=keeping)


@pytest.mark.parametrize("act", [retire, move_to_another_partition])
def test_a_partition_that_changes_meanwhile_does_not_change_the_instance(
    ice: IceLake, url: str, act: Callable[[IceLake, TableName, Published], None]
) -> None:
    steps, at, is_over = Steps(), 0, False
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as stepped:
        while not is_over:
            at += 1
            name = TableName("shop", f"view_{at}")
            ice.create(name, kind="view_set", partition_by=("country",))
            done = ice.write(1, name, instance=TENANT)
            ice.seal(name)
            fired: list[bool] = []
            steps.done.clear()
            steps.at = at

            def interfere(what: str, name: TableName = name, done: Published = done, fired: list[bool] = fired) -> None:
                if what != "begin":  # later ones are inside a transaction of the committer
                    fired.append(True)
                    act(ice, name, done)

            steps.act = interfere
            Committer(stepped, ice.lake.storage, ice.catalog).advance(ice.table_id(name))
            steps.at, is_over = 0, not fired

            assert {entry["data_file"]["partition"][INSTANCE_COLUMN] for entry in ice.entries(name)} <= {TENANT}, at
            ice.committer.advance(ice.table_id(name))
            ice.require_true(name)
    assert at > 5  # the act came between several statements
