"""Timeline files against fastavro's own container reader and writer, and against the schemas of the format document."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import fastavro
import pytest
from figures import record
from hypothesis import given, settings
from hypothesis import strategies as st

from hoodoo.errors import CorruptTable
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.format.timeline.avro_schemas import SCHEMAS

DOCUMENTED = json.loads((Path(__file__).parents[1] / "data" / "timeline_schemas.json").read_text())


def values_of(schema: Any, named: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """Any value of a schema."""
    named = {} if named is None else named
    plain = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
    }
    plain |= {
        "double": st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    }
    if isinstance(schema, str):
        return plain[schema] if schema in plain else named[schema]
    if isinstance(schema, list):
        return st.one_of(*(values_of(branch, named) for branch in schema))
    if schema["type"] == "record":
        named[schema["name"]] = st.fixed_dictionaries(
            {field["name"]: values_of(field["type"], named) for field in schema["fields"]}
        )
        return named[schema["name"]]
    if schema["type"] == "array":
        return st.lists(values_of(schema["items"], named), max_size=2)
    if schema["type"] == "map":
        return st.dictionaries(plain["string"], values_of(schema["values"], named), max_size=2)
    return plain[schema["type"]]


def stat(number: int) -> dict[str, Any]:
    file_id = f"3e93c8a9-fda0-4e8a-91dc-{number:012d}-0"
    return {
        "fileId": file_id,
        "path": f"region=apac/{file_id}_1-27-53_20260307162557587.parquet",
        "prevCommit": "null",
        "numWrites": 100,
        "fileSizeInBytes": 435000,
        "partitionPath": "region=apac",
    }


def commit(files: int) -> dict[str, Any]:
    return {
        "partitionToWriteStats": {"region=apac": [stat(i) for i in range(files)]},
        "extraMetadata": {"schema": "{}"},
        "operationType": "UPSERT",
    }


@pytest.mark.parametrize("kind", SCHEMAS)
def test_each_schema_equals_the_text_of_the_format_document(kind: str) -> None:
    assert json.dumps(SCHEMAS[kind]()) == json.dumps(DOCUMENTED[kind])
    assert list(DOCUMENTED) == list(SCHEMAS)


@pytest.mark.parametrize("kind", SCHEMAS)
@settings(max_examples=15)
@given(data=st.data())
def test_another_avro_reader_sees_the_record_that_was_encoded(kind: str, data: st.DataObject) -> None:
    record = data.draw(values_of(SCHEMAS[kind]()))
    encoded = timeline_avro.encode_timeline_file(kind, record)
    reader = fastavro.reader(io.BytesIO(encoded))
    assert list(reader) == [record]
    assert reader.writer_schema["name"].endswith(kind)
    assert timeline_avro.decode_timeline_file(encoded, kind) == record


def test_a_file_of_another_avro_writer_is_read() -> None:
    record = timeline_avro.decode_timeline_file(timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(3)))
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMAS["HoodieCommitMetadata"](), [record])
    assert timeline_avro.decode_timeline_file(stream.getvalue(), "HoodieCommitMetadata") == record


def test_the_file_metadata_is_the_schema_alone_as_apache_hudi_writes_it() -> None:
    reader = fastavro.reader(io.BytesIO(timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(1))))
    assert list(reader.metadata) == ["avro.schema"]
    assert json.loads(reader.metadata["avro.schema"]) == DOCUMENTED["HoodieCommitMetadata"]


def test_equal_records_give_equal_bytes_so_that_a_retry_meets_its_own_file() -> None:
    assert timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(2)) == timeline_avro.encode_timeline_file(
        "HoodieCommitMetadata", commit(2)
    )


def test_a_field_that_the_schema_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="numWriteErrors"):
        timeline_avro.encode_timeline_file("HoodieCommitMetadata", {"numWriteErrors": 1})


def test_a_record_of_an_older_release_gets_the_fields_that_came_later() -> None:
    old = SCHEMAS["HoodieCompactionPlan"]()
    old["fields"] = [field for field in old["fields"] if field["name"] in ("operations", "version")]
    stream = io.BytesIO()
    fastavro.writer(stream, old, [{"operations": None, "version": 2}])
    decoded = timeline_avro.decode_timeline_file(stream.getvalue(), "HoodieCompactionPlan")
    assert decoded["version"] == 2
    assert decoded["preserveHoodieMetadata"] is False
    assert decoded["missingSchedulePartitions"] is None


def test_a_kind_nobody_listed_is_read_by_the_schema_inside() -> None:
    stream = io.BytesIO()
    schema = {"type": "record", "name": "HoodieIndexPlan", "fields": [{"name": "version", "type": "int"}]}
    fastavro.writer(stream, schema, [{"version": 1}])
    assert timeline_avro.decode_timeline_file(stream.getvalue()) == {"version": 1}
    with pytest.raises(CorruptTable, match="expected HoodieCleanerPlan, got HoodieIndexPlan"):
        timeline_avro.decode_timeline_file(stream.getvalue(), "HoodieCleanerPlan")


def test_every_cut_of_a_file_is_refused() -> None:
    encoded = timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(1))
    for size in range(len(encoded)):
        with pytest.raises(CorruptTable):
            timeline_avro.decode_timeline_file(encoded[:size])
    with pytest.raises(CorruptTable):
        timeline_avro.decode_timeline_file(encoded + b"\0")


def test_a_schema_whose_names_were_damaged_is_refused() -> None:
    """One flipped byte in a record name once came out as the decoder's own error, four kilobytes long."""
    damaged = timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(2)).replace(
        b"HoodieWriteStat", b"XoodieWriteStat"
    )
    with pytest.raises(CorruptTable) as refusal:
        timeline_avro.decode_timeline_file(damaged)
    assert len(str(refusal.value)) < 400


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_but_never_breaks_the_reader(data: st.DataObject) -> None:
    damaged = bytearray(timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(2)))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(timeline_avro.decode_timeline_file(bytes(damaged)), dict)
    except CorruptTable:
        return


def container(schema: Any, datum: bytes) -> bytes:
    text = json.dumps(schema).encode()
    head = (
        b"Obj\x01"
        + timeline_avro._encode_long(1)
        + timeline_avro._bytes(b"avro.schema")
        + timeline_avro._bytes(text)
        + b"\0"
    )
    return head + b"s" * 16 + timeline_avro._encode_long(1) + timeline_avro._bytes(datum) + b"s" * 16


def one_field(type_: Any) -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": "f", "type": type_}]}


def nested(levels: int) -> Any:
    type_: Any = "int"
    for _ in range(levels):
        type_ = {"type": "array", "items": type_}
    return type_


@pytest.mark.parametrize(
    "type_",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "x", "size": 0}},
        ["null", "r"],
        {"type": "array", "items": ["null", "r"]},
        nested(100),
        nested(400),
        "nonsense",
        {"type": "nonsense"},
        17,
    ],
)
def test_a_schema_that_would_make_the_decoder_loop_or_recurse_is_refused(type_: Any) -> None:
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x02" * 50
    with pytest.raises(CorruptTable):
        timeline_avro.decode_timeline_file(container(one_field(type_), bomb))


def test_compressed_or_oversized_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, one_field("int"), [{"f": 1}], codec="deflate")
    with pytest.raises(CorruptTable, match="compressed"):
        timeline_avro.decode_timeline_file(stream.getvalue())
    monkeypatch.setattr(timeline_avro, "SIZE_CAP", 10)
    with pytest.raises(CorruptTable, match="too large"):
        timeline_avro.decode_timeline_file(timeline_avro.encode_timeline_file("HoodieCommitMetadata", commit(1)))


def test_a_commit_of_two_thousand_files_comes_back_whole() -> None:
    whole, begin = commit(2000), time.process_time()
    decoded = timeline_avro.decode_timeline_file(timeline_avro.encode_timeline_file("HoodieCommitMetadata", whole))
    record("commit of 2,000 files", cpu_s=round(time.process_time() - begin, 2))
    assert decoded == timeline_avro.decode_timeline_file(
        timeline_avro.encode_timeline_file("HoodieCommitMetadata", decoded)
    )
    assert sum(map(len, decoded["partitionToWriteStats"].values())) == 2000
