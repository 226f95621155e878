"""PostgreSQL: sessions that end, locks of other programs, and secrets that stay secret."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from builders import ORDERS, fake_file, logical_dump, make_table, publish
from lakebed.core.errors import InvalidValueError, LakebedError, RegistryLockedError, RegistryUnavailableError, StorageFullError
from lakebed.registry.backends.postgres_errors import translate
from lakebed.registry.open import open_registry
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Databases
    from lakebed.registry.registry import Registry

CANARY = "s3cret-canary"
END_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def postgres(databases: Databases) -> Iterator[str]:
    url = databases.new("postgresql")
    yield url
    databases.drop(url)


@pytest.mark.parametrize("lock", [b"SELECT * FROM table_seq FOR UPDATE", b"LOCK TABLE table_files IN ACCESS EXCLUSIVE MODE"])
def test_a_lock_of_another_program_is_waited_for_up_to_the_timeout(postgres: str, lock: bytes) -> None:
    with closing(open_registry(postgres, timeout_s=0.3)) as registry, psycopg.connect(postgres) as other:
        table = make_table(registry)
        before = logical_dump(registry)
        other.execute(lock)

        with pytest.raises(RegistryLockedError, match="find it in pg_stat_activity, end its transaction and retry"):
            publish(registry, table, fake_file(1))

        other.rollback()
        assert logical_dump(registry) == before
        publish(registry, table, fake_file(1))


def test_the_bound_on_waiting_is_the_transactions_own(postgres: str) -> None:
    """A pooler lends the session to others: nothing of ours may stay in it."""
    with closing(open_registry(postgres, timeout_s=7)) as registry:
        with registry.write() as tx:
            assert tx.query("SHOW lock_timeout") == [("7s",)]

        assert registry.query("SHOW lock_timeout") == [("0",)]


_FROZEN = """
import sys
from lakebed.core.errors import LakebedError
from lakebed.core.names import TableName
from lakebed.registry.open import open_registry
registry = open_registry(sys.argv[1])
try:
    with registry.write([TableName("shop", "orders")]) as tx:
        tx.run("INSERT INTO astha_state (key, value, updated_at) VALUES ('late', 'x', 1)")
        print("held", flush=True)
        sys.stdin.readline()
    print("committed")
except LakebedError as exc:
    print(exc.code)
"""


def test_a_process_that_is_frozen_inside_a_transaction_blocks_its_table_only_for_a_while(postgres: str) -> None:
    with closing(open_registry(postgres)) as registry:
        table = make_table(registry)
        command = [sys.executable, "-c", _FROZEN, f"{postgres}&idle_in_transaction_s=0.5"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as frozen:
            assert frozen.stdout is not None
            assert frozen.stdout.readline() == "held\n"
            frozen.send_signal(signal.SIGSTOP)

            publish(registry, table, fake_file(1))

            frozen.send_signal(signal.SIGCONT)
            outcome, _ = frozen.communicate("\n")
        assert outcome.strip() in ("registry_unavailable", "outcome_unknown")
        assert registry.query("SELECT count(*) FROM astha_state WHERE key = 'late'") == [(0,)]


def test_limits_on_silence_are_the_transactions_own_and_the_urls_are_kept(postgres: str) -> None:
    with closing(open_registry(f"{postgres}&tcp_user_timeout=5000&idle_in_transaction_s=7")) as registry:
        with registry.write() as tx:
            assert tx.query("SHOW idle_in_transaction_session_timeout") == [("7s",)]
        assert registry.query("SHOW idle_in_transaction_session_timeout") == [("0",)]
        catalog = dict(parse_qsl(urlsplit(registry.backend.catalog_url).query))
    assert (catalog["tcp_user_timeout"], catalog["keepalives_idle"]) == ("5000", "30")
    assert "idle_in_transaction_s" not in catalog


def test_a_limit_on_silence_of_zero_is_none(postgres: str) -> None:
    with closing(open_registry(f"{postgres}&idle_in_transaction_s=0")) as registry, registry.write() as tx:
        assert tx.query("SHOW idle_in_transaction_session_timeout") == [("0",)]


@pytest.mark.parametrize("given", ["x", "-1", "nan", "inf", "1e9"])
def test_a_limit_that_is_not_a_number_of_seconds_is_refused(postgres: str, given: str) -> None:
    with pytest.raises(InvalidValueError, match="idle_in_transaction_s"):
        open_registry(f"{postgres}&idle_in_transaction_s={given}")


def begin_nothing(registry: Registry) -> None:
    with registry.write([ORDERS]):
        pass


def read_twice(registry: Registry) -> None:
    with registry.read() as reader:
        assert reader.query("SELECT 1") == reader.query("SELECT 1")


_CALLS: dict[str, Callable[[Registry], object]] = {
    "a question": lambda registry: registry.query("SELECT count(*) FROM tables"),
    "a snapshot": read_twice,
    "a transaction": begin_nothing,
    "an insert, which is one call": lambda registry: publish(registry, require_table(registry, ORDERS), fake_file(7)),
    "the clock": lambda registry: registry.now(),
}


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("is_warm", [False, True])
def test_idle_sessions_that_the_server_ended_are_replaced_without_an_error(postgres: str, call: str, is_warm: bool) -> None:  # noqa: FBT001
    with closing(open_registry(postgres)) as registry:
        make_table(registry)
        publish(registry, require_table(registry, ORDERS), fake_file(1))
        if is_warm:
            _CALLS[call](registry)
        with registry.read(), registry.read(), registry.read():
            pass  # three idle sessions from now on
        with psycopg.connect(postgres, autocommit=True) as other:
            other.execute(END_OTHERS)

        _CALLS[call](registry)

        before = registry.query("SELECT count(*) FROM table_files")
        publish(registry, require_table(registry, ORDERS), fake_file(8))
        assert registry.query("SELECT count(*) FROM table_files") == [(before[0][0] + 1,)]


def test_a_server_that_stays_away_is_reported_at_once(postgres: str, databases: Databases) -> None:
    registry = open_registry(postgres)
    databases.drop(postgres)

    with closing(registry), pytest.raises(RegistryUnavailableError, match="does not answer"):
        registry.query("SELECT 1")


def test_a_transaction_whose_session_was_ended_changed_nothing(postgres: str) -> None:
    with closing(open_registry(postgres)) as registry:
        table = make_table(registry)
        before = logical_dump(registry)

        def write_and_lose_the_session() -> None:
            with registry.write([table.name]) as tx:
                tx.run("UPDATE tables SET state = 'degraded'")
                with psycopg.connect(postgres, autocommit=True) as other:
                    other.execute(END_OTHERS)
                tx.run("UPDATE tables SET state = 'ok'")

        with pytest.raises(RegistryUnavailableError):
            write_and_lose_the_session()

        assert logical_dump(registry) == before


def test_a_full_disk_of_the_server_is_storage_full() -> None:
    with pytest.raises(StorageFullError, match="free some and retry; nothing was changed"):
        translate(psycopg.errors.DiskFull("no space left on device"), "postgresql://x/y")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{CANARY}@127.0.0.1:1/lake",
        f"postgresql://ann@127.0.0.1:1/lake?password={CANARY}",
        f"postgresql://ann:{CANARY}@127.0.0.1:1/lake?unknown_option={CANARY}",
        f"postgresql://ann:{CANARY}@db.example.com/lake?password={CANARY}",
        f"mysql://ann:{CANARY}@host/lake",
    ],
)
def test_a_password_is_in_no_error_and_no_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    with pytest.raises(LakebedError) as refused:
        open_registry(url, timeout_s=1)

    said = [f"{e!r} {e}" for e in _shown(refused.value)] + caplog.messages
    assert not [text for text in said if CANARY in text]


def _shown(error: BaseException | None) -> Iterator[BaseException]:
    """The errors that a traceback would print."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
