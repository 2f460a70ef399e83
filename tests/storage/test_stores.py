"""Both stores keep the same promises: on a local disk, and on a real S3 server."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
import seaweed
from botocore.exceptions import ConnectTimeoutError

import hoodoo
from hoodoo.errors import StoreDenied, TableNotFound
from hoodoo.redact import printable, redact
from hoodoo.storage.local import LocalStore
from hoodoo.storage.s3 import S3Store
from hoodoo.storage.store import Store
from hoodoo.storage.store_of_path import open_store

pytestmark = pytest.mark.xdist_group("s3")  # one server, so one worker
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return LocalStore(tmp_path / "t")
    return S3Store(seaweed.place(), request.getfixturevalue("s3"))


def test_a_key_is_created_once_and_never_overwritten(store: Store) -> None:
    store.put_if_absent("a/b", b"first")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a/b", b"second")
    assert store.get("a/b") == b"first"
    store.write_once("a/b", b"first")
    with pytest.raises(FileExistsError):
        store.write_once("a/b", b"other")
    store.put("a/b", b"replaced")
    assert store.get("a/b") == b"replaced"


@pytest.mark.deep
def test_of_many_that_create_one_key_exactly_one_wins(store: Store) -> None:
    for round_number in range(8):
        winners, barrier = [], threading.Barrier(6)

        def create(
            name: int,
            key: str = f"race/{round_number}",
            barrier: threading.Barrier = barrier,
            winners: list[int] = winners,
        ) -> None:
            barrier.wait()
            try:
                store.put_if_absent(key, str(name).encode())
                winners.append(name)
            except FileExistsError:
                pass  # this one lost, as it should

        threads = [threading.Thread(target=create, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [store.get(f"race/{round_number}")] == [str(name).encode() for name in winners]


def test_listing_is_in_key_order_and_starts_after_a_key(store: Store) -> None:
    for key in ("x/2", "x/10", "x/1", "xy", "z/deep/er"):
        store.put_if_absent(key, key.encode())
    assert list(store.list("x/")) == [("x/1", 3), ("x/10", 4), ("x/2", 3)]
    assert [key for key, _ in store.list("x/", "x/1")] == ["x/10", "x/2"]
    assert [key for key, _ in store.list("")] == ["x/1", "x/10", "x/2", "xy", "z/deep/er"]
    assert list(store.list("nothing/")) == []


def test_what_is_absent_says_so(store: Store) -> None:
    for call in (store.get, store.size, store.open_input, lambda key: store.get_range(key, 0, 3)):
        with pytest.raises(FileNotFoundError):
            call("no/such/key")
    store.delete("no/such/key")
    assert not store.exists("no/such/key") and store.modified_ms("no/such/key") is None


def test_bytes_come_back_whole_in_part_and_through_arrow(store: Store) -> None:
    data = bytes(range(256)) * 5000
    store.put_if_absent("big", pa.py_buffer(data))
    assert (store.get("big"), store.size("big"), store.get_range("big", 300, 7)) == (data, len(data), data[300:307])
    with store.open_input("big") as source:
        assert source.size() == len(data) and bytes(source.read_at(10, 1000)) == data[1000:1010]
    assert abs((store.modified_ms("big") or 0) - 1000 * __import__("time").time()) < 60_000


def test_a_store_pickles(store: Store) -> None:
    store.put_if_absent("k", b"v")
    assert pickle.loads(pickle.dumps(store)).get("k") == b"v"


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_a_table_on_s3_takes_every_operation(s3: dict[str, Any], kind: str) -> None:
    path = f"{seaweed.place()}/t"
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, storage=s3)
    first = table.upsert(pa.table({"id": ["a", "b"], "city": ["p/q", "ü"], "ts": [1, 1]}))
    table.upsert(pa.table({"id": ["a", "c"], "city": ["p/q", "ü"], "ts": [2, 1]}))
    table.delete(pa.table({"id": ["b"], "city": ["ü"]}))
    again = pickle.loads(pickle.dumps(table))
    rows = again.scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": "a", "city": "p/q", "ts": 2}, {"id": "c", "city": "ü", "ts": 1}]
    assert again.scan(as_of=first.cursor).count() == 2
    assert again.incremental(first.instant).count() == 2
    again.compact()
    again.maintenance.clean(retain_hours=0, retain_commits=1)
    assert hoodoo.open(path, storage=s3).scan().to_arrow().sort_by("id").to_pylist() == rows
    assert again.verify().problems == []
    with pytest.raises(hoodoo.TableExists):
        hoodoo.create(path, SCHEMA, key="id", storage=s3)


def test_no_secret_reaches_an_error_a_repr_or_the_table(s3: dict[str, Any]) -> None:
    path = f"{seaweed.place()}/t"
    table = hoodoo.create(path, SCHEMA, key="id", storage=s3)
    table.upsert(pa.table({"id": ["a"], "city": ["p"], "ts": [1]}))
    wrong = {**s3, "secret_key": "CANARY-" + s3["secret_key"]}
    with pytest.raises(hoodoo.HoodooError) as caught:
        hoodoo.open(path, storage=wrong)
    store = open_store(path, s3)
    seen = [
        repr(table),
        repr(store),
        str(caught.value),
        repr(caught.value.details),
        *(store.get(key).decode("latin-1") for key, _ in store.list("")),
    ]
    assert not any(s3["secret_key"] in text for text in seen)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254",
        "http://example.com",
        "ftp://127.0.0.1",
        "https://user:pw@host",
        "not a url",
        "http://10.0.0.1:80",
    ],
)
def test_a_hostile_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(hoodoo.OptionError) as caught:
        open_store("s3://b/t", {"endpoint": endpoint})
    assert "pw" not in str(caught.value)


def test_unknown_storage_options_are_refused() -> None:
    with pytest.raises(hoodoo.OptionError, match="endpont"):
        open_store("s3://b/t", {"endpont": "x"})
    with pytest.raises(hoodoo.OptionError, match="bucket"):
        open_store("s3:///t")


def test_a_silent_s3_server_is_unavailable_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(
        "s3://b/t", {"endpoint": "http://127.0.0.1:9", "access_key": "a", "secret_key": "s", "region": "us-east-1"}
    )

    class Silent:
        def __getattr__(self, name: str) -> Any:
            def call(**_: Any) -> Any:
                raise ConnectTimeoutError(endpoint_url="http://user:secret@host")

            return call

    monkeypatch.setattr(boto3.session.Session, "client", lambda *_, **__: Silent())
    monkeypatch.setattr(store, "pause", lambda seconds: None)
    for call in (lambda: store.get("k"), lambda: store.put_if_absent("k", b""), lambda: list(store.list(""))):
        with pytest.raises(hoodoo.StoreUnavailable) as caught:
            call()
        assert "secret" not in str(caught.value)


def test_a_symbolic_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    store = LocalStore(tmp_path / "t")
    store.put_if_absent("a", b"1")
    (tmp_path / "t/link").symlink_to(tmp_path / "outside")
    with pytest.raises(hoodoo.CorruptTable, match="symbolic link"):
        store.get("link")
    store.delete("link")
    assert (tmp_path / "outside").read_bytes() == b"secret"


def test_a_crash_between_temporary_file_and_link_leaves_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path / "t")
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(5, "input/output error")))
    with pytest.raises(hoodoo.StoreUnavailable):
        store.put_if_absent("k", b"v")
    assert not store.exists("k") and list(store.list("")) == []


def test_redaction_takes_secrets_out_of_text() -> None:
    text = (
        "endpoint=https://me:pw1@host key secret_key=abc aws_session_token: 'tok' password=hunter2 "
        "X-Amz-Signature=ff00 ok=1"
    )
    assert (
        redact(text)
        == "endpoint=https://***@host key secret_key=*** aws_session_token: '***' password=*** X-Amz-Signature=*** ok=1"
    )
    assert "\x1b" not in printable("\x1b[31m") and len(printable("x" * 10_000)) < 300


def test_a_local_store_does_not_make_its_folder_again(tmp_path: Path) -> None:
    """A worker's heartbeat that was under way while its table was renamed made a folder in the table's place: create()
    then found something there.
    """
    store = LocalStore(str(tmp_path / "t"))
    store.put("a/b", b"1")
    os.rename(tmp_path / "t", tmp_path / "elsewhere")
    for write in (lambda: store.put("a/b", b"2"), lambda: store.create("a/c", b"2"), lambda: store.create("d", b"2")):
        with pytest.raises(TableNotFound, match="dropped or renamed"):
            write()
    assert not (tmp_path / "t").exists()
    LocalStore(str(tmp_path / "t")).create("a/b", b"3")  # a table that is made anew there


def test_a_file_that_may_not_be_opened_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scans of a base file without permission ended with Python's PermissionError."""
    store = LocalStore(str(tmp_path / "t"))
    store.put("a", b"1")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pa, "memory_map", refused)
    with pytest.raises(StoreDenied, match="permission to read"):
        store.open_input("a")


@pytest.mark.parametrize("access_key", ["key", None])
def test_a_forked_process_does_not_use_the_connections_of_its_parent(access_key: str | None) -> None:
    secret = {"access_key": access_key, "secret_key": "secret"} if access_key else {}
    store = S3Store("s3://bucket/t", {"region": "eu-central-1", "endpoint": "https://localhost:1", **secret})
    client = store._client()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os._exit(int(store._client() is client or store._client() is not store._client()))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and store._client() is client
