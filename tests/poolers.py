"""What may stand between a client and PostgreSQL: a line that breaks at the commit, and a transaction pooler.

Both speak the protocol over unix sockets and know only its framing: a type, a length, a body.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SOCKET = ".s.PGSQL.5432"
_PARSE, _BIND, _FLUSH, _SYNC, _QUERY, _TERMINATE = b"P", b"B", b"H", b"S", b"Q", b"X"
_READY = b"Z"
_PROTOCOL = 196608  # 3.0
_IDLE = b"I"
_OWN_TRANSACTION = b"SELECT lakebed_append("
_EXECUTE = (b"E", b"\0" + struct.pack("!I", 0))  # the unnamed portal, all its rows
Message = tuple[bytes, bytes]


class ConnectionCutError(Exception):
    """The other side is gone."""


class Wire:
    """One end of a connection, read message by message."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._reader = raw.makefile("rb")

    def receive(self) -> Message:
        kind = self._exactly(1)
        return kind, self._exactly(struct.unpack("!I", self._exactly(4))[0] - 4)

    def receive_startup(self) -> bytes:
        """The only message without a type; returned as it came."""
        size = self._exactly(4)
        return size + self._exactly(struct.unpack("!I", size)[0] - 4)

    def send(self, message: Message) -> None:
        kind, body = message
        self.send_raw(kind + struct.pack("!I", len(body) + 4) + body)

    def send_raw(self, data: bytes) -> None:
        try:
            self._raw.sendall(data)
        except OSError as exc:
            raise ConnectionCutError from exc

    def cut(self) -> None:
        with suppress(OSError):
            self._raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._reader.close()
        self._raw.close()

    def _exactly(self, size: int) -> bytes:
        try:
            data = self._reader.read(size)
        except (OSError, ValueError) as exc:
            raise ConnectionCutError from exc
        if len(data) < size:
            raise ConnectionCutError
        return data


def dial(directory: str) -> Wire:
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(f"{directory}/{_SOCKET}")
    return Wire(raw)


def host_of(url: str) -> str:
    return dict(parse_qsl(urlsplit(url).query))["host"]


@contextmanager
def listening(directory: Path, serve: Callable[[Wire], None]) -> Iterator[None]:
    """Hands every connection to `serve` in a thread of its own; all have ended when the block ends."""
    directory.mkdir()
    wires: list[Wire] = []
    threads: list[threading.Thread] = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{directory}/{_SOCKET}")
        door.listen()

        def accept() -> None:
            with suppress(OSError):
                while True:
                    wires.append(Wire(door.accept()[0]))
                    threads.append(threading.Thread(target=serve, args=(wires[-1],), name="pooler-client"))
                    threads[-1].start()

        accepting = threading.Thread(target=accept, name="pooler-door")
        accepting.start()
        try:
            yield
        finally:
            door.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for wire in wires:
                wire.cut()
            for thread in threads:
                thread.join()
            for wire in wires:
                wire.close()


class Cut(Enum):
    BEFORE = auto()  # the commit never arrives
    AFTER = auto()  # the commit is done, its answer never arrives
    LATE = auto()  # the client is cut off first; the commit arrives once it is let go
    LOST = auto()  # as LATE, but the server's end breaks then and the commit never arrives


@dataclass(slots=True)
class BreakingLine:
    """Forwards everything between clients and the server, until it is set to break at a commit."""

    server: str
    url: str
    cuts: int = 0
    let_go: threading.Event = field(default_factory=threading.Event)
    _left: int | None = None
    _armed: Cut | None = None
    _broken: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _silenced: set[Wire] = field(default_factory=set)
    _clients: list[Wire] = field(default_factory=list)

    def cut_clients(self) -> None:
        """Now, whatever they do: the server keeps what it was sent."""
        for client in self._clients:
            client.cut()

    def cut_after(self, messages: int) -> None:
        """All connections, once their clients have sent that number of messages from now on; new ones are served."""
        self._left = messages

    def break_at_commit(self, how: Cut, *, for_good: bool = False) -> None:
        """Of whichever connection commits next; once, or `for_good`: then no connection is answered until `restore` is called."""
        self.let_go.clear()
        with self._guard:
            self._armed, self._broken = how, for_good

    def break_now(self) -> None:
        """All connections, and every new one until `restore` is called."""
        with self._guard:
            self._armed, self._broken = None, True
        self.cut_clients()

    def restore(self) -> None:
        self._broken = False

    def serve(self, client: Wire) -> None:
        if self._broken and self._armed is None:
            client.cut()
            return
        self._clients.append(client)
        server = dial(self.server)
        answers = threading.Thread(target=self._answer, args=(client, server), name="pooler-answers")
        answers.start()
        try:
            server.send_raw(client.receive_startup())
            self._forward(client, server)
        except ConnectionCutError:
            server.cut()
        answers.join()
        client.cut()
        server.close()

    def _forward(self, client: Wire, server: Wire) -> None:
        commits: set[bytes] = set()
        while True:
            message = client.receive()
            self._count()
            if is_commit(message, commits) and (how := self._take()) is not None:
                if how is not Cut.AFTER:
                    self._part(client, server, how, message)
                    return
                self._silenced.add(server)
            server.send(message)

    def _count(self) -> None:
        with self._guard:
            if self._left is None:
                return
            self._left -= 1
            if self._left >= 0:
                return
            self._left = None
            self.cuts += 1
        self.cut_clients()

    def _part(self, client: Wire, server: Wire, how: Cut, commit: Message) -> None:
        client.cut()
        if how is not Cut.BEFORE:
            self.let_go.wait()
        if how is Cut.LATE:
            for message in (commit, _EXECUTE, (_SYNC, b""), (_TERMINATE, b"")):
                server.send(message)  # the server commits, then closes its end
        else:
            server.cut()

    def _answer(self, client: Wire, server: Wire) -> None:
        with suppress(ConnectionCutError):
            while True:
                message = server.receive()
                if server in self._silenced and message == (_READY, _IDLE):  # not before: a statement may be its own transaction
                    client.cut()
                with suppress(ConnectionCutError):
                    client.send(message)

    def _take(self) -> Cut | None:
        with self._guard:
            how, self._armed = self._armed, None
            self.cuts += how is not None
        return how


def is_commit(message: Message, commits: set[bytes]) -> bool:
    """Whether the server will commit at this message. `commits` keeps which statements of the connection are prepared commits."""
    kind, body = message
    if kind == _PARSE:
        name, query, _ = body.split(b"\0", 2)
        commits_alone = query == b"COMMIT" or query.startswith(_OWN_TRANSACTION)
        (commits.add if commits_alone else commits.discard)(name)
    return (kind == _BIND and body.split(b"\0", 2)[1] in commits) or (kind == _QUERY and body == b"COMMIT\0")


@contextmanager
def breaking_line(directory: Path, url: str) -> Iterator[BreakingLine]:
    """Between its clients and the database of `url`."""
    own = directory / f"l{secrets.token_hex(3)}"
    line = BreakingLine(server=host_of(url), url=url.replace(host_of(url), str(own)))
    with listening(own, line.serve):
        yield line
        line.let_go.set()


@dataclass(slots=True)
class TransactionPooler:
    """Lends one server connection to all its clients, from the first message of a transaction to its end.

    It knows no prepared statements and resets nothing: what a client leaves in the session, the next one meets.
    """

    server: Wire
    greeting: list[Message]
    handed_over: int = 0
    _owner: Wire | None = None
    _last: Wire | None = None
    _unanswered: int = 0
    _unfinished: bool = False
    _closed: bool = False
    _turn: threading.Condition = field(default_factory=threading.Condition)

    def serve(self, client: Wire) -> None:
        with suppress(ConnectionCutError):
            client.receive_startup()
            for message in self.greeting:
                client.send(message)
            while (message := client.receive())[0] != _TERMINATE:
                self._forward(client, message)
        client.cut()
        with self._turn:
            if self._owner is client:  # it left in the middle: as with any pooler, its transaction dies with the server's end
                self.server.cut()

    def _forward(self, client: Wire, message: Message) -> None:
        with self._turn:
            if message[0] == _FLUSH and (self._owner is not client or not self._unfinished):
                return  # asks for answers that a sync has brought already
            self._turn.wait_for(lambda: self._closed or self._owner in (None, client))
            self.handed_over += self._last is not client
            self._owner = self._last = client
            self._unfinished = message[0] not in (_SYNC, _QUERY)
            self._unanswered += not self._unfinished
            self.server.send(message)

    def answer(self) -> None:
        """Until the server's end is closed; then every client is let go."""
        with suppress(ConnectionCutError):
            while True:
                self._hand_on(self.server.receive())
        with self._turn:
            self._closed = True
            self._turn.notify_all()
            if self._owner is not None:
                self._owner.cut()

    def _hand_on(self, message: Message) -> None:
        with self._turn:
            if self._owner is not None:
                with suppress(ConnectionCutError):
                    self._owner.send(message)
            self._unanswered -= message[0] == _READY
            if message == (_READY, _IDLE) and not self._unanswered and not self._unfinished:
                self._owner = None
                self._turn.notify_all()


@contextmanager
def transaction_pooler(directory: Path, url: str) -> Iterator[tuple[TransactionPooler, str]]:
    """In front of the database of `url`; with the URL of the pooler."""
    own = directory / f"p{secrets.token_hex(3)}"
    parts = urlsplit(url)
    server = dial(host_of(url))
    facts = f"user\0{parts.username}\0database\0{parts.path[1:]}\0\0".encode()
    server.send_raw(struct.pack("!II", len(facts) + 8, _PROTOCOL) + facts)
    greeting = [server.receive()]
    while greeting[-1][0] != _READY:
        greeting.append(server.receive())
    pooler = TransactionPooler(server, greeting)
    answers = threading.Thread(target=pooler.answer, name="pooler-answers")
    answers.start()
    with listening(own, pooler.serve):
        yield pooler, url.replace(host_of(url), str(own))
    server.cut()
    answers.join()
    server.close()
