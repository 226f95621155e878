"""Hostile footers: each a tail, by what it tries."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from footer_samples import framed, meta_of, with_ids, write
from footer_trees import FILE_ROWS, GROUP_COLUMNS, ROW_GROUPS, Tree, decode, drop, encode, get, replace, with_chunks
from thrift.Thrift import TType

SCHEMA, CHUNK_META, STATISTICS = 2, 3, 12
_ROOT: Tree = [(4, TType.STRING, b"schema"), (5, TType.I32, 1)]
_GROUP: Tree = [(3, TType.I32, 1), (4, TType.STRING, b"g"), (5, TType.I32, 1)]


def sample_meta() -> bytes:
    return meta_of(write(with_ids(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})), store_schema=False))


def crash() -> bytes:
    """A minimum of two bytes for a 64-bit column: pyarrow 26 ends the process when it is asked for it."""
    short = [(5, TType.STRING, b"\1\2"), (6, TType.STRING, b"\1\2")]
    return framed(encode(with_chunks(decode(sample_meta()), lambda chunk: _with_statistics(chunk, short))))


def hog(*, megabytes: int) -> bytes:
    """Column chunks of three bytes, each of which takes several hundred once it is parsed."""
    groups = megabytes * (1 << 20) // 60_000
    chunk = b"\x26\0\0"
    group = b"\x19\xfc" + _varint(19_999) + chunk * 19_999 + b"\x16\0\x16\x06\0"
    head = encode(drop(decode(sample_meta()), *range(ROW_GROUPS, 100)))[:-1]
    return framed(head + b"\x19\xfc" + _varint(groups) + group * groups + b"\0")


def slow(*, megabytes: int) -> bytes:
    """Nothing but empty structs, as many as fit: harmless, and long to walk."""
    count = megabytes << 20
    return framed(b"\x0c\xc8\x01" + b"\x19\xfc" + _varint(count) + b"\0" * count + b"\0\0")


@cache
def corpus() -> dict[str, bytes]:
    meta = sample_meta()
    tree = decode(meta)
    return {
        "no bytes": b"",
        "only a magic": b"PAR1",
        "absurd length": meta + b"\xff\xff\xff\xff" + b"PAR1",
        "schema count": framed(b"\x15\x04\x19\xfc" + _varint(2**31 - 1) + b"\0" * 100),
        "schema count of 64 bits": framed(b"\x15\x04\x19\xfc" + _varint(2**62) + b"\0" * 100),
        "elements without width": framed(b"\x15\x04\x19\xf0" + _varint(2**31 - 1) + b"\0" * 100),
        "map without width": framed(b"\x15\x04\x1b" + _varint(2**31 - 1) + b"\0" * 100),
        "text length": framed(b"\x15\x04\x68" + _varint(2**31 - 1) + b"\0" * 100),
        "endless number": framed(b"\x15" + b"\xff" * 5000 + b"\0"),
        "nested structs": framed(meta[:-1] + b"\x0c\xc8\x01" + b"\x1c" * 500_000 + b"\0" * 500_002),
        "nested lists": framed(meta[:-1] + b"\x09\xc8\x01" + b"\x19" * 500_000),
        "nested schema": framed(encode(_with_schema(tree, [_ROOT, *([_GROUP] * 15_000), get(tree, SCHEMA)[1][1]]))),
        "schema of one too many": framed(encode(_with_schema(tree, [*get(tree, SCHEMA)[1], get(tree, SCHEMA)[1][1]]))),
        "negative children": framed(encode(_with_schema(tree, [replace(_ROOT, 5, -1)]))),
        "children of nobody": framed(encode(_with_schema(tree, [replace(_ROOT, 5, 2**31 - 1)]))),
        "no schema": framed(encode(_with_schema(tree, []))),
        "names that are not text": framed(meta.replace(b"name", b"\xff\xfe\xfd\xfc")),
        "unknown physical type": framed(encode(_with_schema(drop(tree, 7), [_ROOT, replace(get(tree, SCHEMA)[1][1], 1, 99)]))),
        "columns missing in a row group": framed(encode(_with_columns(tree, keep=1))),
        "no columns in a row group": framed(encode(_with_columns(tree, keep=0))),
        "chunks without metadata": framed(encode(with_chunks(tree, lambda chunk: drop(chunk, CHUNK_META)))),
        "rows that disagree": framed(encode(replace(tree, FILE_ROWS, 4))),
        "rows beyond counting": framed(encode(replace(tree, FILE_ROWS, 2**63 - 1))),
        "short statistics": crash(),
        "memory": hog(megabytes=2),
        "time": slow(megabytes=14),
        "too many columns": framed(encode(_with_schema(tree, [replace(_ROOT, 5, 25_000), *[get(tree, SCHEMA)[1][1]] * 25_000]))),
    }


def _with_statistics(chunk: Tree, statistics: Tree) -> Tree:
    return replace(chunk, CHUNK_META, replace(get(chunk, CHUNK_META), STATISTICS, statistics))


def _with_schema(tree: Tree, elements: list[Any]) -> Tree:
    return replace(tree, SCHEMA, (TType.STRUCT, elements))


def _with_columns(tree: Tree, *, keep: int) -> Tree:
    kind, groups = get(tree, ROW_GROUPS)
    return replace(tree, ROW_GROUPS, (kind, [_first_columns(group, keep) for group in groups]))


def _first_columns(group: Tree, keep: int) -> Tree:
    kind, chunks = get(group, GROUP_COLUMNS)
    return replace(group, GROUP_COLUMNS, (kind, chunks[:keep]))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
