"""What S3 refuses is said once, with bucket, endpoint and remedy, and is never an invitation to try again.

It happened that a bucket that does not exist was a FileNotFoundError with the name of a probe's key, wrong keys a
StoreUnavailable after half a minute of attempts, and a refused signature a StoreFull.
"""

from __future__ import annotations

import datetime as dt
import pickle
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import seaweed

import hoodoo
from hoodoo.storage import s3 as s3_store
from hoodoo.storage.s3 import S3Store
from hoodoo.timeline import layout

pytestmark = pytest.mark.xdist_group("s3")  # one server, so one worker
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
CALLS: dict[str, Callable[[str, dict[str, Any]], Any]] = {
    "create": lambda path, storage: hoodoo.create(path, SCHEMA, key="id", storage=storage),
    "open": lambda path, storage: hoodoo.open(path, storage=storage),
    "put_if_absent": lambda path, storage: S3Store(path, storage).put_if_absent("k", b"v"),
    "size": lambda path, storage: S3Store(path, storage).size("k"),
    "list": lambda path, storage: list(S3Store(path, storage).list("")),
    "delete": lambda path, storage: S3Store(path, storage).delete("k"),
}


def refused(kind: type[hoodoo.HoodooError], code: str, call: str, path: str, storage: dict[str, Any]) -> Any:
    """The error of `call`, which names bucket and endpoint, and is the same on the other side of a pickle."""
    with pytest.raises(kind) as found:
        CALLS[call](path, storage)
    problem = found.value
    assert problem.code == code and not isinstance(problem, hoodoo.TryAgainError)
    assert problem.details["bucket"] == path.split("/")[2] and problem.details["bucket"] in problem.message
    assert problem.details["endpoint"] == storage.get("endpoint", "AWS")
    assert pickle.loads(pickle.dumps(problem)).details == problem.details
    assert storage.get("secret_key", "no secret") not in str(problem)
    return problem


@pytest.mark.parametrize("call", ["create", "open", "list"])
def test_a_bucket_that_is_not_there_is_named(s3: dict[str, Any], call: str) -> None:
    problem = refused(hoodoo.BucketNotFound, "BUCKET_NOT_FOUND", call, "s3://no-such-bucket/t", s3)
    assert "Create it" in problem.message


@pytest.mark.parametrize("call", CALLS)
def test_an_access_key_that_the_store_does_not_know_is_told(s3: dict[str, Any], call: str) -> None:
    problem = refused(hoodoo.KeyRefused, "KEY_REFUSED", call, f"s3://{seaweed.BUCKET}/t", s3 | {"access_key": "nobody"})
    assert "access_key" in problem.message


@pytest.mark.parametrize("call", CALLS)
def test_a_signature_that_the_store_refuses_is_told(s3: dict[str, Any], call: str) -> None:
    wrong = s3 | {"secret_key": "another"}
    problem = refused(hoodoo.SignatureRefused, "SIGNATURE_REFUSED", call, f"s3://{seaweed.BUCKET}/t", wrong)
    assert "secret_key" in problem.message


def test_a_clock_that_is_off_is_told(s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    moment = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: moment.replace(tzinfo=None))
    problem = refused(hoodoo.SignatureRefused, "SIGNATURE_REFUSED", "open", f"s3://{seaweed.BUCKET}/t", s3)
    assert "clock" in problem.message


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process without credentials, on a machine whose metadata service does not answer."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize("call", ["create", "open"])
def test_missing_credentials_are_told_though_the_metadata_service_never_answers(
    s3: dict[str, Any], nobody: None, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A metadata service that takes a connection and never answers: what a firewall makes of it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert 2 * s3_store._METADATA_S < 1  # it is asked twice
        monkeypatch.setattr(s3_store, "_METADATA_S", 0.05)
        problem = refused(
            hoodoo.NoCredentials,
            "NO_CREDENTIALS",
            call,
            f"s3://{seaweed.BUCKET}/t",
            {"endpoint": s3["endpoint"], "region": "us-east-1"},
        )
    assert "AWS_ACCESS_KEY_ID" in problem.message


def test_credentials_that_come_later_are_found(
    s3: dict[str, Any], nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3Store(f"s3://{seaweed.BUCKET}/later", {"endpoint": s3["endpoint"], "region": "us-east-1"})
    with pytest.raises(hoodoo.NoCredentials):
        store.put("k", b"v")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3["secret_key"])
    store.put("k", b"v")
    assert store.get("k") == b"v"


def test_a_profile_that_is_not_there_is_told(s3: dict[str, Any], nobody: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no_such_profile")
    storage = {"endpoint": s3["endpoint"], "region": "us-east-1"}
    refused(hoodoo.NoCredentials, "NO_CREDENTIALS", "open", f"s3://{seaweed.BUCKET}/t", storage)


def test_stores_with_the_same_credentials_share_their_clients_and_others_do_not(s3: dict[str, Any]) -> None:
    """To make a client takes as long as several requests, and each look above a table made one."""
    one, other = S3Store(f"{seaweed.place()}/a/b", s3), S3Store(seaweed.place(), s3)
    assert one._client() is other._client()
    assert all(above._client() is one._client() for above in one.above())
    assert S3Store(one.uri, s3 | {"secret_key": "another"})._client() is not one._client()
    assert S3Store("s3://lake/c")._clients is not S3Store("s3://lake/c")._clients, "the environment may change"


def test_a_write_whose_credentials_ran_out_raises_at_once_and_commits_nothing(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hoodoo.create(f"s3://{seaweed.BUCKET}/ran-out", SCHEMA, key="id", storage=s3)
    table.upsert([{"id": "a", "v": 1}])
    put = S3Store.put_if_absent

    def refusing(store: S3Store, key: str, data: Any, durable: bool = True) -> None:
        if key.startswith(layout.SLOTS):
            store._clients = type(store._clients)()  # not those that other stores share
            store._options = s3 | {"secret_key": "another"}
        put(store, key, data, durable)

    with monkeypatch.context() as patched:
        patched.setattr(S3Store, "put_if_absent", refusing)
        with pytest.raises(hoodoo.SignatureRefused):
            table.upsert([{"id": "a", "v": 2}])
    assert hoodoo.open(table.path, storage=s3).scan().to_arrow()["v"].to_pylist() == [1]


def test_an_endpoint_where_nobody_listens_may_be_tried_again_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.storage.s3._PATIENCE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    storage = {"endpoint": endpoint, "region": "us-east-1", "access_key": "a", "secret_key": "s"}
    with pytest.raises(hoodoo.StoreUnavailable, match=endpoint) as problem:
        hoodoo.open("s3://lake/t", storage=storage)
    assert problem.value.details["bucket"] == "lake"


@pytest.mark.parametrize(
    "path",
    [
        "s3:/x",
        "s3:x",
        "S3://lake/t",
        "s3://",
        "s3:///t",
        "s3://lake/./t",
        "s3://lake/../t",
        "s3://lake/a//b",
        "s3://la ke/t",
        "s3://-/t",
    ],
)
@pytest.mark.parametrize("call", ["create", "open"])
def test_a_place_that_is_none_on_s3_is_an_option_error(tmp_path: Path, path: str, call: str) -> None:
    """`s3:/lake/t` made a table in the folder `s3:` of the current one; `/./` in a key was a place that other programs
    take for another.
    """
    storage = {"endpoint": "http://127.0.0.1:9", "access_key": "a", "secret_key": "s"}
    with pytest.raises(hoodoo.OptionError, match="[Ww]rite"):
        CALLS[call](path, storage)


def test_two_threads_without_credentials_are_both_told(s3: dict[str, Any], nobody: None, monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3Store(f"s3://{seaweed.BUCKET}/t", {"endpoint": s3["endpoint"], "region": "us-east-1"})
    told: list[str] = []

    def ask() -> None:
        try:
            store.get("k")
        except hoodoo.NoCredentials as problem:
            told.append(problem.code)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == ["NO_CREDENTIALS"] * 4
