from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from footer_samples import people, tail_of, write

from lakebed.core.errors import FooterCorruptError
from lakebed.parquet.cache import FooterCache
from lakebed.parquet.inspect import parse


class ReadLog(io.BytesIO):
    """A file in memory that remembers how far it was read."""

    furthest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.furthest = max(self.furthest, self.tell())
        return found


def room_for(footers: int) -> int:
    serialized: int = parse(tail_of(write(people()))).serialized_size
    return footers * serialized * 10


def never() -> bytes:
    message = "the footer was read again"
    raise AssertionError(message)


def test_a_footer_is_read_and_parsed_once() -> None:
    cache = FooterCache()
    tail = tail_of(write(people()))

    first = cache.load("a", lambda: tail)

    assert cache.load("a", never) is first
    assert (cache.counters.hits, cache.counters.misses, cache.counters.entries) == (1, 1, 1)


def test_the_least_recently_used_footer_goes_first() -> None:
    cache = FooterCache(max_bytes=room_for(2))
    tail = tail_of(write(people()))
    for path in ("a", "b", "a", "c"):
        cache.load(path, lambda: tail)

    assert [cache.find(path) is not None for path in "abc"] == [True, False, True]


def test_the_memory_is_bounded() -> None:
    cache = FooterCache(max_bytes=room_for(3))
    tail = tail_of(write(people()))

    for number in range(50):
        cache.load(str(number), lambda: tail)

    assert cache.counters.entries == 3
    assert 0 < cache.counters.size_bytes <= room_for(3)


def test_a_footer_larger_than_the_cache_is_answered_and_not_kept() -> None:
    cache = FooterCache(max_bytes=100)

    assert cache.load("a", lambda: tail_of(write(people()))).num_rows == 100
    assert cache.counters.entries == 0


def test_a_footer_can_be_discarded_and_all_can_be_cleared() -> None:
    cache = FooterCache()
    tail = tail_of(write(people()))
    for path in "abc":
        cache.load(path, lambda: tail)

    cache.discard("a")
    assert cache.counters.entries == 2
    cache.clear()

    assert (cache.counters.entries, cache.counters.size_bytes) == (0, 0)


def test_a_corrupt_footer_is_not_kept() -> None:
    cache = FooterCache()

    with pytest.raises(FooterCorruptError):
        cache.load("a", lambda: b"nonsense" * 10)

    assert cache.find("a") is None


def test_many_threads_share_one_cache() -> None:
    cache = FooterCache(max_bytes=room_for(5))
    tail = tail_of(write(people()))

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda n: cache.load(str(n % 10), lambda: tail).num_rows, range(800)))

    counters = cache.counters
    assert set(rows) == {100}
    assert counters.hits + counters.misses == 800
    assert counters.size_bytes <= room_for(5)


def test_opening_a_file_with_a_known_footer_reads_none_of_it() -> None:
    file = write(people())
    source = ReadLog(file)

    opened = pq.ParquetFile(source, metadata=parse(tail_of(file)))

    assert opened.read().num_rows == 100
    assert source.furthest <= len(file) - len(tail_of(file))
