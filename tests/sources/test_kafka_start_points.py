"""Where a topic is read from: places that people and other programs name, positions that are stored, and those that are
lost.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from mock_topics import COLUMNS, read

import hoodoo
from hoodoo.errors import OptionError, SourceLost, SourceUnavailable
from hoodoo.sources import Kafka, Limits
from hoodoo.sources.kafka_position import TopicPosition


def test_a_job_that_begins_with_the_latest_message_passes_over_older_ones_for_ever(cluster: str, put: Any) -> None:
    put("late", 0, {"id": 1})
    source = Kafka(cluster, "late", start="latest")
    part, position = read(source)  # nothing to read, and a position to commit
    assert not len(part.rows) and source.plan(position, Limits()) is None
    put("late", 0, {"id": 2})
    assert read(source, position)[0].rows["id"].to_pylist() == [2]


def test_a_position_behind_the_end_is_lost_or_skipped(cluster: str, put: Any) -> None:
    put("short", 0, {"id": 1})
    position = TopicPosition("short", "", {0: 9}).text()
    with pytest.raises(SourceLost, match="Partition 0 has the offsets 0 to 1 now, but the job needs offset 9"):
        Kafka(cluster, "short").plan(position, Limits())
    assert read(Kafka(cluster, "short", on_loss="skip"), position)[0].rows["id"].to_pylist() == [1]
    with pytest.raises(SourceLost, match="Partition 17 does not exist"):
        Kafka(cluster, "short", on_loss="skip").plan(TopicPosition("short", "", {17: 0}).text(), Limits())


def test_a_broker_that_told_the_id_of_a_topic_is_asked_until_it_tells_again(cluster: str, put: Any) -> None:
    """A process that had not been told it once took every topic for the one that another process had seen."""
    put("untold", 0, {"id": 1})
    source = Kafka(cluster, "untold")
    assert json.loads(read(source)[1])["id"] == ""
    with pytest.raises(SourceUnavailable, match="was not recreated"):
        source.plan(TopicPosition("untold", "7co8koLWSQO1AkDGcZgNOQ", {0: 1}).text(), Limits())


@pytest.mark.parametrize(
    "position",
    ["{}", "t,0:1", "[]", '{"source":"files","upto":1,"seen":{}}', '{"source":"kafka","id":"","offsets":"u,0:1"}']
    + [
        f'{{"source":"kafka","id":"","offsets":"{text}"}}'
        for text in ("", "t,", "t,0", "t,0:", "t,0:-1", "t,0:1,", "t,٣:1")
    ]
    + ['{"source":"kafka","id":null,"offsets":"t,0:1"}', '{"source":"kafka","id":"","offsets":7}'],
)
def test_a_position_of_another_source_is_refused_and_never_means_the_beginning(position: str) -> None:
    with pytest.raises(SourceLost, match="another source"):
        TopicPosition.parse(position, "t")


def test_a_position_is_read_back_as_it_was_written() -> None:
    where = TopicPosition("a.b-c_D", "7co8koLWSQO1AkDGcZgNOQ", {10: 2, 9: 10**15, 0: 0})
    assert TopicPosition.parse(where.text(), "a.b-c_D") == where
    assert json.loads(where.text())["offsets"] == "a.b-c_D,0:0,9:1000000000000000,10:2"


def test_hudis_streamer_is_told_the_next_offsets() -> None:
    """A topic without a partition it could not read."""
    source = Kafka("broker:9092", "shop.orders")
    assert source.to_hudi(TopicPosition("shop.orders", "id", {1: 456, 0: 123}).text()) == "shop.orders,0:123,1:456"
    assert source.to_hudi(TopicPosition("shop.orders").text()) == source.to_hudi("") == ""


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("named,0:2,1:3,2:999,3:0", "Partition 2 of topic 'named' does not have offset 999: expected 0 to 1"),
        ("named,0:2,1:0,2:0,3:0,7:2", "does not have partition 7: expected 0 to 3"),
        ("named,0:2,2:1", r"missing for partitions \[1, 3\]"),
    ],
    ids=["behind the end", "no such partition", "some only"],
)
def test_a_job_is_never_reset_to_offsets_that_a_topic_does_not_have(
    cluster: str, put: Any, tmp_path: Path, place: str, why: str
) -> None:
    """The reset was committed: the next run said that messages were lost, or read other partitions anew."""
    put("named", 0, *({"id": number} for number in range(3)))
    put("named", 1, *({"id": number} for number in range(3)))
    put("named", 2, {"id": 7})
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    job = hoodoo.ingest(Kafka(cluster, "named"), table, name="job")
    with pytest.raises(OptionError, match=why) as refused:
        job.reset(place, -1)
    assert refused.value.details["option"] == "start" and table.inspect.application("job").version == -1


@pytest.mark.parametrize(
    "place",
    ["10 minutes ago", "Earliest", "yesterday", "2", "other,0:1", "t", "t,0:-2", "[]"]
    + ['{"t":{"0":-3}}', '{"t":{"0":"3"}}', '{"t":{}}', '{"u":{"0":3}}', '{"t":{"0":3},"u":{"0":3}}', '{"t":{', "{}"],
)
def test_what_is_no_place_in_a_topic_is_told_which_places_there_are(place: str) -> None:
    with pytest.raises(OptionError, match=f"{re.escape(repr(place))} is not a valid position in topic 't'") as refused:
        Kafka("127.0.0.1:1", "t").position_at(place)  # nobody is asked
    for known in ("'earliest'", "'latest'", "ISO 8601", "'t,0:123,1:456'", '\'{"t": {"0": 123,', "a position"):
        assert known in refused.value.message


def test_a_job_is_reset_to_an_offset_of_each_partition_up_to_its_end(cluster: str, put: Any, tmp_path: Path) -> None:
    put("ends", 1, *({"id": number} for number in range(3)))
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    job = hoodoo.ingest(Kafka(cluster, "ends"), table, name="job")
    job.reset("ends,0:0,1:3,2:0,3:0", -1)
    assert job.run().rows == 0
    job.reset("ends,0:0,1:1,2:0,3:0", 0)
    assert job.run().rows == 2


def test_a_job_is_reset_to_offsets_as_spark_spells_them(cluster: str, put: Any, tmp_path: Path) -> None:
    """What --as-spark-offsets had printed was the position of another source."""
    put("source", 0, *({"id": number} for number in range(5)))  # a position says "source", too
    put("source", 1, *({"id": number} for number in range(5)))
    source = Kafka(cluster, "source")
    job = hoodoo.ingest(source, hoodoo.create(tmp_path / "t", COLUMNS, key="id"), name="job")
    job.run()
    printed = source.to_spark(job.position())
    assert json.loads(printed) == {"source": {"0": 5, "1": 5, "2": 0, "3": 0}}
    job.reset('{"source": {"0": 3, "1": -2, "2": -1, "3": 0}}', 0)
    assert json.loads(job.position())["offsets"] == "source,0:3,1:0,2:0,3:0"
    job.reset('{"source": {"0": -1, "1": 0, "2": 0, "3": 0}}', 1)
    assert json.loads(job.position())["offsets"] == "source,0:5,1:0,2:0,3:0"
    job.reset(printed, 2)
    assert source.to_spark(job.position()) == printed
    with pytest.raises(OptionError, match="Partition 1 of topic 'source' does not have offset 6"):
        job.reset('{"source": {"0": 3, "1": 6, "2": 0, "3": 0}}', 3)
    with pytest.raises(SourceLost, match="expected a position of topic 'source'"):
        job.reset('{"source":"files","upto":1,"seen":{}}', 3)


def test_a_job_goes_on_from_a_stream_on_spark_and_back(cluster: str, put: Any, tmp_path: Path) -> None:
    put("spark", 0, *({"id": number} for number in range(5)))
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    said = '{"source":"spark","offsets":[{"spark":{"0":3,"1":0,"2":0,"3":0}}]}'
    table.upsert([{"id": number, "v": None} for number in range(3)], transaction=("stream", 0, said))
    source = Kafka(cluster, "spark")
    assert source.to_spark("") == "earliest" and source.to_spark(said) == '{"spark":{"0":3,"1":0,"2":0,"3":0}}'
    job = hoodoo.ingest(source, table, name="orders")
    job.continue_from("stream")
    assert job.run().rows == 2 and table.scan().count() == 5
    assert source.to_spark(job.position()) == '{"spark":{"0":5,"1":0,"2":0,"3":0}}'


@pytest.mark.parametrize(
    "offsets",
    ['[{"other":{"0":3}}]', '[{"spark":{"0":3}},{"spark":{"0":3}}]', '[{"logOffset":3}]', '[{"spark":{"0":-1}}]', "3"],
)
def test_a_stream_that_reads_something_else_is_no_place_to_go_on_from(offsets: str) -> None:
    with pytest.raises(SourceLost, match="expected a position of topic 'spark'"):
        TopicPosition.parse(f'{{"source":"spark","offsets":{offsets}}}', "spark")
