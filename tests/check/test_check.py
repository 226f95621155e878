from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from uuid import uuid4

import psycopg
import pytest
import zstandard
from damages import DAMAGES, ORDERS_ID, Damage, Patient
from healthy_lake import HealthyLake

from lakebed.check import RULES, Severity, check
from lakebed.check.rules.replay import find_differences
from lakebed.check.run import open_snapshot
from lakebed.check.scan import Progress, Scan
from lakebed.core.errors import InvalidValueError, StorageUnavailableError
from lakebed.parquet.footer.upgrade import upgrade_v1
from lakebed.registry.open import open_registry
from lakebed.storage.local import LocalStorage
from lakebed.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Databases
    from lakebed.registry.registry import Registry
    from lakebed.storage.paths import PathManager
    from lakebed.storage.protocol import FileFacts, Storage

ALWAYS = "partition_incompatible"  # the healthy lake has partitions of an older definition


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A healthy registry to copy, and the warehouse of its paths."""

    url: str
    warehouse: Path
    pristine: Path


@pytest.fixture(scope="session")
def templates() -> dict[str, Template]:
    return {}


@pytest.fixture
def template(kind: str, databases: Databases, templates: dict[str, Template], tmp_path_factory: pytest.TempPathFactory) -> Template:
    if kind not in templates:
        place = tmp_path_factory.mktemp(kind)
        made = Template(url=databases.new(kind), warehouse=place / "warehouse", pristine=place / "pristine")
        registry = open_registry(made.url)
        HealthyLake(registry, open_storage(str(made.warehouse), create=True)).fill()
        registry.close()
        shutil.copytree(made.warehouse, made.pristine)
        templates[kind] = made
    return templates[kind]


@pytest.fixture
def url(template: Template, databases: Databases, kind: str, tmp_path: Path) -> Iterator[str]:
    if kind == "sqlite":
        made_at = Path(template.url.removeprefix("sqlite:///"))
        shutil.copy(made_at, tmp_path / "lake.db")
        shutil.copy(made_at.with_suffix(".iceberg.db"), tmp_path / "lake.iceberg.db")
        yield f"sqlite:///{tmp_path}/lake.db"
        return
    source, name = template.url.split("?")[0].rpartition("/")[2], f"lake_{uuid4().hex}"
    with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {source}".encode())
    made = databases.postgres_url.replace("/postgres?", f"/{name}?")
    yield made
    databases.drop(made)


@pytest.fixture
def storage(template: Template) -> Storage:
    shutil.rmtree(template.warehouse)
    shutil.copytree(template.pristine, template.warehouse)
    return open_storage(str(template.warehouse), create=False)


@pytest.fixture
def patient(registry: Registry, storage: Storage) -> Iterator[Patient]:
    made = Patient(registry, storage)
    yield made
    made.close()


def test_a_healthy_lake_is_clean(registry: Registry, storage: Storage) -> None:
    report = check(registry, storage, deep=True)

    assert [finding.rule for finding in report.findings] == [ALWAYS]
    assert report.clean
    assert report.omitted == {}
    assert set(report.checked) == {rule.name for rule in RULES}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_every_damage_is_found_by_its_rule(damage: Damage, registry: Registry, storage: Storage, patient: Patient) -> None:
    if registry.dialect not in damage.kinds:
        pytest.skip("this database refuses it")
    damage.inflict(patient)

    report = check(registry, storage, deep=damage.deep)

    assert {finding.rule for finding in report.findings} - {ALWAYS} == damage.expected(registry.dialect)
    assert not report.clean
    assert all(": " in finding.message for finding in report.findings), "every message ends with what to do"


def test_every_rule_is_proven_by_a_damage() -> None:
    # the healthy lake shows the first, a failing disk below the second, then test_statistics, test_left_out and test_compaction_damage
    elsewhere = {ALWAYS, "file_unreadable", "statistics_stale", "left_out_file", "file_pages", "rule_failed"}
    proven = {rule for damage in DAMAGES for kind in damage.kinds for rule in damage.expected(kind)}

    assert proven | elsewhere == {rule.name for rule in RULES}


class DefectiveStorage(LocalStorage):
    """Answers with what no rule foresees."""

    def list_files(self, prefix: str) -> Iterator[FileFacts]:
        raise KeyError(prefix)


def test_a_rule_that_fails_is_a_finding_and_the_report_goes_on(registry: Registry, storage: Storage) -> None:
    report = check(registry, DefectiveStorage(paths=storage.paths))

    (failed,) = [finding for finding in report.findings if finding.rule == "rule_failed"]
    assert failed.subject == "unregistered_file, newer_file, fresh_metadata, left_out_file"
    assert "KeyError" in failed.message
    assert report.checked["file_missing"] > 0
    assert not report.clean


def test_the_names_of_the_rules_never_change() -> None:
    pinned = (Path(__file__).parent / "rule_names.txt").read_text().split()

    assert sorted(rule.name for rule in RULES) == pinned


def test_without_storage_only_the_registry_is_checked(registry: Registry, patient: Patient) -> None:
    Path(patient.live_path()).unlink()

    report = check(registry)

    assert report.clean
    assert "file_missing" not in report.checked
    assert report.checked["journal_replay"] > 0


def test_a_report_counts_the_tables_that_were_compared_with_iceberg(registry: Registry, storage: Storage) -> None:
    tables = registry.query("SELECT count(*) FROM tables WHERE dropped_at IS NULL")[0][0]

    assert check(registry, storage).checked["iceberg_pointer"] == tables > 0


def test_a_deep_check_needs_the_storage(registry: Registry) -> None:
    with pytest.raises(InvalidValueError, match="storage"):
        check(registry, deep=True)


def test_progress_never_goes_back_and_ends_at_the_total(registry: Registry, storage: Storage) -> None:
    heard: list[tuple[int, int]] = []

    check(registry, storage, progress=lambda done, total: heard.append((done, total)))

    done = [step for step, _ in heard]
    assert done == sorted(done)
    assert {total for _, total in heard} == {heard[-1][0]}


def test_findings_name_rule_table_and_subject(registry: Registry, storage: Storage, patient: Patient) -> None:
    Path(patient.live_path()).unlink()

    (finding,) = (found for found in check(registry, storage).findings if found.rule != ALWAYS)

    assert (finding.rule, finding.severity) == ("file_missing", Severity.DAMAGE)
    assert (finding.table, finding.subject) == ("shop.orders", patient.live_path())


def test_a_rule_keeps_its_first_thousand_findings_and_counts_the_rest(registry: Registry, patient: Patient) -> None:
    numbers = "json_each(:numbers) n" if patient.is_sqlite else "unnest(CAST(:numbers AS int[])) AS n(value)"
    sql = f"""INSERT INTO subscriber_cursor (component, table_id, seq, updated_at) SELECT 'c' || n.value, :t, 9999, 0 FROM {numbers}"""
    patient.run(sql, t=ORDERS_ID, numbers=list(range(1005)))

    report = check(registry)

    assert sum(finding.rule == "cursor_range" for finding in report.findings) == 1000
    assert report.omitted == {"cursor_range": 5}


def test_a_claimed_file_may_be_gone_already(registry: Registry, storage: Storage, patient: Patient) -> None:
    path = patient.retired_path()
    patient.run("UPDATE temporary_files SET claimed_until = 1 WHERE file_path = :p", p=path)
    Path(path).unlink()

    assert check(registry, storage).clean


def test_a_bare_footer_of_version_1_is_fine_if_it_can_be_read(registry: Registry, storage: Storage, patient: Patient) -> None:
    store_footer(patient, patient.live_path(), meta_of(patient.live_path()), version=1)
    assert check(registry, storage).clean

    patient.run("UPDATE partition_metadata SET metadata = :m WHERE partition_format_version = 1", m=b"")
    assert "footer_bytes" in {finding.rule for finding in check(registry, storage).findings}


def test_an_upgraded_footer_may_differ_from_the_tail_only_as_the_upgrade_does(
    registry: Registry, storage: Storage, patient: Patient
) -> None:
    path = patient.live_path()
    upgraded = upgrade_v1(meta_of(path), registry_rows=None).tail
    assert not Path(path).read_bytes().endswith(upgraded)
    store_footer(patient, path, upgraded, version=2)
    assert check(registry, storage, deep=True).clean

    store_footer(patient, path, upgraded.replace(b"amount", b"emount"), version=2)
    assert {finding.rule for finding in check(registry, storage).findings} == {ALWAYS, "file_tail"}


@pytest.mark.parametrize("fault", ["opening", "reading"])
def test_one_unreadable_file_is_a_finding(fault: str, registry: Registry, storage: Storage, patient: Patient) -> None:
    report = check(registry, FailingDisk(storage.paths, bad=patient.live_path(), fault=fault))

    assert {finding.rule for finding in report.findings} == {ALWAYS, "file_unreadable"}


def test_a_lost_warehouse_is_raised_and_no_file_counts_as_missing(registry: Registry, storage: Storage) -> None:
    Path(storage.paths.marker).unlink()
    shutil.rmtree(storage.paths.root + "/shop")

    with pytest.raises(StorageUnavailableError):
        check(registry, storage)


def test_writers_may_go_on_while_a_check_runs(registry: Registry, storage: Storage) -> None:
    lake, ended = HealthyLake(registry, storage), threading.Event()

    def write() -> None:
        while not ended.is_set():
            lake.churn()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [check(registry, storage, deep=True) for _ in range(5)]
        counts = [report.checked["file_missing"] for report in reports]
    finally:
        ended.set()
        writer.join()
    assert counts[0] < counts[-1]
    assert [finding for report in reports for finding in report.findings if finding.rule != ALWAYS] == []


@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
def test_replay_in_shares_finds_the_same(rows_at_once: int, registry: Registry, patient: Patient) -> None:
    with patient.past_triggers("table_files"):
        patient.run("DELETE FROM file_columns")
        patient.run("DELETE FROM partition_metadata")
        patient.run("DELETE FROM table_files WHERE table_id = :t", t=ORDERS_ID)
    scan = Scan(
        query=registry.query,
        open_snapshot=partial(open_snapshot, registry),
        storage=None,
        deep=False,
        dialect=registry.dialect,
        now=0,
        names={},
        progress=Progress(0, None),
    )

    found = list(find_differences(scan, rows_at_once=rows_at_once))

    assert len({finding.subject for finding in found}) == len(found) == 7


def test_a_damaged_database_file_is_reported_not_raised(url: str, kind: str, storage: Storage) -> None:
    if kind != "sqlite":
        pytest.skip("a file of SQLite's")
    file = Path(url.removeprefix("sqlite:///"))
    registry = open_registry(url)
    root = registry.query("SELECT rootpage FROM sqlite_master WHERE name = 'change_log'")[0][0]
    registry.close()
    content = bytearray(file.read_bytes())
    content[(root - 1) * 4096 : root * 4096] = b"\xa5" * 4096
    file.write_bytes(content)
    registry = open_registry(url)

    report = check(registry, storage)

    registry.close()
    assert "database_integrity" in {finding.rule for finding in report.findings}


class FailingDisk(LocalStorage):
    """A device with one bad sector."""

    def __init__(self, paths: PathManager, *, bad: str, fault: str) -> None:
        super().__init__(paths=paths)
        object.__setattr__(self, "_bad", bad)
        object.__setattr__(self, "_fault", fault)

    def open_input(self, path: str) -> BinaryIO:
        if path != self.__dict__["_bad"]:
            return super().open_input(path)
        if self.__dict__["_fault"] == "reading":
            return BadSector()
        message = f"cannot open {path!a}: Input/output error: look at the system log"
        raise StorageUnavailableError(message)


class BadSector(io.BytesIO):
    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), (offset, whence))


def meta_of(path: str) -> bytes:
    content = Path(path).read_bytes()
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


def store_footer(patient: Patient, path: str, footer: bytes, *, version: int) -> None:
    sql = """UPDATE partition_metadata SET metadata = :m, footer_length = :n, checksum = :c, partition_format_version = :v
WHERE file_path = :p"""
    packed, checksum = zstandard.ZstdCompressor().compress(footer), hashlib.sha256(footer).hexdigest()
    patient.run(sql, m=packed, n=len(footer), c=checksum, v=version, p=path)
