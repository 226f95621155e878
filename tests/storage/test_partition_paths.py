from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidValueError
from lakebed.storage.partition_paths import NULL_TEXT, decode_partition_path, encode_partition_path
from strategies import hostile_text, unicode_text

awkward_values = st.one_of(st.none(), st.sampled_from(["", NULL_TEXT, "%5F" + NULL_TEXT[1:], ".", "..", "/", "=", "null"]), unicode_text)
tuples = st.lists(st.tuples(unicode_text.filter(bool), awkward_values), max_size=4).map(tuple)


def test_plain_values_read_as_people_write_them() -> None:
    assert encode_partition_path([("day", "2026-11-15"), ("country", "DE")]) == "day=2026-11-15/country=DE"
    assert encode_partition_path([]) == ""
    assert decode_partition_path("") == ()


def test_null_empty_and_the_text_of_null_are_three_values() -> None:
    texts = [encode_partition_path([("a", value)]) for value in (None, "", NULL_TEXT)]

    assert texts == ["a=__HIVE_DEFAULT_PARTITION__", "a=", "a=%5F_HIVE_DEFAULT_PARTITION__"]
    assert [decode_partition_path(text) for text in texts] == [(("a", None),), (("a", ""),), (("a", NULL_TEXT),)]


@given(tuples)
def test_every_tuple_comes_back(pairs: tuple[tuple[str, str | None], ...]) -> None:
    assert decode_partition_path(encode_partition_path(pairs)) == pairs


@given(tuples, tuples)
def test_different_tuples_have_different_paths(left: tuple[tuple[str, str | None], ...], right: tuple[tuple[str, str | None], ...]) -> None:
    assert (encode_partition_path(left) == encode_partition_path(right)) == (left == right)


@given(tuples)
def test_no_raw_value_stands_in_a_path(pairs: tuple[tuple[str, str | None], ...]) -> None:
    for segment in encode_partition_path(pairs).split("/")[: len(pairs)]:
        assert re.fullmatch(r"(?!\.)(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+=(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})*", segment)


@given(hostile_text)
def test_only_the_one_spelling_is_decoded(text: str) -> None:
    try:
        pairs = decode_partition_path(text)
    except InvalidValueError:
        return

    assert encode_partition_path(pairs) == text


@pytest.mark.parametrize("text", ["a", "=b", "a=b/", "/a=b", "a=%61", "a=%zz", "a=%ff", "a=b c", "a=%2f", "a=\ud800", "a=b=c"])
def test_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        decode_partition_path(text)


def test_a_value_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        encode_partition_path([("", "x")])
    with pytest.raises(InvalidValueError):
        encode_partition_path([("a", "\ud800")])
