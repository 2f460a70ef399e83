"""An S3 server that fails often is asked again wherever that does no harm, and never taken for one
that lacks the key.
"""

from __future__ import annotations

import gc
import socket
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seaweed
from fault_proxy import Rates, proxy

import hoodoo
from hoodoo.format.parquet import base_file
from hoodoo.storage.s3 import S3Store
from hoodoo.storage.store import Store

pytestmark = pytest.mark.xdist_group("s3")  # one server, so one worker


def through(options: dict[str, Any], port: int, path: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(Store, "pause", lambda self, seconds: None)
    return S3Store(f"s3://{seaweed.BUCKET}/{path}", options | {"endpoint": f"http://127.0.0.1:{port}"})


def upstream(options: dict[str, Any]) -> int:
    return int(options["endpoint"].rpartition(":")[2])


def test_reads_and_repeatable_writes_survive_a_third_of_all_requests_failing(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3's standard retries draw on a quota: with one request in three failing, reads gave up after a hundred of
    them.
    """
    rates = Rates(dropped=0.07, reset=0.1, unavailable=0.07, slow_down=0.05, truncated=0.1, latency_s_max=0)
    with proxy(upstream(s3), seed=7, rates=rates) as between:
        store = through(s3, between.port, "often", monkeypatch)
        data = bytes(range(256)) * 8
        store.put("k", data)
        for number in range(100):
            assert store.get("k") == data
            assert store.get_range("k", 300, 5) == data[300:305]
            assert store.size("k") == len(data)
            store.put(f"n/{number % 3}", b"x")
            assert not store.exists("absent")
        assert [key for key, _ in store.list("n/")] == ["n/0", "n/1", "n/2"]
        for number in range(10):
            with store.open_input("k") as source:
                assert bytes(source.read_at(7, 100 + number)) == data[100 + number : 107 + number]
        for number in range(3):
            store.delete(f"n/{number}")
        assert list(store.list("n/")) == []
        assert min(between.counts[name] for name in ("dropped", "reset", "unavailable", "slow_down", "truncated")) >= 20


def test_a_conditional_put_is_sent_once_and_its_lost_reply_is_unknown(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy(upstream(s3), rates=Rates(1, 0, 0, 0, 0, 0)) as between:
        with pytest.raises(hoodoo.StoreUnavailable):
            through(s3, between.port, "once", monkeypatch).put_if_absent("k", b"v")
        assert between.counts["requests"] == 1
    assert S3Store(f"s3://{seaweed.BUCKET}/once", s3).get("k") == b"v"


@pytest.mark.parametrize("size", [0, 100, pytest.param(3_000_000, marks=pytest.mark.deep)])
def test_an_object_opened_for_arrow_survives_replies_that_break_off(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    data = bytes(range(250)) * (size // 250) + bytes(size % 250)
    S3Store(f"s3://{seaweed.BUCKET}/large", s3).put("k", data)
    with proxy(upstream(s3), seed=3, rates=Rates(0.05, 0.05, 0.1, 0.1, truncated=0.3, latency_s_max=0)) as between:
        store = through(s3, between.port, "large", monkeypatch)
        for number in range(12):
            with store.open_input("k") as source:
                assert source.size() == size
                assert bytes(source.read_at(1000, size // 2 + number)) == data[size // 2 + number :][:1000]
                source.seek(0)
                assert source.read() == data
        assert between.counts["truncated"] >= (3 if size else 0)


@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_a_read_that_fails_in_the_end_is_unavailable_not_an_os_error_or_damage(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("hoodoo.storage.s3._ATTEMPTS", 2)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"a": pa.array(range(size // 8)), "b": ["x"] * (size // 8)}),
        sink,
        compression="none",
        use_dictionary=False,
    )
    S3Store(f"s3://{seaweed.BUCKET}/broken", s3).put("k", sink.getvalue())
    with proxy(upstream(s3), rates=Rates(0, 0, 0, 0, 0, 0)) as between:
        store = through(s3, between.port, "broken", monkeypatch)
        with store.open_input("k") as source:
            between.rates = Rates(0, 0, 0, 0, truncated=1, latency_s_max=0)
            if size > 1 << 20:
                with pytest.raises(hoodoo.StoreUnavailable):
                    base_file.read_base_file(source, "k", pa.schema([("a", pa.int64())]))
        with pytest.raises(hoodoo.StoreUnavailable, match="Connection to S3 failed"):
            store.open_input("k")
        with pytest.raises(hoodoo.StoreUnavailable, match="Connection to S3 failed"):
            store.get("k")


def test_a_refusal_that_will_not_pass_is_not_asked_again(s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(upstream(s3), rates=Rates(0, 0, 0, 0, 0, 0)) as between:
        store = through(s3 | {"secret_key": "wrong"}, between.port, "x", monkeypatch)
        with pytest.raises(hoodoo.HoodooError):
            store.get("k")
        assert between.counts["requests"] == 1


def test_the_proxy_keeps_a_request_whose_client_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the garbage collector destroys the task that waits for the server, in any test that then runs."""
    request, reply = b"GET /k HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        proxy(server.getsockname()[1], rates=Rates(0, 0, 0, 0, 0, 0)) as between,
    ):
        with socket.create_connection(("127.0.0.1", between.port)) as killed:
            killed.sendall(request)
            waiting, _ = server.accept()
            assert waiting.recv(len(request)) == request
            killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for _ in range(2):  # after these, the proxy has seen that the first client is gone
            with socket.create_connection(("127.0.0.1", between.port)) as client:
                client.sendall(request)
                with server.accept()[0] as connection:
                    assert connection.recv(len(request)) == request
                    connection.sendall(reply)
                assert client.recv(len(reply)) == reply
        gc.collect()
        waiting.close()
    gc.collect()
    assert "Task was destroyed" not in caplog.text
