"""Hudi's own entries of a table in a Hive metastore, a real one, and in Glue; run by `make formats`."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import metastore_reader
import pyarrow as pa
import pytest
from exported_tables import EVERY, make
from metastore_reader import entry
from moto import mock_aws
from pyiceberg.catalog import Catalog, load_catalog

import hoodoo
from hoodoo.cli.examples import EXAMPLES
from hoodoo.cli.main import main
from hoodoo.exports.catalogs import hudi_registration
from hoodoo.exports.catalogs.hive_schema import hive_types_by_column
from hoodoo.format.names import META_COLUMNS

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64())])
META = [(name, "string") for name in META_COLUMNS]
BASE_FILES = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
WITH_LOGS = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"


@pytest.fixture(params=["hive", "glue"])
def catalog(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog with the empty namespace `lake`."""
    kind = request.param
    if kind == "hive":
        yield _emptied(load_catalog("of_hive", type="hive", uri=request.getfixturevalue("hive")))
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        yield _emptied(load_catalog("of_glue", type="glue", **{"glue.region": "us-east-1"}))


@pytest.fixture
def metastore(hive: str) -> Catalog:
    """The Hive metastore, with the empty namespace `lake`."""
    return _emptied(load_catalog("of_hive", type="hive", uri=hive))


def _emptied(opened: Catalog) -> Catalog:
    opened.create_namespace_if_not_exists("lake")
    for name in metastore_reader.names(opened):
        metastore_reader.drop(opened, name)
    return opened


def some(*parts: str, first: int = 1) -> list[dict[str, Any]]:
    return [{"id": first + number, "part": part, "v": number} for number, part in enumerate(parts)]


def folders(table: Path, found: dict[str, Any]) -> list[str]:
    """The places of an entry's partitions, relative to the table. Hive writes `file:` in its own way."""
    return sorted(place.rpartition(f"{table}/")[2] for place, _, _ in found["partitions"].values())


def changes(result: Any) -> list[tuple[str, str, int, int]]:
    return [(one.identifier, one.change, one.added, one.dropped) for one in result.entries]


def test_an_entry_says_what_engines_that_read_hudi_ask_for(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, SCHEMA)
    table.upsert(some("a", "b c"))
    assert changes(table.register("lake.rides", catalog=catalog)) == [("lake.rides", "registered", 2, 0)]
    found, newest = entry(catalog, "rides"), table.inspect.timeline()[-1]
    assert found["type"] == "EXTERNAL_TABLE" and found["location"].replace("///", "/") == f"file:{path}"
    assert found["columns"] == [*META, ("id", "bigint"), ("v", "bigint")]
    assert found["keys"] == [("part", "string")]
    assert found["formats"] == (
        BASE_FILES,
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    )
    assert found["serde"] == {
        "serialization.format": "1",
        "path": f"file://{path}",
        "hoodie.query.as.ro.table": "false",
    }
    assert found["parameters"] == {
        "EXTERNAL": "TRUE",
        "spark.sql.sources.provider": "hudi",
        "spark.sql.sources.schema.numParts": "1",
        "spark.sql.sources.schema.numPartCols": "1",
        "spark.sql.sources.schema.partCol.0": "part",
        "last_commit_time_sync": newest.instant,
        "last_commit_completion_time_sync": newest.completed,
    }
    assert [one["name"] for one in found["spark"]["fields"]] == [*META_COLUMNS, "id", "v", "part"]
    assert folders(path, found) == ["part=a", "part=b c"]
    assert {values: (columns, read) for values, (_, columns, read) in found["partitions"].items()} == {
        ("a",): (found["columns"], BASE_FILES),
        ("b c",): (found["columns"], BASE_FILES),
    }


def test_every_type_has_its_spelling_in_hive_and_in_spark(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", pa.schema([*EVERY, ("clock", pa.time64("us"))]))
    table.register("lake.rides", catalog=catalog)
    found = entry(catalog, "rides")
    assert dict(found["columns"][5:]) == {
        "clock": "bigint",
        "id": "bigint",
        "flag": "boolean",
        "small": "int",
        "single": "float",
        "double": "double",
        "text": "string",
        "bytes": "binary",
        "day": "date",
        "at": "bigint",
        "local": "bigint",
        "amount": "decimal(38,4)",
        "items": "array<struct<n:int,word:string>>",
        "named": "map<string,bigint>",
        "inner": "struct<x:bigint,deep:struct<y:string>>",
    }
    spark = {one["name"]: one["type"] for one in found["spark"]["fields"]}
    assert [spark[name] for name in ("clock", "small", "single", "day", "at", "local", "amount")] == [
        "long",
        "integer",
        "float",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(38,4)",
    ]
    item = {"name": "n", "type": "integer", "nullable": True, "metadata": {}}
    assert spark["items"]["elementType"]["fields"][0] == item and spark["items"]["containsNull"] is True
    assert spark["named"] == {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}


def test_a_wide_table_is_described_in_parts_of_four_thousand_characters(catalog: Catalog, tmp_path: Path) -> None:
    wide = pa.schema([*SCHEMA, *((f"a_column_with_a_name_{number}", pa.string()) for number in range(200))])
    table = make(tmp_path / "t", wide)
    table.register("lake.rides", catalog=catalog)
    found = entry(catalog, "rides")
    assert len(found["parts"]) == int(found["parameters"]["spark.sql.sources.schema.numParts"]) > 2
    assert set(found["parts"][:-1]) == {4_000}
    assert len(found["spark"]["fields"]) == 5 + 203


def test_a_merge_on_read_table_has_an_entry_of_its_base_files_and_two_of_its_rows(
    catalog: Catalog, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", SCHEMA, type="merge_on_read")
    table.upsert(some("a"))
    done = table.register("lake.rides", catalog=catalog)
    assert [one.identifier for one in done.entries] == ["lake.rides_ro", "lake.rides_rt", "lake.rides"]
    assert metastore_reader.names(catalog) == ["rides", "rides_ro", "rides_rt"]
    for name, read, optimized in (
        ("rides", WITH_LOGS, "false"),
        ("rides_rt", WITH_LOGS, "false"),
        ("rides_ro", BASE_FILES, "true"),
    ):
        found = entry(catalog, name)
        assert found["formats"][0] == read and found["serde"]["hoodie.query.as.ro.table"] == optimized
        assert [read for _, _, read in found["partitions"].values()] == [read]


def test_partitions_that_come_are_added_and_those_that_go_are_dropped(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, SCHEMA)
    table.upsert(some("a", "b"))
    table.register("lake.rides", catalog=catalog)
    table.upsert(some("b", "c", "d", first=10))
    table.delete_partitions(["a"])
    assert changes(table.register("lake.rides", catalog=catalog)) == [("lake.rides", "refreshed", 2, 1)]
    found = entry(catalog, "rides")
    assert folders(path, found) == ["part=b", "part=c", "part=d"]
    assert found["parameters"]["last_commit_time_sync"] == table.inspect.timeline()[-1].instant
    assert (path / "part=a").exists()  # its files are the table's, which still reads them as of before


def test_columns_that_come_show_in_the_entry_and_in_its_partitions(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a", "b"))
    table.register("lake.rides", catalog=catalog)
    table.alter.add_column("more", pa.list_(pa.string()))
    table.upsert([{"id": 9, "part": "c", "v": 1, "more": ["x"]}])
    assert changes(table.register("lake.rides", catalog=catalog)) == [("lake.rides", "refreshed", 1, 0)]
    found = entry(catalog, "rides")
    assert found["columns"] == [*META, ("id", "bigint"), ("v", "bigint"), ("more", "array<string>")]
    assert [columns for _, columns, _ in found["partitions"].values()] == [found["columns"]] * 3
    assert [one["name"] for one in found["spark"]["fields"]][-2:] == ["more", "part"]


def test_an_entry_that_is_up_to_date_is_asked_and_nothing_else(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a"))
    table.register("lake.rides", catalog=catalog)
    kind = type(hudi_registration.metastore_of(catalog, "lake.rides"))
    asked: list[str] = []
    for name in ("find", "create_entry", "update_entry", "list_partitions", "add_partitions", "drop_partitions"):
        real = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *given, name=name, real=real: (asked.append(name), real(*given))[1])
    assert changes(table.register("lake.rides", catalog=catalog)) == [("lake.rides", "kept", 0, 0)]
    assert set(asked) == {"find"}


def test_what_others_say_of_an_entry_stays(metastore: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a"))
    table.register("lake.rides", catalog=metastore)
    with metastore._client as client:
        found = client.get_table("lake", "rides")
        found.parameters = {**found.parameters, "comment": "of the fleet"}
        client.alter_table("lake", "rides", found)
    table.upsert(some("b"))
    table.register("lake.rides", catalog=metastore)
    assert entry(metastore, "rides")["parameters"]["comment"] == "of the fleet"


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_another_table_of_that_name_is_left_alone(catalog: Catalog, tmp_path: Path, kind: str) -> None:
    """Of the three entries of a merge-on-read table none is made if one is another table's."""
    other = make(tmp_path / "other", SCHEMA)
    other.upsert(some("a"))
    other.register("lake.rides", catalog=catalog)
    before = entry(catalog, "rides")
    table = make(tmp_path / "t", SCHEMA, type=kind)
    table.upsert(some("x"))
    with pytest.raises(hoodoo.CatalogRefused, match="another table, at file:.*/other") as refused:
        table.register("lake.rides", catalog=catalog)
    assert refused.value.details["identifier"] == "lake.rides"
    assert entry(catalog, "rides") == before and metastore_reader.names(catalog) == ["rides"]


def test_a_copy_leaves_the_entry_to_what_it_was_copied_from(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a"))
    table.register("lake.rides", catalog=catalog)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    with pytest.raises(hoodoo.CatalogRefused, match="another table"):
        hoodoo.open(tmp_path / "copy").register("lake.rides", catalog=catalog)


def test_an_iceberg_entry_of_that_name_is_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a"))
    table.export(iceberg=True, register="lake.rides", catalog=catalog)
    with pytest.raises(hoodoo.CatalogRefused, match="belongs to an Iceberg table"):
        table.register("lake.rides", catalog=catalog)
    table.register("lake.rides_hudi", catalog=catalog)
    with pytest.raises(hoodoo.CatalogRefused):
        table.export(iceberg=True, register="lake.rides_hudi", catalog=catalog)
    assert entry(catalog, "rides_hudi")["formats"][0] == BASE_FILES
    assert catalog.load_table("lake.rides").scan().to_arrow().num_rows == 1


def test_an_entry_that_hudi_made_with_other_settings_is_left_alone(metastore: Catalog, tmp_path: Path) -> None:
    """With skip_ro_suffix Hudi's sync lets the bare name show base files."""
    table = make(tmp_path / "t", SCHEMA, type="merge_on_read")
    table.register("lake.rides", catalog=metastore)
    for name, by in (("rides", BASE_FILES), ("rides_ro", WITH_LOGS)):
        with metastore._client as client:
            found = client.get_table("lake", name)
            found.sd.inputFormat, was = by, found.sd.inputFormat
            client.alter_table("lake", name, found)
        table.upsert(some("a"))
        with pytest.raises(hoodoo.CatalogRefused, match=f"'lake.{name}' has another input format .*, got {by}"):
            table.register("lake.rides", catalog=metastore)
        with metastore._client as client:
            found.sd.inputFormat = was
            client.alter_table("lake", name, found)


def test_an_entry_keeps_the_scheme_by_which_its_readers_know_s3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark outside of AWS knows s3a only."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a"))
    with mock_aws():
        catalog = _emptied(load_catalog("of_glue", type="glue", **{"glue.region": "us-east-1"}))
        spelled = "s3://lake/rides"
        monkeypatch.setattr(hudi_registration, "table_location_uri", lambda store: spelled)
        table.register("lake.rides", catalog=catalog)
        found = catalog.glue.get_table(DatabaseName="lake", Name="rides")["Table"]
        kept = {key: found[key] for key in ("Name", "StorageDescriptor", "PartitionKeys", "Parameters", "TableType")}
        kept["StorageDescriptor"]["Location"] = "s3a://lake/rides"
        catalog.glue.update_table(DatabaseName="lake", TableInput=kept)
        table.upsert(some("b"))
        table.register("lake.rides", catalog=catalog)
        found = entry(catalog, "rides")
    assert found["location"] == found["serde"]["path"] == "s3a://lake/rides"
    assert found["partitions"]["b",][0] == "s3a://lake/rides/part=b"


def test_a_table_with_other_partition_columns_at_its_place_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.register("lake.rides", catalog=catalog)
    shutil.rmtree(tmp_path / "t")
    table = make(tmp_path / "t", SCHEMA, partition_by=None)
    with pytest.raises(hoodoo.CatalogRefused, match="has other partition columns: expected none, got part"):
        table.register("lake.rides", catalog=catalog)


def test_partitions_have_the_values_of_their_rows(catalog: Catalog, tmp_path: Path) -> None:
    """Hudi's own sync leaves the escapes of folders in the values, so that Hive shows `a%2Fb` for `a/b`."""
    path = tmp_path / "t"
    table = make(path, SCHEMA)
    table.upsert([*some("a/b", "c d", "e%", "g=h", "ü"), {"id": 9, "part": None, "v": 1}])
    table.register("lake.rides", catalog=catalog)
    want = {
        ("a/b",): "part=a%2Fb",
        ("c d",): "part=c d",
        ("e%",): "part=e%25",
        ("g=h",): "part=g%3Dh",
        ("ü",): "part=ü",
        ("__HIVE_DEFAULT_PARTITION__",): "part=__HIVE_DEFAULT_PARTITION__",
    }
    found = entry(catalog, "rides")["partitions"]
    assert {values: place.rpartition("/")[2] for values, (place, _, _) in found.items()} == want
    table.upsert(some("new"))
    assert changes(table.register("lake.rides", catalog=catalog))[0][2:] == (1, 0)


def test_a_table_without_partitions_has_none(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA, partition_by=None)
    table.upsert(some("a"))
    assert changes(table.register("lake.rides", catalog=catalog)) == [("lake.rides", "registered", 0, 0)]
    found = entry(catalog, "rides")
    assert found["keys"] == [] and found["partitions"] == {}
    assert "spark.sql.sources.schema.numPartCols" not in found["parameters"]


def test_many_partitions_are_told_in_several_requests(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(*(f"p{number}" for number in range(230))))
    assert changes(table.register("lake.rides", catalog=catalog))[0][2:] == (230, 0)
    table.delete_partitions([f"p{number}" for number in range(60)])
    assert changes(table.register("lake.rides", catalog=catalog))[0][2:] == (0, 60)
    found = hudi_registration.metastore_of(catalog, "lake.rides").list_partitions("rides")
    assert found == {(f"p{number}",) for number in range(60, 230)}


def test_a_registration_that_was_interrupted_is_finished_by_the_next(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry without its partitions does not say that it is up to date."""
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some("a", "b"))
    kind = type(hudi_registration.metastore_of(catalog, "lake.rides"))
    with monkeypatch.context() as patched:
        patched.setattr(kind, "add_partitions", lambda *given: 1 / 0)
        with pytest.raises(hoodoo.CatalogRefused):
            table.register("lake.rides", catalog=catalog)
    assert entry(catalog, "rides")["partitions"] == {}
    assert changes(table.register("lake.rides", catalog=catalog)) == [("lake.rides", "refreshed", 2, 0)]


def test_two_that_register_at_once_leave_the_partitions_of_the_newer_commit(
    metastore: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one looked before the newer commit, and dropped the partition that the faster one had just added."""
    path = tmp_path / "t"
    table = make(path, SCHEMA)
    table.upsert(some("a"))
    table.register("lake.rides", catalog=metastore)
    table.upsert(some("b", first=5))
    kind = type(hudi_registration.metastore_of(metastore, "lake.rides"))
    real, overtaken = kind.list_partitions, []

    def late(self: Any, name: str) -> Any:
        if not overtaken:
            overtaken.append(name)
            other = hoodoo.open(path)
            other.upsert(some("c", first=9))
            other.register("lake.rides", catalog=load_catalog("too", type="hive", uri=metastore.properties["uri"]))
        return real(self, name)

    monkeypatch.setattr(kind, "list_partitions", late)
    table.register("lake.rides", catalog=metastore)
    found = entry(metastore, "rides")
    assert overtaken and folders(path, found) == ["part=a", "part=b", "part=c"]
    assert found["parameters"]["last_commit_time_sync"] == hoodoo.open(path).inspect.timeline()[-1].instant


def test_a_handle_that_is_behind_registers_what_is_there_now(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    behind = hoodoo.open(tmp_path / "t")
    table.upsert(some("a"))
    table.alter.add_column("more", pa.string())
    behind.register("lake.rides", catalog=catalog)
    found = entry(catalog, "rides")
    assert list(found["partitions"]) == [("a",)] and found["columns"][-1] == ("more", "string")


def test_names_that_differ_in_case_only_are_refused() -> None:
    """create() refuses them; other engines' tables may have them."""
    inner = pa.struct([("x", pa.int64()), ("X", pa.int64())])
    for more, said in ((("V", pa.string()), "'v' and 'V'"), (("s", inner), r"'s\.x' and 's\.X'")):
        with pytest.raises(hoodoo.SchemaError, match=said):
            hive_types_by_column(pa.schema([*SCHEMA, more]))


def test_names_in_capitals_are_in_small_letters_to_hive_and_as_they_are_to_spark(
    catalog: Catalog, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("Part", pa.string()), ("V", pa.struct([("Aa", pa.int64())]))])
    table = make(tmp_path / "t", schema, partition_by="Part")
    table.upsert([{"id": 1, "Part": "a", "V": {"Aa": 1}}])
    assert changes(table.register("lake.Rides", catalog=catalog))[0][0] == "lake.rides"
    found = entry(catalog, "rides")
    assert found["columns"][-2:] == [("id", "bigint"), ("v", "struct<aa:bigint>")] and found["keys"][0][0] == "part"
    assert [one["name"] for one in found["spark"]["fields"]][-2:] == ["V", "Part"]
    assert folders(tmp_path / "t", found) == ["Part=a"]


def test_a_column_that_moves_the_others_is_refused_with_what_to_do(metastore: Catalog, tmp_path: Path) -> None:
    """Hive compares columns by their places, unless it is told not to."""
    schema = pa.schema([*SCHEMA, ("day", pa.date32()), ("name", pa.string())])
    table = make(tmp_path / "t", schema)
    table.upsert([{"id": 1, "part": "a", "v": 1, "day": None, "name": "x"}])
    table.register("lake.rides", catalog=metastore)
    table.alter.drop_column("v", rewrite=True)
    with pytest.raises(hoodoo.CatalogRefused, match=r"disallow\.incompatible\.col\.type\.changes=false"):
        table.register("lake.rides", catalog=metastore)


def test_a_namespace_that_there_is_not_is_named(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    with pytest.raises(hoodoo.CatalogRefused, match="Namespace 'nowhere' does not exist"):
        table.register("nowhere.rides", catalog=catalog)


def test_a_catalog_that_holds_no_hudi_tables_is_refused_by_its_kind(tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    with pytest.raises(hoodoo.CatalogRefused, match="A SqlCatalog cannot store Hudi tables"):
        table.register("lake.rides", catalog="lake", catalog_properties=sql)


def test_a_metastore_that_does_not_answer_is_an_error_of_the_catalog(tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    nowhere = {"type": "hive", "uri": "thrift://127.0.0.1:1"}
    with pytest.raises(hoodoo.CatalogRefused, match=r"did not respond to a request for its namespace 'lake'"):
        table.register("lake.rides", catalog="lake", catalog_properties=nowhere)


def test_what_cannot_be_is_refused_before_a_catalog_is_asked(tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    for name, how, said in (
        ("rides", {}, "namespace.table"),
        ("a.b.rides", {}, "do not support nested namespaces"),
        ("a.b", {"catalog": 7}, "expected a pyiceberg catalog"),
        ("a.b", {"catalog": "unknown to pyiceberg"}, "cannot open the catalog"),
        ("a.b", {"catalog_properties": "type=hive"}, "names and values"),
    ):
        with pytest.raises(hoodoo.OptionError, match=said):
            table.register(name, **how)


def test_the_command_registers_and_says_what_it_did(
    metastore: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example of its help, at the port where the metastore is."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "lake/trips", SCHEMA, type="merge_on_read").upsert(some("a"))
    words = shlex.split(EXAMPLES["register"].replace("thrift://localhost:9083", metastore.properties["uri"]))
    assert main([*words[1:], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["identifier"] for one in said["entries"]] == ["lake.trips_ro", "lake.trips_rt", "lake.trips"]
    assert main(words[1:]) == 0
    assert "kept" in capsys.readouterr().out
    assert list(entry(metastore, "trips_rt")["partitions"]) == [("a",)]
