"""A small reader of Delta logs, written from the protocol alone: versions by json, checkpoints and files by pyarrow.

It knows nothing of hoodoo and trusts nothing that it can check. `read` gives the bytes of a path relative to the table.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Json = dict[str, Any]
Read = Callable[[str], bytes]
_Z85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)


@dataclass(frozen=True)
class Snapshot:
    """What a log says as of a version. files: by their paths, percent-decoded, what the newest `add` says."""

    protocol: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    applications: dict[str, int] = field(default_factory=dict)
    files: dict[str, Json] = field(default_factory=dict)
    at_ms: int = 0
    info: Json = field(default_factory=dict)

    def named(self) -> dict[str, tuple[int, str]]:
        """Of each file its size and what its deletion vector is called."""
        return {path: (said["size"], vector_name(said)) for path, said in self.files.items()}


def vector_name(said: Json) -> str:
    vector = said.get("deletionVector") or {}
    return f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}@{vector.get('offset', '')}"


def then(before: Snapshot, data: bytes) -> Snapshot:
    """The snapshot after a version. It asserts what the protocol demands of a version."""
    actions = [json.loads(line) for line in data.splitlines()]
    assert all(len(one) == 1 for one in actions) and data.endswith(b"\n")
    info = actions[0]["commitInfo"]  # first, as in-commit timestamps demand
    assert info["inCommitTimestamp"] > before.at_ms
    found = replace(before, info=info, at_ms=info["inCommitTimestamp"])
    for one in actions:
        if "protocol" in one:
            found = replace(found, protocol=one["protocol"])
        elif "metaData" in one:
            found = replace(found, metadata=one["metaData"])
        elif "txn" in one:
            said = one["txn"]
            assert said["version"] >= before.applications.get(said["appId"], 0)
            found = replace(found, applications={**found.applications, said["appId"]: said["version"]})
    removed = [one["remove"] for one in actions if "remove" in one]
    added = [one["add"] for one in actions if "add" in one]
    files = dict(before.files)
    for said in removed:
        gone = files.pop(unquote(said["path"]))  # what is not there cannot go
        assert vector_name(gone) == vector_name(said)
    assert len({one["path"] for one in added}) == len(added)
    for said in added:
        path = unquote(said["path"])
        assert path not in files or vector_name(files[path]) == vector_name(said)
        assert not said.get("deletionVector") or "deletionVectors" in found.protocol["readerFeatures"]
        files[path] = said
    assert found.protocol and found.metadata
    return replace(found, files=files)


def checkpoint(data: bytes) -> Snapshot:
    """The snapshot that a checkpoint holds."""
    found = Snapshot()
    for row in pq.read_table(pa.BufferReader(data)).to_pylist():
        [(name, said)] = ((name, value) for name, value in row.items() if value is not None)
        if name == "protocol":
            found = replace(found, protocol=said)
        elif name == "metaData":
            found = replace(found, metadata=said)
        elif name == "txn":
            found.applications[said["appId"]] = said["version"]
        elif name == "add":
            assert unquote(said["path"]) not in found.files
            found.files[unquote(said["path"])] = said
    assert found.protocol and found.metadata
    return found


def rows(snapshot: Snapshot, read: Read) -> list[Json]:
    """The rows of a snapshot: columns are found by their names, and partition columns are in the files, too."""
    names = [one["name"] for one in json.loads(snapshot.metadata["schemaString"])["fields"]]
    found: list[Json] = []
    for path, said in snapshot.files.items():
        data = read(path)
        assert len(data) == said["size"]
        there = pq.read_table(pa.BufferReader(data))
        assert json.loads(said["stats"])["numRecords"] == there.num_rows
        columns = {name: there[name] if name in there.column_names else pa.nulls(len(there)) for name in names}
        part = pa.table(columns).to_pylist()
        for name, value in dict(said["partitionValues"]).items():
            assert all(str(row[name]) == value for row in part)
        dead = set(dead_rows(said, read))
        assert dead <= set(range(len(part)))
        found += [row for at, row in enumerate(part) if at not in dead]
    return found


def vector_path(vector: Json) -> str:
    """Where the file of a deletion vector is, relative to the table."""
    assert vector["storageType"] == "u"
    folder, number = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
    assert re.fullmatch("[A-Za-z0-9]*", folder)  # otherwise Trino refuses the table
    name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(number.encode().translate(_Z85)))}.bin"
    return f"{folder}/{name}" if folder else name


def dead_rows(said: Json, read: Read) -> list[int]:
    """The positions of the rows of a file that its deletion vector passes over."""
    vector = said.get("deletionVector")
    if not vector:
        return []
    found = positions(read(vector_path(vector)), vector["offset"], vector["sizeInBytes"])
    assert len(found) == vector["cardinality"]
    return found


def positions(data: bytes, offset: int, size: int) -> list[int]:
    """Those in a file of deletion vectors (Delta's protocol, and the specification of roaring bitmaps)."""
    assert data[0] == 1 and struct.unpack_from(">I", data, offset)[0] == size
    vector = data[offset + 4 : offset + 4 + size]
    assert struct.unpack_from(">I", data, offset + 4 + size)[0] == zlib.crc32(vector)
    magic, count = struct.unpack_from("<IQ", vector)
    assert magic == 1681511377
    at, found = 12, []
    for _ in range(count):
        high, cookie, containers = struct.unpack_from("<III", vector, at)
        start = at + 4
        assert cookie == 12346
        heads = [struct.unpack_from("<HH", vector, start + 8 + 4 * one) for one in range(containers)]
        offsets = struct.unpack_from(f"<{containers}I", vector, start + 8 + 4 * containers)
        for (key, least), where in zip(heads, offsets, strict=True):
            number, base = least + 1, (high << 32) + (key << 16)
            if number <= 4096:
                found += [base + one for one in struct.unpack_from(f"<{number}H", vector, start + where)]
                at = start + where + 2 * number
            else:
                bits = np.unpackbits(np.frombuffer(vector, np.uint8, 8192, start + where), bitorder="little")
                found += (base + np.flatnonzero(bits)).tolist()
                at = start + where + 8192
    assert at == len(vector)
    return found
