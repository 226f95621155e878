"""The messages between parent and worker: frames of JSON, never pickle.

The worker has read hostile bytes, so the parent checks the shape of every answer.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import IO, Any

from lakebed.core.errors import LakebedError
from lakebed.core.files import ColumnStatistics, Footer
from lakebed.core.schema.schema import Schema
from lakebed.parquet.inspect import Inspection, ParseLimits, StatisticsSpec
from lakebed.parquet.schema.problems import Problem

MAX_ANSWER = 16 << 20
MAX_FRAME = MAX_ANSWER + 4  # with the count before it
MAX_RANGE = 4 << 20
READY = b'{"ready":true}'
_COUNT_BYTES = 4
_MAX_TEXT = 10_000
_ASKS = b"?"  # no JSON begins so
_RANGE = struct.Struct(">QQ")
_FILE = struct.Struct(">Qd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one worker does with every tail it is given."""

    schema: Schema
    spec: StatisticsSpec
    parse: ParseLimits
    memory_bytes: int
    decodes_pages: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bytes of the file that the worker asks for while it decodes pages."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    reason: str
    row_group: int | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverLimit:
    limit: str
    is_memory: bool = False


Answer = Inspection | Unreadable | OverLimit


class MalformedAnswerError(ValueError):
    """The worker's answer is not of the agreed shape."""


def pack(payload: bytes) -> bytes:
    return len(payload).to_bytes(_COUNT_BYTES, "big") + payload


def frame_length(received: bytes | bytearray) -> int | None:
    """How many bytes the frame that begins `received` has in all; None while that is not known yet."""
    return _COUNT_BYTES + int.from_bytes(received[:_COUNT_BYTES], "big") if len(received) >= _COUNT_BYTES else None


def payload_of(frame: bytes | bytearray) -> bytes:
    return bytes(frame[_COUNT_BYTES:])


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next payload; None at the end of the stream. Only the worker reads so, from its own parent."""
    count = source.read(_COUNT_BYTES)
    return source.read(int.from_bytes(count, "big")) if len(count) == _COUNT_BYTES else None


def write_frame(sink: IO[bytes], payload: bytes) -> None:
    sink.write(pack(payload))
    sink.flush()


def encode_job(job: Job) -> bytes:
    spec = asdict(job.spec) | {"indexed": sorted(job.spec.indexed), "always": sorted(job.spec.always)}
    stored = {
        "schema": job.schema.to_json().decode(),
        "spec": spec,
        "parse": asdict(job.parse),
        "memory_bytes": job.memory_bytes,
        "decodes_pages": job.decodes_pages,
    }
    return json.dumps(stored).encode()


def decode_job(payload: bytes) -> Job:
    stored = json.loads(payload)
    spec = stored["spec"]
    return Job(
        schema=Schema.from_json(stored["schema"].encode()),
        spec=StatisticsSpec(**spec | {"indexed": frozenset(spec["indexed"]), "always": frozenset(spec["always"])}),
        parse=ParseLimits(**stored["parse"]),
        memory_bytes=stored["memory_bytes"],
        decodes_pages=stored["decodes_pages"],
    )


def encode_file(tail: bytes, *, file_bytes: int, seconds: float) -> bytes:
    """A file for the worker: its size, how long it may take, and its tail."""
    return _FILE.pack(file_bytes, seconds) + tail


def decode_file(payload: bytes) -> tuple[int, float, bytes]:
    file_bytes, seconds = _FILE.unpack_from(payload)
    return file_bytes, seconds, payload[_FILE.size :]


def encode_range(wanted: Range) -> bytes:
    return _ASKS + _RANGE.pack(wanted.offset, wanted.length)


def find_range(reply: bytes) -> Range | None:
    """What the worker asks for; None when the reply is its answer."""
    if not reply.startswith(_ASKS) or len(reply) != len(_ASKS) + _RANGE.size:
        return None
    offset, length = _RANGE.unpack_from(reply, len(_ASKS))
    return Range(offset=offset, length=length)


def encode_answer(answer: Answer) -> bytes:
    match answer:
        case Inspection():
            stored: dict[str, Any] = {
                "rows": answer.footer.num_rows,
                "checksum": answer.footer.checksum,
                "columns": [_column_out(column) for column in answer.columns],
                "problems": [[p.kind, p.message, p.fix, p.column] for p in answer.problems],
                "created_by": answer.created_by,
                "row_groups": answer.row_groups,
                "event_range": answer.event_range,
            }
        case Unreadable(reason=reason, row_group=row_group, column=column):
            stored = {"unreadable": reason, "row_group": row_group, "column": column}
        case OverLimit(limit=limit, is_memory=is_memory):
            stored = {"limit": limit, "memory": is_memory}
    return json.dumps(stored).encode()


def decode_answer(payload: bytes, *, tail: bytes, checksum: str) -> Answer:
    """The answer about `tail`; its bytes and their checksum are the parent's own, whatever the worker says."""
    try:
        stored = _require(json.loads(payload), dict)
        if "unreadable" in stored:
            row_group, column = stored["row_group"], stored["column"]
            return Unreadable(
                reason=_text(stored["unreadable"]),
                row_group=None if row_group is None else _count(row_group),
                column=None if column is None else _text(column),
            )
        if "limit" in stored:
            return OverLimit(limit=_text(stored["limit"]), is_memory=stored["memory"] is True)
        return _inspection_in(stored, Footer(tail=tail, num_rows=_count(stored["rows"]), checksum=checksum))
    except (KeyError, TypeError, ValueError, RecursionError, LakebedError) as exc:
        message = "the worker's answer is not of the agreed shape"
        raise MalformedAnswerError(message) from exc


def _inspection_in(stored: dict[str, Any], footer: Footer) -> Inspection:
    event_range = stored["event_range"]
    return Inspection(
        footer=footer,
        columns=tuple(_column_in(column) for column in _require(stored["columns"], list)),
        problems=tuple(_problem_in(problem) for problem in _require(stored["problems"], list)),
        created_by=_text(stored["created_by"]),
        row_groups=_count(stored["row_groups"]),
        event_range=None if event_range is None else _pair(event_range),
    )


def _column_out(column: ColumnStatistics) -> list[Any]:
    bounds = [None if bound is None else bound.hex() for bound in (column.lower, column.upper)]
    return [column.field_id, column.null_count, column.value_count, *bounds, column.lower_coordinate, column.upper_coordinate]


def _column_in(stored: Any) -> ColumnStatistics:
    field_id, nulls, values, lower, upper, lower_coordinate, upper_coordinate = _require(stored, list)
    return ColumnStatistics(
        field_id=_count(field_id),
        null_count=None if nulls is None else _count(nulls),
        value_count=None if values is None else _count(values),
        lower=None if lower is None else bytes.fromhex(_text(lower)),
        upper=None if upper is None else bytes.fromhex(_text(upper)),
        lower_coordinate=None if lower_coordinate is None else _require(lower_coordinate, float),
        upper_coordinate=None if upper_coordinate is None else _require(upper_coordinate, float),
    )


def _problem_in(stored: Any) -> Problem:
    kind, message, fix, column = _require(stored, list)
    return Problem(kind=_text(kind), message=_text(message), fix=_text(fix), column=None if column is None else _text(column))


def _require(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        message = f"{wanted.__name__} was expected"
        raise TypeError(message)
    return value


def _count(value: Any) -> int:
    number: int = _require(value, int)
    if not 0 <= number < 1 << 63:
        message = f"expected a count, got {number}"
        raise ValueError(message)
    return number


def _pair(value: Any) -> tuple[int, int]:
    low, high = _require(value, list)
    return _require(low, int), _require(high, int)


def _text(value: Any) -> str:
    text: str = _require(value, str)
    return text[:_MAX_TEXT]
