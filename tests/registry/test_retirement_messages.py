"""Each outcome of a retirement says in a sentence what happened, and what to do about it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from retire_calls import fill, left_behind, retire_hours

from builders import fake_file, insert_hours, make_table, publish
from lakebed import admin
from lakebed.registry.partitions.retire_many import retire_in_batches

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def test_a_preview_says_what_straddles_and_the_call_that_retires_it(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(0), hours=(0, 2))
    publish(registry, table, hours=(2, 4))

    filled, empty = (str(o.message) for o in retire_hours(registry, 1, 3, dry_run=True).straddles)

    assert f"{insert_hours(0, 2)} (100 rows) extends beyond the range {insert_hours(1, 3)}" in filled
    assert f"Widen the range to {insert_hours(0, 3)}" in filled
    assert f"{insert_hours(2, 4)} (an empty partition) extends beyond" in empty
    call = empty[empty.index("retire_partition_by_metadata(") :]
    done = eval(call, {"retire_partition_by_metadata": partial(admin.retire_partition_by_metadata, registry)})  # noqa: S307 - as a person would paste it
    assert (done.empty, done.non_empty) == (1, 0)


def test_each_outcome_says_in_a_sentence_whether_the_partition_was_empty(registry: Registry) -> None:
    fill(registry, 2)
    listed = admin.list_partitions(registry)

    preview = retire_hours(registry, 0, 2, dry_run=True)
    done = retire_hours(registry, 0, 2)
    late = [o for part in retire_in_batches(registry, listed) for o in part]

    assert [o.message for o in preview.outcomes] == [
        "would retire 100 rows: 1 files (20,000 bytes) would be deleted after their grace period",
        "would retire an empty partition: it has no rows and no file",
    ]
    assert [o.message for o in done.outcomes] == [
        "retired 100 rows: 1 files (20,000 bytes) are deleted after their grace period",
        "retired an empty partition: it had no rows and no file",
    ]
    assert [str(o.message).split(":")[0] for o in late] == ["not there any more"] * 2
    assert ["empty" in str(o.message) for o in late] == [False, True]


def test_what_an_all_or_nothing_call_kept_says_so(registry: Registry) -> None:
    left_behind(registry)
    listed = [r.partition_id for r in admin.list_incompatible_partitions(registry)]
    visible = next(p.partition_id for p in admin.list_partitions(registry) if p.partition_id not in listed)

    done = admin.retire_incompatible_partitions(registry, partition_ids=[*listed, visible, 7], atomic=True, dry_run=False)

    reported = [str(o.message) for o in done.outcomes]
    assert ["all or nothing" in message for message in reported] == [True, True, False, False]
    assert ["empty" in message for message in reported] == [False, True, False, False]
    assert reported[2].startswith("kept: readers see this partition")
    assert reported[3].startswith("partition 7")
