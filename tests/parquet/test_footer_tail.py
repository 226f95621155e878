from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from footer_samples import people, tail_of, write

from lakebed.core.errors import LimitExceededError, UnreadableFileError
from lakebed.parquet.footer.framing import read_tail


@dataclass
class Bytes:
    """A file in memory that remembers what was read."""

    content: bytes
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read_range(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.content[offset : offset + length]

    def tail(self, **options: int) -> bytes:
        return read_tail(self.read_range, len(self.content), path="db/t/f.parquet", **options)


@pytest.fixture(scope="module")
def small() -> bytes:
    return write(people())


@pytest.fixture(scope="module")
def wide() -> bytes:
    return write(pa.table({f"c{n}": [n] for n in range(2000)}))


def test_a_small_file_is_read_once(small: bytes) -> None:
    file = Bytes(small)

    assert file.tail() == tail_of(small)
    assert file.reads == [(0, len(small))]


def test_a_footer_in_the_last_64_kib_needs_no_second_read_of_the_end() -> None:
    big = b"PAR1" + bytes(200_000) + write(people())[4:]
    file = Bytes(big)

    assert file.tail() == tail_of(big)
    assert file.reads == [(len(big) - 65536, 65536), (0, 4)]


def test_a_long_footer_is_completed_by_one_more_read(wide: bytes) -> None:
    file = Bytes(wide)
    tail = tail_of(wide)
    assert len(tail) > 65536

    assert file.tail() == tail
    assert sum(length for _, length in file.reads) == len(tail) + 4


def test_a_file_cut_anywhere_is_refused(small: bytes) -> None:
    for percent in range(100):
        torn = Bytes(small[: len(small) * percent // 100])
        with pytest.raises(UnreadableFileError, match=r"db/t/f\.parquet"):
            torn.tail()


def test_a_file_whose_head_is_not_parquet_is_refused(small: bytes) -> None:
    with pytest.raises(UnreadableFileError, match="begins"):
        Bytes(b"XXXX" + small[4:]).tail()


@pytest.mark.parametrize("end", [b"XXXX", b"par1", b"\0\0\0\0"])
def test_a_wrong_magic_is_refused(small: bytes, end: bytes) -> None:
    with pytest.raises(UnreadableFileError, match="ends"):
        Bytes(small[:-4] + end).tail()


def test_an_encrypted_footer_is_refused_by_name(small: bytes) -> None:
    with pytest.raises(UnreadableFileError, match="encrypted"):
        Bytes(small[:-4] + b"PARE").tail()


@pytest.mark.parametrize("length", [0, 1 << 20, (1 << 32) - 1])
def test_a_length_beyond_the_file_is_refused(small: bytes, length: int) -> None:
    with pytest.raises(UnreadableFileError, match=f"claims {length} bytes"):
        Bytes(small[:-8] + length.to_bytes(4, "little") + b"PAR1").tail()


def test_a_footer_over_the_limit_is_refused_before_it_is_read(wide: bytes) -> None:
    file = Bytes(wide)

    with pytest.raises(LimitExceededError, match="70000 bytes of footer"):
        file.tail(limit=70_000)

    assert sum(length for _, length in file.reads) <= 65536 + 4


def test_a_file_that_shrinks_meanwhile_is_refused(small: bytes) -> None:
    file = Bytes(small)

    with pytest.raises(UnreadableFileError, match="shorter"):
        read_tail(file.read_range, len(small) + 10, path="f")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\0\0\0\0PAR1"])
def test_scraps_are_refused(content: bytes) -> None:
    with pytest.raises(UnreadableFileError):
        Bytes(content).tail()
