"""Files of an operation that is not published may still change, and nothing else does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.core.errors import FileMissingError, NotAFileError, UnreadableFileError
from lakebed.parquet.footer.field_ids import give_ids

if TYPE_CHECKING:
    from lakebed.storage.local import LocalStorage

pytest_plugins = ["storage_fixtures"]


def test_the_end_of_a_file_is_replaced_and_never_that_of_what_a_link_names(
    local: LocalStorage, local_operation: str, tmp_path: Path
) -> None:
    path = f"{local_operation}/a"
    local.create_exclusive(path, b"0123456789")
    secret, link = tmp_path / "secret", Path(local_operation, "b")
    secret.write_text("secret")
    link.symlink_to(secret)

    local.replace_end(path, 4, b"xy")
    with pytest.raises(NotAFileError):
        local.replace_end(str(link), 0, b"xy")

    assert local.read_range(path, 0, 99) == b"0123xy"
    assert secret.read_text() == "secret"


def test_a_file_gets_its_field_ids_in_place(local: LocalStorage, local_operation: str) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    path, broken = f"{local_operation}/part-0.parquet", f"{local_operation}/part-1.parquet"
    local.create_exclusive(path, sink.getvalue())
    local.create_exclusive(broken, b"PAR1 no footer PAR1")

    give_ids(local, path, {"a": 5})

    with local.open_input(path) as opened:
        table = pq.read_table(opened)
    assert table.to_pydict() == {"a": [1, 2]}
    assert table.schema.field("a").metadata == {b"PARQUET:field_id": b"5"}
    with pytest.raises(UnreadableFileError):
        give_ids(local, broken, {"a": 5})
    with pytest.raises(FileMissingError):
        give_ids(local, f"{local_operation}/none.parquet", {"a": 5})
