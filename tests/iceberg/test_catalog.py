"""The pointer moves by compare-and-swap under a fence, on both databases."""

from __future__ import annotations

import gc
import stat
import threading
import weakref
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS
from lakebed.core.errors import LeaseLostError
from lakebed.iceberg.catalog import open_catalog
from lakebed.registry.open import open_registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from ice import IceLake
    from lakebed.lake import Lake


def test_a_pointer_moves_only_from_where_it_was_seen(ice: IceLake) -> None:
    epoch = ice.catalog.raise_fence(ORDERS)
    assert ice.catalog.swap(ORDERS, old=None, new="file:///a", epoch=epoch)

    assert not ice.catalog.swap(ORDERS, old=None, new="file:///x", epoch=epoch)
    assert not ice.catalog.swap(ORDERS, old="file:///other", new="file:///x", epoch=epoch)
    assert ice.catalog.swap(ORDERS, old="file:///a", new="file:///b", epoch=epoch)

    pointer = ice.catalog.find_pointer(ORDERS)
    assert pointer is not None
    assert (pointer.location, pointer.previous) == ("file:///b", "file:///a")


def test_nothing_moves_under_an_older_epoch(ice: IceLake) -> None:
    old = ice.catalog.raise_fence(ORDERS)
    ice.catalog.swap(ORDERS, old=None, new="file:///a", epoch=old)
    new = ice.catalog.raise_fence(ORDERS)

    with pytest.raises(LeaseLostError):
        ice.catalog.swap(ORDERS, old="file:///a", new="file:///b", epoch=old)
    with pytest.raises(LeaseLostError):
        ice.catalog.swap(ORDERS, old=None, new="file:///b", epoch=old, force=True)

    assert ice.catalog.swap(ORDERS, old="file:///a", new="file:///c", epoch=new)


def test_epochs_rise_for_ever(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    other = another_ice()

    drawn = [catalog.raise_fence(ORDERS) for catalog in (ice.catalog, other.catalog, ice.catalog, other.catalog)]

    assert drawn == [1, 2, 3, 4]


def test_of_many_that_swap_from_the_same_place_one_wins(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    epoch = ice.catalog.raise_fence(ORDERS)
    ice.catalog.swap(ORDERS, old=None, new="file:///0", epoch=epoch)
    catalogs = [another_ice().catalog for _ in range(4)]
    for round_number in range(10):
        won: list[int] = []

        def race(number: int, here: int = round_number, won: list[int] = won) -> None:
            if catalogs[number].swap(ORDERS, old=f"file:///{here}", new=f"file:///{here + 1}", epoch=epoch):
                won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1

    pointer = ice.catalog.find_pointer(ORDERS)
    assert pointer is not None
    assert pointer.location == "file:///10"


def test_two_processes_may_create_the_catalog_at_once(lake: Lake) -> None:
    errors: list[BaseException] = []

    def create() -> None:
        try:
            open_catalog(lake.registry, lake.storage).close()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(exc)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []


def test_the_catalogs_file_lies_beside_the_registry_and_is_private(ice: IceLake, url: str, kind: str) -> None:
    if kind == "postgresql":
        assert ice.lake.registry.query("SELECT count(*) FROM lakebed_fence") == [(0,)]
        return
    path = Path(url.removeprefix("sqlite:///")).with_suffix(".iceberg.db")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not ice.lake.registry.query("SELECT name FROM sqlite_master WHERE name LIKE 'iceberg%'")


def test_no_secret_is_kept_where_it_could_be_shown(ice: IceLake) -> None:
    shown = f"{ice.catalog!r} {ice.catalog.properties} {ice.catalog.shown_url}"

    assert "uri" not in ice.catalog.properties
    assert "password" not in shown


def test_a_registry_with_its_catalog_opens_again(ice: IceLake, url: str) -> None:
    ice.create()
    ice.insert(1)

    with closing(open_registry(url)) as registry, closing(open_catalog(registry, ice.lake.storage)) as catalog:
        assert catalog.load_table("shop.orders").scan().to_arrow().num_rows > 0
        catalog.ping()


def test_a_closed_catalog_keeps_no_descriptor(lake: Lake) -> None:
    """Maintenance opens one every few seconds for as long as the service runs."""

    def use_one() -> int:
        with closing(open_catalog(lake.registry, lake.storage)) as catalog:
            catalog.raise_fence(ORDERS)
        return len(list(Path("/proc/self/fd").iterdir()))

    before = use_one()

    assert [use_one() for _ in range(5)] == [before] * 5


def test_a_catalog_that_was_closed_is_held_by_nothing(ice: IceLake) -> None:
    def open_and_close() -> weakref.ref[object]:
        with closing(open_catalog(ice.lake.registry, ice.lake.storage)) as catalog:
            assert catalog.list_pointers() == []
            return weakref.ref(catalog.engine.dialect)

    opened = [open_and_close() for _ in range(3)]

    gc.collect()
    assert [reference() for reference in opened] == [None, None, None]
