"""Which version served when: at every journal number, for plain tables and view sets, also in registries that did not keep it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from builders import DAILY, ORDERS, fake_file, grow_schema, make_table, make_view, promote, publish, seal_pending, stage, within
from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.times import from_micros
from lakebed.registry.migrate import _engine
from lakebed.registry.migrations.serving_backfill import backfill_serving
from lakebed.registry.queries.plans import find_number_at
from lakebed.registry.queries.time_travel import go_back
from lakebed.registry.tables.lake_tables import LakeTable, require_table
from lakebed.registry.tables.serving import find_version_at, find_version_of
from lakebed.registry.tables.versions import evolve_schema, list_versions
from planning import plan_files
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry


def last_number(registry: Registry, table: LakeTable) -> int:
    return int(registry.query("SELECT last_seq FROM table_seq WHERE table_id = :id", {"id": table.table_id})[0][0])


def test_a_version_serves_from_the_first_number_of_its_transaction_on(registry: Registry) -> None:
    table = make_table(registry)
    before = last_number(registry, table)
    grow_schema(registry)
    after = last_number(registry, table)

    assert [find_version_at(registry, table.table_id, n) for n in range(before + 1)] == [1] * (before + 1)
    assert [find_version_at(registry, table.table_id, n) for n in range(before + 1, after + 1)] == [2] * (after - before)


def test_two_versions_of_one_transaction_are_one_change(registry: Registry) -> None:
    table = make_table(registry)
    one, other = grown(table, "a", 21), grown(table, "b", 22)

    within(registry, lambda tx: (evolve_schema(tx, ORDERS, one), evolve_schema(tx, ORDERS, other)))

    assert find_version_at(registry, table.table_id, last_number(registry, table)) == 3
    assert registry.query("SELECT schema_version FROM serving_history ORDER BY seq") == [(1,), (3,)]


def grown(table: LakeTable, column: str, field_id: int) -> Schema:
    return Schema(fields=(*table.schema.fields, Field(field_id=field_id, name=column, type=Primitive(name="string"))))


def test_a_refused_change_leaves_no_trace(registry: Registry) -> None:
    table = make_table(registry)
    with pytest.raises(RuntimeError):
        within(registry, lambda tx: fail(evolve_schema(tx, ORDERS, grown(table, "a", 21))))
    assert registry.query("SELECT schema_version FROM serving_history") == [(1,)]


def fail(done: str) -> None:
    raise RuntimeError(done)


def test_files_of_a_view_set_are_those_of_the_definition_that_served(registry: Registry) -> None:
    view = make_view(registry)
    old = publish(registry, view, fake_file(1), hours=(0, 1))
    staged = stage(registry)
    new = publish(registry, view, fake_file(2), hours=(0, 1), schema_hash=staged)
    before = last_number(registry, view)
    promote(registry, staged)
    promoted = last_number(registry, view)

    assert ids_at(registry, DAILY, old.journal_number) == ids_of(registry, old)
    assert ids_at(registry, DAILY, before) == ids_of(registry, old)
    assert ids_at(registry, DAILY, promoted) == ids_of(registry, new)


def ids_at(registry: Registry, name: TableName, number: int) -> list[str]:
    return sorted(plan_files(registry, name, as_of=number).paths)


def ids_of(registry: Registry, *published: Published) -> list[str]:
    ids = [file_id for one in published for file_id in one.file_ids]
    return sorted(row[0] for row in registry.query("SELECT file_path FROM table_files WHERE id IN (:ids*)", {"ids": ids}))


def test_times_between_two_changes_of_columns_are_distinguished(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    published_at = registry.now()
    grow_schema(registry, column="a", field_id=21)
    between = registry.now()
    grow_schema(registry, column="b", field_id=22)

    with registry.read() as reader:
        found = [go_back(reader, table, from_micros(at)).table for at in (published_at, between, registry.now())]

    assert [then.metadata.schema_version for then in found] == [1, 2, 3]
    assert [[f.name for f in then.schema.fields][3:] for then in found] == [[], ["a"], ["a", "b"]]


def test_a_snapshot_names_its_version_and_an_older_one_is_placed_by_group_and_time(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    group = seal_pending(registry)
    assert group is not None
    while (at := registry.now()) // 1000 == registry.query("SELECT max(at) FROM serving_history")[0][0] // 1000:
        pass  # snapshots know milliseconds
    while registry.now() // 1000 == at // 1000:
        pass
    grow_schema(registry)
    later = registry.now()

    def version(summary: str, group: int, at_us: int) -> int | None:
        return find_version_of(registry, table.table_id, group=group, at_ms=at_us // 1000, summary=summary)

    assert version('{"lakebed.schema-version": "1"}', group, later) == 1
    assert version("{}", group, later) == 2
    assert version("{}", group - 1, later) == 1
    assert version("{}", group, at) == 1


def walk(registry: Registry, seed: int) -> tuple[LakeTable, list[Published]]:
    """Files that come and go, columns that are added, the journal and groups in between."""
    table, chance, done = make_table(registry), random.Random(seed), []
    for number in range(40):
        match chance.choice(["publish", "publish", "grow", "retire", "seal"]):
            case "publish":
                done.append(publish(registry, require_table(registry, ORDERS), fake_file(number)))
            case "grow":
                grow_schema(registry, column=f"c{number}", field_id=100 + number)
            case "retire" if done:
                gone = chance.choice(done).partition_id
                if registry.query("SELECT 1 FROM partitions WHERE id = :id", {"id": gone}):
                    within(registry, lambda tx, gone=gone: retire_by_ids(tx, ORDERS, {gone}))  # type: ignore[misc]
            case _:
                seal_pending(registry)
    return table, done


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("forgotten", [("serving_history",), ("serving_history", "change_log")])
def test_a_registry_without_the_history_gets_it_from_its_rows(registry: Registry, url: str, seed: int, forgotten: tuple[str, ...]) -> None:
    table, done = walk(registry, seed)
    numbers = sorted({one.journal_number for one in done} | {last_number(registry, table)})
    expected = [(find_version_at(registry, table.table_id, n), ids_at(registry, ORDERS, n)) for n in numbers]
    forget(registry, *forgotten)

    fill_again(url)

    assert [(find_version_at(registry, table.table_id, n), ids_at(registry, ORDERS, n)) for n in numbers] == expected
    versions = len(registry.query("SELECT 1 FROM serving_history"))
    with registry.read() as reader:
        assert versions == len(list_versions(reader, table.table_id))


def test_a_view_set_without_the_history_gets_it_from_its_rows(registry: Registry, url: str) -> None:
    view = make_view(registry)
    first = publish(registry, view, fake_file(1), hours=(0, 1))
    withdrawn = stage(registry, definition="SELECT 2")
    publish(registry, view, fake_file(2), hours=(0, 1), schema_hash=withdrawn)
    staged = stage(registry, definition="SELECT 3")
    built = publish(registry, view, fake_file(3), hours=(0, 1), schema_hash=staged)
    promote(registry, staged)
    last = publish(registry, require_table(registry, DAILY), fake_file(4), hours=(1, 2), schema_hash=staged)
    numbers = [first.journal_number, built.journal_number, last.journal_number, last_number(registry, view)]
    expected = [ids_at(registry, DAILY, n) for n in numbers]
    forget(registry, "serving_history", "change_log")

    fill_again(url)

    assert [ids_at(registry, DAILY, n) for n in numbers] == expected
    assert expected[1] == ids_of(registry, first)
    assert [row[0] for row in registry.query("SELECT schema_version FROM serving_history ORDER BY seq")] == [1, 3]


def forget(registry: Registry, *tables: str) -> None:
    for table in tables:
        registry.transact(lambda tx, table=table: tx.run(f"DELETE FROM {table}"), tables=[])  # type: ignore[misc]


def fill_again(url: str) -> None:
    """As the migration does it, twice: the second time there is nothing to do."""
    engine = _engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        backfill_serving(connection)
        backfill_serving(connection)
        connection.exec_driver_sql("COMMIT")
    engine.dispose()


def test_a_time_before_the_first_file_is_still_refused(registry: Registry) -> None:
    table = make_table(registry)
    grow_schema(registry)
    with pytest.raises(InvalidValueError, match="no file yet"):
        find_number_at(registry, table.table_id, registry.now())
