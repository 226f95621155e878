"""obstore beside the storage that Lakebed has for S3, against one moto server: `python bench/object_store.py [--rounds 15]`.

Lakebed is timed through `ObjectStorage`, which keeps the contract of every storage: canonical paths, a marker that must be there before
anything counts as missing, a verdict for each path of a deletion. obstore is timed bare, which is the least that a storage on it could take;
`delete, each looked for` adds the request that distinguishes deleted from missing. Both take turns in an order that changes.

obstore is in none of Lakebed's requirements: run this where it is installed beside them.
"""

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import obstore
from botocore.exceptions import EndpointConnectionError
from obstore.store import S3Store

from harness import percentile
from house import Stall
from lakebed.core.names import TableName
from lakebed.storage.open import open_storage
from machine import read_facts
from registry import write_result

RESULTS = Path(__file__).parent / "results"
BUCKET = "lake"
SIZE, RANGE, MANY = 64 * 1024, 16 * 1024, 1_000
IMPORTS = {"pyarrow.fs": "from pyarrow import fs", "obstore": "import obstore; from obstore.store import S3Store"}
STRANGE = ("a//double", "a/./dot", "a/../dots", "a/control\x01", "a/marker/")
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


class Moto:
    """A server in a process of its own; its log says how many requests came."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.log, self.endpoint = log, f"http://127.0.0.1:{port}"
        with log.open("wb") as sink:
            self.process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=sink, stderr=sink)
        self.client = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")

    def wait(self) -> None:
        for _ in range(600):
            try:
                self.client.create_bucket(Bucket=BUCKET)
            except EndpointConnectionError:  # it does not listen yet
                time.sleep(0.1)
            else:
                return
        raise SystemExit("moto does not answer")

    def count(self) -> int:
        return len(re.findall(rb'HTTP/1.1[^"]*" \d{3} ', self.log.read_bytes()))


@contextmanager
def run_moto(place: Path) -> Iterator[Moto]:
    server = Moto(place / "moto.log")
    try:
        server.wait()
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def ours_of(server: Moto) -> tuple[dict[str, Callable[..., Any]], str]:
    storage = open_storage(f"s3://{BUCKET}/ours", create=True, endpoint_override=server.endpoint)
    directory = storage.paths.operation_directory(7, TableName("shop", "orders"), "0" * 32)
    calls: dict[str, Callable[..., Any]] = {
        "create": storage.create_exclusive,
        "head": storage.stat,
        "range": lambda path: storage.read_range(path, 1024, RANGE),
        "list": lambda prefix: list(storage.list_files(prefix)),
        "delete": lambda paths: all(outcome.gone for outcome in storage.delete(paths)),
    }
    return calls, directory


def theirs_of(server: Moto) -> tuple[dict[str, Callable[..., Any]], str]:
    store = S3Store(BUCKET, endpoint=server.endpoint, client_options={"allow_http": True})

    def look_and_delete(paths: list[str]) -> None:
        obstore.delete(store, [obstore.head(store, path)["path"] for path in paths])

    calls: dict[str, Callable[..., Any]] = {
        "create": lambda path, data: obstore.put(store, path, data, mode="create"),
        "head": lambda path: obstore.head(store, path),
        "range": lambda path: bytes(obstore.get_range(store, path, start=1024, length=RANGE)),
        "list": lambda prefix: obstore.list(store, prefix).collect(),
        "delete": lambda paths: obstore.delete(store, paths),
        "delete, each looked for": look_and_delete,
    }
    return calls, "theirs/data"


def measure(server: Moto, rounds: int) -> list[dict[str, Any]]:
    sides = {"ours": ours_of(server), "obstore": theirs_of(server)}
    taken: dict[tuple[str, str], list[float]] = {}
    asked: dict[tuple[str, str], float] = {}
    order, data, stall = random.Random(1), os.urandom(SIZE), Stall()
    for turn in range(rounds):
        for side in order.sample(list(sides), 2):
            calls, directory = sides[side]
            for work, spent, requests in one_round(server, calls, f"{directory}/{turn}", data):
                taken.setdefault((work, side), []).extend(spent)
                asked[work, side] = requests
    works = list(dict.fromkeys(work for work, _ in taken))
    return [
        {"work": work, "side": side, "p50_ms": round(median(taken[work, side]) * 1e3, 3), "p10_ms": round(percentile(taken[work, side], 10) * 1e3, 3),
         "times": len(taken[work, side]), "requests": asked[work, side], "cpu_stall": stall.share}
        for work in works for side in sides if (work, side) in taken
    ]  # fmt: skip


def one_round(server: Moto, calls: dict[str, Callable[..., Any]], directory: str, data: bytes) -> Iterator[tuple[str, list[float], float]]:
    """Each work with its seconds, and the requests of one of them."""
    few = [f"{directory}/few/{number}" for number in range(20)]
    for work, each in (("create", lambda path: calls["create"](path, data)), ("head", calls["head"]), ("range", calls["range"])):
        yield work, *timed(server, [lambda path=path, each=each: each(path) for path in few])
    for work in [work for work in calls if work.startswith("delete")]:
        key = directory.removeprefix(f"s3://{BUCKET}/") + "/many/"
        for number in range(MANY):
            server.client.put_object(Bucket=BUCKET, Key=f"{key}{number:04d}", Body=b"x")
        if work == "delete":
            yield "list", *timed(server, [lambda: len(calls["list"](f"{directory}/many")) == MANY or sys.exit("not all were listed")])
        paths = [f"{directory}/many/{number:04d}" for number in range(MANY)]
        yield work, *timed(server, [lambda paths=paths, work=work: calls[work](paths)])


def timed(server: Moto, calls: list[Callable[[], Any]]) -> tuple[list[float], float]:
    before, spent = server.count(), []
    for call in calls:
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return spent, (server.count() - before) / len(calls)


def list_beside_strange(server: Moto) -> list[dict[str, str]]:
    """What a listing makes of an object that no path of a lake could be, beside one that is."""
    found = []
    for number, name in enumerate(STRANGE):
        for side, (calls, _) in {"ours": ours_of(server), "obstore": theirs_of(server)}.items():
            key = f"ours/shop/strange-{number}"
            for path in (f"{key}/a/fine", f"{key}/{name}"):
                server.client.put_object(Bucket=BUCKET, Key=path, Body=b"")
            try:
                answer = [
                    entry if isinstance(entry, dict) else {"path": entry.path}
                    for entry in calls["list"](f"s3://{BUCKET}/{key}" if side == "ours" else key)
                ]
                said = ", ".join(entry["path"].rpartition(f"{key}/")[2] for entry in answer)
            except Exception as error:  # noqa: BLE001 - what it says is the figure
                said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            found.append({"object": name, "side": side, "listed": said})
    return found


def time_imports(times: int) -> list[dict[str, Any]]:
    """Of fresh processes, which take turns."""
    program = "import time; w, c = time.perf_counter(), time.process_time(); {}; print(time.perf_counter() - w, time.process_time() - c)"
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in IMPORTS}
    for _ in range(times):
        for name, what in IMPORTS.items():
            done = subprocess.run([sys.executable, "-c", program.format(what)], capture_output=True, text=True, check=True)
            taken[name].append(tuple(map(float, done.stdout.split())))
    return [
        {
            "import": name,
            "wall_p50_ms": round(median(w for w, _ in found) * 1e3, 2),
            "cpu_p50_ms": round(median(c for _, c in found) * 1e3, 2),
        }
        for name, found in taken.items()
    ]


def size_of(name: str) -> dict[str, Any]:
    files = [file.locate() for file in distribution(name).files or []]
    return {
        "version": distribution(name).version,
        "installed_mb": round(sum(Path(f).stat().st_size for f in files if Path(f).is_file()) / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS / f"object-store-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with TemporaryDirectory(prefix="lakebed-bench-") as place, run_moto(Path(place)) as server:
        answer = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": read_facts(Path(place)),
            "obstore": size_of("obstore"),
            "imports": time_imports(chosen.rounds),
            "figures": measure(server, chosen.rounds),
            "strange objects": list_beside_strange(server),
        }
    for line in (*answer["imports"], *answer["figures"], *answer["strange objects"]):
        print(json.dumps(line))
    write_result(answer, chosen.out)
    print(f"written: {chosen.out.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
