"""Open a warehouse: find its kind of storage, and prove that it belongs to this lake."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyarrow import fs

from lakebed.core.errors import CorruptionError, FileConflictError, PathRefusedError
from lakebed.storage.errors import translated
from lakebed.storage.local import LocalStorage, resolve_root
from lakebed.storage.paths import MARKER_NAME, PathManager, Warehouse, normalize
from lakebed.storage.s3 import ObjectStorage
from lakebed.storage.signing import ConditionalWriter, Endpoint, find_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.storage.protocol import Storage

MARKER_FORMAT = 1
_ADOPT = "`lakebed init --adopt-warehouse` marks a place that holds the files of a migrated registry, or with `--legacy URL` those of an older lake"
_ID_BYTES = 16
_CONNECT_TIMEOUT_S = 5.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The identity of a warehouse: a registry that has recorded it detects another one.

    `registry_id` names the one registry whose files are here; None if none was given when the warehouse was made.
    """

    warehouse_id: str
    format: int
    registry_id: str | None = None


def open_storage(
    warehouse: str,
    *,
    create: bool,
    endpoint_override: str | None = None,
    region: str | None = None,
    owner: Callable[[], str] | None = None,
    claims: Callable[[Storage], bool] | None = None,
    allow: Callable[[Storage], None] | None = None,
) -> Storage:
    """The storage at `warehouse`, with a valid marker; an unmarked place is marked only with `create`, and only if it is empty.

    `owner` gives the id of the registry that a new warehouse belongs to; asked only when one is made. `claims` is asked of a place with
    files: True when they are known to be the registry's own. `allow` may refuse a new warehouse before anything is made.
    """
    storage = _choose(warehouse, endpoint_override=endpoint_override, region=region)
    if storage.find_marker() is None:
        _require_markable(storage, create=create, claims=claims)
        if allow is not None:
            allow(storage)
        with _made_root(storage):
            mark_warehouse(storage, registry_id=None if owner is None else owner())
    read_marker(storage)
    return storage


def read_marker(storage: Storage) -> Marker:
    stored = storage.find_marker()
    if stored is None:
        raise PathRefusedError(storage.paths.root, reason=f"it is not a warehouse: it has no {MARKER_NAME}")
    try:
        content = json.loads(stored)
        owner = content.get("registry_id")
        marker = Marker(
            warehouse_id=bytes.fromhex(content["warehouse_id"]).hex(),
            format=int(content["format"]),
            registry_id=None if owner is None else bytes.fromhex(owner).hex(),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        message = f"{storage.paths.marker!a} is damaged: restore it from a backup; the registry knows the warehouse's id"
        raise CorruptionError(message) from exc
    if marker.format > MARKER_FORMAT:
        reason = f"its format is {marker.format}, this program knows {MARKER_FORMAT}: upgrade Lakebed on this host"
        raise PathRefusedError(storage.paths.root, reason=reason)
    return marker


def find_place(warehouse: str) -> Storage:
    """The storage at `warehouse`, marked or not; nothing is created."""
    return _choose(warehouse, endpoint_override=None, region=None)


def _require_markable(storage: Storage, *, create: bool, claims: Callable[[Storage], bool] | None) -> None:
    if not create:
        reason = f"there is no warehouse here: check the spelling, or create one with `lakebed init`; {_ADOPT}"
        raise PathRefusedError(storage.paths.root, reason=reason)
    # A marker is written before anything else, so files without a marker, which is looked for last, are not ours.
    if _has_root(storage) and not storage.is_unused() and storage.find_marker() is None and not (claims is not None and claims(storage)):
        reason = f"it holds other files and no {MARKER_NAME}: name an empty place, or move them away; {_ADOPT}"
        raise PathRefusedError(storage.paths.root, reason=reason)


def mark_warehouse(storage: Storage, *, registry_id: str | None, warehouse_id: str | None = None) -> None:
    """Write the marker; the caller has made sure that the place is empty or holds the registry's own files."""
    content = {"warehouse_id": warehouse_id or secrets.token_bytes(_ID_BYTES).hex(), "format": MARKER_FORMAT}
    if registry_id is not None:
        content["registry_id"] = registry_id
    with suppress(FileConflictError):  # another process marked it at the same time: its marker counts
        storage.create_exclusive(storage.paths.marker, json.dumps(content).encode())


def _choose(warehouse: str, *, endpoint_override: str | None, region: str | None) -> Storage:
    if warehouse.partition(":")[0].lower() in {"s3", "s3a", "s3n"}:
        place = Warehouse(root=normalize(warehouse))
        return _open_objects(place, endpoint_override=endpoint_override, region=region)
    return LocalStorage(paths=PathManager(warehouse=resolve_root(warehouse)))


def _has_root(storage: Storage) -> bool:
    """An object store has no directories that could be missing."""
    return not storage.paths.warehouse.is_local or os.path.lexists(storage.paths.root)


@contextmanager
def _made_root(storage: Storage) -> Iterator[None]:
    """Make the directory; when the block fails, those that were made here go again, as far as they are empty."""
    made: list[Path] = []
    try:
        if storage.paths.warehouse.is_local:
            with translated(storage.paths.root, doing="create"):
                _make_private_directories(Path(storage.paths.root), made)
        yield
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir()
        raise


def _make_private_directories(path: Path, made: list[Path]) -> None:
    """Unlike `mkdir(parents=True)`, every directory made on the way is private too."""
    if path.is_dir():
        return
    _make_private_directories(path.parent, made)
    with suppress(FileExistsError):  # made meanwhile, or no directory, which the first walk refuses
        path.mkdir(mode=0o700)
        made.append(path)


def _open_objects(place: Warehouse, *, endpoint_override: str | None, region: str | None) -> ObjectStorage:
    environment = os.environ
    override = endpoint_override or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    scheme, host = _split_endpoint(override) if override else ("https", None)
    client = fs.S3FileSystem(
        endpoint_override=host,
        scheme=scheme,
        region=region,
        connect_timeout=_CONNECT_TIMEOUT_S,
        background_writes=False,
        allow_delayed_open=True,  # small objects in one request
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )
    endpoint = Endpoint(host=host or _find_aws_host(client.region), region=client.region, secure=scheme == "https")
    credentials = find_credentials(environment)
    writer = ConditionalWriter(endpoint=endpoint, credentials=credentials) if credentials else None
    return ObjectStorage(paths=PathManager(warehouse=place), client=client, writer=writer)


def _find_aws_host(region: str) -> str:
    return f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _split_endpoint(override: str) -> tuple[str, str]:
    """Scheme and host of an endpoint; plain http only on this host, because keys and data would be readable on the way."""
    parts = urlsplit(override if "://" in override else f"https://{override}")
    if "@" in parts.netloc or parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise PathRefusedError("endpoint ***", reason="write it as https://host:port, without credentials and path")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise PathRefusedError(f"http://{parts.netloc}", reason="plain http is allowed on this host only; use https")
    return parts.scheme, parts.netloc


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
