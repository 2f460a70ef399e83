"""What Apache Hudi trips over (docs/format.md): the rules that keep our tables readable and writable by it, each with
its test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import FaultyStore
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.format.log.block import DataBlock, DeleteBlock, decode_log
from hoodoo.format.names import META_COLUMNS, parse_data_file
from hoodoo.format.parquet import hudi_bloom
from hoodoo.format.properties import checksum, format_properties, parse_properties
from hoodoo.format.timeline.avro import decode_timeline_file
from hoodoo.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])


def rows(*triples: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": a, "city": b, "ts": c, "at": None} for a, b, c in triples], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", compact_after_logs=None)
    made.upsert(rows(("a", "p", 5), ("b", "p", 5), ("c", "q", 5)))
    return made


def data_files(table: hoodoo.Table) -> list[Path]:
    return sorted(path for path in Path(table.path).glob("city=*/*") if parse_data_file(path.name))


def bases(table: hoodoo.Table) -> list[Path]:
    return [path for path in data_files(table) if path.suffix == ".parquet"]


def keys_of(path: Path) -> set[str]:
    return set(pq.ParquetFile(path).read(columns=["_hoodie_record_key"])["_hoodie_record_key"].to_pylist())


def properties(table: hoodoo.Table) -> dict[str, str]:
    return parse_properties((Path(table.path) / ".hoodie/hoodie.properties").read_bytes())


def test_rule_1_a_new_key_never_stands_only_in_a_log(table: hoodoo.Table) -> None:
    for number in range(6):
        table.upsert(rows(("a", "p", 10 + number), (f"new{number}", "p", 1), (f"other{number}", "r", 1)))
    in_bases = set().union(*(keys_of(path) for path in bases(table)))
    for path in data_files(table):
        if path.suffix != ".parquet":
            for block in decode_log(path.read_bytes()):
                assert isinstance(block, DataBlock)
                assert set(block.rows["_hoodie_record_key"].to_pylist()) <= in_bases


def test_rule_2_every_base_file_has_hudis_bloom_filter_and_key_range_even_without_rows(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", type="copy_on_write")
    table.upsert(rows(("a", "p", 1), ("é", "p", 1)))
    table.delete(rows(("a", "p", 1), ("é", "p", 1)))
    full, empty = sorted(bases(table), key=lambda path: -pq.read_metadata(path).num_rows)
    footer = {key.decode(): value.decode() for key, value in pq.read_metadata(full).metadata.items()}
    assert footer["hoodie_bloom_filter_type_code"] == "SIMPLE"
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == ("a", "é")
    assert hudi_bloom.find_possible_keys(
        footer["org.apache.hudi.bloomfilter"], pa.array(["a", "é", "zz"])
    ).tolist() == [
        True,
        True,
        False,
    ]
    footer = {key.decode(): value.decode() for key, value in pq.read_metadata(empty).metadata.items()}
    assert pq.read_metadata(empty).num_rows == 0
    assert {"org.apache.hudi.bloomfilter", "hoodie_bloom_filter_type_code"} <= set(footer)
    assert "hoodie_min_record_key" not in footer
    assert hudi_rows(tmp_path / "t") == []


def test_rule_3_times_are_stored_in_microseconds(table: hoodoo.Table) -> None:
    assert "millis" not in properties(table)["hoodie.table.create.schema"]
    assert all(pq.read_schema(path).field("at").type == pa.timestamp("us", "UTC") for path in bases(table))


def test_rule_4_no_encoding_or_codec_that_spark_cannot_read(table: hoodoo.Table) -> None:
    for path in bases(table):
        group = pq.read_metadata(path).row_group(0)
        for number in range(group.num_columns):
            assert "BYTE_STREAM_SPLIT" not in group.column(number).encodings
            assert group.column(number).compression in ("ZSTD", "SNAPPY", "GZIP", "LZ4", "UNCOMPRESSED")


def test_rule_5_the_properties_are_complete_and_their_checksum_fits(table: hoodoo.Table) -> None:
    values = properties(table)
    assert values["hoodie.table.checksum"] == checksum(values["hoodie.database.name"], values["hoodie.table.name"])
    wanted = {
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "city",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.datasource.write.drop.partition.columns": "false",
    }
    assert wanted.items() <= values.items()
    assert json.loads(values["hoodie.table.create.schema"])["name"] == "t_record"


def test_rule_6_markers_stand_before_data_files_and_go_with_the_commit(tmp_path: Path) -> None:
    store = FaultyStore(str(tmp_path / "t"))
    hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts")
    table = Table(store)
    table.upsert(rows(("a", "p", 1)))
    table.upsert(rows(("a", "p", 2)))
    written = [key for operation, key in store.log if operation == "put_if_absent"]
    for number, key in enumerate(written):
        if parse_data_file(key.rpartition("/")[2]):
            marker = next(
                place
                for place, other in enumerate(written)
                if other.startswith(".hoodie/.temp/") and f"/{key}.marker." in other
            )
            assert marker < number
    assert list((tmp_path / "t/.hoodie/.temp").glob("*")) == []
    assert list((tmp_path / "t/.hoodie/.heartbeat").glob("*")) == []


def test_rule_6_a_write_whose_inflight_another_engine_took_away_is_fenced(table: hoodoo.Table) -> None:
    store = FaultyStore(table.path)

    def spark_rolls_back(number: int, operation: str, key: str) -> None:
        if operation == "put_if_absent" and ".log." in key and ".temp" not in key:
            next((Path(table.path) / ".hoodie/timeline").glob("*.deltacommit.inflight.gone"), None)
            newest = max((Path(table.path) / ".hoodie/timeline").glob("*.deltacommit.inflight"))
            newest.unlink()

    store.fault = spark_rolls_back
    with pytest.raises(hoodoo.Fenced, match="another engine"):
        Table(store).upsert(rows(("a", "p", 9)))
    assert table.scan(where="id = 'a'").to_arrow()["ts"].to_pylist() == [5]


def test_rule_7_a_metadata_table_that_hoodoo_does_not_know_goes_out_of_use_before_a_commit_is_published(
    table: hoodoo.Table,
) -> None:
    root = Path(table.path)
    extra = {
        f"hoodie.table.metadata.partitions{name}": value
        for name, value in (("", "files,column_stats"), (".inflight", ""))
    }
    extra["hoodie.table.index.defs.path"] = ".hoodie/.index_defs/index.json"
    (root / ".hoodie/hoodie.properties").write_bytes(format_properties(properties(table) | extra, "now"))
    (root / ".hoodie/.hoodie.properties.crc").write_bytes(b"crc of these bytes")
    (root / ".hoodie/metadata/files").mkdir(parents=True)
    (root / ".hoodie/metadata/files/x").write_bytes(b"x")
    assert table.upsert(rows(("z", "p", 1))).inserted == 1
    assert not any(name in properties(table) for name in extra)
    assert (root / ".hoodie/metadata/files/x").exists()  # Hudi builds it anew
    assert not (root / ".hoodie/.hoodie.properties.crc").exists()
    assert len(hudi_rows(root)) == 4


def test_rule_8_a_stale_checksum_of_a_replaced_file_is_removed(table: hoodoo.Table) -> None:
    sidecar = Path(table.path) / ".hoodie/.hoodie.properties.crc"
    sidecar.write_bytes(b"crc of the old bytes")
    table.set_options(clean_every=7)
    assert not sidecar.exists()
    assert hoodoo.open(table.path).options.clean_every == 7


def test_rule_9_a_deleted_key_comes_back_through_its_base_never_through_a_log(table: hoodoo.Table) -> None:
    table.delete(rows(("a", "p", 0)))
    result = table.upsert(rows(("a", "p", 1)))  # smaller than the 5 that the base holds
    assert (result.inserted, result.exact) == (1, True)
    newest = max(
        (path for path in bases(table) if "city=p" in str(path)), key=lambda path: path.name.rpartition("_")[2]
    )
    assert keys_of(newest) == {"a", "b"}
    assert {row["id"]: row["ts"] for row in hudi_rows(table.path)} == {"a": 1, "b": 5, "c": 5}


def test_rule_10_hudis_timeline_is_never_archived(table: hoodoo.Table) -> None:
    for number in range(30):
        table.insert_overwrite(rows((f"k{number}", "p", 1)))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    completed = list((Path(table.path) / ".hoodie/timeline").glob("*_*.replacecommit"))
    assert len(completed) == 30
    assert sorted(row["id"] for row in hudi_rows(table.path)) == ["c", "k29"]


def test_an_ordered_delete_is_logged_with_its_value_and_loses_to_a_newer_row(table: hoodoo.Table) -> None:
    flag = pa.array([True, True])
    table.upsert(rows(("a", "p", 4), ("b", "p", 6)).append_column("_hoodie_is_deleted", flag))
    blocks = [
        block for path in data_files(table) if path.suffix != ".parquet" for block in decode_log(path.read_bytes())
    ]
    ordered = [block.ordering for block in blocks if isinstance(block, DeleteBlock) and block.ordering]
    assert [[values.to_pylist() for values in columns] for columns in ordered] == [[[4, 6]]]
    assert {row["id"] for row in hudi_rows(table.path)} == {"a", "c"} == set(table.scan().to_arrow()["id"].to_pylist())


def test_meta_columns_say_which_commit_wrote_a_row_and_never_hold_nulls(table: hoodoo.Table) -> None:
    first = table.inspect.timeline()[-1].instant
    second = table.upsert(rows(("a", "p", 6))).instant
    for _ in range(2):
        found = {row["id"]: row for row in table.scan(meta=True).to_arrow().to_pylist()}
        assert {key: row["_hoodie_commit_time"] for key, row in found.items()} == {"a": second, "b": first, "c": first}
        assert all(row[name] for row in found.values() for name in META_COLUMNS)
        assert len({row["_hoodie_commit_seqno"] for row in found.values()}) == 3
        assert found["a"]["_hoodie_partition_path"] == "city=p"
        table.compact()
    for path in bases(table):
        names = pq.ParquetFile(path).read(columns=["_hoodie_file_name"])["_hoodie_file_name"].to_pylist()
        assert set(names) <= {path.name}


def test_hudis_incremental_query_agrees_with_ours(table: hoodoo.Table) -> None:
    start = table.inspect.timeline()[-1]
    table.upsert(rows(("a", "p", 7), ("n", "p", 1)))
    middle = table.inspect.timeline()[-1]
    table.upsert(rows(("b", "p", 8)))
    end = table.inspect.timeline()[-1]
    for since, until in ((start, middle), (middle, end), (start, end)):
        ours = table.incremental(since.instant, until.instant).to_arrow()["id"].to_pylist()
        assert sorted(ours) == sorted(
            row["id"] for row in hudi_rows(table.path, since=since.completed, until=until.completed)
        )


def test_commit_metadata_names_every_file_and_carries_the_schema(table: hoodoo.Table) -> None:
    result = table.upsert(rows(("a", "p", 7), ("n", "r", 1)))
    path = next((Path(table.path) / ".hoodie/timeline").glob(f"{result.instant}_*.deltacommit"))
    record: dict[str, Any] = decode_timeline_file(path.read_bytes())
    stats = {stat["path"]: stat for found in record["partitionToWriteStats"].values() for stat in found}
    assert {str(file.relative_to(table.path)) for file in data_files(table) if result.instant in file.name} == set(
        stats
    )
    assert all((Path(table.path) / name).stat().st_size == stat["fileSizeInBytes"] for name, stat in stats.items())
    assert record["operationType"] == "UPSERT" and '"name":"t_record"' in record["extraMetadata"]["schema"].replace(
        " ", ""
    )
