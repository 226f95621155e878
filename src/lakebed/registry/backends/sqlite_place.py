"""The rules for a registry file's place: on a local disk, and private."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from lakebed.core.errors import RegistryReadOnlyError, RegistryRefusedError

_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs"})


def require_fit_place(path: Path) -> None:
    try:
        exists = path.exists()
    except PermissionError as exc:  # of a directory on the way
        raise RegistryReadOnlyError(f"sqlite:///{path}") from exc
    if exists:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = f"the registry {path} is not a regular file"
            raise RegistryRefusedError(message)
        if mode & 0o077:
            message = f"the registry {path} is open to others (mode {stat.S_IMODE(mode):04o}): run `chmod 600` on it"
            raise RegistryRefusedError(message)
    kind = _file_system(path.parent)
    if kind in _NETWORK_FILE_SYSTEMS:
        message = f"the registry {path} is on a network drive ({kind}), where SQLite's locks do not work: use a local disk or PostgreSQL"
        raise RegistryRefusedError(message)


def _file_system(directory: Path) -> str:
    """Empty where the system does not say."""
    mounts = Path("/proc/self/mounts")
    return find_mount_kind(mounts.read_text(errors="replace"), str(directory.resolve())) if mounts.exists() else ""


def find_mount_kind(mounts: str, where: str) -> str:
    """The type of the deepest mount that holds `where`, from the text of /proc/self/mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        _, escaped, found, *_ = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped)  # a blank is written as \040
        if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, found
    return kind
