"""Spark Connect servers, as an administrator starts them."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SUBMIT = Path(sys.executable).with_name("spark-submit")


@contextmanager
def connect_server(environment: dict[str, str]) -> Iterator[str]:
    """The address of a server that lives as long as the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"spark.connect.grpc.binding.port": port, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    options = [word for key, value in {**place, "spark.ui.enabled": "false"}.items() for word in ("--conf", f"{key}={value}")]
    command = [str(SUBMIT), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,3]", *options]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        started = next((line for line in server.stderr if "Spark Connect server started at" in line), None)
        drain = threading.Thread(target=server.stderr.read)  # a full pipe would stop it
        drain.start()
        try:
            assert started is not None, "the server ended before it listened"
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            drain.join()
