"""Retiring by call: previewed, capped, written down, one outcome per partition, safe to repeat."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retire_calls import fill, hour, left_behind, outcomes, retire_hours

from builders import (
    DAILY,
    ORDERS,
    count,
    fake_file,
    fresh_name,
    grow_schema,
    insert_hours,
    logical_dump,
    make_table,
    make_view,
    publish,
    within,
)
from lakebed import admin
from lakebed.core.errors import (
    AmbiguousPartitionError,
    InvalidNameError,
    InvalidRangeError,
    InvalidValueError,
    PartitionNotFoundError,
    PartitionStraddlesError,
    RegistryUnavailableError,
    TableNotFoundError,
    TooManyPartitionsError,
)
from lakebed.core.names import TableName
from lakebed.registry.connect import open_backend
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.partitions.retire_many import retire_at_once, retire_in_batches
from lakebed.registry.registry import Registry
from lakebed.registry.tables.lake_tables import drop_table
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lakebed.admin import Retirement

OUTSIDE = frozenset({"runs"})


# -- one, by its key ------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [0, 2])
def test_the_one_partition_with_the_key_goes_empty_or_not(registry: Registry, files: int) -> None:
    table = make_table(registry)
    publish(registry, table, *map(fake_file, range(files)), hours=(0, 1))
    publish(registry, table, fake_file(9), hours=(1, 2))

    done = admin.retire_partition_by_metadata(registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(1), actor="ann")

    assert (done.partitions, done.files, done.empty, done.bytes_scheduled) == (1, files, int(not files), files * 20_000)
    assert [p.begin_insert_time for p in admin.list_partitions(registry)] == [hour(1)]
    (run,) = list_runs(registry)
    assert (run.run_id, run.job, run.actor, run.state) == (done.run_id, "retire_partition_by_metadata", "ann", "done")
    assert run.result["files"] == files


def test_a_key_under_several_schemas_needs_the_hash_and_its_twin_survives(registry: Registry) -> None:
    old, new = left_behind(registry)
    before = logical_dump(registry)
    with pytest.raises(AmbiguousPartitionError):
        admin.retire_partition_by_metadata(registry, str(DAILY), insert_begin=hour(0), insert_end=hour(1))
    assert logical_dump(registry) == before

    admin.retire_partition_by_metadata(registry, str(DAILY), insert_begin=hour(0), insert_end=hour(1), schema_hash=old)

    assert {(p.begin_insert_time, p.schema_hash) for p in admin.list_partitions(registry)} == {(hour(1), old), (hour(0), new)}


def test_a_key_that_matches_nothing_is_refused_and_leaves_no_run(registry: Registry) -> None:
    fill(registry, 2)
    before = logical_dump(registry)

    with pytest.raises(PartitionNotFoundError, match="its partitions are in"):
        admin.retire_partition_by_metadata(registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(2))

    assert logical_dump(registry) == before


# -- by range -------------------------------------------------------------------------------------


def test_a_bulk_call_is_a_dry_run_by_default(registry: Registry) -> None:
    fill(registry, 3)
    before = logical_dump(registry)

    preview = admin.retire_partitions(registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(2))

    assert logical_dump(registry) == before
    assert (preview.dry_run, preview.run_id, outcomes(preview)) == (True, None, ["would_retire"] * 2)
    assert (preview.empty, preview.non_empty, preview.bytes_scheduled) == (1, 1, 20_000)


def test_what_only_overlaps_the_range_is_named_and_kept(registry: Registry) -> None:
    table = make_table(registry)
    for low, high in ((0, 2), (2, 3), (3, 4), (4, 6)):
        publish(registry, table, fake_file(low), hours=(low, high))

    done = retire_hours(registry, 1, 5)

    assert sorted(outcomes(done)) == ["retired", "retired", "straddles", "straddles"]
    assert [s.begin_insert_time for s in done.straddles] == [hour(0), hour(4)]
    assert (done.partitions, done.files) == (2, 2)
    assert [p.begin_insert_time for p in admin.list_partitions(registry)] == [hour(0), hour(4)]


def test_a_range_that_only_cuts_partitions_is_an_error_that_says_how_to_retire_them(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(0), hours=(0, 2))
    publish(registry, table, hours=(2, 4))
    before = logical_dump(registry)

    with pytest.raises(PartitionStraddlesError) as refused:
        retire_hours(registry, 1, 3)

    assert logical_dump(registry) == before
    assert refused.value.straddles == (f"global {insert_hours(0, 2)}", f"global {insert_hours(2, 4)}")
    assert refused.value.widest == str(insert_hours(0, 4))
    assert retire_hours(registry, 0, 4).partitions == 2


def test_a_range_that_holds_nothing_says_so_and_names_what_there_is(registry: Registry) -> None:
    fill(registry, 2)

    done = retire_hours(registry, 10, 12)

    assert (done.partitions, outcomes(done)) == (0, [])
    assert "its partitions are in [2026-01-01T00:00:00Z, 2026-01-01T02:00:00Z)" in done.message
    assert list_runs(registry)[0].result["non_empty"] == 0


def test_only_the_instance_and_schema_asked_for_go(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 1), instance="a")
    publish(registry, table, fake_file(2), hours=(0, 1), instance="b")
    later = grow_schema(registry)
    publish(registry, table, fake_file(3), hours=(0, 1), instance="a", schema_hash=later)

    done = admin.retire_partitions(
        registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(1), instance="a", schema_hash=table.schema_hash, dry_run=False
    )

    assert done.partitions == 1
    assert {(p.view_instance_id, p.schema_hash) for p in admin.list_partitions(registry)} == {("b", table.schema_hash), ("a", later)}


def test_more_partitions_than_allowed_are_refused_with_their_number(registry: Registry) -> None:
    fill(registry, 4)
    before = logical_dump(registry)

    with pytest.raises(TooManyPartitionsError, match="would touch 4 partitions, 3 are allowed") as refused:
        admin.retire_partitions(registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(4), dry_run=False, max_partitions=3)

    assert (refused.value.found, refused.value.allowed) == (4, 3)
    assert logical_dump(registry) == before


def test_retiring_twice_is_retiring_once(registry: Registry) -> None:
    fill(registry, 4)
    retire_hours(registry, 0, 3)
    before = logical_dump(registry, without=OUTSIDE)

    again = retire_hours(registry, 0, 3)

    assert again.partitions == 0
    assert logical_dump(registry, without=OUTSIDE) == before


def test_a_partition_rebuilt_between_the_list_and_the_retirement_survives(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1))
    publish(registry, table, fake_file(2), hours=(1, 2))
    listed = admin.list_partitions(registry)
    new = publish(registry, table, fake_file(3), hours=(0, 1), replacing={old.partition_id})

    (done,) = retire_in_batches(registry, listed)

    assert [o.outcome for o in done] == ["already_retired", "retired"]
    assert [p.partition_id for p in admin.list_partitions(registry)] == [new.partition_id]


def test_two_at_once_retire_every_partition_once(registry: Registry, another: Callable[[], Registry]) -> None:
    fill(registry, 12)
    done: list[Retirement] = []
    clients = [registry, another()]
    threads = [threading.Thread(target=lambda r=r: done.append(retire_hours(r, 0, 12))) for r in clients]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(d.partitions for d in done) == 12
    assert count(registry, "temporary_files") == 6
    assert admin.list_partitions(registry) == []


def test_ten_thousand_partitions_go_in_one_call_and_bounded_transactions(registry: Registry) -> None:
    table = make_table(registry)
    done = publish(registry, table, hours=(0, 1))
    copy = f"""INSERT INTO partitions SELECT id + :n, table_id, scope_id, view_instance_id, begin_insert_time + {3600 * 10**6} * :n,
end_insert_time + {3600 * 10**6} * :n, NULL, NULL, schema_hash, NULL, NULL, fingerprint, 0, 0, 2, updated
FROM partitions WHERE id = :id"""

    def multiply(n: int) -> None:
        within(registry, lambda tx: [tx.run(copy, {"n": i, "id": done.partition_id}) for i in range(n, n + 2500)])

    for start in range(1, 10_000, 2500):
        multiply(start)
    within(registry, lambda tx: tx.run("DELETE FROM partitions WHERE id > :last", {"last": done.partition_id + 9999}))

    retired = retire_hours(registry, 0, 10_000)

    assert (retired.empty, retired.non_empty) == (10_000, 0)
    assert count(registry, "partitions") == 0


# -- all or nothing -------------------------------------------------------------------------------


def test_at_once_means_all_or_nothing_and_says_which_one_stopped_it(registry: Registry) -> None:
    left_behind(registry)
    listed = [r.partition_id for r in admin.list_incompatible_partitions(registry)]
    visible = next(p.partition_id for p in admin.list_partitions(registry) if p.partition_id not in listed)
    before = logical_dump(registry)

    done = admin.retire_incompatible_partitions(registry, partition_ids=[listed[0], visible, listed[1], 7], atomic=True, dry_run=False)

    assert outcomes(done) == ["rolled_back", "compatible", "rolled_back", "not_found"]
    assert done.partitions == 0
    assert logical_dump(registry) == before


def test_at_once_loses_to_a_writer_that_rebuilt_one_of_them_first(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1))
    publish(registry, table, fake_file(2), hours=(1, 2))
    listed = admin.list_partitions(registry)
    publish(registry, table, fake_file(3), hours=(0, 1), replacing={old.partition_id})
    before = logical_dump(registry)

    done = retire_at_once(registry, listed)

    assert [o.outcome for o in done] == ["already_retired", "rolled_back"]
    assert logical_dump(registry) == before


def test_at_once_over_several_tables_is_one_transaction(registry: Registry) -> None:
    left_behind(registry)
    publish(registry, make_table(registry), fake_file(5))
    within(registry, lambda tx: drop_table(tx, ORDERS))

    done = admin.retire_incompatible_partitions(registry, atomic=True, dry_run=False)

    assert outcomes(done) == ["retired"] * 3
    assert admin.list_incompatible_partitions(registry) == []


# -- bad input ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    table=st.one_of(st.just(str(ORDERS)), st.text(max_size=12)),
    begin=st.datetimes() | st.integers(-2, 5).map(hour),
    end=st.datetimes() | st.integers(-2, 5).map(hour),
    instance=st.none() | st.text(max_size=8),
    grace_s=st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 5.0]),
)
def test_any_arguments_end_in_an_outcome_or_a_typed_refusal(
    registry: Registry, table: str, begin: datetime, end: datetime, instance: str | None, grace_s: float
) -> None:
    if registry.find_table_id(ORDERS) is None:
        fill(registry, 3)
    with suppress(InvalidNameError, InvalidRangeError, InvalidValueError, PartitionStraddlesError, TableNotFoundError):
        done = admin.retire_partitions(
            registry, table, insert_begin=begin, insert_end=end, instance=instance, dry_run=False, grace_s=grace_s
        )
        assert {o.outcome for o in done.outcomes} <= {"retired", "straddles"}


def test_the_retired_set_is_what_the_range_contains(registry: Registry) -> None:
    name = fresh_name()
    table = make_table(registry, name)
    ranges = [(0, 1), (1, 4), (4, 5), (7, 9)]
    for low, high in ranges:
        publish(registry, table, fake_file(low), hours=(low, high))

    for begin, end in [(0, 1), (1, 4), (0, 5), (2, 9), (8, 9)]:
        found = admin.retire_partitions(registry, str(name), insert_begin=hour(begin), insert_end=hour(end))
        inside = {hour(low) for low, high in ranges if begin <= low and high <= end}
        assert {o.begin_insert_time for o in found.outcomes if o.outcome == "would_retire"} == inside


def test_a_failed_call_changes_nothing_and_is_written_down_as_failed(url: str) -> None:
    steps = Steps()
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as registry:
        tables = [make_table(registry, TableName("shop", name)) for name in ("rehearsal", "played")]
        for table in tables:
            publish(registry, table, fake_file(1), hours=(0, 1))

        def play(name: str) -> int:
            steps.done.clear()
            admin.retire_partitions(registry, f"shop.{name}", insert_begin=hour(0), insert_end=hour(1), dry_run=False)
            return 1 + next(n for n, what in enumerate(steps.done) if what.startswith("DELETE FROM partitions"))

        steps.at, steps.act = play("rehearsal"), fail
        with pytest.raises(RegistryUnavailableError):
            play("played")

        assert [(r.state, r.result["non_empty"]) for r in list_runs(registry)] == [("failed", 0), ("done", 1)]
        assert len(admin.list_partitions(registry, "shop.played")) == 1


def fail(_: str) -> None:
    message = "the registry went away"
    raise RegistryUnavailableError(message)


@pytest.mark.parametrize("job", ["materialize_partitions", "regenerate_partitions"])
def test_a_request_waits_as_one_run_until_the_service_takes_it(registry: Registry, job: str) -> None:
    make_view(registry)
    ask = admin.request_materialization if job == "materialize_partitions" else admin.request_regeneration

    first, again = ask(registry, str(DAILY)), ask(registry, str(DAILY), actor="bob")
    other = ask(registry, str(DAILY), insert_begin=hour(0), insert_end=hour(1))

    assert first == again
    assert other[0].run_id != first[0].run_id
    assert [(r.job, r.state) for r in list_runs(registry)] == [(job, "requested")] * 2


def test_only_view_sets_can_be_requested(registry: Registry) -> None:
    make_table(registry)
    with pytest.raises(InvalidValueError, match="plain table"):
        admin.request_materialization(registry, str(ORDERS))
    with pytest.raises(TableNotFoundError):
        admin.request_materialization(registry, str(TableName("shop", "nothing")))
    view = make_view(registry)
    with pytest.raises(InvalidRangeError):
        admin.request_regeneration(registry, str(view.name), insert_begin=hour(0))
