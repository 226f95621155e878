"""Secrets are taken out of every text that leaves the process: logs, statuses, stored errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HIDDEN = "***"
_LEAST_CHARS = 4  # a shorter secret is hidden where a URL shows it; anywhere else it would hide half of every text
_IN_URL = re.compile(r"(?P<before>[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@'\"]*):(?P<secret>[^\s'\"]*)@")
_ASSIGNED = re.compile(
    r"(?i)(?P<before>\b[\w.-]*(?:password|passwd|secret_access_key|secret[._-]key|session_token|access_token)[\"']?\s*[=:]\s*[\"']?)[^\s'\"&,;}]+"
)


class Redactor:
    """Hides passwords in URLs and assignments, and the given secrets wherever they occur."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {form for secret in secrets for form in _spell(secret) if len(form) >= _LEAST_CHARS}
        self._known = sorted(found, key=lambda secret: (-len(secret), secret))  # the longest first: one may be part of another

    def __call__(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        return hide_secrets(text)


def _spell(secret: str) -> Iterator[str]:
    """As it is written in URLs, and as texts quote it that show the value of a variable."""
    for form in {secret, unquote(secret)}:
        yield from (form, quote(form), quote(form, safe=""))
        escaped = form.replace("\\", "\\\\")
        yield from (escaped, escaped.replace("'", "\\'"), escaped.replace('"', '\\"'))


def hide_secrets(text: str) -> str:
    """The text without the passwords that its URLs and assignments show."""
    return _ASSIGNED.sub(rf"\g<before>{HIDDEN}", _IN_URL.sub(rf"\g<before>:{HIDDEN}@", text))


def strip_password(url: str) -> str:
    """The URL without the password, which a process that connects reads from the environment or from PostgreSQL's password file."""
    before, asked, query = _IN_URL.sub(r"\g<before>@", url).partition("?")
    kept = [part for part in query.split("&") if not part.lower().startswith("password=")]
    return f"{before}{asked if any(kept) else ''}{'&'.join(kept)}"


def find_passwords(urls: Iterable[str | None]) -> list[str]:
    """What may be the password in these URLs, as written: one that holds an `@` leaves several readings."""
    found: list[str] = []
    for url in urls:
        _, _, rest = (url or "").partition("://")
        user, _, beyond = rest.partition(":")
        if "/" not in user and "@" not in user:
            found += [beyond[:at] for at, letter in enumerate(beyond) if letter == "@"]
    return [secret for secret in found if secret]
