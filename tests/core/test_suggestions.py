"""Names close to a misspelled one."""

from __future__ import annotations

import pytest

from lakebed.core.suggestions import list_near, suggest

_KEYS = ("snapshot", "retention", "retire_after", "merge_window")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("retire_afer", ("retire_after",)),
        ("SNAPSHOTS", ("snapshot",)),
        ("retenton", ("retention",)),
        ("nothing_like_it", ()),
        ("", ()),
    ],
)
def test_a_misspelled_name_gives_the_names_near_it(name: str, near: tuple[str, ...]) -> None:
    assert list_near(name, _KEYS) == near


def test_names_that_differ_in_case_alone_are_all_named() -> None:
    assert list_near("shop.orders", ["shop.Orders", "Shop.orders"]) == ("Shop.orders", "shop.Orders")


def test_at_most_three_names_are_suggested() -> None:
    assert len(list_near("orders", [f"orders{n}" for n in range(9)])) == 3


def test_the_question_names_what_is_near_or_is_empty() -> None:
    assert suggest("retire_afer", _KEYS) == "did you mean retire_after?"
    assert suggest("zzz", _KEYS) == ""
