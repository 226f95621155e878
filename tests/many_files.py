"""Tables with many files that exist as rows and footers alone: a commit opens none of them."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from builders import ORDERS, op_id
from ice import ROWS, IceLake, shop_rows
from lakebed.core import fingerprints
from lakebed.core.files import Footer, NewFile
from lakebed.core.partitions import NewPartition
from lakebed.parquet.footer.framing import read_tail
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition

if TYPE_CHECKING:
    from pathlib import Path

    from lakebed.core.names import TableName

BATCH = 10_000


class Many:
    """One table and one real Parquet file that every other one is said to be a copy of."""

    def __init__(self, ice: IceLake, directory: Path, name: TableName = ORDERS) -> None:
        self.ice, self.name, self.table = ice, name, ice.create(name)
        template = directory / f"{name.name}.parquet"
        pq.write_table(shop_rows(self.table.schema, 1), template)
        content = template.read_bytes()
        self.size = len(content)
        tail = read_tail(lambda offset, length: content[offset : offset + length], self.size, path=str(template))
        self.footer = Footer(tail=tail, num_rows=ROWS, checksum=hashlib.sha256(tail).hexdigest())

    def commit(self, count: int) -> None:
        for start in range(0, count, BATCH):
            self.publish(min(BATCH, count - start))
        self.ice.seal(self.name)
        self.ice.advance(self.name)

    def publish(self, count: int) -> None:
        """Pending files of one partition."""
        own = op_id()
        directory = self.ice.lake.storage.paths.operation_directory(self.table.table_id, self.name, own)
        partition = NewPartition(
            table=self.name,
            schema_hash=self.table.schema_hash,
            fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
            files=tuple(self._file(f"{directory}/part-{n:06d}.parquet") for n in range(count)),
            event_range=(0, 1),
        )
        publish_partition(self.ice.lake.registry, partition, Operation(op_id=own))

    def _file(self, path: str) -> NewFile:
        return NewFile(path=path, size_bytes=self.size, row_count=ROWS, checksum=self.footer.checksum, footer=self.footer)
