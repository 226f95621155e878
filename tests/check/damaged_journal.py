"""Ways to hurt the journal, operations and leases, each with the rules that must find it, and no other."""

from __future__ import annotations

from patients import DAILY_ID, OLD_ID, ORDERS_ID, Patient, found_by

# -- the journal -------------------------------------------------------------------------------


def first_update_of_a_file(lake: Patient) -> int:
    sql = "SELECT min(id) FROM change_log WHERE table_id = :t AND registry_table = 'table_files' AND operation = 'UPDATE'"
    return int(lake.one(sql, t=ORDERS_ID))


@found_by("journal_ends")
def a_horizon_in_the_future(lake: Patient) -> None:
    lake.run("UPDATE table_seq SET horizon_seq = last_seq + 1 WHERE table_id = :t", t=ORDERS_ID)


@found_by("journal_gap")
def a_gap_in_the_journal(lake: Patient) -> None:
    lake.run("DELETE FROM change_log WHERE table_id = :t AND seq = 3", t=ORDERS_ID)


@found_by("journal_gap")
def a_lost_last_change(lake: Patient) -> None:
    lake.run("DELETE FROM change_log WHERE table_id = :t AND seq = (SELECT last_seq FROM table_seq WHERE table_id = :t)", t=DAILY_ID)


@found_by("journal_beyond")
def a_change_beyond_the_end(lake: Patient) -> None:
    sql = """INSERT INTO change_log (id, registry_table, operation, row_id, at)
SELECT (table_id << 40) + last_seq + 1, 'tables', 'INSERT', table_id, 0 FROM table_seq WHERE table_id = :t"""
    lake.run(sql, t=ORDERS_ID)


@found_by("journal_not_purged")
def a_change_below_the_purge(lake: Patient) -> None:
    lake.run(
        "INSERT INTO change_log (id, registry_table, operation, row_id, at) VALUES (:id, 'tables', 'INSERT', 1, 0)", id=(OLD_ID << 40) + 1
    )


@found_by("cursor_range")
def a_cursor_beyond_the_end(lake: Patient) -> None:
    lake.run("UPDATE subscriber_cursor SET seq = 9999 WHERE table_id = :t AND component = 'compactor'", t=ORDERS_ID)


@found_by("cursor_range")
def a_cursor_before_the_beginning(lake: Patient) -> None:
    lake.run("UPDATE subscriber_cursor SET seq = -1 WHERE table_id = :t AND component = 'compactor'", t=ORDERS_ID)


@found_by("cursor_lost")
def a_cursor_that_was_purged_past(lake: Patient) -> None:
    lake.run("UPDATE subscriber_cursor SET seq = 1 WHERE table_id = :t AND component = 'compactor'", t=OLD_ID)


@found_by("journal_replay")
def a_change_that_was_not_captured(lake: Patient) -> None:
    with lake.past_triggers("tables"):
        lake.run("UPDATE tables SET state = 'degraded' WHERE id = :t", t=ORDERS_ID)


@found_by("journal_replay", "iceberg_history")
def a_row_that_vanished_without_a_change(lake: Patient) -> None:
    with lake.past_triggers("table_snapshots"):
        lake.run("DELETE FROM table_snapshots")


@found_by("journal_replay")
def an_altered_image(lake: Patient) -> None:
    sql = "UPDATE change_log SET after = replace(after, 'parquet', 'porquet') WHERE table_id = :t AND registry_table = 'table_files' AND seq < 9"
    lake.run(sql, t=ORDERS_ID)


@found_by("journal_replay")
def an_altered_image_that_tells_only_what_changed(lake: Patient) -> None:
    lake.run("UPDATE change_log SET after = replace(after, 'null', '7') WHERE id = :id", id=first_update_of_a_file(lake))


@found_by("journal_replay")
def a_deletion_whose_image_is_not_whole(lake: Patient) -> None:
    """It says the truth, but it is what completes the changes before it."""
    last = "SELECT u.after FROM change_log u WHERE u.operation = 'UPDATE' AND u.row_id = change_log.row_id ORDER BY u.id DESC LIMIT 1"
    lake.run(
        f"UPDATE change_log SET before = ({last}) WHERE table_id = :t AND registry_table = 'table_files' AND operation = 'DELETE'",
        t=ORDERS_ID,
    )


@found_by("journal_replay")
def a_change_of_another_row_than_it_says(lake: Patient) -> None:
    lake.run("UPDATE change_log SET row_id = row_id + 1 WHERE id = :id", id=first_update_of_a_file(lake))


@found_by("journal_replay")
def an_image_that_cannot_be_read(lake: Patient) -> None:
    lake.run("UPDATE change_log SET after = '[1, 2' WHERE table_id = :t AND seq = 1", t=ORDERS_ID)


@found_by("journal_replay")
def two_changes_in_the_wrong_order(lake: Patient) -> None:
    """Updates of one row: their sum is right, their order is not."""
    swap = "SELECT id FROM change_log WHERE table_id = :t AND registry_table = 'tables' AND operation = 'UPDATE' ORDER BY id LIMIT 1"
    first = lake.one(swap, t=ORDERS_ID)
    second = lake.one(swap.replace("ORDER BY", "AND id > :first ORDER BY"), t=ORDERS_ID, first=first)
    for old, new in ((first, -1), (second, first), (-1, second)):
        lake.run("UPDATE change_log SET id = :new WHERE id = :old", old=old, new=new)


# -- operations and leases ---------------------------------------------------------------------


@found_by("operation_stuck")
def an_operation_nobody_rolls_back(lake: Patient) -> None:
    lake.run("UPDATE operations SET lease_until = 0 WHERE state = 'writing'")


@found_by("operation_result")
def an_operation_without_its_result(lake: Patient) -> None:
    lake.run("UPDATE operations SET result = NULL WHERE state = 'registered' AND table_id = :t", t=OLD_ID)


@found_by("lease_number")
def a_lease_on_the_future(lake: Patient) -> None:
    lake.run("UPDATE lease_numbers SET seq = 9999")


@found_by("lease_unknown", sqlite="foreign_keys")
def a_number_of_no_lease(lake: Patient) -> None:
    lake.drop_reference("lease_numbers", "lease_numbers_lease")
    lake.run("DELETE FROM leases")
