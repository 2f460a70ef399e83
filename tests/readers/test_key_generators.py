"""`where` and `get` on tables of every key generator of Hudi: a folder's text is a column's value only where the key
generator makes it so. Tables of TIMESTAMP and CUSTOM gave too few rows, or were called corrupt: their folders hold
formatted times.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format.properties import format_properties, parse_properties
from hoodoo.timeline.layout import PROPERTIES
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.writers.batches import batch

_DAYS = "hoodie.table.keygenerator.timestamp.type"
TIMES: list[tuple[pa.DataType, list[Any], Callable[[Any], str]]] = [
    (pa.string(), ["2024-01-05 10:00:00", "2024-01-06 11:00:00"], lambda value: value[:10]),
    (
        pa.int64(),
        [1704448800, 1704538800],
        lambda value: f"{dt.datetime.fromtimestamp(value, dt.timezone.utc):%Y-%m-%d}",
    ),
    (pa.int64(), [1704448800, 1704538800], lambda value: f"{dt.datetime.fromtimestamp(value, dt.timezone.utc):%Y%m%d}"),
    (pa.string(), ["2024-01-05 10:00:00", "2024-01-06 11:00:00"], lambda value: value[:10].replace("-", "/")),
]
GENERATORS = [
    {"hoodie.table.keygenerator.type": "TIMESTAMP"},
    {"hoodie.table.keygenerator.type": "TIMESTAMP_AVRO"},
    {"hoodie.table.keygenerator.type": "CUSTOM", "hoodie.table.partition.fields": "ts:timestamp"},
    {"hoodie.table.keygenerator.type": "", "hoodie.table.partition.fields": "ts:timestamp"},
    {
        "hoodie.table.keygenerator.type": "",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator",
    },
    {"hoodie.table.keygenerator.type": "", "hoodie.table.keygenerator.class": "com.example.OurOwnKeyGenerator"},
    {"hoodie.table.keygenerator.type": "USER_PROVIDED"},
    {"hoodie.datasource.write.slash.separated.date.partitioning": "true"},
]


def foreign(
    path: Path,
    patch: pytest.MonkeyPatch,
    rows: pa.Table,
    by: list[str],
    folder: Callable[[Any], str],
    says: dict[str, str],
) -> Path:
    """A table as Apache Hudi has it: no folder of ours, the partition column formatted by `folder`, `says` among its
    properties.
    """
    table = hoodoo.create(path, rows.schema, key="id", partition_by=by, type="copy_on_write")
    real = batch.compute_partition_paths

    def formatted(given: pa.Table, columns: Any, hive: bool, encode: bool) -> Any:
        place = given.schema.get_field_index(by[0])
        texts = pa.array([folder(value) for value in given[by[0]].to_pylist()], pa.string())
        return real(given.set_column(place, by[0], texts), columns, False, encode and "/" not in str(texts))

    with patch.context() as inside:
        inside.setattr(batch, "compute_partition_paths", formatted)
        table.upsert(rows)
    shutil.rmtree(path / ".hoodie" / ".hoodoo")
    file = path / PROPERTIES
    values = {name: value for name, value in parse_properties(file.read_bytes()).items() if "hoodoo" not in name}
    values |= {"hoodie.datasource.write.hive_style_partitioning": "false", _DAYS: "DATE_STRING"} | says
    file.write_bytes(format_properties(values, "Thu Jan 01 00:00:00 UTC 2026"))
    return path


@pytest.mark.parametrize("says", GENERATORS, ids=lambda says: "+".join(filter(None, says.values())))
@pytest.mark.parametrize("time", TIMES, ids=["text", "epoch", "epoch that reads as a number", "folders of folders"])
def test_a_filter_gives_the_matching_rows_whatever_the_folders_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: tuple[pa.DataType, list[Any], Any], says: dict[str, str]
) -> None:
    kind, values, folder = time
    schema = pa.schema([("id", pa.string()), ("ts", kind), ("v", pa.int64())])
    rows = pa.table({"id": ["a", "b"], "ts": values, "v": [1, 2]}, schema)
    table = hoodoo.open(foreign(tmp_path / "t", monkeypatch, rows, ["ts"], folder, says))
    least, greatest = (f"'{value}'" if kind == pa.string() else value for value in values)
    for where, want in (
        (f"ts = {least}", ["a"]),
        (f"ts >= {least}", ["a", "b"]),
        (f"ts <= {least}", ["a"]),
        (f"ts > {least} AND ts <= {greatest}", ["b"]),
        (f"ts IN ({least}, {greatest}) AND v = 2", ["b"]),
        ("ts IS NULL", []),
    ):
        assert sorted(table.scan(where=where).to_arrow()["id"].to_pylist()) == want, where
    assert sorted(table.get(["a", "b", "c"])["v"].to_pylist()) == [1, 2]
    with pytest.raises(hoodoo.ColumnError, match="Pass keys without partition columns"):
        table.get([{"id": "a", "ts": values[0]}])  # it found nothing, without a word
    with pytest.raises(hoodoo.UnsupportedTable, match="can read this table, but not write"):
        table.upsert(rows)


def test_slashes_in_values_of_another_engines_folders_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMPLEX without encoding: a filter raised CorruptTable, for the path has more parts than there are columns."""
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("q", pa.string())])
    rows = pa.table({"id": ["a", "b"], "p": ["x/y", "z"], "q": ["1", "2"]}, schema)
    says = {"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.datasource.write.partitionpath.urlencode": "false"}
    table = hoodoo.open(foreign(tmp_path / "t", monkeypatch, rows, ["p", "q"], str, says))
    assert table.scan(where="p = 'x/y'").to_arrow()["id"].to_pylist() == ["a"]
    assert table.scan(where="q = '2'").to_arrow()["id"].to_pylist() == ["b"]


@pytest.mark.parametrize("name", ["SIMPLE", "COMPLEX", "SIMPLE_AVRO", ""])
def test_folders_prune_where_they_are_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    rows = pa.table({"id": ["a", "b"], "p": ["x", "y"]}, schema)
    says = {"hoodie.table.keygenerator.type": name}
    table = hoodoo.open(foreign(tmp_path / "t", monkeypatch, rows, ["p"], str, says))
    assert hoodie_properties.load(table.handle.store).folders_contain_partition_values
    assert len(table.scan(where="p = 'x'").tasks()) == 1
