"""A topic of Avro messages, its schemas in a registry, as a source of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_events import Changes, golden_events
from connect_avro import as_avro
from mock_topics import COLUMNS
from registry_server import RegistryServer, wire

import hoodoo
from hoodoo.errors import OptionError, SourceUnavailable
from hoodoo.sources import Kafka, Limits, SchemaRegistry

TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
}
WIDE = TRIP | {"fields": [*TRIP["fields"], {"name": "fare", "type": "double"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def test_a_job_takes_a_topic_of_several_schemas_into_a_table(
    cluster: str, put: Any, server: RegistryServer, tmp_path: Path
) -> None:
    old, new = server.put(TRIP), server.put(WIDE)
    put("two", 0, *(wire(old, TRIP, {"id": at, "v": "o"}) for at in range(0, 50)), b"x", None, key=b"k")
    put("two", 0, wire(new, WIDE, {"id": 3, "v": "n", "fare": 1.5}), wire(old, TRIP, {"id": 4, "v": "again"}))
    put("two", 3, *(wire(new, WIDE, {"id": at, "v": "n", "fare": 0.5}) for at in range(60, 90)))
    told = pa.schema([*COLUMNS, ("_kafka_offset", pa.int64())])
    table = hoodoo.create(tmp_path / "t", told, key="id")
    source = Kafka(cluster, "two", format="avro", registry=server.url)
    report = hoodoo.ingest(
        source, table, new_columns="add", max_rows=60, on_bad_rows=hoodoo.BadRowLimits(share=1)
    ).run()
    assert (report.rows, report.bad, table.scan().count()) == (84, 2, 80)
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert rows[3] == {"id": 3, "v": "n", "_kafka_offset": 52, "fare": 1.5} and rows[4]["v"] == "again"
    assert rows[60]["fare"] == 0.5 and rows[5]["fare"] is None
    aside = table.quarantine().rows().select(["position", "reason"]).to_pylist()
    found = sorted((one["position"].rpartition(":")[0], one["reason"]) for one in aside)
    assert found == [("0:50", "decode"), ("0:51", "tombstone")]
    assert sorted(server.asked) == [f"/schemas/ids/{old}", f"/schemas/ids/{new}"]


def test_a_job_follows_change_events_of_a_topic(cluster: str, put: Any, server: RegistryServer, tmp_path: Path) -> None:
    known, events = as_avro(golden_events("rich", "lines"))
    offset = 1 + max(server.put(text) for text in known.texts) - len(known.texts)
    for key, value in events:
        moved = [one and b"\0" + (offset + int.from_bytes(one[1:5])).to_bytes(4) + one[5:] for one in (key, value)]
        put("lines", 2, moved[1], key=moved[0])
    columns = {"order_id": "bigint", "line": "int", "sku": "string", "qty": "int", "_event_lsn": "bigint"}
    table = hoodoo.create(tmp_path / "t", columns, key=["order_id", "line"], order_by="_event_lsn")
    source = Kafka(cluster, "lines", format="debezium-avro", registry=server.url, truncate="ignore")
    report = hoodoo.ingest(source, table, max_rows=5).run()
    assert report.bad == 0 and report.rows + report.skipped == len(events) and report.unknown == ("price",)
    other = hoodoo.create(tmp_path / "json", columns, key=["order_id", "line"], order_by="_event_lsn")
    hoodoo.ingest(Changes(golden_events("rich", "lines"), truncate="ignore"), other).run()
    mine, same = (sorted(map(str, one.scan().to_arrow().to_pylist())) for one in (table, other))
    assert mine == same and len(mine) > 3


def test_a_schema_that_is_no_record_does_not_stop_the_topic(
    cluster: str, put: Any, server: RegistryServer, tmp_path: Path
) -> None:
    number, odd = server.put(TRIP), server.put('"string"')
    put("odd", 0, wire(odd, "string", "x"), *(wire(number, TRIP, {"id": at}) for at in range(5)))
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    report = hoodoo.ingest(Kafka(cluster, "odd", format="avro", registry=server.url), table).run()
    assert (report.rows, report.bad) == (6, 1) and table.scan().count() == 5


def test_a_registry_that_comes_back_loses_no_message(
    cluster: str, put: Any, server: RegistryServer, tmp_path: Path
) -> None:
    number = server.put(TRIP)
    put("back", 0, *(wire(number, TRIP, {"id": at}) for at in range(5)))
    left = [503, 429, 500]
    server.instead = lambda path: (left.pop(), b"", {}) if left else None
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    report = hoodoo.ingest(Kafka(cluster, "back", format="avro", registry=SchemaRegistry(server.url)), table).run()
    assert (report.rows, report.bad, table.scan().count()) == (5, 0, 5) and len(server.asked) == 4


def test_a_registry_that_refuses_stops_the_job_before_anything_is_written(
    cluster: str, put: Any, server: RegistryServer, tmp_path: Path
) -> None:
    put("shut", 0, wire(1, TRIP, {"id": 1}))
    server.instead = lambda path: (401, b"", {})
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    with pytest.raises(OptionError, match="requires a login"):
        hoodoo.ingest(Kafka(cluster, "shut", format="avro", registry=server.url), table).run()
    assert table.scan().count() == 0 and len(server.asked) == 1


def test_a_registry_that_is_not_there_sets_nothing_aside(cluster: str, put: Any) -> None:
    put("gone", 0, wire(1, TRIP, {"id": 1}))
    source = Kafka(cluster, "gone", format="avro", registry="http://127.0.0.1:1")
    planned = source.plan("", Limits())
    assert planned is not None
    with pytest.raises(SourceUnavailable, match="schema registry"):
        list(source.read(planned, COLUMNS, False))


@pytest.mark.parametrize("wrong", [{"format": "avro"}, {"registry": "http://r"}, {"format": "avro", "registry": "r"}])
def test_a_registry_is_asked_for_with_avro_and_with_nothing_else(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as refused:
        Kafka("broker:9092", "t", **wrong)
    assert refused.value.details["option"] == "registry"
