"""The files that a step adds, described a page at a time, so that their number does not matter to memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import IcebergDriftError
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.registry.files.footers import load_footers
from lakebed.registry.tables.groups import load_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.core.rows import TableFiles
    from lakebed.iceberg.manifests.data_file import DataFile, FileWriter
    from lakebed.registry.registry import Registry

_PAGE = 500  # rows and footers that are held at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Describing:
    """Rows and footers of files with these ids; a registry that is read meanwhile by others is not held up."""

    registry: Registry
    writer: FileWriter
    table: str
    instances: Mapping[int, str]  # of files outside the global one

    def run(self, ids: Sequence[int]) -> Iterator[tuple[int, DataFile]]:
        for start in range(0, len(ids), _PAGE):
            page = ids[start : start + _PAGE]
            rows = load_files(self.registry, page)
            if len(rows) < len(page):  # no clean-up deletes rows that Iceberg has yet to hear of
                raise IcebergDriftError(self.table, problem=f"{len(page) - len(rows)} files to add are not in the registry any more")
            yield from self._describe(rows)

    def _describe(self, rows: Sequence[TableFiles]) -> Iterator[tuple[int, DataFile]]:
        footers = load_footers(self.registry, [row.file_path for row in rows])
        for row in rows:
            instance = self.instances.get(row.id, GLOBAL_INSTANCE)
            yield row.id, self.writer.describe(row, footers.pop(row.file_path), instance)
