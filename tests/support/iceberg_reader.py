"""A small reader of Iceberg tables, written from the specification alone: manifests by fastavro, files by pyarrow.

It knows nothing of hoodoo and trusts nothing that it can check. `read` gives the bytes of a location, from the local
disk where nothing else is said.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import delta_reader
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

Read = Callable[[str], bytes]


def metadata(path: Path) -> dict[str, Any]:
    """The newest table metadata, from the hint upwards."""
    number = int((path / "metadata/version-hint.text").read_text())
    while (path / f"metadata/v{number + 1}.metadata.json").exists():
        number += 1
    found: dict[str, Any] = json.loads((path / f"metadata/v{number}.metadata.json").read_text())
    return found


def local(location: str) -> bytes:
    return Path(location.removeprefix("file://")).read_bytes()


def records(location: str, read: Read = local) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(read(location))))


def entries(snapshot: dict[str, Any], content: int = 0, read: Read = local) -> list[dict[str, Any]]:
    """The live entries of a snapshot, of data files (0) or of position deletes (1). Counts in the manifest list have to
    be right.
    """
    found = []
    for manifest in records(snapshot["manifest-list"], read):
        if manifest["content"] != content:
            continue
        assert manifest["manifest_length"] == len(read(manifest["manifest_path"]))
        all_of = records(manifest["manifest_path"], read)
        for status, name in enumerate(("existing", "added", "deleted")):
            some = [one["data_file"]["record_count"] for one in all_of if one["status"] == status]
            assert (len(some), sum(some)) == (manifest[f"{name}_files_count"], manifest[f"{name}_rows_count"])
        for one in all_of:
            assert one["data_file"]["content"] == content
            if one["status"] == 2:
                assert one["snapshot_id"] == manifest["added_snapshot_id"]
            else:
                assert one["status"] == 1 or one["sequence_number"] is not None
                number = manifest["sequence_number"] if one["sequence_number"] is None else one["sequence_number"]
                found.append({**one["data_file"], "spec": manifest["partition_spec_id"], "sequence": number})
    total = snapshot["summary"][("total-data-files", "total-delete-files")[content]]
    assert len({one["file_path"] for one in found}) == len(found) == int(total)
    return found


def row_ranges(table: dict[str, Any], snapshot: dict[str, Any], read: Read = local) -> dict[str, range]:
    """Path of a data file -> the ids of its rows, inherited as version 3 says. Ids of files must not overlap."""
    found = {}
    for manifest in records(snapshot["manifest-list"], read):
        next_row_id = manifest["first_row_id"]
        assert (next_row_id is None) == (manifest["content"] == 1)
        if manifest["content"] == 1:
            continue
        deleted = False
        for entry in records(manifest["manifest_path"], read):
            file = entry["data_file"]
            first, count = file.get("first_row_id"), file["record_count"]
            assert entry["status"] != 1 or first is None
            deleted = deleted or entry["status"] == 2
            if deleted:  # the last entries, so that it is all the same whether their rows count
                assert entry["status"] == 2
                continue
            if first is None:
                first, next_row_id = next_row_id, next_row_id + count
            found[file["file_path"]] = range(first, first + count)
    at = 0
    for ids in sorted(found.values(), key=lambda ids: (ids.start, ids.stop)):
        assert at <= ids.start
        at = ids.stop
    assert at <= snapshot["first-row-id"] + snapshot["added-rows"] <= table["next-row-id"]
    return found


def puffin_positions(data: bytes, entry: dict[str, Any]) -> list[int]:
    """The positions in the only deletion vector of a Puffin file. Its footer has to say what the entry says."""
    size, flags, magic = struct.unpack("<i4s4s", data[-12:])
    footer = json.loads(data[-12 - size : -12])
    offset, length = entry["content_offset"], entry["content_size_in_bytes"]
    assert data[:4] == data[-16 - size : -12 - size] == magic == b"PFA1" and flags == bytes(4)
    assert offset == 4 and offset + length == len(data) - 16 - size
    assert footer["blobs"] == [
        {
            "type": "deletion-vector-v1",
            "fields": [2147483545],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": offset,
            "length": length,
            "properties": {
                "referenced-data-file": entry["referenced_data_file"],
                "cardinality": str(entry["record_count"]),
            },
        }
    ]
    return delta_reader.positions(b"\1" + data[offset : offset + length], 1, length - 8)  # Delta has a version before


def dead_rows(snapshot: dict[str, Any], read: Read = local) -> dict[str, tuple[dict[str, Any], set[int]]]:
    """Path of a data file -> the entry of its deletes, and the positions. Each file has at most one."""
    found = {}
    for entry in entries(snapshot, content=1, read=read):
        data = read(entry["file_path"])
        assert len(data) == entry["file_size_in_bytes"]
        assert entry["file_format"] == ("PUFFIN" if "first-row-id" in snapshot else "PARQUET")
        if entry["file_format"] == "PUFFIN":
            path, positions = entry["referenced_data_file"], puffin_positions(data, entry)
        else:
            path, positions = position_deletes(data)
        assert positions == sorted(set(positions)) and len(positions) == entry["record_count"]
        for bounds in ("lower_bounds", "upper_bounds"):
            assert entry[bounds] == [{"key": 2147483546, "value": path.encode()}]
        assert entry["referenced_data_file"] == path not in found
        found[path] = entry, set(positions)
    total = sum(len(positions) for _, positions in found.values())
    assert total == int(snapshot["summary"]["total-position-deletes"])
    return found


def position_deletes(data: bytes) -> tuple[str, list[int]]:
    """The data file and the positions in a position delete file."""
    file = pq.ParquetFile(pa.BufferReader(data))
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in file.schema_arrow]
    assert ids == [2147483546, 2147483545] and not any(field.nullable for field in file.schema_arrow)
    there = file.read()
    (path,) = set(there["file_path"].to_pylist())
    return path, there["pos"].to_pylist()


def rows(table: dict[str, Any], snapshot: dict[str, Any], read: Read = local) -> list[dict[str, Any]]:
    """The rows of a snapshot, under its own schema: columns are found by the ids in files, else by the name mapping."""
    schema = next(one for one in table["schemas"] if one["schema-id"] == snapshot["schema-id"])
    assert table["properties"]["write.format.default"] in (
        "parquet",
        "orc",
        "avro",
    )  # or Trino refuses it
    mapping = {
        name: one["field-id"]
        for one in json.loads(table["properties"]["schema.name-mapping.default"])
        for name in one["names"]
    }
    found: list[dict[str, Any]] = []
    if "first-row-id" in snapshot:
        row_ranges(table, snapshot, read)
    dead, total = dead_rows(snapshot, read), 0
    for entry in entries(snapshot, read=read):
        data = read(entry["file_path"])
        assert len(data) == entry["file_size_in_bytes"]
        file = pq.ParquetFile(pa.BufferReader(data))
        names = {
            int((field.metadata or {}).get(b"PARQUET:field_id", mapping[field.name])): field.name
            for field in file.schema_arrow
        }
        assert max(names) <= table["last-column-id"]  # otherwise ClickHouse refuses the table
        there = file.read()
        assert there.num_rows == entry["record_count"]
        columns = {
            field["name"]: there[names[field["id"]]] if field["id"] in names else pa.nulls(there.num_rows)
            for field in schema["fields"]
        }
        part = pa.table(columns).to_pylist()
        check_partition(table, entry, part)
        check_bounds(entry, schema, part)
        total += len(part)
        deletes, gone = dead.pop(entry["file_path"], (entry, set()))
        assert gone <= set(range(len(part)))
        assert deletes["sequence"] >= entry["sequence"]
        assert (deletes["spec"], deletes["partition"]) == (entry["spec"], entry["partition"])
        found += [row for at, row in enumerate(part) if at not in gone]
    assert total == int(snapshot["summary"]["total-records"])
    assert not dead  # of files that are not there
    return found


def check_partition(table: dict[str, Any], entry: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The partition values of a file have to be those of each of its rows."""
    spec = next(one for one in table["partition-specs"] if one["spec-id"] == entry["spec"])
    for field in spec["fields"]:
        said = entry["partition"][field["name"]]
        for row in rows:
            value = row[field["name"]]
            if hasattr(value, "tzinfo") and value.tzinfo is None:
                said = said and said.replace(tzinfo=None)
            assert value == said, (field["name"], value, said)


def check_bounds(entry: dict[str, Any], schema: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Bounds and null counts have to hold for the rows, and bounds of flat columns have to be the tightest ones."""
    kinds = {field["id"]: (field["name"], field["type"]) for field in schema["fields"]}
    nulls = {one["key"]: one["value"] for one in entry["null_value_counts"]}
    for which, tightest in (("lower_bounds", min), ("upper_bounds", max)):
        for one in entry[which]:
            if one["key"] not in kinds:
                continue  # of a column that was dropped since
            name, kind = kinds[one["key"]]
            values = [row[name] for row in rows if row[name] is not None]
            assert nulls[one["key"]] == len(rows) - len(values)
            assert decoded(one["value"], kind) == tightest(map(utc, values)), (name, which)


def utc(value: Any) -> Any:
    return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


def decoded(data: bytes, kind: str) -> Any:
    """A single value, as appendix D of the specification writes it."""
    if kind in ("int", "long", "float", "double"):
        return struct.unpack({"int": "<i", "long": "<q", "float": "<f", "double": "<d"}[kind], data)[0]
    if kind == "boolean":
        return data != b"\0"
    if kind == "date":
        return dt.date(1970, 1, 1) + dt.timedelta(days=struct.unpack("<i", data)[0])
    if kind.startswith("timestamp"):
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=struct.unpack("<q", data)[0])
    if kind.startswith("decimal"):
        number = int.from_bytes(data, "big", signed=True)
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -int(kind.rstrip(")").split(",")[1])))
    assert kind == "string"
    return data.decode()
