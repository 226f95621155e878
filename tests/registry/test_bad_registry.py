"""Registries that cannot be used as they are: each is refused with its own error, which says what to do, and nothing is changed."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from builders import ORDERS, count, fake_file, logical_dump, make_table, publish
from lakebed.core.errors import (
    CorruptionError,
    RegistryLockedError,
    RegistryReadOnlyError,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from lakebed.registry.backends.sqlite_place import find_mount_kind
from lakebed.registry.open import open_registry
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Databases
    from lakebed.registry.registry import Registry

NOBODY = 65534
CANARY = "canary-7f3a"
_HOLDER = """
import sys
from lakebed.core.names import TableName
from lakebed.registry.open import open_registry
with open_registry(sys.argv[1]).write([TableName("shop", "orders")]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def file(databases: Databases) -> Path:
    """The file of a SQLite registry that no process has open."""
    return file_of(databases.new("sqlite"))


@pytest.fixture
def postgres(databases: Databases) -> Iterator[str]:
    """The URL of a PostgreSQL registry that no process has open."""
    url = databases.new("postgresql")
    yield url
    databases.drop(url)


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def script(url: str, *statements: str) -> None:
    """As another program would: past the registry."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(url), isolation_level=None)) as raw:
            for statement in statements:
                raw.execute(statement)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


# -- another process holds it ------------------------------------------------------------------


@contextmanager
def locked_by_another_program(url: str) -> Iterator[None]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(url), isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            yield
            raw.execute("ROLLBACK")
    else:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT * FROM table_seq FOR UPDATE")
            yield
            connection.rollback()


def test_a_registry_locked_by_another_program_is_waited_for_up_to_the_timeout(registry: Registry, url: str) -> None:
    table = make_table(registry)
    before = logical_dump(registry)

    with closing(open_registry(url, timeout_s=0.3)) as hasty:
        with locked_by_another_program(url), pytest.raises(RegistryLockedError, match=r"another program holds .* and retry"):
            publish(hasty, table, fake_file(1))
        assert logical_dump(registry) == before

        publish(hasty, table, fake_file(2))


def test_reading_goes_on_while_another_program_holds_the_write_lock(registry: Registry, url: str) -> None:
    table = make_table(registry)

    with locked_by_another_program(url), closing(open_registry(url, timeout_s=0.3)) as reader:
        assert require_table(reader, ORDERS) == table


@contextmanager
def stopped_writer(url: str) -> Iterator[None]:
    """A process that was stopped in the middle of a transaction."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        yield
        holder.kill()


def test_a_stopped_writer_is_waited_for_up_to_the_timeout_and_a_killed_one_not_at_all(registry: Registry, url: str) -> None:
    table = make_table(registry)
    before = logical_dump(registry)

    with closing(open_registry(url, timeout_s=0.3)) as hasty:
        with stopped_writer(url):
            with pytest.raises(RegistryLockedError, match="retry"):
                publish(hasty, table, fake_file(1))
            assert logical_dump(registry) == before
        publish(hasty, table, fake_file(2))


def test_closing_while_a_stopped_writer_holds_the_lock_ends_in_time_and_raises_nothing(registry: Registry, url: str) -> None:
    make_table(registry)

    with stopped_writer(url):
        hasty = open_registry(url, timeout_s=3600)  # a wait would be ended by the limit of the test
        hasty.close()
        assert hasty.take_idle() == []


# -- it may not be written ---------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach: pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="lb-bad-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def as_nobody(body: Callable[[], None]) -> int:
    """Zero when `body` ended without an error in a process to which permissions apply."""

    def work() -> None:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        body()

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(30)
    assert child.exitcode is not None
    return child.exitcode


def own_copy(databases: Databases, place: Path, *, mode: int) -> str:
    """A registry that belongs to the user who will try."""
    made = file_of(databases.new("sqlite"))
    path = place / "lake.db"
    shutil.move(made, path)
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)
    return f"sqlite:///{path}"


def refuse_to_open(url: str) -> Callable[[], None]:
    def body() -> None:
        with pytest.raises(RegistryReadOnlyError, match="give it write permission on file and directory"):
            open_registry(url).close()

    return body


def test_a_read_only_file_is_refused(databases: Databases, place: Path) -> None:
    url = own_copy(databases, place, mode=0o400)
    before = file_of(url).read_bytes()

    assert as_nobody(refuse_to_open(url)) == 0

    assert file_of(url).read_bytes() == before


def test_a_read_only_directory_is_refused(databases: Databases, place: Path) -> None:
    url = own_copy(databases, place, mode=0o600)
    place.chmod(0o555)
    before = file_of(url).read_bytes()

    assert as_nobody(refuse_to_open(url)) == 0

    assert file_of(url).read_bytes() == before
    assert [p.name for p in place.iterdir()] == ["lake.db"]
    place.chmod(0o755)


def test_a_directory_that_may_not_be_entered_is_refused(databases: Databases, place: Path) -> None:
    url = own_copy(databases, place, mode=0o600)
    place.chmod(0o000)

    assert as_nobody(refuse_to_open(url)) == 0

    place.chmod(0o755)


def test_a_server_that_takes_no_writes_is_read_but_not_written(databases: Databases) -> None:
    url = databases.new("postgresql")
    with closing(open_registry(url)) as registry:
        table = make_table(registry)
        before = logical_dump(registry)
        script(url, f"ALTER DATABASE {url.split('?')[0].rpartition('/')[2]} SET default_transaction_read_only = on")

        with closing(open_registry(url)) as standby, pytest.raises(RegistryReadOnlyError, match="give it write permission"):
            publish(standby, table, fake_file(1))
        assert logical_dump(registry) == before
    databases.drop(url)


@pytest.fixture
def guest(databases: Databases) -> Iterator[str]:
    """A role of the server that may log in and nothing else."""
    name = f"guest_{secrets.token_hex(4)}"
    script(databases.postgres_url, f"CREATE ROLE {name} LOGIN")
    yield name
    script(databases.postgres_url, f"DROP ROLE {name}")


def test_a_role_without_rights_reads_what_it_may_and_writes_nothing(databases: Databases, guest: str) -> None:
    url = databases.new("postgresql")
    theirs = url.replace("postgresql://postgres", f"postgresql://{guest}")
    with closing(open_registry(url)) as registry:
        table = make_table(registry)
    with pytest.raises(RegistryReadOnlyError, match="give it write permission"):
        open_registry(theirs)
    script(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {guest}")

    with closing(open_registry(theirs)) as reader:
        assert require_table(reader, ORDERS) == table
        with pytest.raises(RegistryReadOnlyError):
            publish(reader, table, fake_file(1))
        assert count(reader, "partitions") == 0

    script(url, f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {guest}")
    databases.drop(url)


# -- it is not what we made --------------------------------------------------------------------


def test_a_database_of_another_program_is_left_alone(empty_url: str) -> None:
    script(empty_url, "CREATE TABLE invoices (id INTEGER)", "INSERT INTO invoices VALUES (7)")

    with pytest.raises(RegistryRefusedError, match=r"holds other tables \(invoices\): give Lakebed a database of its own"):
        open_registry(empty_url)

    script(empty_url, "DROP TABLE invoices")
    open_registry(empty_url, create=True).close()  # nothing of ours had been added


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_file_that_others_can_read_or_write_is_refused(databases: Databases, mode: int) -> None:
    url = databases.new("sqlite")
    file_of(url).chmod(mode)

    with pytest.raises(RegistryRefusedError, match=rf"mode {mode:04o}.*run `chmod 600`"):
        open_registry(url)


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000, b"PAR1"])
def test_a_file_that_is_not_a_database_is_corrupt_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lake.db"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(CorruptionError, match="damaged or not a SQLite database"):
        open_registry(f"sqlite:///{path}")

    assert path.read_bytes() == content


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_database_is_reported_as_damage(databases: Databases, share: float) -> None:
    url = databases.new("sqlite")
    content = file_of(url).read_bytes()
    file_of(url).write_bytes(content[: int(len(content) * share)])

    with pytest.raises(CorruptionError, match="restore it from a backup"):
        open_registry(url)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_anything_but_a_regular_file_is_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "lake.db"
    assert callable(make)
    make(path)

    with pytest.raises(RegistryRefusedError, match="is not a regular file"):
        open_registry(f"sqlite:///{path}")


def test_a_registry_in_a_directory_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(RegistryRefusedError, match="does not exist: create it first"):
        open_registry(f"sqlite:///{tmp_path}/nowhere/lake.db", create=True)

    assert list(tmp_path.iterdir()) == []


_MOUNTS = r"""/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/team nfs4 rw,vers=4.2 0 0
/dev/sdb1 /mnt/team/local xfs rw 0 0
//server/share /mnt/my\040share cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("/", "ext4"),
        ("/srv/lake", "ext4"),
        ("/mnt/team", "nfs4"),
        ("/mnt/team/lake", "nfs4"),
        ("/mnt/teammate", "ext4"),
        ("/mnt/team/local/lake", "xfs"),
        ("/mnt/my share/lake", "cifs"),
    ],
)
def test_the_deepest_mount_decides_on_which_file_system_a_registry_would_be(where: str, kind: str) -> None:
    assert find_mount_kind(_MOUNTS, where) == kind


# -- the server does not answer ----------------------------------------------------------------


def test_a_server_that_is_down_is_named_without_the_password() -> None:
    with pytest.raises(RegistryUnavailableError, match=r"postgresql://ann@127\.0\.0\.1:1/lake does not answer") as refused:
        open_registry(f"postgresql://ann:{CANARY}@127.0.0.1:1/lake", timeout_s=2)

    assert CANARY not in "".join(shown(refused.value))


@pytest.fixture
def guarded(databases: Databases, guest: str) -> Iterator[str]:
    """The guest needs a password from now on; everybody else of the server is as before."""
    with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {guest} PASSWORD 'right'")
        ((rules,),) = connection.execute("SHOW hba_file").fetchall()
        before = Path(rules).read_text()
        Path(rules).write_text(f"local all {guest} scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield databases.postgres_url.replace("postgresql://postgres:", f"postgresql://{guest}:")
        Path(rules).write_text(before)
        connection.execute("SELECT pg_reload_conf()")


def test_a_wrong_password_is_reported_without_showing_it(guarded: str, guest: str) -> None:
    with pytest.raises(RegistryUnavailableError, match=f"{guest}@.* does not answer: .*password authentication failed") as refused:
        open_registry(guarded.replace(f"{guest}:", f"{guest}:{CANARY}"), timeout_s=5)

    assert CANARY not in "".join(shown(refused.value))


def test_a_server_elsewhere_needs_a_checked_certificate() -> None:
    with pytest.raises(RegistryRefusedError, match=r"add \?sslmode=verify-full") as refused:
        open_registry(f"postgresql://ann:{CANARY}@db.example.com/lake")

    assert CANARY not in "".join(shown(refused.value))


def shown(exc: BaseException | None) -> Iterator[str]:
    """Whatever a traceback of it would print."""
    while exc is not None:
        yield f"{exc!r} {exc}"
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
