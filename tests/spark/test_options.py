"""Options of the Spark data source: each is checked before anything runs, none is ignored, and no secret is taken."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import hoodoo
from hoodoo.arguments import ApplicationVersion
from hoodoo.engine.spark import dumps, loads
from hoodoo.readers.progress import StreamLimits
from hoodoo.spark.source import HoodooSource
from hoodoo.spark.source_options import ReadOptions, SparkWriteOptions, parse_column_names

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


@pytest.mark.parametrize(
    ("given", "stream", "says"),
    [
        ({"colums": "id"}, False, "Did you mean 'columns'"),
        ({"maxRowPerTrigger": "1"}, True, "Did you mean 'maxRowsPerTrigger'"),
        ({"xyzzy": "1"}, False, "Valid options: path, mode"),
        ({"mode": "snapshots"}, False, "mode must be"),
        ({"mode": "snapshot"}, True, "mode must be 'incremental' or 'changes'"),
        ({"since": "earliest"}, False, "has no effect on mode 'snapshot'"),
        ({"as_of": "earliest", "mode": "changes"}, False, "has no effect on mode 'changes'"),
        ({"deletes": "true", "mode": "changes"}, True, "has no effect on mode 'changes'"),
        ({"versions": "all"}, True, "has no effect on mode 'incremental'"),
        ({"until": "earliest"}, True, "has no effect on a stream"),
        ({"consumer": "x"}, False, "has no effect on a batch read"),
        ({"maxRowsPerTrigger": "0"}, True, "integer of at least 1"),
        ({"maxRowsPerTrigger": "1.5"}, True, "integer of at least 1"),
        ({"meta": "yes"}, False, "meta must be 'true' or 'false'"),
        ({"versions": "some", "mode": "changes"}, False, "versions must be"),
        ({"columns": "[1]"}, False, "JSON list"),
        ({"since": "earliest", "startingPosition": "earliest"}, True, "have the same meaning"),
    ],
)
def test_a_read_option_that_does_not_fit_is_refused_with_what_would(
    given: dict[str, str], stream: bool, says: str
) -> None:
    with pytest.raises(hoodoo.OptionError, match=says):
        ReadOptions.parse({"path": "x", **given}, stream)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"operation": "merge"}, "operation must be"),
        ({"opration": "upsert"}, "Did you mean 'operation'"),
        ({"transaction": "job"}, "application:version"),
        ({"transaction": "job:-1"}, "application:version"),
        ({"existing": "keep", "operation": "upsert"}, "needs operation 'insert'"),
        ({"operation": "delete", "duplicates": "fail"}, "has no effect on operation 'delete'"),
        ({"duplicates": "some"}, "duplicates must be"),
    ],
)
def test_a_write_option_that_does_not_fit_is_refused_with_what_would(given: dict[str, str], says: str) -> None:
    with pytest.raises(hoodoo.OptionError, match=says):
        SparkWriteOptions.parse({"path": "x", **given})


@pytest.mark.parametrize(
    "name",
    [
        "secret_key",
        "access_key",
        "session_token",
        "fs.s3a.secret.key",
        "AWS_SECRET_ACCESS_KEY",
        "password",
        "storage.credentials",
    ],
)
def test_credentials_are_refused_as_options_and_not_repeated(name: str) -> None:
    for of in (ReadOptions.parse, SparkWriteOptions.parse):
        with pytest.raises(hoodoo.OptionError, match="would be visible in plans and logs") as found:
            of({"path": "x", name: "CANARY"})
        assert "CANARY" not in str(found.value)


def test_a_path_is_needed() -> None:
    with pytest.raises(hoodoo.OptionError, match="needs a path"):
        ReadOptions.parse({})


def test_options_mean_what_they_say_whatever_their_case() -> None:
    options = ReadOptions.parse(
        {
            "PATH": "p",
            "MODE": "Changes",
            "Since": "latest",
            "MAXCOMMITSPERTRIGGER": "3",
            "maxfilespertrigger": "4",
            "consumer": "c",
            "versions": "all",
        },
        True,
    )
    assert (options.path, options.mode, options.since, options.versions, options.limits, options.consumer) == (
        "p",
        "changes",
        "latest",
        "all",
        StreamLimits(3, 4, None),
        "c",
    )
    stored = ReadOptions.parse(
        {"path": "s3://b/t", "endpoint": "https://minio.example:9000", "region": "eu-central-1", "allow_http": "false"}
    )
    assert stored.storage == {"endpoint": "https://minio.example:9000", "region": "eu-central-1"}
    written = SparkWriteOptions.parse(
        {"path": "p", "operation": "INSERT", "existing": "keep", "duplicates": "fail", "transaction": "a:b:7"}
    )
    assert (written.operation, written.existing, written.write.duplicates, written.write.transaction) == (
        "insert",
        "keep",
        "fail",
        ApplicationVersion("a:b", 7),
    )


def test_columns_are_read_as_people_write_them() -> None:
    assert parse_column_names("a, b,c") == parse_column_names('["a", "b", "c"]') == ["a", "b", "c"]


def test_a_loaded_source_keeps_its_snapshot_on_its_way_between_processes(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert(pa.table({"id": [1], "ts": [1]}))
    source = HoodooSource({"path": str(tmp_path / "t")})
    assert source.schema() == "`id` bigint, `ts` bigint"
    table.upsert(pa.table({"id": [2], "ts": [1]}))
    moved = loads(dumps(source))
    assert (moved.fixed, dict(moved.options)) == (2, {"path": str(tmp_path / "t")})


def test_a_schema_that_is_not_the_tables_is_refused_and_its_own_is_taken(tmp_path: Path) -> None:
    hoodoo.create(tmp_path / "t", SCHEMA, key="id").upsert(pa.table({"id": [1], "ts": [1]}))
    source = HoodooSource({"path": str(tmp_path / "t")})
    with pytest.raises(hoodoo.SchemaError, match="choose columns with the option columns"):
        source.reader(from_arrow_schema(pa.schema([("id", pa.string()), ("ts", pa.int64())])))
    assert len(source.reader(from_arrow_schema(SCHEMA)).partitions()) == 1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hoodie.datasource.write.operation", "Did you mean 'operation'"),
        ("hoodie.datasource.write.precombine.field", r"set by hoodoo\.create\(order_by=\.\.\.\)"),
        ("hoodie.datasource.write.recordkey.field", r"set by hoodoo\.create\(key=\.\.\.\)"),
        ("partitionby", r"set by hoodoo\.create\(partition_by=\.\.\.\)"),
        ("table_type", r"set by hoodoo\.create\(type=\.\.\.\)"),
    ],
)
def test_an_option_of_a_write_in_another_systems_word_leads_to_ours(word: str, said: str) -> None:
    with pytest.raises(hoodoo.OptionError, match=said):
        SparkWriteOptions.parse({"path": "p", word: "x"})


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("as.of.instant", "as_of"),
        ("versionAsOf", "as_of"),
        ("timestampAsOf", "as_of"),
        ("snapshot-id", "as_of"),
        ("readChangeFeed", "mode"),
        ("hoodie.datasource.query.type", "mode"),
        ("hoodie.datasource.read.begin.instanttime", "since"),
        ("startingVersion", "since"),
        ("end-snapshot-id", "until"),
    ],
)
def test_an_option_of_a_read_in_another_systems_word_leads_to_ours(word: str, ours: str) -> None:
    for name in (word, word.lower()):
        with pytest.raises(hoodoo.OptionError, match=f"Did you mean '{ours}'"):
            ReadOptions.parse({"path": "p", name: "x"})


def test_create_table_is_told_what_to_do_instead() -> None:
    """Spark adds an option `owner`, and the answer was: did you mean 'consumer'?"""
    for given in ({"path": "p", "owner": "me"}, {}):
        with pytest.raises(hoodoo.OptionError, match="CREATE TEMPORARY VIEW"):
            ReadOptions.parse(given, None)
