from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, SCHEMA, fake_file, make_table, new_partition, operation
from lakebed.check import check
from lakebed.core.errors import InvalidValueError, VictimsChangedError
from lakebed.registry.partitions.publish import publish_partition, update_table_files
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.versions import evolve_schema, set_properties

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


class PlannedError(Exception):
    pass


def publish_two_and_fail(registry: Registry, table: LakeTable) -> None:
    with registry.write([ORDERS]) as tx:
        for number in range(2):
            update_table_files(tx, new_partition(table, fake_file(number), instance="lost"), operation())
        raise PlannedError


def test_a_scope_that_was_rolled_back_is_forgotten(registry: Registry) -> None:
    table = make_table(registry)
    with pytest.raises(PlannedError):
        publish_two_and_fail(registry, table)

    for number, instance in enumerate(("other", "lost", "other", "lost")):
        publish_partition(registry, new_partition(table, fake_file(number), hours=(number, number + 1), instance=instance), operation())

    assert len({row[0] for row in registry.query("SELECT scope_id FROM partitions")}) == 2
    assert check(registry).clean


def test_a_file_of_another_schema_cannot_be_kept(registry: Registry) -> None:
    table = make_table(registry)
    old = publish_partition(registry, new_partition(table, fake_file(1)), operation())
    with registry.write([ORDERS]) as tx:
        evolve_schema(tx, ORDERS, SCHEMA)
    newer = require_table(registry, ORDERS)

    with pytest.raises(VictimsChangedError):
        publish_partition(registry, new_partition(newer), operation(), replacing={old.partition_id}, keeping=set(old.file_ids))

    assert check(registry).clean


def test_a_file_of_another_instance_cannot_be_kept(registry: Registry) -> None:
    table = make_table(registry)
    old = publish_partition(registry, new_partition(table, fake_file(1), instance="a"), operation())

    with pytest.raises(VictimsChangedError):
        publish_partition(
            registry, new_partition(table, instance="b"), operation(), replacing={old.partition_id}, keeping=set(old.file_ids)
        )


@pytest.mark.parametrize("key", ["indexed", "definition"])
def test_what_files_were_registered_under_is_not_a_setting(registry: Registry, key: str) -> None:
    make_table(registry)

    with pytest.raises(InvalidValueError, match="fixed for life"), registry.write([ORDERS]) as tx:
        set_properties(tx, ORDERS, {key: None})
