"""The lake does not exist, cannot be opened by this program, or was closed; nothing was changed."""

from __future__ import annotations

from lakebed.core.errors.families import RefusedError


class RegistryNewerError(RefusedError):
    """The registry was written by a newer program."""

    code = "registry_newer"

    def __init__(self, found: str, *, known: str) -> None:
        super().__init__(
            f"the registry is at revision {found}, this program knows {known}: upgrade Lakebed on this host; nothing was changed"
        )
        self.found, self.known = found, known


class RegistryOlderError(RefusedError):
    """The registry must be migrated first."""

    code = "registry_older"

    def __init__(self, found: str, *, known: str) -> None:
        super().__init__(f"the registry is at revision {found}, this program needs {known}: stop the writers and run `lakebed migrate`")
        self.found, self.known = found, known


class RegistryRefusedError(RefusedError):
    """The registry's location or state is unsuitable (network drive, foreign database, open permissions)."""

    code = "registry_refused"


class RegistryMissingError(RefusedError):
    """There is no registry at the URL, and the call does not create one."""

    code = "registry_missing"

    def __init__(self, url: str, *, warehouse: str | None = None) -> None:
        """`warehouse` is given if it holds the files of another registry, so that a new registry could not own it."""
        missing = f"no lake here: there is no registry at {url}"
        if warehouse is None:
            super().__init__(f"{missing}: check the spelling, or run `lakebed init`; nothing was created")
        else:
            super().__init__(
                f"{missing}, and {warehouse} holds the files of another registry: check the spelling, or restore the registry from a backup; "
                "nothing was created"
            )
        self.url, self.warehouse = url, warehouse


class RegistryReadOnlyError(RefusedError):
    """The registry cannot be written by this process."""

    code = "registry_read_only"

    def __init__(self, where: str) -> None:
        super().__init__(f"the registry {where} is read-only for this process: give it write permission on file and directory")


class ForkedConnectionError(RefusedError):
    """A connection was inherited over fork; using it would corrupt the registry."""

    code = "forked_connection"

    def __init__(self) -> None:
        super().__init__("this registry was opened before a fork: open a new one in the child process")


class WrongLakeError(RefusedError):
    """A function that one lake registered runs where the environment names another lake."""

    code = "wrong_lake"

    def __init__(self, what: str, *, lake_id: str, advice: str) -> None:
        super().__init__(f"{what} is not that of the lake {lake_id}, which registered this function, and nothing was done: {advice}")
        self.what, self.lake_id = what, lake_id


class LakeClosedError(RefusedError):
    """The lake, or an object made from it, was used after `close`."""

    code = "lake_closed"

    def __init__(self) -> None:
        super().__init__("this lake is closed: open it again with `lakebed.connect`")
