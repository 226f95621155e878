"""Manifests stay few and unchanged ones are never rewritten: a commit's work does not grow with the table."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from builders import new_partition, operation
from ice import IceLake, shop_rows, write_file
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.commit.merging import DEFAULT_LIMITS, MergeLimits, find_tier, plan_manifests
from lakebed.iceberg.commit.snapshot import Sums, choose_operation
from lakebed.iceberg.manifests.avro import Manifest
from lakebed.registry.partitions.publish import publish_partition
from lakebed.staging.register import register_files

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


def test_a_tier_that_is_full_becomes_one_manifest_of_the_next() -> None:
    small, larger = [_manifest(n, files=3) for n in range(100, 100 + MERGE_AT)], [_manifest(n, files=30) for n in range(MERGE_AT - 1)]

    plan = plan_manifests([*small, *larger], set(), spec_id=0)

    assert plan.merged == tuple(small)
    assert plan.kept == tuple(larger)
    assert find_tier(3 * MERGE_AT, MERGE_AT) == find_tier(30, MERGE_AT) == find_tier(3, MERGE_AT) + 1


def test_a_merge_takes_the_oldest_of_a_tier_up_to_one_full_manifest() -> None:
    files = FULL_FILES // 4
    manifests = [_manifest(number, files=files) for number in reversed(range(MERGE_AT))]

    plan = plan_manifests(manifests, set(), spec_id=0)

    assert [m.manifest_path for m in plan.merged] == ["m0", "m1", "m2", "m3"]


def test_no_commit_opens_more_than_a_bounded_number_of_manifests() -> None:
    manifests = [_manifest(number) for number in range(5_000)]

    assert len(plan_manifests(manifests, set(), spec_id=0).merged) == DEFAULT_LIMITS.most_merged


@given(st.lists(st.sampled_from([1, 1, 1, 2, 7, 40, 900]), min_size=1, max_size=400))
def test_whatever_each_commit_adds_manifests_stay_logarithmic_and_files_are_copied_once_per_tier(added: list[int]) -> None:
    limits = MergeLimits(merge_at=4, full_files=1_024)
    manifests: list[Manifest] = []
    copied = 0
    for number, files in enumerate(added):
        plan = plan_manifests(manifests, set(), spec_id=0, limits=limits)
        merged = sum(m.live_files for m in plan.merged)
        copied += merged
        manifests = [*plan.kept, _manifest(2 * number, files=files)]
        manifests += (
            [replace(_manifest(2 * number + 1, files=merged), min_sequence_number=plan.merged[0].min_sequence_number)] if merged else []
        )

    total, tiers = sum(added), find_tier(limits.full_files, limits.merge_at) + 1
    assert sum(m.live_files for m in manifests) == total
    assert len(manifests) <= tiers * (limits.merge_at + 1) + 2 * total / limits.full_files
    assert copied <= total * (tiers + 1)


def test_a_full_manifest_is_never_rewritten_to_merge() -> None:
    manifests = [_manifest(number, files=FULL_FILES // 2 + 1) for number in range(500)]

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
    five, four, none = Sums(files=1, rows=5), Sums(files=1, rows=4), Sums()

    assert choose_operation(five, five, is_rewrite=True) == "replace"
    assert choose_operation(four, five, is_rewrite=True) == "overwrite"
    assert choose_operation(five, five, is_rewrite=False) == "overwrite"
    assert choose_operation(five, none, is_rewrite=False) == "append"
    assert choose_operation(none, five, is_rewrite=False) == "delete"


def test_one_file_per_commit_keeps_manifests_few_and_every_file_once(ice: IceLake) -> None:
    limits = MergeLimits(merge_at=3, full_files=9)
    ice.committer = Committer(ice.lake.registry, ice.lake.storage, ice.catalog, limits=limits)
    ice.create()
    seen: dict[str, int] = {}
    for number in range(30):
        ice.insert(number)
        for manifest in ice.manifests():
            assert seen.setdefault(manifest.manifest_path, manifest.manifest_length) == manifest.manifest_length

    assert len(ice.manifests()) <= 2 * 3 + 2 * 30 // 9
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
