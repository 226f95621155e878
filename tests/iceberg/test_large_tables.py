"""Metadata of a table with many files: small on the disk, and one more file costs no look at all the others."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest

from lakebed.core.progress import progress_to
from lakebed.iceberg.locations import from_uri
from many_files import Many

if TYPE_CHECKING:
    from ice import IceLake

SMALLER = 3


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_one_more_file_for_a_large_table_is_three_small_files(ice: IceLake, tmp_path: Path, count: int) -> None:
    many = Many(ice, tmp_path)
    many.commit(count)
    whole = sum(manifest.manifest_length for manifest in ice.manifests())
    before = ice.metadata_files()

    for _ in range(3):
        many.commit(1)

    made = [Path(path).stat().st_size for path in ice.metadata_files() - before]
    assert len(made) == 3 * 3  # a manifest of one file, a list of manifests, the metadata
    assert max(made) < whole / 3
    current = ice.static().current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert current.summary["total-data-files"] == str(count + 3)


def test_a_commit_reports_progress_with_every_file(ice: IceLake, tmp_path: Path) -> None:
    """So a step of any size is not taken for a call that hangs."""
    many = Many(ice, tmp_path)
    many.publish(300)
    ice.seal()
    reports: list[int] = []

    with progress_to(lambda: reports.append(1)):
        ice.advance()

    assert len(reports) >= 300


def test_metadata_and_manifests_are_a_third_of_what_they_say_at_most_and_others_read_them(ice: IceLake, tmp_path: Path) -> None:
    many = Many(ice, tmp_path)
    for count in (500, 1, 1, 1, 1):
        many.commit(count)

    stored = Path(from_uri(ice.base().location)).read_bytes()
    assert len(gzip.decompress(stored)) >= SMALLER * len(stored)
    manifest = max(ice.manifests(), key=lambda found: found.manifest_length)
    packed = Path(from_uri(manifest.manifest_path)).read_bytes()
    assert len(unpacked(packed)) >= SMALLER * len(packed)
    assert len(list(ice.static().scan().plan_files())) == 504


def unpacked(content: bytes) -> bytes:
    """The same records under the same schema without a codec."""
    reader, plain = fastavro.reader(io.BytesIO(content)), io.BytesIO()
    assert reader.codec == "deflate"
    assert reader.writer_schema is not None
    fastavro.writer(plain, reader.writer_schema, list(reader), codec="null")
    return plain.getvalue()
