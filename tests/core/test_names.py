from __future__ import annotations

import re

import pytest
from hypothesis import given

from lakebed.core.errors import InvalidNameError
from lakebed.core.names import TableName, require_instance, require_name
from strategies import hostile_text, words

REFUSED = [
    "", "..", ".", ".hidden", "a/b", "a\\b", "a\x00", "a\n", "a b", "a-b", "a.b", "'a'", '"a"', "a;b", "a%2e", "a" * 64, "a" * 300,
    "\u043erders", "\uff4frders", "\u212aey", "e\u0301", "\u0661", "\u00e4", "\u202ea", "\ud800",
]  # fmt: skip


@given(words)
def test_letters_digits_and_underscores_make_a_name(name: str) -> None:
    assert require_name("table", name) == name


@pytest.mark.parametrize("name", REFUSED)
def test_every_other_name_is_refused_as_table_and_as_database(name: str) -> None:
    for database, table in ((name, "orders"), ("shop", name)):
        with pytest.raises(InvalidNameError):
            TableName(database, table)


@given(hostile_text)
def test_a_hostile_name_is_refused_or_plain(text: str) -> None:
    if re.fullmatch("[A-Za-z0-9_]{1,63}", text):
        assert require_name("column", text) == text
        return
    with pytest.raises(InvalidNameError) as caught:
        require_name("column", text)

    assert caught.value.name == text
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "twin"), [("\uff4frders", "orders"), ("\u212aey", "Key")])
def test_a_look_alike_differs_from_the_name_it_resembles(name: str, twin: str) -> None:
    with pytest.raises(InvalidNameError, match=f"looks like '{twin}'"):
        require_name("table", name)


def test_a_message_shows_a_long_name_cut() -> None:
    with pytest.raises(InvalidNameError, match="300 characters") as caught:
        require_name("table", "a" * 300)

    assert len(str(caught.value)) < 200
    assert caught.value.name == "a" * 300


def test_a_table_name_is_written_with_one_dot() -> None:
    assert str(TableName.parse("shop.orders")) == "shop.orders"
    for text in ("orders", "a.b.c", "", ".", "shop.", ".orders", "shop..orders"):
        with pytest.raises(InvalidNameError):
            TableName.parse(text)


@pytest.mark.parametrize("instance", ["global", "tenant-7", "host:8080", "a@b.c", "_", "9", "a" * 255])
def test_an_instance_may_have_inner_punctuation(instance: str) -> None:
    assert require_instance(instance) == instance


@pytest.mark.parametrize(
    "instance", ["", ".", "..", ".a", "-a", "a..b", "a/b", "a\\b", "a\x00", "a\n", "a b", "a" * 256, "\uff41", "\u0430"]
)
def test_an_instance_that_could_leave_a_path_is_refused(instance: str) -> None:
    with pytest.raises(InvalidNameError):
        require_instance(instance)


def test_the_message_names_the_character_that_is_wrong() -> None:
    with pytest.raises(InvalidNameError, match="'/' is not allowed"):
        require_instance("tenant-7/x")
    with pytest.raises(InvalidNameError, match=r"'\.\.' is not allowed"):
        require_instance("a..b")
    with pytest.raises(InvalidNameError, match="'-' is not allowed"):
        require_name("table", "tenant-7/x")
