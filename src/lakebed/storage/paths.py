"""Every path of the lake is made and judged here, as text; what asks the file system lives in `local`.

A path has one canonical spelling, absolute, and only that one is stored or compared:
`/data/lake/warehouse/shop/orders-7/...` or `s3://bucket/prefix/shop/orders-7/...`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakebed.core.errors import InvalidValueError, PathRefusedError
from lakebed.core.ids import require_op_id

if TYPE_CHECKING:
    from lakebed.core.names import TableName

MARKER_NAME = ".lakebed-warehouse"  # stored: never rename
_DATA, _METADATA = "data", "metadata"  # stored: never rename
_OBJECT_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_THIS_HOST = frozenset({"", "localhost"})

# Controls (line breaks among them), backslash, the Unicode line and paragraph separators, lone surrogates.
_FORBIDDEN = "\x00-\x1f\x7f-\x9f\\\\\u2028\u2029\ud800-\udfff"
_BAD_CHARACTER = re.compile(f"[{_FORBIDDEN}]")
_CLEAN_LOCAL = re.compile(rf"(?:/(?!\.\.?(?:/|\Z))[^/{_FORBIDDEN}]+)+")
_CLEAN_OBJECT = re.compile(rf"(?:/(?!\.\.?(?:/|\Z))[^/?#{_FORBIDDEN}]+)+")  # a query could carry a secret
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9](?!.*\.\.)[A-Za-z0-9._-]{1,61}[A-Za-z0-9]", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SECRETS = re.compile(r"(?<=//).*@|[?#].*", re.DOTALL)
_OPERATION = re.compile(r"\w{1,63}/\w{1,63}-\d{1,19}/data/[0-9a-f]{32}(?=/|\Z)", re.ASCII)
_EXTENSION = re.compile(r"[a-z0-9]{1,16}", re.ASCII)
_SEGMENT = re.compile(rf"(?!\.\.?\Z)[^/{_FORBIDDEN}]+")


def normalize(text: str) -> str:
    """The one spelling of an absolute location: `/a/b` or `s3://bucket/a/b`.

    `file:/a`, `file:///a%20b` (escapes decoded), `//a/`, `/a/./b`, `s3a://` and `S3://` are understood;
    escapes mean something in file URIs only, because object keys may hold a literal percent sign.
    """
    require_clean(text)
    uri = _URI.fullmatch(text)
    if uri is None:
        return _from_plain(text)
    if "?" in uri[2] or "#" in uri[2]:
        raise _refused(text, "a location has no query and no fragment")
    scheme = uri[1].lower()
    if scheme == "file":
        return _from_file_uri(text, uri[2])
    if scheme in _OBJECT_SCHEMES:
        return _from_object_uri(text, uri[2])
    raise _refused(text, f"the scheme {scheme} is not supported; use a plain path, file:// or s3://")


def parse_location(text: str) -> str:
    """The path that a location in Iceberg metadata names: as `normalize`, but a percent sign in a file URI stands for itself.

    No reader of Iceberg decodes locations, and engines put escaped partition values into the names of directories.
    """
    uri = _URI.fullmatch(text)
    if uri is None or uri[1].lower() != "file":
        return normalize(text)
    require_clean(text)
    return "/" + _join_segments(text, _path_of_file_uri(uri[2]))


def has_scheme(text: str) -> bool:
    return _URI.fullmatch(text) is not None


def is_local(location: str) -> bool:
    return location.startswith("/")


def below(directory: str, *names: str) -> str:
    """The path of something in `directory`; every name is one step down, and one that would lead elsewhere is refused."""
    for name in names:
        if not _SEGMENT.fullmatch(name):
            raise PathRefusedError(name, reason="it is not the name of one file or directory")
    return "/".join((directory, *names))


def _from_plain(text: str) -> str:
    if not text.startswith("/"):
        raise _refused(text, "it is not absolute")
    return "/" + _join_segments(text, text)


def _from_file_uri(text: str, rest: str) -> str:
    return "/" + _join_segments(text, _decode_escapes(text, _path_of_file_uri(rest)))


def _path_of_file_uri(rest: str) -> str:
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        path = slash + tail
    if host.lower() not in _THIS_HOST or not path.startswith("/"):
        raise _refused("file://***", "it names another host; write file:///absolute/path")
    return path


def _from_object_uri(text: str, rest: str) -> str:
    bucket, _, key = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        # Whatever stands here may be a secret, so the message does not repeat it.
        raise _refused("s3://***", "write s3://bucket/prefix; credentials belong into the AWS_* environment, never into a location")
    segments = _join_segments(text, key)
    return f"s3://{bucket}/{segments}" if segments else f"s3://{bucket}"


def _decode_escapes(text: str, path: str) -> str:
    if _BAD_ESCAPE.search(path):
        raise _refused(text, "it has a percent sign that starts no escape; write %25")
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError as exc:
        raise _refused(text, "its escapes are not UTF-8") from exc
    require_clean(decoded)
    return decoded


def _join_segments(text: str, path: str) -> str:
    segments = [segment for segment in path.split("/") if segment not in {"", "."}]
    if ".." in segments:
        raise _refused(text, "it contains '..'")
    return "/".join(segments)


def require_clean(text: str) -> None:
    if found := _BAD_CHARACTER.search(text):
        raise _refused(text, f"the character {found[0]!a} is not allowed in a path")


def _refused(text: str, reason: str) -> PathRefusedError:
    shown = _SECRETS.sub("***", text) if has_scheme(text) else text
    return PathRefusedError(shown, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """The root of a lake's files, in canonical spelling."""

    root: str

    def __post_init__(self) -> None:
        if normalize(self.root) != self.root or self.root == "/":
            raise _refused(self.root, "it is not a canonical warehouse root below '/'")

    @property
    def is_local(self) -> bool:
        return is_local(self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathManager:
    """Makes the paths of one warehouse, and refuses every path that is not inside it."""

    warehouse: Warehouse

    @property
    def root(self) -> str:
        return self.warehouse.root

    @property
    def marker(self) -> str:
        return f"{self.root}/{MARKER_NAME}"  # asked for with every deletion

    def table_directory(self, table_id: int, name: TableName) -> str:
        """Holds the id, so a table that is dropped and created again never reads its old files."""
        if table_id < 1:
            message = f"table id {table_id} is not positive"
            raise InvalidValueError(message)
        return below(self.root, name.database, f"{name.name}-{table_id}")

    def operation_directory(self, table_id: int, name: TableName, op_id: str) -> str:
        return below(self.table_directory(table_id, name), _DATA, require_op_id(op_id))

    def metadata_directory(self, table_id: int, name: TableName) -> str:
        return below(self.table_directory(table_id, name), _METADATA)

    def new_file(self, operation_directory: str, ordinal: int, extension: str) -> str:
        """Unique as long as the operation counts its files; the directory makes it unique in the lake."""
        if ordinal < 0 or not _EXTENSION.fullmatch(extension):
            message = f"file {ordinal!a}.{extension!a}: the ordinal counts from 0, the extension is 1 to 16 of a-z 0-9"
            raise InvalidValueError(message)
        return below(self.require_operation_directory(operation_directory), f"part-{ordinal:05d}.{extension}")

    def holds(self, location: str) -> bool:
        """Whether a normalized location is below the root (the root itself does not)."""
        return location.startswith(self.root) and location[len(self.root) : len(self.root) + 1] == "/"

    def is_canonical(self, path: str) -> bool:
        clean = _CLEAN_LOCAL if self.root[0] == "/" else _CLEAN_OBJECT
        return self.holds(path) and clean.fullmatch(path, len(self.root)) is not None

    def canonical(self, path: str) -> str:
        """The one spelling of a path below the root; anything else is refused. Purely textual: `local` handles symlinks."""
        if self.is_canonical(path):
            return path  # nearly every call: the registry hands back what was canonical when stored
        location = normalize(path)
        if not self.holds(location):
            raise _refused(path, f"it is not below the warehouse {self.root}")
        return location

    def canonical_directory(self, path: str) -> str:
        """Like `canonical`, but the root itself is allowed."""
        return self.root if normalize(path) == self.root else self.canonical(path)

    def relative(self, path: str) -> str:
        return self.canonical(path)[len(self.root) + 1 :]

    def find_operation_directory(self, path: str) -> str | None:
        """The directory of the operation that owns `path` (or is `path`), if it is in one."""
        found = _OPERATION.match(self.relative(path))
        return f"{self.root}/{found[0]}" if found else None

    def require_operation_directory(self, path: str) -> str:
        directory = self.canonical(path)
        if self.find_operation_directory(directory) != directory:
            raise _refused(path, "it is not an operation's directory (<database>/<table>-<id>/data/<op_id>)")
        return directory

    def require_deletable(self, path: str) -> str:
        """Canonical, and not the marker."""
        return self.require_not_marker(self.canonical(path))

    def require_not_marker(self, location: str) -> str:
        """Refuses the marker alone: without it the warehouse has no identity."""
        if location == self.marker:
            raise _refused(location, "it is the warehouse's own marker")
        return location
