"""A warehouse of each kind, and one operation's directory in it. S3 is moto's server on the loopback.

Named as a plugin by the modules that need it, never imported: pytest must be the first to load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from lakebed.core.names import TableName
from lakebed.storage.local import LocalStorage
from lakebed.storage.open import open_storage
from lakebed.storage.s3 import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakebed.storage.protocol import Storage

BUCKET = "lake"
ORDERS = TableName("shop", "orders")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "testing")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_REGION", "us-east-1")
        environment.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield endpoint
    server.stop()


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    storage = open_storage(str(tmp_path / "warehouse"), create=True)
    assert isinstance(storage, LocalStorage)
    return storage


@pytest.fixture
def unused_prefix(s3_endpoint: str) -> str:
    assert s3_endpoint
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def objects(unused_prefix: str, s3_endpoint: str) -> ObjectStorage:
    storage = open_storage(unused_prefix, create=True, endpoint_override=s3_endpoint)
    assert isinstance(storage, ObjectStorage)
    return storage


@pytest.fixture(params=["local", "objects"])
def storage(request: pytest.FixtureRequest) -> Storage:
    chosen: LocalStorage | ObjectStorage = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def operation(storage: Storage) -> str:
    return storage.paths.operation_directory(7, ORDERS, uuid4().hex)


@pytest.fixture
def local_operation(local: LocalStorage) -> str:
    return local.paths.operation_directory(7, ORDERS, uuid4().hex)
