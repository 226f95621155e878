"""The URL of a registry on PostgreSQL: its own options, the form that may be shown, and the check that the transport is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from lakebed.core.errors import InvalidValueError, RegistryRefusedError
from lakebed.core.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

# a peer that is gone is noticed within a minute, whether we wait for it or it for us
_LINE = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3", "tcp_user_timeout": "60000"}
_IDLE_S = 60.0
_DAY_S = 86_400.0
_OURS = frozenset({"prepared", "idle_in_transaction_s"})
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
_SAFE_SSL = frozenset({"verify-full", "verify-ca"})


def split_options(url: str) -> tuple[str, dict[str, str]]:
    """Libpq refuses parameters it does not know, so ours are taken out: `prepared=off` for old poolers, and `idle_in_transaction_s`."""
    parts = _split(url)
    ours = {key: value for key, value in parse_qsl(parts.query) if key in _OURS}
    theirs = {**_LINE, **{key: value for key, value in parse_qsl(parts.query) if key not in _OURS}}
    scheme = "postgresql"
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(theirs), "")), ours


def read_idle_ms(options: Mapping[str, str]) -> int:
    """How long the server waits for the next statement of a write before it ends the session; 0 is for ever."""
    given = options.get("idle_in_transaction_s", str(_IDLE_S))
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < _DAY_S:
        message = f"invalid idle_in_transaction_s={given[:40]!a} in the registry's URL: expected seconds from 0 (no limit) to a day"
        raise InvalidValueError(message)
    return int(seconds * 1000)


def _split(url: str) -> SplitResult:
    """Python's own error about an invalid URL quotes the text in place of the port, which may be a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        message = "the registry's URL cannot be read: write postgresql://user:password@host:5432/database, special letters as %40"
        raise InvalidValueError(message) from None
    return parts


def hide_password(url: str) -> str:
    """As it may be shown; of another database's URL only the password is taken out."""
    if not url.startswith(("postgresql:", "postgres:")):
        return hide_secrets(url)
    parts = _split(url)
    user = f"{parts.username}@" if parts.username else ""
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"postgresql://{user}{host}{port}{parts.path}"


def require_safe_transport(dsn: str) -> None:
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    host = query.get("host", parts.hostname or "")
    if host in _LOCAL or host.startswith("/") or query.get("sslmode") in _SAFE_SSL:
        return
    message = f"the registry on {host} would be reached without a checked certificate: add ?sslmode=verify-full to the URL"
    raise RegistryRefusedError(message)
