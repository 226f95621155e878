"""A sum over whole rows that is independent of their order, their files and their writers.

Each row becomes 64 bits from its values and their field ids, and the sum of all rows is kept whole, modulo 2^128. Equal sums mean
equal multisets of rows. What is compared are values as a query sees them: NULL is not a value, NaN is one value whatever its bits
are, and how a file encodes or chunks them makes no difference.
Nothing but numpy and pyarrow is used here, so that a task of any engine can do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]

MODULUS = 1 << 128
_MASK = (1 << 64) - 1
_BLOCK_ROWS = 1 << 15  # stays in the core's cache
_BLOCK_BYTES = 1 << 14
_HALF, _QUARTER = np.uint64(32), np.uint32(16)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT = np.uint64(29)
_NOTHING = np.uint64(0x9E3779B97F4A7C15)
_DECIMAL = np.uint64(0xD6E8FEB86659FD93)
_ROOT = 0xA0761D6478BD642F  # base of the polynomials over bytes and elements; odd, so that it has an inverse
_NAN_64, _NAN_32 = np.uint64(0x7FF8000000000000), np.uint32(0x7FC00000)


def _scramble(number: int) -> int:
    """Splitmix64, for constants."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def _powers(base: int, count: int) -> Words:
    found = np.ones(count, dtype=np.uint64)
    found[1:] = np.uint64(base)
    return np.multiply.accumulate(found)


_BYTES = np.array([_scramble(number) for number in range(256)], dtype=np.uint64)
_POWERS = _powers(_ROOT, _BLOCK_BYTES + 1)
_INVERSES = _powers(pow(_ROOT, -1, 1 << 64), _BLOCK_BYTES + 1)


def sum_rows(table: pa.Table, field_ids: Sequence[int]) -> int:
    """The sum of all rows of a table whose columns have these ids."""
    return sum(sum_batch(batch.columns, field_ids) for batch in table.to_batches()) % MODULUS


def sum_batch(columns: Sequence[pa.Array], field_ids: Sequence[int]) -> int:
    """The same for columns of one length."""
    length = len(columns[0]) if columns else 0
    rows = np.zeros(length, dtype=np.uint64)
    for column, field_id in zip(columns, field_ids, strict=True):
        add_column(rows, column, field_id)
    return total(rows)


class RowSummer:
    """For `mapInArrow`: the rows of a task and their sum, as one row. Columns come in the order of the ids."""

    answer = "rows bigint, hash string"

    def __init__(self, field_ids: Sequence[int]) -> None:
        self.field_ids = tuple(field_ids)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = found = 0
        for batch in batches:
            rows += batch.num_rows
            found += sum_batch(batch.columns, self.field_ids)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "hash": [str(found % MODULUS)]})


def add_column(rows: Words, column: pa.Array, field_id: int) -> None:
    """Add one column to the rows so far; the order of columns does not matter."""
    factor = _factor(field_id)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        np.add(block, words_of(column if len(block) == len(column) else column.slice(start, _BLOCK_ROWS)) * factor, out=block)


def _factor(field_id: int) -> np.uint64:
    return np.uint64(_scramble(field_id) | 1)


def total(rows: Words) -> int:
    """The sum over rows to which every column was added."""
    found = 0
    for start in range(0, len(rows), _BLOCK_ROWS):
        mixed = _mix(rows[start : start + _BLOCK_ROWS])
        upper = int((mixed >> _HALF).sum()) << 32
        found += upper + ((int(mixed.sum()) - upper) & _MASK)  # the lower 32 bits: what the sum of all has beyond the upper ones
    return found % MODULUS


def words_of(array: pa.Array) -> Words:
    """64 bits for each value, the same for the same value."""
    if len(array) == 0 or array.null_count == len(array):
        return np.full(len(array), _NOTHING, dtype=np.uint64)
    words = _VALUES.get(array.type.id, _integers)(array)
    if array.null_count:
        words = np.where(_bits(array.buffers()[0], array.offset, len(array)), words, _NOTHING)
    return words


def _integers(array: pa.Array) -> Words:
    """Of dates and times too; one value whatever the width it is stored in."""
    numbers: npt.NDArray[np.signedinteger[Any]] = _fixed(array, _SIGNED[array.type.bit_width])
    return numbers.astype(np.int64, copy=False).view(np.uint64)


def _booleans(array: pa.Array) -> Words:
    return _bits(array.buffers()[1], array.offset, len(array)).astype(np.uint64)


def _doubles(array: pa.Array) -> Words:
    return _fold(_fixed(array, np.float64), _NAN_64, _HALF)


def _floats(array: pa.Array) -> Words:
    return _fold(_fixed(array, np.float32), _NAN_32, _QUARTER).astype(np.uint64)


def _fold(numbers: npt.NDArray[Any], nan: np.unsignedinteger[Any], half: np.unsignedinteger[Any]) -> npt.NDArray[Any]:
    """The upper half brought down to the lower one: round numbers differ there only, and a multiplication would push it out."""
    words = numbers.view(nan.dtype)
    if np.isnan(numbers.max()):
        words = np.where(np.isnan(numbers), nan, words)
    folded: npt.NDArray[Any] = words >> half
    folded ^= words
    return folded


def _decimals(array: pa.Array) -> Words:
    pairs: Words = _fixed(array, np.uint64, width=2)
    return pairs[:, 0] + pairs[:, 1] * _DECIMAL


def _fixed_texts(array: pa.Array) -> Words:
    width = array.type.byte_width
    return _texts(np.arange(len(array) + 1) * width, _fixed(array, np.uint8, width=width).reshape(-1))


def _any_texts(array: pa.Array) -> Words:
    data = array.buffers()[2]
    return _texts(_offsets(array), np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8))


def _extension(array: pa.Array) -> Words:
    return words_of(array.storage)


def _struct(array: pa.Array) -> Words:
    rows = np.zeros(len(array), dtype=np.uint64)
    for number in range(array.type.num_fields):
        add_column(rows, array.field(number), number)
    return _mix(rows)


def _list(array: pa.Array) -> Words:
    offsets = _offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    elements = _elements(array, first, last)
    lengths = np.diff(offsets)
    places = np.arange(last - first) - np.repeat(offsets[:-1] - first, lengths)
    longest = int(lengths.max(initial=0))
    weights = _POWERS if longest < len(_POWERS) else _powers(_ROOT, longest + 1)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(_mix(elements) * weights[places], dtype=np.uint64)])
    found = sums[offsets[1:] - first] - sums[offsets[:-1] - first]
    return _mix(found + lengths.astype(np.uint64) * _NOTHING)


def _elements(array: pa.Array, first: int, last: int) -> Words:
    if not pa.types.is_map(array.type):
        return words_of(array.values.slice(first, last - first))
    rows = np.zeros(last - first, dtype=np.uint64)
    for number, part in enumerate((array.keys, array.items)):
        add_column(rows, part.slice(first, last - first), number)
    return rows


def _texts(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Words:
    """A polynomial over the bytes of each text, from running sums: no loop over texts."""
    words = np.empty(len(offsets) - 1, dtype=np.uint64)
    start = 0
    while start < len(words):
        end = int(np.searchsorted(offsets, offsets[start] + _BLOCK_BYTES, side="right")) - 1
        if end <= start:  # longer than a block by itself
            words[start] = _long_text(data[offsets[start] : offsets[start + 1]])
            end = start + 1
        else:
            words[start:end] = _block(offsets[start : end + 1], data)
        start = end
    return _mix(words + np.diff(offsets).astype(np.uint64) * _NOTHING)


def _block(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Words:
    first = offsets[0]
    length = int(offsets[-1] - first)
    sums = np.zeros(length + 1, dtype=np.uint64)
    np.cumsum(_BYTES[data[first : offsets[-1]]] * _POWERS[:length], out=sums[1:])
    begins = offsets[:-1] - first
    return np.asarray((sums[offsets[1:] - first] - sums[begins]) * _INVERSES[begins])


def _long_text(data: npt.NDArray[np.uint8]) -> np.uint64:
    found, weight, step = 0, 1, pow(_ROOT, _BLOCK_BYTES, 1 << 64)
    for start in range(0, len(data), _BLOCK_BYTES):
        part = data[start : start + _BLOCK_BYTES]
        found += int((_BYTES[part] * _POWERS[: len(part)]).sum(dtype=np.uint64)) * weight
        weight = weight * step & _MASK
    return np.uint64(found & _MASK)


def _mix(words: Words) -> Words:
    found = words >> _HALF
    found ^= words
    found *= _FIRST
    found ^= found >> _SHIFT
    found *= _SECOND
    found ^= found >> _HALF
    return found


def _fixed(array: pa.Array, kind: Any, *, width: int = 1) -> Any:
    """The values as numpy sees them, without a copy."""
    found = np.frombuffer(array.buffers()[1], dtype=kind)[array.offset * width : (array.offset + len(array)) * width]
    return found if width == 1 else found.reshape(len(array), width)


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) or pa.types.is_large_list(array.type)
    found = np.frombuffer(array.buffers()[1], dtype=np.int64 if wide else np.int32)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _bits(buffer: pa.Buffer, offset: int, length: int) -> npt.NDArray[np.bool_]:
    first = offset // 8
    packed = np.frombuffer(buffer, dtype=np.uint8)[first : (offset + length + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[offset - first * 8 :][:length].view(np.bool_)


def _types_of(*kinds: pa.DataType) -> list[int]:
    return [kind.id for kind in kinds]


_SIGNED = {width: np.dtype(f"i{width // 8}") for width in (8, 16, 32, 64)}
_ANY = pa.int32()
_VALUES: dict[int, Callable[[pa.Array], Words]] = {
    pa.bool_().id: _booleans,
    pa.float32().id: _floats,
    pa.float64().id: _doubles,
    pa.decimal128(1).id: _decimals,
    pa.struct([]).id: _struct,
    **dict.fromkeys(_types_of(pa.list_(_ANY), pa.large_list(_ANY), pa.map_(_ANY, _ANY)), _list),
    pa.binary(1).id: _fixed_texts,
    **dict.fromkeys(_types_of(pa.string(), pa.binary(), pa.large_string(), pa.large_binary()), _any_texts),
    pa.uuid().id: _extension,  # as of every extension
}  # whatever else is a number
