"""Lost answers, frozen owners, redeliveries and races: every file once, none missing."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from psycopg.errors import DiskFull
from sqlalchemy.exc import OperationalError

from builders import ORDERS
from ice import ROWS, IceLake, open_ice
from lakebed.core.errors import LeaseLostError, OutcomeUnknownError, RegistryLockedError, RegistryUnavailableError, StorageFullError
from lakebed.iceberg.catalog import CATALOG_NAME, LakeCatalog, open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.registry.connect import open_backend
from lakebed.registry.journal.leases import acquire_lease
from lakebed.registry.processes import make_owner
from lakebed.registry.registry import Registry
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from lakebed.core.names import TableName
    from lakebed.lake import Lake


class FaultyCatalog(LakeCatalog):
    """A real catalog that can lose the answer of a commit, refuse to answer at all, or pause before a swap."""

    lose_answers = 0
    refuse_after = 0
    refusal: Exception = OperationalError("connect", {}, Exception("no answer"))
    before_swap: Callable[[], object] = staticmethod(lambda: None)

    @classmethod
    def beside(cls, lake: Lake) -> FaultyCatalog:
        real = open_catalog(lake.registry, lake.storage)
        return cls(real.engine, shown_url=real.shown_url, lock=real._lock, properties={"warehouse": lake.storage.paths.root})

    def swap(self, name: TableName, *, old: str | None, new: str, epoch: int, force: bool = False) -> bool:
        self.before_swap()
        self._armed = True
        try:
            return super().swap(name, old=old, new=new, epoch=epoch, force=force)
        finally:
            self._armed = False

    _armed = False

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._armed and self.refuse_after == 1:
            raise self.refusal
        with super()._writing() as connection:
            yield connection
        if self._armed and self.lose_answers:
            self.lose_answers -= 1
            self.refuse_after -= 1
            raise OperationalError("COMMIT", {}, Exception("the connection was lost"))


@pytest.fixture
def faulty(lake: Lake) -> Iterator[IceLake]:
    catalog = FaultyCatalog.beside(lake)
    with closing(catalog):
        yield IceLake(lake, catalog, Committer(lake.registry, lake.storage, catalog))


def _faults(ice: IceLake) -> FaultyCatalog:
    assert isinstance(ice.catalog, FaultyCatalog)
    return ice.catalog


def test_an_answer_lost_after_the_swap_is_looked_up_and_nothing_is_deleted(faulty: IceLake) -> None:
    faulty.create()
    faulty.insert(1)
    _faults(faulty).lose_answers = 1

    done = faulty.insert(2)

    assert done.added == 1
    assert len(faulty.base().metadata.snapshots) == 2
    faulty.require_true()


@pytest.mark.parametrize("refusal", [FaultyCatalog.refusal, RegistryLockedError("another writer held the lock file")])
def test_an_unknown_outcome_touches_nothing_and_the_next_call_finds_what_is_true(faulty: IceLake, refusal: Exception) -> None:
    faulty.create()
    faulty.insert(1)
    faults = _faults(faulty)
    faults.refusal = refusal
    faults.lose_answers, faults.refuse_after = 1, 2
    faulty.write(2)
    faulty.seal()

    with pytest.raises(OutcomeUnknownError):
        faulty.advance()
    faults.refuse_after = 0

    assert faulty.committer.advance(faulty.table_id()) is None
    assert faulty.static().scan().to_arrow().num_rows == 2 * ROWS
    assert len(list_snapshots(faulty.lake.registry, faulty.table_id())) == 2
    faulty.require_true()


def test_a_committer_frozen_between_reading_and_swapping_is_fenced_out(faulty: IceLake, ice: IceLake) -> None:
    faulty.create()
    faulty.insert(1)
    faulty.write(2)
    faulty.seal()
    _faults(faulty).before_swap = ice.advance

    with pytest.raises(LeaseLostError):
        faulty.advance()

    assert faulty.static().scan().to_arrow().num_rows == 2 * ROWS
    _faults(faulty).before_swap = lambda: None
    assert faulty.committer.advance(faulty.table_id()) is None
    faulty.require_true()
    assert faulty.committer.sweep(faulty.table_id(), older_than_us=0) == []


def test_an_owner_that_only_read_fences_the_other_out_too(faulty: IceLake, ice: IceLake) -> None:
    faulty.create()
    faulty.insert(1)
    faulty.write(2)
    faulty.seal()
    _faults(faulty).before_swap = lambda: ice.catalog.raise_fence(ORDERS)

    with pytest.raises(LeaseLostError):
        faulty.advance()

    assert faulty.static().scan().to_arrow().num_rows == ROWS


def test_a_lease_that_was_lost_is_seen_before_the_first_read(ice: IceLake, lake: Lake) -> None:
    table = ice.create()
    lease = acquire_lease(lake.registry, "astha", owner=make_owner("old"), ttl_us=0)
    acquire_lease(lake.registry, "astha", owner=make_owner("new"))
    frozen = Committer(lake.registry, lake.storage, ice.catalog, lease=lambda: lease)

    with pytest.raises(LeaseLostError):
        frozen.advance(table.table_id)

    assert ice.catalog.find_pointer(ORDERS) is None


def test_an_owner_whose_fence_was_raised_by_a_fenced_out_one_goes_on(ice: IceLake, lake: Lake) -> None:
    ice.create()
    lease = acquire_lease(lake.registry, "astha", owner=make_owner("owner"))
    owner = Committer(lake.registry, lake.storage, ice.catalog, lease=lambda: lease)
    ice.write(1)
    ice.seal()
    owner.advance(ice.table_id())
    ice.catalog.raise_fence(ORDERS)
    ice.write(2)
    ice.seal()

    with pytest.raises(LeaseLostError):
        owner.advance(ice.table_id())
    done = owner.advance(ice.table_id())

    assert done is not None
    ice.require_true()


def test_the_registry_down_after_the_swap_is_caught_up_with_later(ice: IceLake, faulty: IceLake, url: str) -> None:
    ice.create()
    ice.insert(1)
    ice.write(2)
    ice.seal()
    steps = Steps()
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as registry:
        _faults(faulty).before_swap = lambda: _break(steps)
        with pytest.raises(RegistryUnavailableError):
            Committer(registry, ice.lake.storage, faulty.catalog).advance(ice.table_id())
    assert len(list_snapshots(ice.lake.registry, ice.table_id())) == 1

    assert ice.committer.advance(ice.table_id()) is None

    assert len(list_snapshots(ice.lake.registry, ice.table_id())) == 2
    ice.require_true()


def _break(steps: Steps) -> None:
    """The next statement to the registry fails."""
    steps.at, steps.act = len(steps.done) + 1, _down


def _down(_: str) -> None:
    message = "the registry is gone"
    raise RegistryUnavailableError(message)


def test_committers_in_many_threads_add_every_file_once(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    ice.create()
    others = [another_ice() for _ in range(3)]
    for number in range(8):
        ice.write(number)
        ice.seal()
        threads = [threading.Thread(target=_advance, args=(other,)) for other in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _advance(ice)
    ice.require_true()
    assert len(ice.base().metadata.snapshots) <= 8
    assert len({s.summary["lakebed.commit-id"] for s in ice.base().metadata.snapshots if s.summary}) == len(ice.base().metadata.snapshots)


def test_a_file_retired_between_sealing_and_commit_is_not_committed(faulty: IceLake, ice: IceLake) -> None:
    faulty.create()
    faulty.insert(1)
    gone = faulty.write(2)
    faulty.seal()
    _faults(faulty).before_swap = lambda: ice.retire(gone.partition_id)

    faulty.advance()
    _faults(faulty).before_swap = lambda: None
    done = faulty.advance()

    assert (done.operation, done.removed) == ("delete", 1)
    faulty.require_true()


def test_a_catalog_that_does_not_answer_is_unavailable_and_leaves_no_file(faulty: IceLake) -> None:
    faulty.create()
    faulty.insert(1)
    faulty.write(2)
    faulty.seal()
    before = faulty.metadata_files()
    _faults(faulty).refuse_after = 1

    with pytest.raises(RegistryUnavailableError):
        faulty.advance()

    assert faulty.metadata_files() == before


class FullCatalog(FaultyCatalog):
    """Finds the disk full when it commits a swap."""

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with LakeCatalog._writing(self) as connection:
            yield connection
            if self._armed:
                self._armed = False
                raise OperationalError("COMMIT", {}, _disk_full(self.engine.dialect.name))


def _disk_full(dialect: str) -> Exception:
    if dialect == "postgresql":
        return DiskFull("no space left on device")
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def test_a_disk_that_is_full_at_the_swap_is_no_lost_lease(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    ice.write(2)
    ice.seal()
    with closing(FullCatalog.beside(ice.lake)) as catalog:
        full = IceLake(ice.lake, catalog, Committer(ice.lake.registry, ice.lake.storage, catalog))

        with pytest.raises(StorageFullError):
            full.advance()

    with closing(open_ice(ice.lake)) as again:
        again.advance()
        again.require_true()


def test_catalog_rows_are_keyed_by_a_constant_name() -> None:
    assert CATALOG_NAME == "lakebed"


def _advance(ice: IceLake) -> None:
    """Owners without a lease fence each other out as they please: none may do harm, and whoever is last goes on."""
    with suppress(LeaseLostError):
        ice.committer.advance(ice.table_id())
