"""Whether every page of every file can be decoded: checksums only prove that a file is what was registered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakebed.check.scan import Pass, Rule
from lakebed.core.errors import LakebedError, LimitExceededError, UnavailableError, UnreadableFileError
from lakebed.core.files import Verify
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.foreign.sandbox import ForeignFile, Inspector
from lakebed.parquet.inspect import StatisticsSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan
    from lakebed.storage.protocol import Storage

FILE_PAGES = Rule(name="file_pages")

_FILES = """SELECT id, table_id, file_path, partition_id, retired_seq FROM table_files
WHERE file_type = 'parquet' AND id > :after ORDER BY id LIMIT :size"""
_THERE = "SELECT 1 FROM table_files WHERE id = :id"
_AGAIN = "restore it from a backup, or retire its partition and write the rows again"
# Something to compare with: the columns are not asked for here
_ANY = Schema(fields=(Field(field_id=1, name="-", type=Primitive(name="boolean")),))


def find_undecodable(scan: Scan) -> Iterator[Finding]:
    """Files that are gone, or whose footer is not the registered one, are for other rules."""
    if not scan.decodes_pages:
        return
    storage = scan.require_storage()
    with Inspector(_ANY, spec=StatisticsSpec(first=0, require_ids=False), verify=Verify.PAGES) as inspector:
        for page in scan.pages(_FILES, after=0):
            for file_id, table_id, path, partition_id, retired_seq in page:
                reason = _examine(storage, inspector, path)
                if reason is not None and scan.query(_THERE, {"id": file_id}):
                    state = "live" if retired_seq is None else "retired"
                    yield FILE_PAGES.broken(
                        scan.name(table_id), path, f"{reason}: {_AGAIN}", facts=(state,), partition_id=partition_id
                    )  # fmt: skip


def _examine(storage: Storage, inspector: Inspector, path: str) -> str | None:
    read = partial(storage.read_range, path)
    try:
        size = storage.stat(path).size_bytes
        tail = read_tail(read, size, path=path)
    except LakebedError:
        return None
    answer = inspector.inspect(ForeignFile(path=path, tail=tail, size_bytes=size), read=read)
    if isinstance(answer, UnavailableError):
        raise answer
    if isinstance(answer, LimitExceededError):
        return f"the file could not be decoded within the limit of {answer.limit}"
    return answer.reason if isinstance(answer, UnreadableFileError) else None


LONG_PASSES = (Pass(rules=(FILE_PAGES,), over="table_files", find=find_undecodable),)
