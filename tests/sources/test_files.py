"""A folder as a source: which files are taken, in which order, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
import seaweed

import hoodoo
from hoodoo.errors import CallError, DataError, EngineError, OptionError, SourceChanged, SourceLost, SourceUnavailable
from hoodoo.sources import Files, Limits
from hoodoo.storage.s3 import S3Store
from hoodoo.writers.batches.row_files import read_local_files

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROW = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def put(folder: Path, name: str, *ids: int) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": number}) + "\n" for number in ids))
    return path


def files(folder: Path, **how: Any) -> Files:
    return Files(folder, **{"settle_seconds": 0, **how})


def taken(source: Any, position: str = "", limits: Limits | None = None) -> tuple[list[int], str]:
    """Ids of all that the source has after a position, batch after batch, and the position after that."""
    found = list[int]()
    while planned := source.plan(position, limits or Limits()):
        for part in source.read(planned, COLUMNS, False):
            found += part.rows["id"].to_pylist() if part.rows.num_columns else []
        position = part.position
    return found, position


def test_files_are_taken_once_the_oldest_first_in_any_depth(folder: Path) -> None:
    for number, name in enumerate(["z.jsonl", "2026/b.jsonl", "2026/11/a.jsonl"]):
        put(folder, name, number)
        time.sleep(0.005)  # so that each has another time
    source = files(folder)
    assert taken(source)[0] == [0, 1, 2]
    position = taken(source)[1]
    assert source.plan(position, Limits()) is None
    put(folder, "later.jsonl", 9)
    assert taken(source, position)[0] == [9]


def test_a_batch_ends_at_the_bytes_that_it_may_take_and_has_a_file_at_least(folder: Path) -> None:
    for number in range(5):
        put(folder, f"{number}.jsonl", number)
    source = files(folder)
    size = len('{"id": 0}\n')
    planned = source.plan("", Limits(bytes=2 * size))
    assert planned and len(planned.what.files) == 2  # type: ignore[attr-defined]
    planned = source.plan("", Limits(bytes=1))
    assert planned and len(planned.what.files) == 1  # type: ignore[attr-defined]
    assert sorted(taken(source, "", Limits(bytes=2 * size))[0]) == list(range(5))


def test_every_format_is_read_plain_and_compressed(folder: Path) -> None:
    rows = pa.table({"id": [1, 2], "v": ["a", None]}, COLUMNS)
    pa.parquet.write_table(rows, folder / "p.parquet")
    (folder / "c.csv").write_text("id,v\n3,c\n")
    (folder / "j.ndjson").write_text('{"id": 4, "v": "d"}\n')
    (folder / "g.jsonl.gz").write_bytes(gzip.compress(b'{"id": 5}\n'))
    with (folder / "a.avro").open("wb") as out:
        fastavro.writer(out, ROW, [{"id": 6}], codec="deflate")
    for suffix, codec in ((".zst", "zstd"), (".bz2", "bz2"), (".lz4", "lz4")):
        with pa.output_stream(str(folder / f"x.csv{suffix}"), compression=codec) as out:
            out.write(b"id,v\n7,e\n")
    assert sorted(taken(files(folder))[0]) == [1, 2, 3, 4, 5, 6, 7, 7, 7]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_avro_of_every_usual_codec_is_read(folder: Path, codec: str) -> None:
    """Spark writes snappy unless it is told otherwise."""
    with (folder / "a.avro").open("wb") as out:
        fastavro.writer(out, ROW, ({"id": number} for number in range(5000)), codec=codec)
    assert taken(files(folder))[0] == list(range(5000))


def test_an_avro_codec_whose_package_is_missing_says_what_to_install(folder: Path) -> None:
    """The advice was to take the file away, though it is sound."""
    with (folder / "a.avro").open("wb") as out:
        fastavro.writer(out, ROW, [{"id": 1}])
    written = (folder / "a.avro").read_bytes()
    (folder / "a.avro").write_bytes(written.replace(b"avro.codec\x08null", b"avro.codec\x06lz4"))
    with pytest.raises(EngineError, match=r"'a\.avro': .* codec lz4 .* pip install 'fastavro\[lz4\]'") as refused:
        taken(files(folder))
    assert "sound" not in refused.value.message and refused.value.details["file"] == "a.avro"
    with pytest.raises(EngineError, match=r"a\.avro.*: Avro codec lz4"):
        read_local_files(folder / "a.avro")


def test_hidden_and_empty_files_and_those_that_still_grow_wait(folder: Path) -> None:
    put(folder, "_SUCCESS.jsonl", 1)
    put(folder, ".part.jsonl", 2)
    put(folder, "_temporary/0/part.jsonl", 3)
    (folder / "empty.jsonl").touch()
    put(folder, "young.jsonl", 4)
    patient = Files(folder, settle_seconds=3600)
    assert patient.plan("", Limits()) is None and patient.lag("").waiting == 1
    assert taken(files(folder))[0] == [4]


def test_files_whose_names_do_not_tell_what_they_hold_are_named_and_taken_where_the_format_is_given(
    folder: Path,
) -> None:
    put(folder, "rows.txt", 1)
    source = files(folder)
    assert source.plan("", Limits()) is None and source.passed_over == ("rows.txt",)
    assert taken(files(folder, format="jsonl"))[0] == [1]


def test_a_pattern_chooses(folder: Path) -> None:
    put(folder, "2025/a.jsonl", 1)
    put(folder, "2026/b.jsonl", 2)
    put(folder, "2026/c.txt", 3)
    assert taken(files(folder, pattern="2026/*.jsonl"))[0] == [2]


def test_a_file_that_is_moved_into_the_folder_counts_from_then(folder: Path, tmp_path: Path) -> None:
    """It keeps the time at which it was written, by which it was taken for a file of long ago."""
    put(folder, "first.jsonl", 1)
    source = files(folder, grace_seconds=0)
    position = taken(source)[1]
    outside = put(tmp_path, "outside.jsonl", 2)
    os.utime(outside, (1_000_000_000, 1_000_000_000))
    os.rename(outside, folder / "moved.jsonl")
    assert taken(source, position)[0] == [2]


def test_a_link_to_a_file_is_read_as_the_file(folder: Path, tmp_path: Path) -> None:
    (folder / "link.jsonl").symlink_to(put(tmp_path, "there.jsonl", 1))
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    source = files(folder)
    assert taken(source)[0] == [1] and source.passed_over == ("gone.jsonl",)


def test_a_file_that_is_written_anew_stops_the_job_or_is_read_again(folder: Path) -> None:
    path = put(folder, "a.jsonl", 1)
    position = taken(files(folder))[1]
    path.write_text('{"id": 1}\n{"id": 2}\n')
    with pytest.raises(SourceLost, match=r"'a\.jsonl' of .* was rewritten"):
        files(folder).plan(position, Limits())
    again, after = taken(files(folder, on_change="again"), position)
    assert again == [1, 2] and files(folder).plan(after, Limits()) is None


@pytest.mark.parametrize("how", ["deleted", "rewritten"])
def test_a_file_that_changes_between_plan_and_read_is_planned_anew(folder: Path, how: str) -> None:
    path = put(folder, "a.jsonl", 1)
    source = files(folder)
    planned = source.plan("", Limits())
    assert planned
    path.unlink()
    if how == "rewritten":
        put(folder, "a.jsonl", 2, 3)
    with pytest.raises(SourceChanged, match="was deleted or rewritten while it was read"):
        list(source.read(planned, COLUMNS, False))
    assert taken(source)[0] == ([] if how == "deleted" else [2, 3])


def test_a_name_with_any_signs_is_taken_once(folder: Path) -> None:
    names = ["ü ß.jsonl", 'q"uo\\te.jsonl', "new\nline.jsonl", "%2F=,:.jsonl", "日本.jsonl"]
    for number, name in enumerate(names):
        put(folder, name, number)
    os.write(fd := os.open(os.fsencode(folder) + b"/not-utf8-\xff.jsonl", os.O_CREAT | os.O_WRONLY), b'{"id": 9}\nx\n')
    os.close(fd)
    found, position = taken(files(folder))
    assert sorted(found) == [0, 1, 2, 3, 4, 9] and files(folder).plan(position, Limits()) is None
    position.encode()  # a table takes it


def test_the_lag_counts_what_waits_and_how_long(folder: Path) -> None:
    source = files(folder)
    assert source.lag("").waiting == 0 and source.lag("").seconds == 0
    put(folder, "a.jsonl", 1)
    put(folder, "b.jsonl", 2)
    assert source.lag("").waiting == 2 and source.lag("").unit == "files"
    assert source.lag(taken(source)[1]).waiting == 0


def test_a_damaged_file_is_named(folder: Path) -> None:
    (folder / "bad.parquet").write_bytes(b"PAR1")
    (folder / "bad.jsonl.gz").write_bytes(b"no gzip")
    for name in ("bad.parquet", "bad.jsonl.gz"):
        source = files(folder, pattern=name)
        planned = source.plan("", Limits())
        assert planned
        with pytest.raises(DataError, match=name):
            list(source.read(planned, COLUMNS, False))


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "xml"},
        {"on_change": "ignore"},
        {"pattern": ""},
        {"pattern": None},
        {"grace_seconds": -1},
        {"grace_seconds": None},
        {"settle_seconds": "x"},
        {"settle_seconds": float("nan")},
    ],
)
def test_a_wrong_argument_is_named(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Files(folder, **wrong)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="Folder .* does not exist"):
        Files(tmp_path / "nowhere").plan("", Limits())
    with pytest.raises(CallError, match="folder of files is invalid"):
        Files("")


def test_a_folder_that_was_there_and_is_gone_may_come_back(folder: Path) -> None:
    put(folder, "a.jsonl", 1)
    source, away = Files(folder, settle_seconds=0), folder.with_name("away")
    folder.rename(away)
    for ask in (lambda: source.plan("", Limits()), lambda: source.lag("")):
        with pytest.raises(SourceUnavailable, match="does not exist any more: it was deleted, moved or unmounted"):
            ask()
    away.rename(folder)
    assert source.plan("", Limits()) is not None


@pytest.mark.xdist_group("s3")
def test_objects_of_a_bucket_are_taken_once(s3: dict[str, Any]) -> None:
    place = f"{seaweed.place()}/in"
    store = S3Store(place, s3)
    for number in range(3):
        store.put(f"d/{number}.jsonl", b'{"id": %d}\n' % number)
    source = Files(place, storage=s3)
    found, position = taken(source)
    assert sorted(found) == [0, 1, 2] and source.plan(position, Limits()) is None
    store.put("e.csv.gz", gzip.compress(b"id,v\n7,x\n"))
    planned = source.plan(position, Limits())
    assert planned
    store.put("e.csv.gz", gzip.compress(b"id,v\n8,x\n9,x\n"))
    with pytest.raises(SourceChanged):
        list(source.read(planned, COLUMNS, False))
    assert taken(source, position)[0] == [8, 9]


def test_a_link_to_a_folder_is_not_followed_and_is_named(tmp_path: Path) -> None:
    """Its files were never read, and nothing said so."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.jsonl").write_text('{"id": 2}\n')
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "circle").symlink_to(tmp_path / "in")
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    source = Files(tmp_path / "in", settle_seconds=0)
    job = hoodoo.ingest(source, table)
    report = job.run()
    assert report.rows == 1 and report.passed_over == ("circle/", "linked/")
    assert source.lag(job.position()).waiting == 2
