"""Which manifests hold the files that leave: by the ranges of file ids that the manifest list keeps, else by reading all of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.core.errors import IcebergDriftError
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.manifests.avro import decode_locations
from lakebed.iceberg.manifests.carry import find_locations
from lakebed.iceberg.manifests.file_ids import join_ranges, span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.iceberg.manifests.avro import Manifest, ManifestFormat
    from lakebed.iceberg.manifests.cache import ManifestStore
    from lakebed.iceberg.manifests.file_ids import Ranges


_MOST_LEARNED = 40_000  # files whose ids are looked up in one commit


def _find_nothing(_: Sequence[int]) -> Mapping[str, int]:
    return {}


def _know_nothing(_: Sequence[str]) -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Files that leave: those that the registry knows by their ids, in order, others by their locations alone."""

    ids: Sequence[int] = ()
    locate: Callable[[Sequence[int]], Mapping[str, int]] = _find_nothing  # locations of some of the ids
    identify: Callable[[Sequence[str]], Sequence[int]] = _know_nothing  # ids of files anywhere in the table, as far as they are known
    strays: frozenset[str] = field(default=frozenset())

    def __bool__(self) -> bool:
        return bool(self.ids or self.strays)


@dataclass(slots=True)
class RemovalSearch:
    """Finds the manifest of each; holds some bytes per file, and the locations of one manifest's files at a time."""

    removals: Removals
    form: ManifestFormat
    store: ManifestStore
    found: dict[str, array[int]] = field(default_factory=dict)  # manifest -> ids
    strays_found: dict[str, set[str]] = field(default_factory=dict)  # manifest -> locations
    learned: dict[str, Ranges] = field(default_factory=dict)  # manifest -> what the list did not say of it
    _files_learned: int = 0
    _is_found: bytearray = field(init=False)
    _left: int = field(init=False)
    _strays: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._is_found = bytearray(len(self.removals.ids))
        self._left, self._strays = len(self.removals.ids), set(self.removals.strays)

    def run(self, manifests: Sequence[Manifest], *, table: str) -> None:
        """Whatever the ranges say, what they did not lead to is looked for everywhere; a file in no manifest is drift."""
        live = [manifest for manifest in manifests if manifest.live_files]
        known = sorted((m for m in live if m.file_ids is not None), key=lambda m: span(m.file_ids or ()))
        for manifest in known if self._left else ():
            if wanted := self._expected_in(manifest):
                self._look(manifest, wanted)
        if self._left or self._strays:
            self._look_everywhere(live, table)

    def improve(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """With the ranges that the search has seen, so that the next one need not search."""
        return [replace(m, file_ids=self.learned.get(m.manifest_path, m.file_ids)) for m in manifests]

    @property
    def touched(self) -> set[str]:
        return self.found.keys() | self.strays_found.keys()

    @property
    def files_found(self) -> int:
        return sum(map(len, self.found.values())) + sum(map(len, self.strays_found.values()))

    def locations_in(self, manifest: Manifest) -> frozenset[str]:
        """Of the files that leave it."""
        path = manifest.manifest_path
        return frozenset(self.removals.locate(self.found.get(path, ()))) | self.strays_found.get(path, set())

    def _expected_in(self, manifest: Manifest) -> Mapping[str, int]:
        ids = self.removals.ids
        spans = [range(bisect_left(ids, first), bisect_right(ids, last)) for first, last in manifest.file_ids or ()]
        missing = [ids[i] for span in spans for i in span if not self._is_found[i]]
        return self.removals.locate(missing) if missing else {}

    def _look_everywhere(self, manifests: Sequence[Manifest], table: str) -> None:
        missing = [file_id for file_id, is_found in zip(self.removals.ids, self._is_found, strict=True) if not is_found]
        wanted = {**self.removals.locate(missing), **dict.fromkeys(self._strays, 0)}
        for manifest in sorted(manifests, key=lambda m: m.file_ids is not None):  # first where nothing is known
            if not (self._left or self._strays):
                return
            self._look(manifest, wanted)
        if self._left or self._strays:
            left = [location for location, file_id in wanted.items() if location in self._strays or (file_id and not self._has(file_id))]
            example = f", {from_uri(min(left))} among them" if left else ""
            raise IcebergDriftError(table, problem=f"{self._left + len(self._strays)} files to remove are in no manifest{example}")

    def _look(self, manifest: Manifest, wanted: Mapping[str, int]) -> None:
        content = self.store.read(manifest)
        if manifest.file_ids is None and self._files_learned < _MOST_LEARNED:
            self._learn(manifest, content)
        for location in find_locations(self.form, manifest, content, wanted.keys()):
            if location in self._strays:
                self._strays.discard(location)
                self.strays_found.setdefault(manifest.manifest_path, set()).add(location)
            elif (file_id := wanted[location]) and not self._has(file_id):
                self._is_found[bisect_left(self.removals.ids, file_id)] = True
                self._left -= 1
                self.found.setdefault(manifest.manifest_path, array("q")).append(file_id)

    def _learn(self, manifest: Manifest, content: bytes) -> None:
        locations = decode_locations(content, manifest)
        ids = self.removals.identify(locations)
        self._files_learned += len(locations)
        if len(ids) == len(locations):
            self.learned[manifest.manifest_path] = join_ranges((i, i) for i in ids)

    def _has(self, file_id: int) -> bool:
        return bool(self._is_found[bisect_left(self.removals.ids, file_id)])
