"""What is packed with what: pure decisions over sizes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidValueError
from lakebed.core.tables.compaction import Budget, Reason, choose_small, count_outputs, leave, plan_groups, require_target


@dataclass(frozen=True)
class Packed:
    file_id: int
    size_bytes: int
    partition_path: str = ""
    file_type: str = "parquet"
    row_count: int = 1


def sized(*sizes: int, path: str = "") -> list[Packed]:
    return [Packed(number, size, path) for number, size in enumerate(sizes)]


def reasons(files: list[Packed], *, budget: Budget | None = None) -> dict[str, tuple[Reason, int]]:
    return {g.partition_path: (g.reason, len(g.chosen)) for g in plan_groups(files, target_bytes=100, budget=budget)}


def test_each_partition_path_is_judged_by_itself_and_says_why() -> None:
    files = [*sized(10, 20, 60, path="a"), *sized(10, path="b"), *sized(50, 500, path="c"), Packed(9, 999, "d", "json")]

    assert reasons(files) == {"a": (Reason.SMALL, 2), "b": (Reason.ALONE, 0), "c": (Reason.GOOD, 0), "d": (Reason.JSON, 1)}


def test_limits_are_used_up_in_order_and_what_is_not_worth_it_is_given_back() -> None:
    files = [*sized(10, 10, path="a"), *sized(10, 10, path="b"), *sized(10, 10, path="c")]

    assert reasons(files, budget=Budget(files=3)) == {"a": (Reason.SMALL, 2), "b": (Reason.OVER_LIMIT, 0), "c": (Reason.OVER_LIMIT, 0)}
    assert reasons(files, budget=Budget(size_bytes=40)) == {"a": (Reason.SMALL, 2), "b": (Reason.SMALL, 2), "c": (Reason.OVER_LIMIT, 0)}
    assert reasons(files, budget=Budget(files=0)) == dict.fromkeys("abc", (Reason.OVER_LIMIT, 0))


def test_a_file_waits_until_as_much_as_it_has_comes_to_it() -> None:
    def chosen(*sizes: int) -> tuple[Reason, list[int]]:
        (group,) = plan_groups(sized(*sizes), target_bytes=100, balanced=True)
        return group.reason, [file.size_bytes for file in group.chosen]

    assert chosen(40, 1, 2, 3) == (Reason.SMALL, [1, 2, 3])
    assert chosen(40, 20, 20, 3) == (Reason.SMALL, [40, 20, 20, 3])
    assert chosen(40, 20) == (Reason.WAITS, [])
    assert chosen(40, 20, 10, 5) == (Reason.WAITS, [])
    assert chosen(40) == (Reason.ALONE, [])


@given(arrivals=st.lists(st.integers(1, 20), min_size=1, max_size=120))
def test_however_files_arrive_no_row_is_rewritten_more_often_than_files_can_double(arrivals: list[int]) -> None:
    files: list[Packed] = []
    rewritten: dict[int, int] = {}
    for number, size in enumerate(arrivals):
        files.append(Packed(number, size))
        (group,) = plan_groups(files, target_bytes=256, balanced=True)
        if group.chosen:
            rewritten[number] = 1 + max(rewritten.get(f.file_id, 0) for f in group.chosen)
            whole = Packed(number, sum(f.size_bytes for f in group.chosen))
            files = [*(f for f in files if f not in group.chosen), whole]

    assert max(rewritten.values(), default=0) <= 9
    assert len([f for f in files if f.size_bytes < 128]) <= 9


def test_groups_that_are_left_alone_keep_the_reason_they_had_anyway() -> None:
    left = leave(plan_groups([*sized(10, 20, path="a"), *sized(10, path="b")], target_bytes=100), Reason.HOT)

    assert [(g.partition_path, g.reason, g.chosen) for g in left] == [("a", Reason.HOT, ()), ("b", Reason.ALONE, ())]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (100, 1), (102, 1), (149, 1), (150, 2), (390, 4), (500, 5), (100_001, 1001)])
def test_outputs_are_counted_so_that_none_is_far_from_the_target(size: int, count: int) -> None:
    assert count_outputs(size, target_bytes=100) == count


@given(size=st.integers(75, 10**9), target=st.integers(1, 10**6))
def test_every_output_has_75_to_180_percent_of_the_target_where_there_is_enough(size: int, target: int) -> None:
    share = size / count_outputs(size, target_bytes=target) / target

    assert share <= 1.8
    assert share >= 0.75 or size < 0.75 * target


@given(sizes=st.lists(st.integers(1, 200), max_size=40), target=st.integers(2, 150))
def test_packing_leaves_fewer_files_and_then_nothing_to_do(sizes: list[int], target: int) -> None:
    files = sized(*sizes)
    chosen = choose_small(files, target_bytes=target)
    if not chosen:
        assert sum(f.size_bytes < target // 2 for f in files) <= 1
        return

    whole = sum(f.size_bytes for f in chosen)
    count = count_outputs(whole, target_bytes=target)

    assert count < len(chosen)
    after = [*(f for f in files if f not in chosen), *sized(*[-(-whole // count)] * count)]
    assert len(choose_small(after, target_bytes=target)) == 0


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="target_bytes=0"):
        require_target(0)
    with pytest.raises(InvalidValueError, match="max_files=-1"):
        Budget(files=-1)
