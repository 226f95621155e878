from __future__ import annotations

import tracemalloc

import pytest
from footer_samples import framed, meta_of, people, tail_of, write

from lakebed.core.errors import FooterCorruptError
from lakebed.parquet.footer.framing import normalize
from lakebed.parquet.inspect import parse


@pytest.fixture(scope="module")
def file() -> bytes:
    return write(people(), write_page_index=True)


def test_every_framing_of_a_footer_normalizes_to_the_same_bytes(file: bytes) -> None:
    meta, tail = meta_of(file), tail_of(file)
    with_indexes = file[-len(tail) - 50 :]

    normalized = {normalize(blob) for blob in (meta, tail, with_indexes, file)}

    assert normalized == {tail}


@pytest.mark.parametrize("magic", [b"PAR2", b"XXXX", b"\0\0\0\0", b"1RAP"])
def test_a_wrong_magic_is_refused(file: bytes, magic: bytes) -> None:
    with pytest.raises(FooterCorruptError):
        normalize(tail_of(file)[:-4] + magic)


def test_an_encrypted_footer_is_refused_by_name(file: bytes) -> None:
    with pytest.raises(FooterCorruptError, match="encrypted"):
        normalize(tail_of(file)[:-4] + b"PARE")


@pytest.mark.parametrize("wrong", [-1, 1, 7, -100])
def test_a_length_that_misses_the_metadata_is_refused(file: bytes, wrong: int) -> None:
    meta = meta_of(file)

    with pytest.raises(FooterCorruptError):
        normalize(b"\x15\x00" * 100 + meta + (len(meta) + wrong).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("length", [0, 1 << 31, (1 << 32) - 1])
def test_an_absurd_length_is_refused_and_allocates_nothing(file: bytes, length: int) -> None:
    blob = meta_of(file) + length.to_bytes(4, "little") + b"PAR1"

    tracemalloc.start()
    with pytest.raises(FooterCorruptError, match="claims"):
        normalize(blob)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100_000


@pytest.mark.parametrize("blob", [b"", b"P", b"PAR1", b"PAR1PAR1", b"\0\0\0\0PAR1", b"PAR1\0\0\0\0PAR1"])
def test_scraps_are_refused(blob: bytes) -> None:
    with pytest.raises(FooterCorruptError):
        normalize(blob)


def test_bytes_after_bare_metadata_are_refused(file: bytes) -> None:
    with pytest.raises(FooterCorruptError, match="follow"):
        normalize(meta_of(file) + b"\0")


def test_no_truncation_of_bare_metadata_is_taken_for_a_footer(file: bytes) -> None:
    meta = meta_of(file)

    for length in range(len(meta)):
        with pytest.raises(FooterCorruptError):
            normalize(meta[:length])


def test_page_index_pointers_survive_in_version_2(file: bytes) -> None:
    columns = parse(normalize(file)).row_group(0)

    assert all(columns.column(n).has_column_index and columns.column(n).has_offset_index for n in range(2))


def test_a_normalized_tail_is_not_copied(file: bytes) -> None:
    tail = tail_of(file)

    assert normalize(tail) is tail
    assert framed(meta_of(file)) == tail
