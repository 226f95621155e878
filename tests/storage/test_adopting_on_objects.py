"""Adopting where files are objects: files in the store stay in place, files of this host are uploaded."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.core.errors import PathRefusedError
from lakebed.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from lakebed.registry.registry import Registry
    from lakebed.storage.s3 import ObjectStorage

pytest_plugins = ["storage_fixtures"]


def parquet(first: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(range(first, first + 5), pa.int64())}), sink)
    return sink.getvalue()


def test_objects_stay_and_local_files_are_uploaded(registry: Registry, objects: ObjectStorage, tmp_path: Path) -> None:
    incoming = f"{objects.paths.root}/incoming"
    objects.create_exclusive(f"{incoming}/a.parquet", parquet(0))
    objects.create_exclusive(f"{incoming}/n=7/b.parquet", parquet(5))
    objects.create_exclusive(f"{incoming}/_SUCCESS", b"x")
    (tmp_path / "c.parquet").write_bytes(parquet(10))
    lake = Lake(registry, objects)

    done, again = lake.tables.adopt("shop.events", incoming), lake.tables.adopt("shop.events", incoming)
    local = lake.tables.adopt("shop.events", str(tmp_path))

    assert [file.how for file in (*done.files, *again.files, *local.files)] == ["in place", "rewrite", "known", "known", "copy"]
    assert done.skipped == {"hidden": 1}
    assert lake.table("shop.events").row.row_count == 15
    with pytest.raises(PathRefusedError):
        lake.tables.adopt("shop.events", "s3://elsewhere/incoming")
