"""What people met first and were told wrongly: places that are no table's, words of other systems, advice that was
reversed.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.synonyms import _MEANINGS, translate_option_name
from hoodoo.timeline.properties.table_options import ARGUMENTS, Options

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


# ---- places
def test_a_table_on_a_file_is_refused_and_nobody_is_told_to_try_again(tmp_path: Path) -> None:
    """It was a disk that failed, which invites to try again."""
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n")
    for path in (file, file / "below"):
        with pytest.raises(hoodoo.OptionError, match=r"rows\.csv' is a file, but a table is a folder"):
            hoodoo.create(path, SCHEMA, key="id")
        with pytest.raises(hoodoo.OptionError, match="is a file"):
            hoodoo.open(path)
    assert file.read_text() == "id\n1\n"


@pytest.mark.parametrize("path", ["file:rel", "file://host/t", "file://", "file:", "file:///"])
def test_a_file_uri_that_names_no_file_here_is_refused(path: str) -> None:
    """`file:rel` made a table in `/rel`, `file://localhost/t` one in `/localhost/t`."""
    with pytest.raises(hoodoo.OptionError, match="Use file:///absolute/path"):
        hoodoo.create(path, SCHEMA, key="id")


@pytest.mark.parametrize("prefix", ["file:", "file://", "file://localhost", ""])
def test_every_spelling_of_a_file_uri_is_the_same_place(tmp_path: Path, prefix: str) -> None:
    assert hoodoo.create(f"{prefix}{tmp_path}/t", SCHEMA, key="id").path == str(tmp_path / "t")


def test_an_empty_path_is_not_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hoodoo.OptionError, match="path is empty"):
        hoodoo.create("", SCHEMA, key="id")
    assert hoodoo.create(".", SCHEMA, key="id").path == str(tmp_path)


def test_a_home_of_nobody_is_no_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hoodoo.OptionError, match="the unknown user 'no-such-user'"):
        hoodoo.create("~no-such-user/t", SCHEMA, key="id")
    assert os.listdir(tmp_path) == []


def test_a_table_made_under_umask_0_opens(tmp_path: Path) -> None:
    """It was refused by the very call that had made it, as everybody could write it."""
    before = os.umask(0)
    try:
        table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
        table.upsert([{"id": 1, "v": "a"}])
    finally:
        os.umask(before)
    assert hoodoo.open(tmp_path / "t").scan().count() == 1
    assert not [found for found in (tmp_path / "t").rglob("*") if found.stat().st_mode & 0o002]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.EROFS, "STORE_DENIED", "read-only file system"),
        (errno.EACCES, "STORE_DENIED", "No permission to write"),
        (errno.ENOSPC, "STORE_FULL", "No space left"),
    ],
)
def test_a_disk_that_may_not_be_written_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, words: str
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(hoodoo.TableError, match=words) as problem:
        table.upsert([{"id": 1, "v": "a"}])
    assert problem.value.code == code
    assert table.scan().count() == 0


def test_who_may_not_write_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hoodoo.create(tmp_path / "t", SCHEMA, key="id").upsert([{"id": 1, "v": "a"}])

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("link", "replace", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    assert hoodoo.open(tmp_path / "t").scan().count() == 1


def test_a_table_that_was_deleted_is_not_found_rather_than_corrupt(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert([{"id": 1, "v": "a"}])
    shutil.rmtree(tmp_path / "t")
    for call in (table.scan, lambda: table.upsert([{"id": 2, "v": "b"}]), table.inspect.timeline, table.history):
        with pytest.raises(hoodoo.TableNotFound, match="deleted or moved"):
            call()
    assert not (tmp_path / "t").exists()


def test_rows_of_a_table_deleted_since_the_scan_are_not_corrupt(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert([{"id": 1, "v": "a"}])
    scan = table.scan()
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(hoodoo.TableNotFound, match="deleted or moved"):
        scan.to_arrow()


# ---- what is not opened by its class
def test_a_table_and_a_worker_of_a_path_say_how_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(hoodoo.OptionError, match=r"hoodoo\.open\(path\)"):
        hoodoo.Table("path")  # type: ignore[arg-type]
    for wrong in ("path", ["path"], None, 1):
        with pytest.raises(hoodoo.OptionError, match=r"hoodoo\.open\(path\)"):
            hoodoo.Worker(wrong)  # type: ignore[arg-type]
    with pytest.raises(hoodoo.EngineError, match="NoneType"):
        hoodoo.register(None)


# ---- words
@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("precombine", "order_by"),
        ("hoodie.datasource.write.precombine.field", "order_by"),
        ("preCombineField", "order_by"),
        ("table_type", "type"),
        ("hoodie.datasource.write.table.type", "type"),
        ("primary_key", "key"),
        ("record_key", "key"),
        ("recordkey", "key"),
        ("hoodie.datasource.write.recordkey.field", "key"),
        ("partition_columns", "partition_by"),
        ("partitionBy", "partition_by"),
        ("primarykey", "key"),
        ("partitioned_by", "partition_by"),
    ],
)
def test_a_word_of_another_system_leads_to_ours(tmp_path: Path, word: str, ours: str) -> None:
    with pytest.raises(hoodoo.OptionError, match=f"Did you mean '{ours}'"):
        hoodoo.create(tmp_path / "t", SCHEMA, key="id", **{word: "id"})
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    with pytest.raises(hoodoo.OptionError, match=f"'{ours}', an argument of create"):
        table.set_options(**{word: "id"})


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("hoodie.cleaner.commits.retained", "retain_commits"),
        ("delta.deletedFileRetentionDuration", "retain_hours"),
        ("write.target-file-size-bytes", "target_file_bytes"),
        ("delta.checkpointInterval", "checkpoint_every"),
        ("retain_hour", "retain_hours"),
    ],
)
def test_an_option_of_another_system_leads_to_ours(tmp_path: Path, word: str, ours: str) -> None:
    with pytest.raises(hoodoo.OptionError, match=f"Did you mean '{ours}'"):
        hoodoo.create(tmp_path / "t", SCHEMA, key="id", **{word: 1})


def test_every_word_leads_to_something_that_is_there() -> None:
    from hoodoo.spark import source_options

    here = {*ARGUMENTS, *vars(Options()), *source_options._COMMON, *source_options._OF_WRITE}
    here |= {name for names in source_options._OF_MODE.values() for name in names}
    assert set(_MEANINGS.values()) <= here
    assert translate_option_name("no such word", here) == translate_option_name("", here) == ""


# ---- values
@pytest.mark.parametrize(
    ("given", "stored", "words"),
    [
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "assume_timezone"),
        (pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us"), "local_timestamp"),
        (pa.string(), pa.int64(), "Cast the column to int64"),
    ],
)
def test_a_column_of_another_type_is_told_what_to_do(
    tmp_path: Path, given: pa.DataType, stored: pa.DataType, words: str
) -> None:
    """Times with a zone for a column without one were told to get a zone first."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("v", stored)]), key="id")
    value: Any = "1" if given == pa.string() else dt.datetime(2026, 1, 1)
    with pytest.raises(hoodoo.ColumnError, match=words):
        table.upsert(pa.table({"id": [1], "v": pa.array([value], given)}))


def test_an_unknown_savepoint_is_told_those_there_are(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    with pytest.raises(hoodoo.PositionError, match="There are no savepoints"):
        table.scan(as_of="before")
    table.upsert([{"id": 1, "v": "a"}])
    table.savepoints.create("before the change")
    for call in (lambda: table.scan(as_of="before"), lambda: table.restore("before")):
        with pytest.raises(hoodoo.PositionError, match="Savepoints: 'before the change'") as problem:
            call()
        assert problem.value.details["savepoints"] == ["before the change"]


def test_an_article_fits_its_noun(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("flag", pa.bool_())])
    with pytest.raises(hoodoo.SchemaError, match="cannot be an ordering column"):
        hoodoo.create(tmp_path / "t", schema, key="id", order_by="flag")


def test_whole_table_is_true_or_false(tmp_path: Path) -> None:
    """whole_table='no' replaced all of it."""
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert([{"id": 1, "v": "a"}])
    with pytest.raises(hoodoo.OptionError, match="True or False"):
        table.insert_overwrite([{"id": 2, "v": "b"}], whole_table="no")  # type: ignore[arg-type]
    assert isinstance(table.handle.config, TableConfig) and table.scan().count() == 1
