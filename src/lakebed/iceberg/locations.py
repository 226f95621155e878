"""Between paths as the registry keeps them and locations as Iceberg's metadata spells them.

`/a/b` is `file:///a/b` there, unescaped: PyIceberg, DuckDB, Polars, Daft and Spark all read it so. Object stores
have one spelling on both sides. Other engines spell locations in other ways, so only paths are compared, never locations.
"""

from __future__ import annotations

import gzip
import secrets
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from lakebed.core.errors import FileChangedError
from lakebed.core.progress import report_progress
from lakebed.storage.locations import find_path
from lakebed.storage.paths import below, parse_location

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage

_FILE = "file://"
_GZIP_LEVEL = 3  # measured: half the time of the default for a tenth more bytes
_GZIP_MAGIC = b"\x1f\x8b"  # engines name compressed metadata in more than one way
METADATA_SUFFIX = ".gz.metadata.json"  # the one spelling of gzip that PyIceberg, DuckDB and Java all know


def to_uri(path: str) -> str:
    return f"{_FILE}{path}" if path.startswith("/") else path


def to_path(location: str) -> str:
    """What `to_uri` was given; a location in another spelling becomes one that names no path of the registry."""
    path = location.removeprefix(_FILE)
    return path if to_uri(path) == location else to_uri(location)


def from_uri(uri: str) -> str:
    """The canonical path that a location names, in whatever spelling another engine wrote it."""
    return parse_location(uri)


def parse_version(location: str) -> int:
    """The number that a metadata file's name begins with; 0 where it has none."""
    number = location.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def new_uuid() -> UUID:
    return UUID(bytes=secrets.token_bytes(16), version=4)


@dataclass(slots=True)
class MetadataFiles:
    """Reads and writes the metadata of one table; remembers what it wrote, so that a refused commit can be swept."""

    storage: Storage
    directory: str
    written: dict[str, int]

    def write(self, name: str, content: bytes) -> str:
        """A new, durable file; its location. A name that is taken is refused, never overwritten."""
        path = below(self.directory, name)
        self.storage.create_exclusive(path, content)
        self.written[path] = len(content)
        report_progress()
        return to_uri(path)

    def write_metadata(self, version: int, text: str) -> str:
        return self.write(f"{version:05d}-{new_uuid()}{METADATA_SUFFIX}", gzip.compress(text.encode(), _GZIP_LEVEL, mtime=0))

    def sweep(self) -> None:
        """Delete what was written: only when it is certain that nothing refers to it."""
        self.storage.delete(list(self.written))
        self.written.clear()


def read_file(storage: Storage, location: str) -> bytes:
    with storage.open_input(find_path(storage, location)) as source:
        content = source.read()
    report_progress()
    return content


def read_metadata_text(storage: Storage, location: str) -> str:
    content = read_file(storage, location)
    try:
        return (gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as exc:
        raise FileChangedError(from_uri(location), reason="it is not UTF-8 text, compressed or not") from exc
