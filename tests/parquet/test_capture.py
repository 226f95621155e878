from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import ORDERS, SCHEMA, START, arrow_rows, make_table
from lakebed.core.errors import FileMissingError, LakebedError, NotAFileError, NotIcebergReadyError, PathRefusedError, RefusedError
from lakebed.core.files import ChecksumKind
from lakebed.core.times import to_micros
from lakebed.parquet.capture import CapturedFile, capture, capture_foreign
from lakebed.parquet.inspect import StatisticsSpec
from lakebed.testing import temporary_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake

SPEC = StatisticsSpec(event_time=2, indexed=frozenset({1, 2}))


@pytest.fixture
def own_lake() -> Iterator[Lake]:
    with temporary_lake() as lake:
        make_table(lake.registry)
        yield lake


@pytest.fixture
def path(own_lake: Lake) -> str:
    target = Path(own_lake.storage.paths.root) / "incoming" / "a.parquet"
    target.parent.mkdir()
    pq.write_table(arrow_rows(3), target)
    return str(target)


def test_size_rows_checksum_and_event_range_are_the_files_own(own_lake: Lake, path: str) -> None:
    captured = capture(own_lake.storage, path, SCHEMA, spec=SPEC)

    content = Path(path).read_bytes()
    begin = to_micros(START) + 3_000_000
    assert (captured.file.size_bytes, captured.file.row_count) == (len(content), 50)
    assert (captured.file.checksum, captured.file.checksum_kind) == (hashlib.sha256(content).hexdigest(), ChecksumKind.WHOLE_FILE)
    assert captured.event_range == (begin, begin + 49)
    assert {c.field_id for c in captured.file.columns} == {1, 2, 3}


def test_a_large_file_is_hashed_as_a_stream(own_lake: Lake, path: str) -> None:
    table = pa.concat_tables([arrow_rows(n, rows=1000) for n in range(300)])
    pq.write_table(table, path, compression="none", use_dictionary=False)
    assert Path(path).stat().st_size > 4 << 20

    captured = capture(own_lake.storage, path, SCHEMA, spec=SPEC)

    assert captured.file.checksum == hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_trusted_and_isolated_capture_agree(own_lake: Lake, path: str) -> None:
    (foreign,) = capture_foreign(own_lake.storage, [path], SCHEMA, spec=SPEC)

    assert foreign == capture(own_lake.storage, path, SCHEMA, spec=SPEC)


def test_a_file_torn_at_any_hundredth_of_its_length_is_refused_and_changes_nothing(own_lake: Lake, path: str) -> None:
    content = Path(path).read_bytes()
    before = own_lake.registry.query("SELECT last_seq FROM table_seq")

    for percent in range(100):
        Path(path).write_bytes(content[: len(content) * percent // 100])
        with pytest.raises(RefusedError):
            capture(own_lake.storage, path, SCHEMA, spec=SPEC)
    with pytest.raises(RefusedError):
        own_lake.files.register(str(ORDERS), [path])

    assert own_lake.registry.query("SELECT last_seq FROM table_seq") == before


def test_one_bad_file_keeps_the_good_ones_out_too(own_lake: Lake, path: str) -> None:
    torn = Path(path).with_name("b.parquet")
    torn.write_bytes(Path(path).read_bytes()[:-3])

    with pytest.raises(RefusedError, match=r"b\.parquet"):
        own_lake.files.register(str(ORDERS), [path, str(torn)])

    assert own_lake.files.list(str(ORDERS)) == []


def test_files_that_are_none_are_refused_each_with_its_error(own_lake: Lake, path: str, tmp_path: Path) -> None:
    here = Path(path).parent
    os.mkfifo(here / "fifo.parquet")
    (here / "directory.parquet").mkdir()
    (here / "link.parquet").symlink_to(path)
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(Path(path).read_bytes())
    names = [str(here / name) for name in ("fifo.parquet", "directory.parquet", "link.parquet", "none.parquet")]

    answers = capture_foreign(own_lake.storage, [*names, str(outside)], SCHEMA, spec=SPEC)

    assert [type(answer) for answer in answers[:2]] == [NotAFileError, NotAFileError]
    assert isinstance(answers[2], NotAFileError | PathRefusedError)
    assert [type(answer) for answer in answers[3:]] == [FileMissingError, PathRefusedError]


def test_a_file_without_field_ids_is_refused_unless_adopted_by_name(own_lake: Lake, path: str) -> None:
    plain = pa.schema([pa.field(f.name, f.type) for f in arrow_rows(0).schema])
    pq.write_table(arrow_rows(1).cast(plain), path)

    with pytest.raises(NotIcebergReadyError, match="field id"):
        capture(own_lake.storage, path, SCHEMA, spec=SPEC)
    adopted = capture(own_lake.storage, path, SCHEMA, spec=StatisticsSpec(event_time=2, require_ids=False))

    assert adopted.file.row_count == 50


def test_int96_timestamps_are_refused(own_lake: Lake, path: str) -> None:
    pq.write_table(arrow_rows(1), path, use_deprecated_int96_timestamps=True)

    with pytest.raises(NotIcebergReadyError, match="INT96"):
        capture(own_lake.storage, path, SCHEMA, spec=SPEC)


def test_registered_files_are_readable_through_their_plan(own_lake: Lake, path: str) -> None:
    done = own_lake.files.register(str(ORDERS), [path], batch=("loader", 7))
    again = own_lake.files.register(str(ORDERS), [path], batch=("loader", 7))

    assert done == again
    assert own_lake.files.plan(str(ORDERS)).paths == [path]
    assert pq.read_table(path).num_rows == own_lake.tables.list()[0].row_count
    assert own_lake.check(deep=True).clean


def test_answers_come_in_the_order_of_the_paths(own_lake: Lake, path: str) -> None:
    answers = capture_foreign(own_lake.storage, ["/etc/passwd", path, f"{path}.none"], SCHEMA, spec=SPEC)

    assert [isinstance(answer, CapturedFile) for answer in answers] == [False, True, False]
    assert all(isinstance(answer, LakebedError) for answer in (answers[0], answers[2]))
