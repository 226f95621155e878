"""What becomes of the manifests of the parent snapshot: kept, rewritten, or merged in tiers.

A tier holds manifests of about the same number of files, a power of the limit. When a tier has that number of manifests, they become one
of the next tier: the number of manifests is logarithmic beside those that are full, and a file is copied once per tier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.iceberg.manifests.avro import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """`merge_at` manifests of one tier become one of the next; nothing is merged beyond a full one, which is all that a commit rewrites for it."""

    merge_at: int = 10
    full_files: int = 10_000
    full_bytes: int = 8 << 20
    most_merged: int = 100  # manifests in one commit: each is a file to open

    def is_full(self, manifest: Manifest) -> bool:
        """Two of them would be more than one may hold."""
        return manifest.live_files * 2 > self.full_files or manifest.manifest_length * 2 > self.full_bytes


DEFAULT_LIMITS = MergeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlan:
    """What becomes of the manifests of the parent snapshot."""

    kept: tuple[Manifest, ...]
    rewritten: tuple[Manifest, ...]
    merged: tuple[Manifest, ...]


def plan_manifests(
    manifests: Sequence[Manifest], touched: AbstractSet[str], *, spec_id: int, limits: MergeLimits = DEFAULT_LIMITS
) -> ManifestPlan:
    """Touched ones and those of another spec are rewritten; the lowest tier that has too many is merged, the others with later commits.

    Manifests that hold nothing any more are left behind.
    """
    live = [manifest for manifest in manifests if manifest.live_files]
    rewritten = tuple(m for m in live if m.manifest_path in touched or m.partition_spec_id != spec_id)
    rest = [m for m in live if m.manifest_path not in touched and m.partition_spec_id == spec_id]
    merged = _portion(rest, limits)
    chosen = {manifest.manifest_path for manifest in merged}
    return ManifestPlan(kept=tuple(m for m in rest if m.manifest_path not in chosen), rewritten=rewritten, merged=merged)


def find_tier(files: int, merge_at: int) -> int:
    tier = 0
    while files >= merge_at:
        files, tier = files // merge_at, tier + 1
    return tier


def _portion(manifests: Sequence[Manifest], limits: MergeLimits) -> tuple[Manifest, ...]:
    tiers: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        if not limits.is_full(manifest):
            tiers.setdefault(find_tier(manifest.live_files, limits.merge_at), []).append(manifest)
    crowded = [tier for tier, found in tiers.items() if len(found) >= limits.merge_at]
    return _oldest(tiers[min(crowded)], limits) if crowded else ()


def _oldest(manifests: Sequence[Manifest], limits: MergeLimits) -> tuple[Manifest, ...]:
    """Neighbours in time, as many as one full manifest takes: a commit's work stays bounded however long the history is."""
    chosen: list[Manifest] = []
    files = size = 0
    for manifest in sorted(manifests, key=lambda m: (m.min_sequence_number, m.sequence_number))[: limits.most_merged]:
        files, size = files + manifest.live_files, size + manifest.manifest_length
        if chosen and (files > limits.full_files or size > limits.full_bytes):
            break
        chosen.append(manifest)
    return tuple(chosen) if len(chosen) > 1 else ()
