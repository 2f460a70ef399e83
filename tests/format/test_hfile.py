"""HFiles and the records in them: equal to those that Apache Hudi writes, and readable by their description."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import golden_tables as golden
import pytest
from hfiles import log_records, read_hfile
from hudi_blocks import blocks

from hoodoo.format import hfile
from hoodoo.format.log.block import encode_metadata_block
from hoodoo.format.timeline import avro, file_listing


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Logs of the partition `files` that Apache Hudi wrote, with records."""
    folder = golden.unpack("mor_metadata", tmp_path) / ".hoodie/metadata/files"
    return [path for path in sorted(folder.glob(".*.log.*")) if "_0000" not in path.name]


def schema_in_commits(tmp_path: Path) -> str:
    newest = max((tmp_path / "mor_metadata/.hoodie/metadata/.hoodie/timeline").glob("2*_*.deltacommit"))
    return str(avro.decode_timeline_file(newest.read_bytes())["extraMetadata"]["schema"])


def test_what_apache_hudi_wrote_is_encoded_to_the_same_blocks(logs: list[Path]) -> None:
    assert len(logs) == 3
    for path in logs:
        [(_, header, content)] = list(blocks(path.read_bytes()))
        theirs = read_hfile(content)
        (created,) = struct.unpack(">q", theirs.facts["hfile.CREATE_TIME_TS"])
        ours = read_hfile(hfile.encode_hfile(theirs.entries, header[2], created))
        assert ours.entries == theirs.entries
        assert ours.facts == theirs.facts
        data = [number for number, (magic, _) in enumerate(theirs.blocks) if magic != b"IDXROOT2"]
        assert [ours.blocks[number] for number in data] == [theirs.blocks[number] for number in data]
        assert ours.trailer.keys() == theirs.trailer.keys()
        places = (1, 2, 10)  # offsets follow from how well each gzip compresses
        assert [ours.trailer[n] for n in ours.trailer if n not in places] == [
            theirs.trailer[n] for n in theirs.trailer if n not in places
        ]


def test_the_records_of_a_commit_are_the_bytes_that_apache_hudi_wrote(logs: list[Path], tmp_path: Path) -> None:
    schema = file_listing.metadata_record_schema(schema_in_commits(tmp_path))
    assert schema is not None
    for path in logs:
        [(_, header, content)] = list(blocks(path.read_bytes()))
        assert json.loads(schema) == json.loads(header[2])
        [(_, records, theirs)] = log_records(path.read_bytes())
        files = {key: record["filesystemMetadata"] for key, record in records.items() if record["type"] == 2}
        changes = {key: {name: info["size"] for name, info in found.items()} for key, found in files.items()}
        ours = file_listing.encode_file_list(schema, changes)
        assert ours.keys() == theirs.entries.keys()
        for key, record in records.items():
            if len(record["filesystemMetadata"]) == 1:  # of several, Java's order of a map differs
                assert ours[key] == theirs.entries[key]


@pytest.mark.parametrize("count", [1, 2, 3000])
def test_an_hfile_of_any_number_of_blocks_holds_its_entries_in_the_order_of_their_keys(count: int) -> None:
    values = {f"city={number * 7919 % 3001:04}ä": b"v" * (number % 90) for number in range(count)}
    data = hfile.encode_hfile(values, '"bytes"', 1_700_000_000_000)
    found = read_hfile(data)
    assert found.entries == values
    assert len([1 for magic, _ in found.blocks if magic == b"DATABLK*"]) == (1 if count < 3 else 4)
    assert found.facts["schema"] == b'"bytes"'
    assert found.facts["hfile.LASTKEY"][2:].decode() == max(values)
    assert data == hfile.encode_hfile(dict(reversed(values.items())), '"bytes"', 1_700_000_000_000)


def test_an_index_entry_of_a_long_key_has_a_length_of_several_bytes() -> None:
    values = {"p" * 130: b"a", "q" * 300: b"b" * 70_000}
    assert read_hfile(hfile.encode_hfile(values, "s", 0)).entries == values


def test_files_that_went_are_marked_as_deleted_and_a_table_without_partitions_has_one_folder(
    logs: list[Path], tmp_path: Path
) -> None:
    schema = file_listing.metadata_record_schema(schema_in_commits(tmp_path)) or ""
    values = file_listing.encode_file_list(schema, {"": {"b": None, "a": 5}, "p=1": {"c": None}})
    log = encode_metadata_block("20260101000000000", schema, hfile.encode_hfile(values, schema, 0))
    [(instant, records, _)] = log_records(log)
    assert instant == "20260101000000000"
    assert {key: (one["type"], one["filesystemMetadata"]) for key, one in records.items()} == {
        "__all_partitions__": (1, {".": {"size": 0, "isDeleted": False}}),
        ".": (2, {"a": {"size": 5, "isDeleted": False}, "b": {"size": 0, "isDeleted": True}}),
        "p=1": (2, {"c": {"size": 0, "isDeleted": True}}),
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["fields"].pop(0),
        lambda schema: schema["fields"][1].update(type="long"),
        lambda schema: schema["fields"][2].update(type="string"),
        lambda schema: schema["fields"][2]["type"][1]["values"]["fields"].append({"name": "x", "type": "int"}),
        lambda schema: schema["fields"].append({"name": "more", "type": "int"}),
        lambda schema: schema.update(fields=7),
    ],
)
def test_a_schema_of_another_release_is_not_taken_for_the_known_one(
    logs: list[Path], tmp_path: Path, change: object
) -> None:
    schema = json.loads(schema_in_commits(tmp_path))
    change(schema)  # type: ignore[operator]
    assert file_listing.metadata_record_schema(json.dumps(schema)) is None
    assert file_listing.metadata_record_schema("no JSON") is None
