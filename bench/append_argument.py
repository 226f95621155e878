"""What one structured argument costs PostgreSQL's append function: `python bench/append_argument.py [--appends 2000]`.

The function has 47 arguments, which are given by position or by name (`p_table => $2`). Beside it stand functions of the same body that take
one argument:

jsonb literals:           an object of the 47 values; columns of rows are PostgreSQL's array literals, as they are in the call today.
jsonb arrays, json arrays: an object of the 47 values; columns of rows are JSON arrays.
jsonb rows:               an object with a list of objects for each kind of row, read by `jsonb_to_recordset`.
composite:                a row literal of a composite type with 47 fields.

First each of them writes the same awkward values, and what is stored is compared. Then appends take turns in one database, in an order that
changes. A ratio is that of the medians, the call by position being 1, with its 95 % interval: of wall time, and of the CPU of this process and
of the server's process, which other work on the machine disturbs less.
"""

import argparse
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

import adapter
from harness import percentile
from house import Stall
from lakebed.core import fingerprints
from lakebed.core.files import ColumnStatistics, FileType, Footer, NewFile
from lakebed.core.partitions import NewPartition
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions import append
from lakebed.registry.schema.append_function import _ARGUMENTS, _BODY, _NAMES, CALL, NAME, order_arguments
from lakebed.staging.write import new_op_id
from machine import PROC, read_facts
from postgres import DSN_VARIABLE, new_database, read_settings, run_server, url_of
from registry import write_result

RESULTS = Path(__file__).parent / "results"
RESAMPLES = 1000
WARM = 50
AWKWARD = "NULL {a,\"b\"} c\\d 'e' (f) ü\u20ac\U0001f600 \\x41 \t"
KINDS = {"f": "files", "m": "footers", "c": "columns", "r": "ranges", "s": "sums"}
FIELDS = ", ".join(f"{name} {kind}" for name, kind in _ARGUMENTS)

Order = Callable[[Mapping[str, Any]], list[Any]]
Arrays = Callable[[tuple[str, ...], Sequence[Sequence[Any]]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the values are handed over, and what PostgreSQL must have for it."""

    call: str
    order: Order
    arrays: Arrays
    ddl: tuple[str, ...] = ()


def dump(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=lambda data: f"\\x{data.hex()}")


def as_json(given: Mapping[str, Any]) -> list[Any]:
    return [dump(dict(zip(_NAMES, order_arguments(given), strict=True)))]


def as_json_rows(given: Mapping[str, Any]) -> list[Any]:
    return [dump(given)]


def as_composite(given: Mapping[str, Any]) -> list[Any]:
    return [f"({','.join(map(write_field, order_arguments(given)))})"]


def write_field(value: Any) -> str:
    return "" if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '""') + '"'


def columns_of(names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))


def objects_of(names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return {KINDS[names[0][0]]: [dict(zip(names, row, strict=True)) for row in rows]}


def define(name: str, body: str, *, argument: str = "p jsonb", opening: str = "") -> str:
    """The function with one argument; `opening` makes `given` of it, and `body` reads from there."""
    if opening:
        body = body.replace("DECLARE", "DECLARE given record;", 1).replace("BEGIN", f"BEGIN {opening}", 1)
    return f"CREATE FUNCTION {name}({argument}) RETURNS bigint[] LANGUAGE plpgsql AS $${body}$$"


def opened_by(kind: str, fields: str) -> str:
    return f"SELECT x.* INTO given FROM {kind}_to_record(p) AS x({fields});"


def prefixed(body: str, names: Sequence[str]) -> str:
    return re.sub(rf"\b({'|'.join(names)})\b", r"given.\1", body)


def body_of_rows() -> str:
    """Each kind of row is a list of objects."""
    body = _BODY
    for letter, kind in KINDS.items():
        mine = {name: kind_of.removesuffix("[]") for name, kind_of in _ARGUMENTS if name.startswith(f"{letter}_")}
        rows = f"ROWS FROM (jsonb_to_recordset(given.{kind}) AS ({', '.join(map(' '.join, mine.items()))}))"
        body = body.replace(f"unnest({', '.join(mine)})", rows)
        body = re.sub(rf"sum\((\w)\) FROM unnest\(({letter}_\w+)\) \1", rf"sum(u.\2) FROM {rows} u", body)
        body = re.sub(rf"array_length\({letter}_\w+, 1\)", f"jsonb_array_length(given.{kind})", body)
    numbered = f"FOR one IN SELECT * FROM {rows} WITH ORDINALITY AS u({', '.join(mine)}, i) LOOP"  # the sums, which come last
    body = body.replace("FOR i IN 1..stats LOOP", numbered)
    body = re.sub(r"\b(s_\w+)\[i\]", r"one.\1", body).replace("files + i - 1", "files + one.i - 1")
    return prefixed(body.replace("DECLARE", "DECLARE one record;", 1), [name for name in _NAMES if name.startswith("p_")])


def fields_of_rows() -> str:
    return ", ".join(
        [f"{name} {kind}" for name, kind in _ARGUMENTS if name.startswith("p_")] + [f"{kind} jsonb" for kind in KINDS.values()]
    )


BY_POSITION = f"SELECT {NAME}({', '.join(f'${n}::{kind}' for n, (_, kind) in enumerate(_ARGUMENTS, start=1))})"
LITERALS = append._arrays
IN_RECORD = prefixed(_BODY, _NAMES)
WAYS = {
    "by position": Way(call=BY_POSITION, order=order_arguments, arrays=LITERALS),
    "by name": Way(call=CALL, order=order_arguments, arrays=LITERALS),
    "jsonb literals": Way(
        call="SELECT bench_literals($1::jsonb)", order=as_json, arrays=LITERALS,
        ddl=(define("bench_literals", IN_RECORD, opening=opened_by("jsonb", FIELDS)),),
    ),
    "jsonb arrays": Way(
        call="SELECT bench_arrays($1::jsonb)", order=as_json, arrays=columns_of,
        ddl=(define("bench_arrays", IN_RECORD, opening=opened_by("jsonb", FIELDS)),),
    ),
    "json arrays": Way(
        call="SELECT bench_text($1::json)", order=as_json, arrays=columns_of,
        ddl=(define("bench_text", IN_RECORD, argument="p json", opening=opened_by("json", FIELDS)),),
    ),
    "jsonb rows": Way(
        call="SELECT bench_rows($1::jsonb)", order=as_json_rows, arrays=objects_of,
        ddl=(define("bench_rows", body_of_rows(), opening=opened_by("jsonb", fields_of_rows())),),
    ),
    "composite": Way(
        call="SELECT bench_composite($1::bench_append)", order=as_composite, arrays=LITERALS,
        ddl=(f"CREATE TYPE bench_append AS ({FIELDS})", define("bench_composite", IN_RECORD, argument="given bench_append")),
    ),
}  # fmt: skip


@contextmanager
def going(way: Way) -> Iterator[None]:
    kept = append.CALL, append.order_arguments, append._arrays
    append.CALL, append.order_arguments, append._arrays = way.call, way.order, way.arrays
    try:
        yield
    finally:
        append.CALL, append.order_arguments, append._arrays = kept


def publish(registry: adapter.Registry, partition: NewPartition, operation: Operation) -> list[int]:
    """What the function answered; that it did nothing, and left it to the general path, is an error here."""
    answer = append.try_append(registry.registry, partition, operation)
    assert answer is not None
    numbers: list[int] = json.loads(answer)
    return numbers


def partition_of(registry: adapter.Registry, files: Sequence[NewFile], number: int) -> NewPartition:
    return NewPartition(
        table=adapter.NAME, schema_hash=adapter.table_of(registry).schema_hash, fingerprint=fingerprints.from_bytes(number.to_bytes(16)),
        files=tuple(files), event_range=(number * 1000, number * 1000 + 1),
    )  # fmt: skip


def read_cpu_ms(session: int) -> float:
    """What the server's process of this session has computed so far."""
    return int((PROC / str(session) / "schedstat").read_text(encoding="ascii").split()[0]) / 1e6


def measure(registry: adapter.Registry, turns: int, files: int) -> list[dict[str, Any]]:
    """Wall, own CPU and the server's CPU milliseconds of each append."""
    taken: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    ((session,),) = registry.registry.query("SELECT pg_backend_pid()")
    order, number, stall = random.Random(files), 10_000_000 * files, Stall()
    for turn in range(turns + WARM):
        for name in order.sample(list(WAYS), len(WAYS)):
            number += files
            partition = partition_of(registry, [adapter.fake_file(registry, number + n, 1) for n in range(files)], number)
            operation = Operation(op_id=new_op_id(registry.registry))
            with going(WAYS[name]):
                begun = time.perf_counter(), time.process_time(), read_cpu_ms(session)
                publish(registry, partition, operation)
                ended = time.perf_counter(), time.process_time(), read_cpu_ms(session)
            if turn >= WARM:
                taken[name].append(((ended[0] - begun[0]) * 1e3, (ended[1] - begun[1]) * 1e3, ended[2] - begun[2]))
    ((later,),) = registry.registry.query("SELECT pg_backend_pid()")
    assert later == session
    return [summarize(name, taken, files) | {"cpu_stall": stall.share} for name in WAYS]


def summarize(name: str, taken: Mapping[str, Sequence[tuple[float, float, float]]], files: int) -> dict[str, Any]:
    mine, usual = (list(zip(*taken[way], strict=True)) for way in (name, "by position"))
    found: dict[str, Any] = {"files": files, "way": name, "turns": len(mine[0])}
    for what, values, beside in zip(("wall", "client_cpu", "server_cpu"), mine, usual, strict=True):
        found[what] = {"p50_ms": round(median(values), 4), "p10_ms": round(percentile(values, 10), 4), **compare(values, beside)}
    cpu, usual_cpu = ([client + server for _, client, server in taken[way]] for way in (name, "by position"))
    return found | {"cpu": {"p50_ms": round(median(cpu), 4), **compare(cpu, usual_cpu)}}


def compare(mine: Sequence[float], positional: Sequence[float]) -> dict[str, Any]:
    order, pairs = random.Random(1), list(zip(mine, positional, strict=True))
    drawn = []
    for _ in range(RESAMPLES):
        left, right = zip(*order.choices(pairs, k=len(pairs)), strict=True)
        drawn.append(median(left) / median(right))
    drawn.sort()
    interval = [round(drawn[RESAMPLES // 40], 4), round(drawn[-RESAMPLES // 40 - 1], 4)]
    return {"ratio": round(median(mine) / median(positional), 4), "interval": interval}


def awkward_files(registry: adapter.Registry, way: str) -> list[NewFile]:
    """Quotes, braces, backslashes, every byte, nothing at all."""
    plain = adapter.fake_file(registry, 7, 1)
    tail = bytes(range(256)) * 3
    columns = (
        ColumnStatistics(
            field_id=1,
            null_count=0,
            value_count=2**62,
            lower=b"",
            upper=bytes(range(256)),
            lower_coordinate=-1e300,
            upper_coordinate=5e-324,
        ),
        ColumnStatistics(field_id=2),
        ColumnStatistics(field_id=3, lower=AWKWARD.encode(), upper=None, lower_coordinate=0.1, upper_coordinate=0.1 + 0.2),
    )
    first = replace(
        plain,
        path=f"{plain.path}/{way}/{AWKWARD}",
        partition_path=AWKWARD,
        footer=Footer(tail=tail, num_rows=1, checksum="0" * 64),
        row_count=1,
        columns=columns,
    )
    return [first, replace(first, path=f"{plain.path}/{way}/{{}}", file_type=FileType.JSON, footer=None, is_compressed=False, partition_path=""), replace(plain, path=f"{plain.path}/{way}/NULL", columns=())]  # fmt: skip


def store_awkward(registry: adapter.Registry, way: str) -> list[Any]:
    """What the tables hold of it, but for ids, times and the way's own name."""
    operation = Operation(op_id=new_op_id(registry.registry), kind=AWKWARD, mode="", app_id=f"{AWKWARD}{way}", batch_id=2**62)
    partition = replace(partition_of(registry, awkward_files(registry, way), 1), source_data_hash=AWKWARD, lookup_hash=None)
    with going(WAYS[way]):
        part, *_, first, count = publish(registry, partition, operation)
    of_files = f"IN (SELECT id FROM table_files WHERE partition_id = {part})"
    sql = [
        f"SELECT min_event_time, max_event_time, schema_hash, source_data_hash, lookup_hash, fingerprint, num_rows, file_count FROM partitions WHERE id = {part}",
        (
            f"SELECT id - {first}, replace(file_path, :way, ''), replace(file_name, :way, ''), file_size, file_type, partition_path, row_count, checksum, "
            f"checksum_kind, is_compressed FROM table_files WHERE partition_id = {part} ORDER BY id"
        ),
        (
            "SELECT m.file_size, m.metadata, m.footer_length, m.num_rows, m.checksum FROM partition_metadata m JOIN table_files f "
            f"ON f.file_path = m.file_path WHERE f.partition_id = {part} ORDER BY f.id"
        ),
        f"SELECT file_id - {first}, field_id, null_count, value_count, lower, upper FROM file_columns WHERE file_id {of_files} ORDER BY 1, 2",
        f"SELECT id - {first} * 8, scope, level, prefix FROM file_ranges WHERE id / 8 {of_files} ORDER BY 1, 2",
        f"SELECT kind, mode, replace(app_id, :way, ''), batch_id, staging_path FROM operations WHERE op_id = '{operation.op_id}'",
    ]
    found = [registry.registry.query(one, {"way": way}) for one in sql]
    assert len(found[1]) == count
    assert all(found)
    return [[bytes(value) if isinstance(value, memoryview) else value for value in row] for rows in found for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=2000, help="of one file by each way; a third as many of eight files")
    parser.add_argument("--out", type=Path, default=RESULTS / f"append-argument-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="lakebed-bench-") as place, run_server(Path(place) / "pg") as dsn:
        os.environ[DSN_VARIABLE] = dsn
        facts = read_facts(Path(place)) | {"postgres": read_settings(dsn)}
        with new_database("append_argument") as database:
            registry = adapter.open_registry(url_of(database), Path(place) / "warehouse")
            adapter.create_table(registry)
            adapter.publish(registry, [adapter.fake_file(registry, 1, 1)], (0, 1))
            with psycopg.connect(database, autocommit=True) as connection:
                for ddl in (ddl for way in WAYS.values() for ddl in way.ddl):
                    connection.execute(ddl)
            stored = {way: store_awkward(registry, way) for way in WAYS}
            different = [way for way in WAYS if stored[way] != stored["by position"]]
            assert not different, different
            figures = [
                figure for files, turns in ((1, chosen.appends), (8, chosen.appends // 3)) for figure in measure(registry, turns, files)
            ]
            adapter.close_registry(registry)
    for figure in figures:
        print(json.dumps(figure))
    write_result(
        {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": facts, "stored alike": list(WAYS), "figures": figures},
        chosen.out,
    )
    print(f"written: {chosen.out.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
