"""Thrift's compact protocol, as far as spans need it: where a value ends, and the few values we read.

The bytes may be hostile. Each step is bounded by the bytes that are left, containers are
counted before they are entered, and nesting lives on a list of our own, never on the call stack.
"""

from __future__ import annotations

from functools import wraps
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from lakebed.core.errors import FooterCorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MAX_DEPTH = 100
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)
_MAX_VARINT = 10
_MORE = 0x80
_LONG_COUNT = 15
_MAX_DELTA = 15
_MIN_ID, _MAX_ID = -(1 << 15), (1 << 15) - 1
_MAX_FIELDS = 1 << 16
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def corrupt(reason: str) -> FooterCorruptError:
    return FooterCorruptError(f"the footer is not Parquet metadata: {reason}")


def refuse_truncated(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Reading on past the last byte becomes a FooterCorruptError: the loops need no check per byte."""

    @wraps(function)
    def checked(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except IndexError as exc:
            raise corrupt("it ends in the middle of a field") from exc

    return checked


class ThriftReader:
    """A place in the bytes that only moves forward."""

    __slots__ = ("buffer", "depth", "position")

    def __init__(self, buffer: bytes, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.depth = 0

    def fields(self) -> Iterator[tuple[int, int, int]]:
        """Id, kind and header position of each field of the struct that begins here.

        The caller moves past each value before it asks for the next field.
        """
        buffer = self.buffer
        field_id = 0
        self.depth += 1
        for _ in range(_MAX_FIELDS):
            start = self.position
            header = buffer[start]
            if header & 15 == STOP:
                break
            self.position = start + 1
            field_id = field_id + (header >> 4) if header > _MAX_DELTA else self.integer()
            if not _MIN_ID <= field_id <= _MAX_ID:
                raise corrupt(f"field id {field_id} is out of range")
            yield field_id, header & 15, start
        else:
            raise corrupt("a struct has more fields than there are ids")
        self.position = _past_stop(header, start)
        self.depth -= 1

    def structs(self, kind: int) -> range:
        """As many turns as the list that begins here has structs; each turn the caller reads one."""
        if kind != LIST:
            raise corrupt("a list was expected")
        self.position, count, element = _open_list(self.buffer, self.position)
        if count and element != STRUCT:
            raise corrupt("a list of structs was expected")
        return range(count)

    def integer(self) -> int:
        value, self.position = _varint(self.buffer, self.position)
        return (value >> 1) ^ -(value & 1)

    def require_text(self, kind: int) -> str:
        if kind != BINARY:
            raise corrupt("a text was expected")
        start, self.position = _binary_span(self.buffer, self.position)
        try:
            return self.buffer[start : self.position].decode()
        except UnicodeDecodeError as exc:
            raise corrupt("a text is not UTF-8") from exc

    def skip(self, kind: int) -> None:
        past = _PAST[kind]
        if past is None:
            self._skip_container(kind)
        else:
            self.position = past(self.buffer, self.position)
        if self.position > len(self.buffer):
            raise corrupt("it ends in the middle of a field")

    def _skip_container(self, kind: int) -> None:
        buffer, position = self.buffer, self.position
        room = MAX_DEPTH - self.depth
        owed: list[Iterator[int] | None] = []  # open containers: None for a struct, else the kinds still to come
        while kind != STOP or owed:
            if kind == STRUCT:
                owed.append(None)
            elif kind != STOP:
                position, elements = _open(buffer, position, kind)
                owed.append(elements)
            if len(owed) > room:
                raise corrupt(f"it is nested deeper than {MAX_DEPTH} levels")
            innermost = owed[-1]
            position, kind = _past_fields(buffer, position) if innermost is None else _past_elements(buffer, position, innermost)
            if kind == STOP:
                owed.pop()
        self.position = position


@refuse_truncated
def require_struct(buffer: bytes) -> None:
    """Refuse bytes that are not exactly one well-formed struct."""
    reader = ThriftReader(buffer)
    reader.skip(STRUCT)
    require_end(reader)


def require_end(reader: ThriftReader) -> None:
    if left := len(reader.buffer) - reader.position:
        raise corrupt(f"{left} bytes follow its end")


def encode_integer(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest >= _MORE:
        out.append(rest & 0x7F | _MORE)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_header(field_id: int, kind: int, *, previous: int) -> bytes:
    """A field header in its shortest form after the field `previous` (0 at the start of a struct)."""
    delta = field_id - previous
    return bytes([delta << 4 | kind]) if 0 < delta <= _MAX_DELTA else bytes([kind]) + encode_integer(field_id)


def is_relative(header: int) -> bool:
    """Whether a header's id depends on the field before it."""
    return header > _MAX_DELTA


def _past_fields(buffer: bytes, position: int) -> tuple[int, int]:
    """Past scalar fields: to the value of the next container, or past the end of the struct (STOP)."""
    while True:
        header = buffer[position]
        kind = header & 15
        if kind == STOP:
            return _past_stop(header, position), STOP
        position += 1
        if header <= _MAX_DELTA:
            position = _past_varint(buffer, position)
        past = _PAST[kind]
        if past is None:
            return position, kind
        position = past(buffer, position)


def _past_elements(buffer: bytes, position: int, kinds: Iterator[int]) -> tuple[int, int]:
    for kind in kinds:
        past = _PAST_ELEMENT[kind]
        if past is None:
            return position, kind
        position = past(buffer, position)
    return position, STOP


def _open(buffer: bytes, position: int, kind: int) -> tuple[int, Iterator[int]]:
    """Into a list, set or map: the position of its first element, and the kinds of the elements."""
    if kind == MAP:
        return _open_map(buffer, position)
    position, count, element = _open_list(buffer, position)
    return position, repeat(element, count)


def _open_list(buffer: bytes, position: int) -> tuple[int, int, int]:
    header = buffer[position]
    count, kind = header >> 4, header & 15
    position += 1
    if count == _LONG_COUNT:
        count, position = _varint(buffer, position)
    if count * _WIDTHS[kind] > len(buffer) - position:
        raise _no_room(count, kind)
    return position, count, kind


def _open_map(buffer: bytes, position: int) -> tuple[int, Iterator[int]]:
    count, position = _varint(buffer, position)
    if not count:
        return position, iter(())
    kinds = key, value = buffer[position] >> 4, buffer[position] & 15
    position += 1
    if count * (_WIDTHS[key] + _WIDTHS[value]) > len(buffer) - position:
        raise _no_room(count, *kinds)
    return position, chain.from_iterable(repeat(kinds, count))


def _no_room(count: int, *kinds: int) -> FooterCorruptError:
    if STOP in kinds:
        return corrupt("a container's elements have no width")
    return corrupt(f"a container claims {count} elements, more than the bytes that are left can hold")


def _varint(buffer: bytes, position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < _MORE:
        return byte, position + 1
    end = _past_varint(buffer, position)
    value = 0
    for at in range(end - 1, position - 1, -1):
        value = value << 7 | buffer[at] & 0x7F
    return value, end


def _binary_span(buffer: bytes, position: int) -> tuple[int, int]:
    length, start = _varint(buffer, position)
    if length > len(buffer) - start:
        raise corrupt(f"a text claims {length} bytes, more than there are")
    return start, start + length


def _past_varint(buffer: bytes, position: int) -> int:
    if buffer[position] < _MORE:
        return position + 1
    last = position + _MAX_VARINT
    while buffer[position] >= _MORE:
        position += 1
        if position == last:
            raise corrupt(f"a number is longer than {_MAX_VARINT} bytes")
    return position + 1


def _past_stop(header: int, position: int) -> int:
    if header != STOP:
        raise corrupt("a field has no type")
    return position + 1


def _past_binary(buffer: bytes, position: int) -> int:
    length = buffer[position]
    if length < _MORE:
        return position + 1 + length
    return _binary_span(buffer, position)[1]


def _past_flag(_buffer: bytes, position: int) -> int:
    return position  # a boolean field's value is in its header


def _past_byte(_buffer: bytes, position: int) -> int:
    return position + 1


def _past_double(_buffer: bytes, position: int) -> int:
    return position + 8


def _past_uuid(_buffer: bytes, position: int) -> int:
    return position + 16


def _past_unknown(_buffer: bytes, _position: int) -> int:
    raise corrupt("a field has a type that does not exist")


_Past = tuple["Callable[[bytes, int], int] | None", ...]
# The fewest bytes of one element, so that a count beyond the bytes that are left is known to be false.
_ENDLESS = 1 << 64
_WIDTHS = (_ENDLESS, 1, 1, 1, 1, 1, 1, 8, 1, 1, 1, 1, 1, 16, 1, 1)
_NUMBERS: _Past = (_past_byte, _past_varint, _past_varint, _past_varint, _past_double, _past_binary)
_OTHERS: _Past = (None, None, None, None, _past_uuid, _past_unknown, _past_unknown)
# By kind; None where a container begins. In a list or map a boolean takes a byte of its own.
_PAST: _Past = (_past_unknown, _past_flag, _past_flag, *_NUMBERS, *_OTHERS)
_PAST_ELEMENT: _Past = (_past_unknown, _past_byte, _past_byte, *_NUMBERS, *_OTHERS)


class Edit(NamedTuple):
    """The bytes from `start` to `end` become `replacement`."""

    start: int
    end: int
    replacement: bytes


class ThriftField(NamedTuple):
    """The position of a field of a struct: its header from `start`, its value from `value` to `end`."""

    field_id: int
    kind: int
    start: int
    value: int
    end: int


def put_integer(meta: bytes, fields: Sequence[ThriftField], field_id: int, kind: int, number: int, *, stop: int) -> Edit:
    """Write a field that the struct lacks where its id belongs; `fields` are all of it, and `stop` is where it ends."""
    place = next((index for index, field in enumerate(fields) if field.field_id > field_id), len(fields))
    written = encode_header(field_id, kind, previous=fields[place - 1].field_id if place else 0) + encode_integer(number)
    if place == len(fields):
        return Edit(stop, stop, written)
    after = fields[place]
    if not is_relative(meta[after.start]):
        return Edit(after.start, after.start, written)
    return Edit(after.start, after.value, written + encode_header(after.field_id, after.kind, previous=field_id))


def apply_edits(meta: bytes, edits: Iterable[Edit]) -> bytes:
    pieces: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=itemgetter(0)):
        pieces += (meta[position : edit.start], edit.replacement)
        position = edit.end
    return b"".join((*pieces, meta[position:]))
