from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from footer_trees import decode, encode
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thrift.Thrift import TType

from lakebed.core.errors import FooterCorruptError
from lakebed.parquet.footer.thrift import encode_header, encode_integer, require_struct

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_SCALARS: dict[int, SearchStrategy[Any]] = {
    TType.BOOL: st.booleans(),
    TType.BYTE: st.integers(-128, 127),
    TType.I16: st.integers(-(2**15), 2**15 - 1),
    TType.I32: st.integers(-(2**31), 2**31 - 1),
    TType.I64: st.integers(-(2**63), 2**63 - 1),
    TType.DOUBLE: st.floats(allow_nan=False),
    TType.STRING: st.binary(max_size=300),
}


def _typed(values: SearchStrategy[tuple[int, Any]]) -> SearchStrategy[tuple[int, Any]]:
    """One level of lists, maps and structs around typed values."""
    struct = st.lists(st.tuples(st.integers(-(2**15), 2**15 - 1), values), max_size=4)
    lists = values.flatmap(lambda typed: st.integers(0, 20).map(lambda count: (TType.LIST, (typed[0], [typed[1]] * count))))
    maps = st.tuples(values, values, st.integers(0, 3)).map(
        lambda drawn: (TType.MAP, {"kinds": (drawn[0][0], drawn[1][0]), "items": [(drawn[0][1], drawn[1][1])] * drawn[2]})
    )
    return st.one_of(struct.map(lambda fields: (TType.STRUCT, [(i, kind, value) for i, (kind, value) in fields])), lists, maps)


scalars = st.sampled_from(sorted(_SCALARS)).flatmap(lambda kind: st.tuples(st.just(kind), _SCALARS[kind]))
structs = _typed(st.recursive(scalars, _typed, max_leaves=12)).filter(lambda typed: typed[0] == TType.STRUCT).map(lambda typed: typed[1])


@settings(max_examples=50)
@given(structs)
def test_whatever_thrift_writes_is_walked_to_its_last_byte(tree: Any) -> None:
    written = encode(tree)

    require_struct(written)

    for broken in (written[:-1], written + b"\0"):
        with pytest.raises(FooterCorruptError):
            require_struct(broken)


@given(st.binary(max_size=200))
@example(b"\x1c" * 150)
@example(b"\x19\xfc\xff\xff\xff\xff\x0f\x00")
def test_arbitrary_bytes_are_walked_or_refused_and_nothing_else(noise: bytes) -> None:
    with suppress(FooterCorruptError):
        require_struct(noise)


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_written_as_thrift_writes_them(value: int) -> None:
    assert encode([(1, TType.I64, value)]) == b"\x16" + encode_integer(value) + b"\0"


@given(st.integers(-(2**15), 2**15 - 1), st.integers(-(2**15), 2**15 - 1))
def test_headers_are_written_as_thrift_writes_them(previous: int, field_id: int) -> None:
    written = encode([(previous, TType.BYTE, 1), (field_id, TType.I32, 0)])

    first = encode_header(previous, 3, previous=0)
    assert written == first + b"\x01" + encode_header(field_id, 5, previous=previous) + b"\0\0"


def nested(levels: int) -> bytes:
    return b"\x1c" * (levels - 1) + b"\0" * levels


def test_a_hundred_levels_are_walked_and_one_more_is_refused() -> None:
    require_struct(nested(100))

    with pytest.raises(FooterCorruptError, match="deeper than 100"):
        require_struct(nested(101))


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (b"\x1c" * 1_000_000, "deeper"),
        (b"\x19" * 1_000_000, "deeper"),
        (b"\x19\xfc\xff\xff\xff\xff\x07" + b"\0" * 50, "claims 2147483647 elements"),
        (b"\x19\xf7\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0" * 50, "claims"),
        (b"\x19\xf7\x0a" + b"\0" * 79, "claims 10 elements"),
        (b"\x19\xf0\xff\xff\xff\xff\x07\0", "no width"),
        (b"\x19\x10\0", "no width"),
        (b"\x1b\xff\xff\xff\xff\x07\x00" + b"\0" * 50, "no width"),
        (b"\x1b\xff\xff\xff\xff\x07\x88" + b"\0" * 50, "claims"),
        (b"\x18\xff\xff\xff\xff\x07" + b"\0" * 50, "claims"),
        (b"\x16" + b"\xff" * 10 + b"\x01\0", "longer than 10 bytes"),
        (b"\x18" + b"\xff" * 11 + b"\x01\0", "longer than 10 bytes"),
        (b"\x1e\0", "does not exist"),
        (b"\x1f\0", "does not exist"),
        (b"\x19\x1f\0\0", "does not exist"),
        (b"\x10", "no type"),
        (b"\x17\0\0\0\0", "middle"),
        (b"\x18\x05abc\0", "middle"),
        (b"", "middle"),
        (b"\0\0", "follow"),
    ],
)
def test_malformed_bytes_are_refused_with_the_reason(hostile: bytes, reason: str) -> None:
    with pytest.raises(FooterCorruptError, match=reason):
        require_struct(hostile)


def test_a_false_count_count_allocates_nothing() -> None:
    false_count = b"\x19\xf8\xff\xff\xff\xff\x07" + b"\0" * 1000

    tracemalloc.start()
    with pytest.raises(FooterCorruptError):
        require_struct(false_count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 50_000


def test_the_same_bytes_mean_the_same_to_thrift() -> None:
    written = encode([(1, TType.BOOL, True), (2, TType.LIST, (TType.BOOL, [True, False, True])), (3, TType.BOOL, False)])

    require_struct(written)

    assert decode(written)[1][2] == (TType.BOOL, [True, False, True])
