"""Manifests stay few and unchanged ones are never rewritten: a commit's work does not grow with the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from builders import new_partition, operation
from ice import IceLake, shop_rows, write_file
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.commit.snapshot import DEFAULT_LIMITS, Change, MergeLimits, choose_operation, plan_manifests
from lakebed.iceberg.manifests.avro import Manifest
from lakebed.registry.partitions.publish import publish_partition
from lakebed.staging.register import register_files

if TYPE_CHECKING:
    from collections.abc import Callable

MERGE_AT, FULL_FILES = DEFAULT_LIMITS.merge_at, DEFAULT_LIMITS.full_files


def _manifest(number: int, *, files: int = 1, spec_id: int = 0, length: int = 1000) -> Manifest:
    return Manifest(
        manifest_path=f"m{number}", manifest_length=length, partition_spec_id=spec_id, sequence_number=number, min_sequence_number=number,
        added_snapshot_id=1, added_files_count=files, existing_files_count=0, deleted_files_count=0, added_rows_count=files,
        existing_rows_count=0, deleted_rows_count=0,
    )  # fmt: skip


def test_few_manifests_are_left_alone() -> None:
    manifests = [_manifest(number) for number in range(MERGE_AT - 1)]

    plan = plan_manifests(manifests, set(), spec_id=0)

    assert plan.kept == tuple(manifests)
    assert plan.merged == plan.rewritten == ()


def test_many_small_ones_are_merged_oldest_first_in_a_bounded_portion() -> None:
    manifests = [_manifest(number, files=20) for number in range(MERGE_AT)]

    plan = plan_manifests(manifests, set(), spec_id=0)

    assert plan.merged == tuple(manifests[: FULL_FILES // 20])
    assert sum(m.live_files for m in plan.merged) <= FULL_FILES


def test_a_full_manifest_is_never_rewritten_to_merge() -> None:
    manifests = [_manifest(number, files=FULL_FILES) for number in range(500)]

    assert plan_manifests(manifests, set(), spec_id=0).kept == tuple(manifests)


def test_manifests_without_live_files_are_left_behind() -> None:
    empty = replace(_manifest(1), added_files_count=0, deleted_files_count=3)

    assert plan_manifests([empty, _manifest(2)], set(), spec_id=0).kept == (_manifest(2),)


@given(st.lists(st.tuples(st.integers(1, 2 * FULL_FILES), st.integers(0, 1), st.booleans()), max_size=300))
def test_every_live_manifest_has_exactly_one_fate(shapes: list[tuple[int, int, bool]]) -> None:
    manifests = [_manifest(number, files=files, spec_id=spec) for number, (files, spec, _) in enumerate(shapes)]
    touched = {f"m{number}" for number, (_, _, chosen) in enumerate(shapes) if chosen}

    plan = plan_manifests(manifests, touched, spec_id=0)

    fates = [m.manifest_path for part in (plan.kept, plan.rewritten, plan.merged) for m in part]
    assert sorted(fates) == sorted(m.manifest_path for m in manifests)
    assert {m.manifest_path for m in plan.rewritten} == touched | {m.manifest_path for m in manifests if m.partition_spec_id}
    assert sum(m.live_files for m in plan.merged) <= FULL_FILES


def test_replace_is_said_only_where_rows_are_known_to_be_the_same() -> None:
    files: Callable[..., Change] = lambda **kw: Change(**{"added": ({},), "removed": frozenset({"a"}), **kw})  # noqa: E731

    assert choose_operation(files(is_rewrite=True), added_rows=5, removed_rows=5) == "replace"
    assert choose_operation(files(is_rewrite=True), added_rows=4, removed_rows=5) == "overwrite"
    assert choose_operation(files(), added_rows=5, removed_rows=5) == "overwrite"
    assert choose_operation(files(removed=frozenset()), added_rows=5, removed_rows=0) == "append"
    assert choose_operation(files(added=()), added_rows=0, removed_rows=5) == "delete"


def test_one_file_per_commit_keeps_manifests_few_and_every_file_once(ice: IceLake) -> None:
    limits = MergeLimits(merge_at=6, full_files=8)
    ice.committer = Committer(ice.lake.registry, ice.lake.storage, ice.catalog, limits=limits)
    ice.create()
    seen: dict[str, int] = {}
    for number in range(30):
        ice.insert(number)
        for manifest in ice.manifests():
            assert seen.setdefault(manifest.manifest_path, manifest.manifest_length) == manifest.manifest_length

    assert len(ice.manifests()) <= 6 + 30 // 4
    assert len({entry["sequence_number"] for entry in ice.entries()}) == 30  # merging keeps each file's own sequence number
    ice.require_true()


def test_a_removal_rewrites_only_the_manifests_that_hold_it(ice: IceLake) -> None:
    ice.create()
    published = []
    for number in range(5):
        published.append(ice.write(number))
        ice.seal()
        ice.advance()
    before = {m.manifest_path for m in ice.manifests()}
    ice.retire(published[2].partition_id)

    ice.advance()

    after = {m.manifest_path for m in ice.manifests()}
    assert len(before - after) == len(after - before) == 1
    ice.require_true()


def test_many_files_of_one_window_are_one_snapshot_and_one_manifest(ice: IceLake) -> None:
    table = ice.create()
    paths = [write_file(ice.lake, table, shop_rows(table.schema, number)) for number in range(40)]
    register_files(ice.lake.registry, ice.lake.storage, table, paths)
    ice.seal()

    done = ice.advance()

    assert done.added == 40
    assert len(ice.manifests()) == len(ice.base().metadata.snapshots) == 1
    ice.require_true()


def test_an_empty_partition_is_nothing_to_iceberg(ice: IceLake) -> None:
    table = ice.create()
    publish_partition(ice.lake.registry, new_partition(table), operation())

    assert ice.seal() is None
    assert ice.committer.advance(table.table_id) is None
