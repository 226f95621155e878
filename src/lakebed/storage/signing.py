"""The one request pyarrow cannot make: a PUT that fails when the object exists (`If-None-Match: *`), signed with AWS SigV4."""

from __future__ import annotations

import hashlib
import hmac
import http.client
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from lakebed.core.errors import PathRefusedError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 30
_ATTEMPTS = 5
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def find_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """From `AWS_ACCESS_KEY_ID` and its companions; profiles and instance roles are known to pyarrow alone."""
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        return None
    return Credentials(access_key=access_key, secret_key=secret_key, session_token=environment.get("AWS_SESSION_TOKEN", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go. `host` may carry a port."""

    host: str
    region: str
    secure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalWriter:
    """Creates objects that were not there. As exclusive as the store: AWS, MinIO, R2 and Ceph honour the header."""

    endpoint: Endpoint
    credentials: Credentials

    def create(self, path: str, data: bytes) -> bool:
        """False when the object exists already. `StorageUnavailableError` leaves open whether it was made: check whether it exists before you retry."""
        for _ in range(_ATTEMPTS):
            status, reason = self._put(path, data)
            if status != HTTPStatus.CONFLICT:  # another conditional write of the key is under way
                break
        match status:
            case HTTPStatus.OK:
                return True
            case HTTPStatus.PRECONDITION_FAILED:
                return False
            case HTTPStatus.NOT_FOUND:
                raise PathRefusedError(path, reason="the bucket does not exist; create it first")
            case _:
                message = f"cannot create {path!a}: the object store answered {status} {reason}; check whether it exists before you retry"
                raise StorageUnavailableError(message)

    def _put(self, path: str, data: bytes) -> tuple[int, str]:
        target = "/" + quote(path.removeprefix("s3://"), safe="/-_.~")
        headers = sign_put(target, data, endpoint=self.endpoint, credentials=self.credentials, now=datetime.now(UTC))
        connect = http.client.HTTPSConnection if self.endpoint.secure else http.client.HTTPConnection
        connection = connect(self.endpoint.host, timeout=_TIMEOUT_S)
        try:
            connection.request("PUT", target, body=data, headers=headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as exc:
            message = f"cannot create {path!a}: {exc}; check whether it exists before you retry"
            raise StorageUnavailableError(message) from exc
        finally:
            connection.close()
        return response.status, response.reason


def sign_put(target: str, data: bytes, *, endpoint: Endpoint, credentials: Credentials, now: datetime) -> dict[str, str]:
    """The headers of a signed `PUT target` with `If-None-Match: *`; `target` is quoted already."""
    moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {
        "host": endpoint.host,
        "if-none-match": "*",
        "x-amz-content-sha256": hashlib.sha256(data).hexdigest(),
        "x-amz-date": moment,
    }
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"PUT\n{target}\n\n{lines}\n{names}\n{headers['x-amz-content-sha256']}"
    scope = f"{day}/{endpoint.region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(_derive_key(credentials.secret_key, scope), text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return headers


def _derive_key(secret_key: str, scope: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
