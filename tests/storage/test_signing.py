from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from botocore.auth import S3SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials as BotoCredentials  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from lakebed.storage.signing import ConditionalWriter, Credentials, Endpoint, find_credentials, sign_put
from strategies import relative_paths

if TYPE_CHECKING:
    from lakebed.storage.s3 import ObjectStorage

pytest_plugins = ["storage_fixtures"]

PRIVATE = "se/cr+et"


def make_credentials(*, token: str = "") -> Credentials:
    return Credentials(access_key="AKIA", secret_key=PRIVATE, session_token=token)


@given(relative_paths, st.binary(max_size=64), st.sampled_from(["", "token/=+"]), st.sampled_from(["us-east-1", "eu-central-1"]))
def test_a_signature_is_the_one_the_official_client_makes(key: str, data: bytes, token: str, region: str) -> None:
    target = "/bucket/" + quote(key, safe="/-_.~")
    official = AWSRequest("PUT", f"https://s3.example.org:9000{target}", headers={"If-None-Match": "*"}, data=data)
    S3SigV4Auth(BotoCredentials("AKIA", PRIVATE, token or None), "s3", region).add_auth(official)

    ours = sign_put(
        target,
        data,
        endpoint=Endpoint(host="s3.example.org:9000", region=region),
        credentials=make_credentials(token=token),
        now=datetime.strptime(official.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC),
    )

    assert ours["authorization"] == official.headers["Authorization"]


def test_credentials_come_from_the_environment_or_not_at_all() -> None:
    assert find_credentials({"AWS_ACCESS_KEY_ID": "a"}) is None
    found = find_credentials({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": PRIVATE, "AWS_SESSION_TOKEN": "c"})

    assert found is not None
    assert (found.access_key, found.secret_key, found.session_token) == ("a", PRIVATE, "c")


def test_secrets_do_not_show_when_a_storage_is_printed(objects: ObjectStorage) -> None:
    writer = ConditionalWriter(endpoint=Endpoint(host="h", region="r"), credentials=make_credentials(token=PRIVATE))

    assert PRIVATE not in repr(type(objects)(paths=objects.paths, client=objects.client, writer=writer))
