"""A topic as a source: librdkafka's own mock is the broker, so it says nothing of transactions, loss and topics made
anew, which tests/kafka ask a real one about.
"""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
import re
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from mock_topics import COLUMNS, read
from patience import PATIENCE_S

import hoodoo
from hoodoo.errors import ColumnError, DataError, OptionError, SourceUnavailable, TooManyBadRows
from hoodoo.sources import Kafka, Limits, Planned, columns_of
from hoodoo.sources.kafka_client import KafkaClient
from hoodoo.sources.kafka_position import distribute_batch


def test_messages_are_read_once_in_the_order_of_partition_and_offset(cluster: str, put: Any) -> None:
    for number in range(40):
        put("once", number % 4, {"id": number})
    source = Kafka(cluster, "once")
    part, position = read(source)
    assert part.rows["id"].to_pylist() == sorted(range(40), key=lambda number: (number % 4, number))
    assert json.loads(position)["offsets"] == "once,0:10,1:10,2:10,3:10"
    assert source.plan(position, Limits()) is None and source.lag(position).waiting == 0
    put("once", 2, {"id": 99})
    assert source.lag(position).waiting == 1
    assert source.lag(position).partitions == {"0": 0, "1": 0, "2": 1, "3": 0}
    assert read(Kafka(cluster, "once"), position)[0].rows["id"].to_pylist() == [99]


def test_an_administrator_outlives_a_client_that_garbage_collection_finds(cluster: str, put: Any) -> None:
    """The process aborted if garbage collection ran in the thread of the administrator's response."""
    put("outlived", 0, {"id": 1})
    client = KafkaClient(cluster, "outlived", {}, 30.0, skips_lost=False)
    client.ends([0])
    client.cycle = client  # type: ignore[attr-defined]  # as by the traceback of an exception
    alive, administrator = weakref.ref(client), weakref.ref(client._admin)  # type: ignore[arg-type]
    del client
    gc.collect()
    assert alive() is None and administrator() is not None


def test_a_batch_has_as_many_messages_as_it_may(cluster: str, put: Any) -> None:
    put("some", 0, *({"id": number} for number in range(50)))
    put("some", 1, *({"id": 100 + number} for number in range(3)))
    source, position, sizes, found = Kafka(cluster, "some"), "", [], list[int]()
    while planned := source.plan(position, Limits(rows=10)):
        [part] = source.read(planned, COLUMNS, False)
        sizes.append(len(part.rows))
        found += part.rows["id"].to_pylist()
        position = planned.position
    assert max(sizes) == 10 and sorted(found) == [*range(50), 100, 101, 102]


def batches(source: Kafka, bytes_max: int) -> list[list[int]]:
    """The ids that each batch of a topic has, one batch after the other."""
    found, position = list[list[int]](), ""
    while planned := source.plan(position, Limits(bytes=bytes_max)):
        [part] = source.read(planned, COLUMNS, False)
        found.append(part.rows["id"].to_pylist())
        position = part.position
    return found


def sized(*sizes: int) -> list[bytes]:
    """Messages with the ids 0, 1, ... of so many bytes each."""
    return [b'{"id": %d}' % number + b" " * (size - len(b'{"id": %d}' % number)) for number, size in enumerate(sizes)]


def test_a_batch_has_as_many_bytes_as_it_may(cluster: str, put: Any) -> None:
    put("large", 0, *sized(*[50_000] * 40))
    found = batches(Kafka(cluster, "large"), 210_000)
    assert found == [list(range(first, first + 4)) for first in range(0, 40, 4)]


def test_a_message_that_is_larger_than_a_batch_may_be_comes_alone(cluster: str, put: Any) -> None:
    put("giant", 0, *sized(20, 5_000, 20, 20), key=b"of 10 byte")
    first, second, *others = batches(Kafka(cluster, "giant"), 1_000)
    assert (first, second, [one for batch in others for one in batch]) == ([0], [1], [2, 3])


def test_no_batch_is_too_large_and_no_message_lost_where_sizes_change_at_once(
    cluster: str, put: Any, tmp_path: Path
) -> None:
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    sizes = [20] * 300 + [40_000] * 30 + [20] * 300
    put("mixed", 0, *sized(*sizes))
    put("mixed", 1, *(b'{"id": %d}' % (1000 + number) for number in range(300)))
    found = batches(Kafka(cluster, "mixed"), 100_000)
    assert max(sum(sizes[one] for one in batch if one < 1000) for batch in found) <= 100_000
    assert sorted(one for batch in found for one in batch) == [*range(630), *range(1000, 1300)]
    hoodoo.ingest(Kafka(cluster, "mixed"), table, max_bytes=100_000).run()
    inserted = table.changes(1, versions="all").to_arrow()["after"].to_pylist()
    assert sorted(one["id"] for one in inserted) == [*range(630), *range(1000, 1300)]


def test_partitions_share_the_bytes_of_a_batch_once_the_size_of_messages_is_known(cluster: str, put: Any) -> None:
    """As many as came first were taken: a partition waited until another one had nothing left."""
    for partition in (0, 1):
        put("shared", partition, *(b'{"id": %d}' % partition + b" " * 20_000 for _ in range(40)))
    _, *later = batches(Kafka(cluster, "shared"), 210_000)
    assert [set(batch) for batch in later[:-1]] == [{0, 1}] * (len(later) - 1)


def test_a_plan_holds_the_same_messages_whatever_comes_later(cluster: str, put: Any) -> None:
    put("bounded", 0, {"id": 1}, {"id": 2})
    source = Kafka(cluster, "bounded")
    planned = source.plan("", Limits())
    assert planned
    put("bounded", 0, {"id": 3})
    [part] = source.read(planned, COLUMNS, False)
    assert part.rows["id"].to_pylist() == [1, 2]
    assert read(source, planned.position)[0].rows["id"].to_pylist() == [3]


def test_what_is_no_object_is_known_by_partition_and_offset(cluster: str, put: Any) -> None:
    put("bad", 0, {"id": 1}, b"no json", b'{"id": 2}{"id": 3}', b'{"id":\n 4}', b' {"id": 5}\r\n', b"", b"null")
    put("bad", 0, None, key=b"k")
    part, _ = read(Kafka(cluster, "bad"))
    assert part.rows["id"].to_pylist() == [1, 4, 5]
    bad = part.bad.select(["place", "reason", "payload"]).to_pylist()
    assert [{**one, "place": one["place"].rpartition(":")[0]} for one in bad] == [
        {"place": "0:7", "reason": "tombstone", "payload": b"k"},
        {"place": "0:1", "reason": "decode", "payload": b"no json"},
        {"place": "0:2", "reason": "decode", "payload": b'{"id": 2}{"id": 3}'},
        {"place": "0:5", "reason": "decode", "payload": b""},
        {"place": "0:6", "reason": "decode", "payload": b"null"},
    ]
    assert "tombstone" not in read(Kafka(cluster, "bad", tombstones="skip"))[0].bad["reason"].to_pylist()
    with pytest.raises(TooManyBadRows, match="too many bad rows: expected at most 2"):
        read(Kafka(cluster, "bad"), limits=Limits(bad_rows=2))


def test_a_table_gets_what_the_broker_says_if_it_has_the_columns(cluster: str, put: Any) -> None:
    put("told", 1, {"id": 1, "_kafka_offset": 77}, b"x", {"id": 2}, key="ü".encode())
    told = [("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64()), ("_kafka_key", pa.string())]
    columns = pa.schema([*COLUMNS, *told, ("_kafka_timestamp", pa.timestamp("ms", "UTC"))])
    rows = read(Kafka(cluster, "told"), columns=columns)[0].rows
    assert rows.select(["id", *(name for name, _ in told)]).to_pylist() == [
        {"id": 1, "_kafka_partition": 1, "_kafka_offset": 0, "_kafka_key": "ü"},
        {"id": 2, "_kafka_partition": 1, "_kafka_offset": 2, "_kafka_key": "ü"},
    ]
    assert rows["_kafka_timestamp"].null_count == 0
    assert read(Kafka(cluster, "told"))[0].rows.column_names == ["id"]
    every = read(Kafka(cluster, "told", broker_columns=True))[0].rows.column_names
    assert every == ["id", "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_kafka_key"]


def test_new_columns_of_messages_are_added_and_none_of_the_broker(cluster: str, put: Any, tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    put("newer", 0, {"id": 1, "more": 2})
    hoodoo.ingest(Kafka(cluster, "newer"), table, new_columns="add").run()
    assert table.schema.names == ["id", "v", "more"]


def test_a_column_of_several_types_is_named_with_partition_and_offset(cluster: str, put: Any) -> None:
    put("odd", 0, *({"id": number} for number in range(20)), {"id": "x"})
    match = (
        r"'id' has values of several types: long \(at partition 0, offset 0\) and string \(at partition 0, offset 20\)"
    )
    with pytest.raises(ColumnError, match=match):
        columns_of(Kafka(cluster, "odd"))


def test_what_a_sender_says_in_the_name_of_the_broker_is_never_taken(cluster: str, put: Any, tmp_path: Path) -> None:
    """Column _kafka_offset was added with the sender's value; from the next batch on it was the broker's."""
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    put("forged", 0, {"id": 1, "_kafka_offset": 999, "_kafka_key": {"a": 1}}, {"id": 2, "_kafka_offset": "none"})
    report = hoodoo.ingest(Kafka(cluster, "forged"), table, new_columns="add", max_rows=1).run()
    assert (report.rows, report.bad, report.unknown) == (2, 0, ("_kafka_key", "_kafka_offset"))
    assert table.schema.names == ["id", "v"]
    told = hoodoo.create(tmp_path / "told", pa.schema([*COLUMNS, ("_kafka_offset", pa.int64())]), key="id")
    report = hoodoo.ingest(Kafka(cluster, "forged"), told).run()
    assert (report.bad, report.unknown) == (0, ("_kafka_key",))
    assert told.scan(["id", "_kafka_offset"]).to_arrow().to_pylist() == [
        {"id": 1, "_kafka_offset": 0},
        {"id": 2, "_kafka_offset": 1},
    ]


def test_where_a_message_stands_may_be_the_key_of_its_row(cluster: str, put: Any, tmp_path: Path) -> None:
    """Each message lacked the value that the broker was about to fill in."""
    key = [("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())]
    table = hoodoo.create(tmp_path / "t", pa.schema([*key, ("v", pa.string())]), key=[name for name, _ in key])
    put("log", 1, {"v": "a"}, {"v": "b", "_kafka_offset": 0}, {"more": 1})
    report = hoodoo.ingest(Kafka(cluster, "log"), table).run()
    assert (report.rows, report.bad, report.unknown) == (3, 0, ("more",))
    assert table.scan(["_kafka_partition", "_kafka_offset", "v"]).to_arrow().to_pylist() == [
        {"_kafka_partition": 1, "_kafka_offset": number, "v": v} for number, v in enumerate(["a", "b", None])
    ]


def test_a_change_event_does_not_speak_for_the_broker(cluster: str, put: Any, tmp_path: Path) -> None:
    columns = pa.schema([*COLUMNS, ("_event_lsn", pa.int64())])
    table = hoodoo.create(tmp_path / "t", columns, key="id", order_by="_event_lsn")
    after, source = {"id": 1, "v": "a", "_kafka_offset": 999}, {"connector": "postgresql", "lsn": 5}
    put("forger", 0, {"op": "c", "before": None, "after": after, "source": source}, key=b'{"id": 1}')
    report = hoodoo.ingest(Kafka(cluster, "forger", format="debezium-json"), table, new_columns="add").run()
    assert (report.rows, report.unknown, "_kafka_offset" in table.schema.names) == (1, ("_kafka_offset",), False)


def wider(source: Kafka, ranges: dict[int, tuple[int, int]]) -> Planned:
    """A plan of more than there is, as a broker may make whose replicas lag behind the one that was asked."""
    planned = source.plan("", Limits())
    assert planned is not None
    return Planned(type(planned.what)(ranges, 1 << 20, 0), planned.position)


def test_a_partition_that_ends_before_its_range_has_not_been_read(cluster: str, put: Any) -> None:
    """Its end was taken for the range's: the messages that came late were passed over for ever."""
    put("behind", 0, {"id": 1}, {"id": 2})
    source = Kafka(cluster, "behind", idle_seconds=0.5)
    with pytest.raises(SourceUnavailable, match=r"messages are left in partitions \[0\]"):
        list(source.read(wider(source, {0: (0, 3)}), COLUMNS, False))
    assert read(source)[0].rows["id"].to_pylist() == [1, 2]


def test_a_partition_that_brings_nothing_is_noticed_whatever_others_bring(cluster: str, put: Any) -> None:
    """Each message counted as an answer, those of partitions that were read already too: a job hung for ever."""
    put("quiet", 0, {"id": 1})
    put("quiet", 1, {"id": 2})
    source, over = Kafka(cluster, "quiet", idle_seconds=0.5), threading.Event()

    def go_on() -> None:
        while not over.is_set():
            put("quiet", 1, {"id": 3})

    others = threading.Thread(target=go_on)
    others.start()
    try:
        with pytest.raises(SourceUnavailable, match=r"messages are left in partitions \[0\]"):
            list(source.read(wider(source, {0: (0, 9), 1: (0, 1)}), COLUMNS, False))
    finally:
        over.set()
        others.join()


def test_a_job_takes_a_topic_into_a_table(cluster: str, put: Any, tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    put("whole", 0, *({"id": number, "v": "x"} for number in range(250)), b"x")
    put("whole", 3, *({"id": number, "v": "y"} for number in range(100, 350)))
    report = hoodoo.ingest(Kafka(cluster, "whole"), table, max_rows=100, on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
    assert (report.rows, report.bad, table.scan().count()) == (501, 1, 350)
    assert hoodoo.ingest(Kafka(cluster, "whole"), table).run().batches == 0
    [aside] = table.quarantine().rows().select(["source", "position"]).to_pylist()
    assert aside["source"] == "kafka:whole" and aside["position"].startswith("0:250:")


def test_a_job_follows_change_events_of_a_topic(cluster: str, put: Any, tmp_path: Path) -> None:
    table = hoodoo.create(
        tmp_path / "t", pa.schema([*COLUMNS, ("_event_lsn", pa.int64())]), key="id", order_by="_event_lsn"
    )
    for lsn, number in enumerate([1, 2, 1]):
        after = {"id": number, "v": f"{lsn}"}
        event = {"op": "c", "before": None, "after": after, "source": {"connector": "postgresql", "lsn": lsn}}
        put("changes", 1, event, key=json.dumps({"id": number}).encode())
    gone = {"op": "d", "before": {"id": 2}, "after": None, "source": {"connector": "postgresql", "lsn": 9}}
    put("changes", 1, gone, None, key=b'{"id": 2}')
    report = hoodoo.ingest(Kafka(cluster, "changes", format="debezium-json"), table, max_rows=2).run()
    assert (report.rows, report.bad, report.skipped) == (4, 0, 1)
    assert table.scan(["id", "v"]).to_arrow().to_pylist() == [{"id": 1, "v": "2"}]


@pytest.mark.parametrize(
    "event",
    [
        {"op": "c", "before": None, "after": {"id": 1}, "source": {"lsn": 1}, "ts_ms": 1},
        {"op": "d", "before": {"id": 1}, "source": {"lsn": 1}},
        {"schema": {"type": "struct"}, "payload": {"op": "c", "after": {"id": 1}, "source": {"lsn": 1}}},
    ],
    ids=["created", "deleted", "with a schema"],
)
def test_change_events_that_are_read_as_rows_are_said_to_be_events(
    cluster: str, put: Any, tmp_path: Path, event: dict[str, Any]
) -> None:
    table, topic = hoodoo.create(tmp_path / "t", COLUMNS, key="id"), f"events-{len(event)}"
    put(topic, 0, event)
    job, hint = hoodoo.ingest(Kafka(cluster, topic), table), r"format='debezium-json' \(--format debezium-json\)"
    assert re.search(
        f"'id' has no value; it looks like a change event of Debezium, which {hint}", job.check().problems[0]
    )
    with pytest.raises(TooManyBadRows, match=hint):
        hoodoo.ingest(Kafka(cluster, topic), table, on_bad_rows=hoodoo.BadRowLimits(rows=0)).run()


def test_a_row_without_its_key_is_not_said_to_be_an_event(cluster: str, put: Any, tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    put("keyless", 0, {"v": "a"}, {"op": "c", "after": 1}, {"payload": 1}, {"id": None, "source": 1})
    problems = hoodoo.ingest(Kafka(cluster, "keyless"), table).check().problems
    assert [one.partition(": ")[2] for one in problems] == ["key column 'id' has no value"] * 4


def test_a_broker_that_is_not_there_is_no_lost_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.sources.kafka_client._ASK_S", 0.2)
    with pytest.raises(SourceUnavailable, match="did not respond"):
        Kafka("127.0.0.1:1", "t").plan("", Limits())


def test_why_a_broker_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoodoo.sources.kafka_client._ASK_S", 2.0)
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1/.*Connection refused[^.]*\.$"):
        Kafka("127.0.0.1:1", "t").plan("", Limits())


def test_a_broker_that_speaks_no_tls_is_refused_at_once() -> None:
    """It was a broker that does not answer, which a job waits for."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            with contextlib.suppress(OSError):  # the server is closed
                while True:
                    with server.accept()[0] as client:
                        client.recv(1)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        speaking = threading.Thread(target=speak)
        speaking.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            with pytest.raises(OptionError, match=f"{address} denies.*SSL handshake failed.*ssl.ca.location"):
                Kafka(address, "t", settings={"security.protocol": "SSL"}).plan("", Limits())
        finally:
            server.shutdown(socket.SHUT_RDWR)
            speaking.join()


@pytest.mark.parametrize(
    ("settings", "hinted"), [({}, True), ({"security.protocol": "PLAINTEXT"}, False)], ids=["unset", "set"]
)
def test_a_broker_that_says_nothing_at_all_may_want_another_protocol(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], hinted: bool
) -> None:
    """Of a listener that wants a password nothing was known but that it did not respond."""
    monkeypatch.setattr("hoodoo.sources.kafka_client._ASK_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it takes connections, and nobody reads them
        source = Kafka(f"127.0.0.1:{server.getsockname()[1]}", "t", settings=settings)
        with pytest.raises(SourceUnavailable, match="did not respond") as refused:
            source.plan("", Limits())
    assert ("set security.protocol in settings" in refused.value.message) == hinted


def test_a_source_that_nobody_needs_any_more_leaves_no_thread() -> None:
    """In a process of its own, whose threads are those of the source."""
    subprocess.run([sys.executable, "-c", LEFT], check=True, timeout=PATIENCE_S)


LEFT = """
import gc, os
from hoodoo.errors import SourceUnavailable
from hoodoo.sources import Kafka, Limits, kafka_client
kafka_client._ASK_S = 0.2
threads = len(os.listdir("/proc/self/task"))
for circle in (False, True):
    source = Kafka("127.0.0.1:1", "t")
    source.itself = source if circle else None
    try:
        source.plan("", Limits())
    except SourceUnavailable:
        assert len(os.listdir("/proc/self/task")) > threads
    del source
    gc.collect()
    assert len(os.listdir("/proc/self/task")) == threads
"""


@pytest.mark.parametrize(
    ("name", "value"), [("no.such.setting", "x"), ("fetch.min.bytes", "many"), ("ssl.ca.location", "/nowhere")]
)
def test_a_setting_that_the_client_refuses_is_no_broker_that_does_not_answer(name: str, value: str) -> None:
    """A job that goes on until it is stopped waited for ever for the broker."""
    settings = {name: value, **({"security.protocol": "SSL"} if name.startswith("ssl") else {})}
    with pytest.raises(OptionError, match=f"rejects a setting: .*{name}"):
        Kafka("127.0.0.1:1", "t", settings=settings).plan("", Limits())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"servers": ""}, "servers"),
        ({"topic": None}, "topic"),
        ({"start": "now"}, "start"),
        ({"on_loss": "ignore"}, "on_loss"),
        ({"tombstones": "delete"}, "tombstones"),
        ({"idle_seconds": -1}, "idle_seconds"),
        ({"broker_columns": "yes"}, "broker_columns"),
        ({"settings": {"enable.auto.commit": True}}, "settings"),
        ({"settings": {"isolation.level": "read_uncommitted"}}, "settings"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError) as refused:
        Kafka(**{"servers": "broker:9092", "topic": "t", **wrong})
    assert refused.value.details["option"] == named


@pytest.mark.parametrize(
    ("waiting", "most", "taken"),
    [
        ({0: 5, 1: 5}, 4, {0: 2, 1: 2}),
        ({0: 1, 1: 50}, 10, {0: 1, 1: 9}),
        ({0: 0, 1: 3}, 10, {0: 0, 1: 3}),
        ({0: 9, 1: 9, 2: 9}, 1, {0: 1, 1: 0, 2: 0}),
        ({0: 9, 1: 9, 2: 9}, 10, {0: 4, 1: 3, 2: 3}),
        ({}, 10, {}),
    ],
)
def test_what_one_partition_does_not_need_the_others_get(
    waiting: dict[int, int], most: int, taken: dict[int, int]
) -> None:
    assert distribute_batch(waiting, most) == taken


@pytest.mark.parametrize("call", ["list_topics", "get_watermark_offsets", "assign", "consume", "poll"])
def test_whatever_the_client_raises_is_an_error_that_names_the_topic_and_nothing_is_written(
    cluster: str, put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    topic = f"raises_{call}"
    put(topic, 0, {"id": 1})
    for kind in (ValueError, KeyError, TypeError, RuntimeError, BufferError, MemoryError, OSError):

        def fail(*_: Any, kind: type[Exception] = kind, **__: Any) -> Any:
            raise kind("broken")

        broken = type("Broken", (confluent_kafka.Consumer,), {call: fail})
        with monkeypatch.context() as patch:
            patch.setattr(confluent_kafka, "Consumer", broken)
            with pytest.raises((DataError, SourceUnavailable)) as found:
                hoodoo.ingest(Kafka(cluster, topic), table, name="job").take()
        assert topic in found.value.message and pickle.loads(pickle.dumps(found.value)).code
        assert not table.count() and not table.inspect.application("job").position
    assert hoodoo.ingest(Kafka(cluster, topic), table, name="job").run().rows == 1
