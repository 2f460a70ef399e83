"""Large files are read in parts, and the parts together are the file: for every format and every limit."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import os
import random
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

import hoodoo
from hoodoo.errors import ColumnError, DataError, EngineError, SourceLost, SourceUnavailable
from hoodoo.sources import Files, Limits, file_blocks
from hoodoo.sources.file_blocks import TextBlocks

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def in_parts(folder: Path, limits: Limits, fresh: bool, **how: Any) -> list[list[dict[str, Any]]]:
    """Rows of each batch. fresh: each batch is read by another process, as it were."""
    batches, position = list[list[dict[str, Any]]](), ""
    source = Files(folder, settle_seconds=0, **how)
    while planned := source.plan(position, limits):
        batches.append([])
        for part in source.read(planned, COLUMNS, False):
            batches[-1] += part.rows.to_pylist()
        position = part.position
        source = Files(folder, settle_seconds=0, **how) if fresh else source
    return batches


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path, table = folder / name, pa.Table.from_pylist(rows, COLUMNS)
    if name.endswith(".parquet"):
        pa.parquet.write_table(table, path, row_group_size=7)
    elif name.endswith(".avro"):
        fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}]
        with path.open("wb") as out:
            fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, rows, sync_interval=50)
    elif ".csv" in name:
        out = io.StringIO()
        csv.writer(out).writerows([["id", "v"], *([row["id"], row["v"]] for row in rows)])
        data = out.getvalue().encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet", "a.avro"])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_parts_of_a_file_are_its_rows_in_order_and_keep_the_limits(tmp_path: Path, name: str, fresh: bool) -> None:
    """16 MB of gzip became one batch of 3.5 GB."""
    rng = random.Random(name)
    texts = ["plain", "two\nlines", 'a "quoted" word', "comma, and", '5" pipe', '"', "\r\n", "ü" * 20]
    rows = [{"id": number, "v": rng.choice(texts)} for number in range(100)]
    write(tmp_path, name, rows)
    for limits in (Limits(rows=1), Limits(rows=13), Limits(bytes=200), Limits(bytes=1000, rows=30), Limits()):
        batches = in_parts(tmp_path, limits, fresh)
        assert [row for batch in batches for row in batch] == rows
        assert max(map(len, batches)) <= limits.rows
        assert len(batches) >= 100 / limits.rows and (limits.bytes > 5000 or len(batches) > 1)


@pytest.mark.parametrize("seed", range(40))
def test_records_of_csv_end_where_pythons_own_reader_ends_them(seed: int) -> None:
    rng = random.Random(seed)
    pieces = ["a", "1", ",", ",", "\n", "\r\n", '"x"', '"x\ny"', '"x""y"', '5" pipe', ' "z"', '"",', '"a"b']
    text = "h,i\n" + "".join(rng.choice(pieces) for _ in range(rng.randint(1, 60))) + "\n"
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    blocks = TextBlocks(io.BytesIO(text.encode()), csv=True)
    found = [blocks.header]
    while (block := blocks.next(rng.choice([1, 7, 1000]), 1)) is not None:
        found.append(block)
    assert b"".join(found) == text.encode()
    rows = [next(csv.reader(io.StringIO(one.decode(), newline=""))) for one in found if one.strip()]
    assert rows == expected


def test_a_quote_that_is_never_closed_is_named_with_its_line(tmp_path: Path) -> None:
    """It took all rows up to the end of the file into one value."""
    (tmp_path / "a.csv").write_text('id,v\n1,a\n2,"abc\n3,def\n4,ghi\n')
    with pytest.raises(DataError, match=r"'a\.csv' cannot be read as csv: .*quote .* line 3 is not closed"):
        in_parts(tmp_path, Limits(), fresh=False)


def test_a_record_without_end_is_an_error_and_not_all_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_blocks, "_RECORD_MAX", 1000)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2, "v": "' + "x" * 5000 + '"}\n')
    with pytest.raises(DataError, match=r"'a\.jsonl' .*record that begins in line 2 is larger than 1,000 bytes"):
        in_parts(tmp_path, Limits(bytes=100), fresh=False)


@pytest.mark.parametrize("what", ["removed", "rewritten"])
def test_a_file_that_is_read_in_part_and_lost_stops_the_job(tmp_path: Path, what: str) -> None:
    write(tmp_path, "a.jsonl", [{"id": number, "v": ""} for number in range(10)])
    source = Files(tmp_path, settle_seconds=0)
    planned = source.plan("", Limits(rows=3))
    assert planned
    *_, last = source.read(planned, COLUMNS, False)
    assert source.lag(last.position).waiting == 1
    (tmp_path / "a.jsonl").unlink()
    if what == "rewritten":
        write(tmp_path, "a.jsonl", [{"id": 1, "v": ""}])
    with pytest.raises(SourceLost, match=f"'a.jsonl' .* was {what} before it was completely read"):
        source.plan(last.position, Limits())


def test_a_uuid_of_avro_is_text_and_a_moment_of_any_year_is_read(tmp_path: Path) -> None:
    """A UUID ended every job of the process; a moment beyond the year 9999 damaged its file."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "v", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ]
    schema = {"type": "record", "name": "r", "fields": fields}
    value = uuid.UUID(int=7)
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "a.avro").open("wb") as out:
        fastavro.writer(out, schema, [{"id": 1, "v": value, "at": 2**60}, {"id": 2, "v": value, "at": 0}])
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    assert hoodoo.ingest(Files(tmp_path / "in", settle_seconds=0), table).run().rows == 2
    assert table.scan().to_arrow()["v"].to_pylist() == [str(value)] * 2


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_int96_of_parquet_keeps_its_year_and_is_utc(tmp_path: Path, zone: str | None) -> None:
    """The usual "no end" of Hive, 9999-12-31, was read as a day of 1816."""
    moments = [dt.datetime(9999, 12, 31), dt.datetime(2026, 1, 2, 3, 4, 5, 6)]
    rows = pa.table({"id": [1, 2], "at": pa.array(moments, pa.timestamp("us"))})
    (tmp_path / "in").mkdir()
    pa.parquet.write_table(rows, tmp_path / "in" / "a.parquet", use_deprecated_int96_timestamps=True)
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", zone))]), key="id")
    assert hoodoo.ingest(Files(tmp_path / "in", settle_seconds=0), table).run().bad == 0
    found = table.scan().to_arrow().sort_by("id")["at"].to_pylist()
    assert [one.replace(tzinfo=None) for one in found] == moments


# ---- files that cannot be read
DAMAGED = {
    "bad.parquet": b"PAR1 and so on",
    "bad.avro": b"Obj\x01...",
    "bad.jsonl.gz": b"no gzip",
    "bad.csv": b'id,v\n1,"never closed\n',
}


@pytest.mark.parametrize("name", [*DAMAGED, "loop.jsonl"])
def test_a_damaged_file_is_quarantined_once_and_all_others_are_read(tmp_path: Path, name: str) -> None:
    """It ended every job of the process, or stopped its job until somebody removed it."""
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "good.jsonl", [{"id": 1, "v": "x"}])
    if name in DAMAGED:
        (folder / name).write_bytes(DAMAGED[name])
    else:
        (folder / name).symlink_to(name)
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    if name in DAMAGED:
        with pytest.raises(DataError, match=name):
            hoodoo.ingest(Files(folder, settle_seconds=0), table, name="job").run()
    job = hoodoo.ingest(
        Files(folder, settle_seconds=0, on_bad_file="quarantine"),
        table,
        name="job",
        on_bad_rows=hoodoo.BadRowLimits(share=1),
    )
    report = job.run()
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    if name in DAMAGED:
        [row] = table.quarantine().rows().to_pylist()
        assert (row["reason"], row["payload"]) == ("file", name.encode()) and name in row["detail"]
        assert report.bad == 1 and job.run().bad == 1
    else:
        assert report.passed_over == (name,) and job.source.lag(job.position()).waiting == 1


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_a_file_with_a_column_of_another_type_is_quarantined_once_and_all_others_are_read(
    tmp_path: Path, suffix: str
) -> None:
    """It stopped its job, whatever on_bad_file was."""
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.table({"id": range(50), "v": [{"x": 1}] * 50})
    if suffix == "parquet":
        pa.parquet.write_table(rows, folder / "a.parquet", row_group_size=7)
    else:
        inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "long"}]}
        fields = [{"name": "id", "type": "long"}, {"name": "v", "type": inner}]
        with (folder / "a.avro").open("wb") as out:
            fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, rows.to_pylist(), sync_interval=50)
    write(folder, "b.jsonl", [{"id": 100, "v": "x"}])
    table = hoodoo.create(tmp_path / "t", COLUMNS, key="id")
    with pytest.raises(ColumnError, match=f"a.{suffix}.*'v'"):
        hoodoo.ingest(Files(folder, settle_seconds=0), table, name="job").run()
    source = Files(folder, settle_seconds=0, on_bad_file="quarantine")
    job = hoodoo.ingest(source, table, name="job", max_rows=10, on_bad_rows=hoodoo.BadRowLimits(share=1))
    assert job.check().bad == 1
    job.run()
    assert table.scan().to_arrow()["id"].to_pylist() == [100]
    [row] = table.quarantine().rows().to_pylist()
    assert (row["reason"], row["payload"]) == ("file", f"a.{suffix}".encode()) and "'v'" in row["detail"]
    assert source.lag(job.position()).waiting == 0


@pytest.mark.parametrize("code", ["EIO", "ESTALE", "EMFILE"])
def test_a_file_system_that_does_not_answer_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    import errno

    from hoodoo.sources import folders

    write(tmp_path, "a.jsonl", [{"id": 1, "v": "x"}])

    def fail(path: Any) -> Any:
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)), path)

    source = Files(tmp_path, settle_seconds=0)
    planned = source.plan("", Limits())
    assert planned
    monkeypatch.setattr(folders.pa, "OSFile", fail)
    with pytest.raises(SourceUnavailable, match=r"'a\.jsonl' cannot be read now"):
        list(source.read(planned, COLUMNS, False))


@pytest.mark.parametrize(
    "kind",
    [ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, MemoryError, UnicodeError, EOFError]
    + [pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowKeyError, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.avro"])
def test_whatever_a_decoder_raises_becomes_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], name: str
) -> None:
    from hoodoo.sources import file_rows

    write(tmp_path, name, [{"id": 1, "v": "x"}])

    def fail(*_: Any, **__: Any) -> Any:
        raise kind("broken")

    for target in ("parse_rows", "_require_columns"):
        monkeypatch.setattr(file_rows, target, fail)
    monkeypatch.setattr(file_rows.JsonDecoder, "parse", fail)
    monkeypatch.setattr(file_rows, "_read_csv_text", fail)
    try:
        in_parts(tmp_path, Limits(), fresh=False)
    except (DataError, EngineError) as problem:
        assert name in problem.message and problem.details["file"] == name
    else:
        assert name == "a.jsonl"  # each line that cannot be decoded is a bad row


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_max_bytes_allows_records_that_are_larger_than_a_block(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error said to raise max_bytes, which changed nothing above 64 MiB."""
    for option in ("hoodoo.sources.file_blocks._RECORD_MAX", "hoodoo.sources.files._BLOCK"):
        monkeypatch.setattr(option, 1 << 20)
    monkeypatch.setattr("hoodoo.writers.batches.text_blocks._BLOCK", 1 << 20)
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "x\n" * (2 << 20)}, {"id": 3, "v": "b"}]
    write(tmp_path, name, rows)
    assert [row for batch in in_parts(tmp_path, Limits(bytes=16 << 20), False) for row in batch] == rows
    with pytest.raises(DataError, match="raise max_bytes"):
        in_parts(tmp_path, Limits(bytes=2 << 20), False)


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("header_end", ["\r", "\n"])
@pytest.mark.parametrize("fresh", [False, True])
def test_lines_of_csv_end_with_a_carriage_return_too(tmp_path: Path, end: str, header_end: str, fresh: bool) -> None:
    """A file without newlines was its header, and no row was read and nothing was said."""
    values = ["a", "two\rlines", "two\r\nlines", 'a "quoted" word', "b"] * 4
    rows = [{"id": number, "v": value} for number, value in enumerate(values)]
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([row["id"], row["v"]] for row in rows)
    (tmp_path / "a.csv").write_bytes(("id,v" + header_end + out.getvalue()).encode())
    for limits in (Limits(), Limits(rows=1), Limits(bytes=9)):
        assert [row for batch in in_parts(tmp_path, limits, fresh) for row in batch] == rows


def test_equal_bad_rows_of_csv_with_carriage_returns_have_places_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,v\r" + b"1,2,3\rx,a\r" * 5)
    source, position, places = Files(tmp_path, settle_seconds=0), "", list[str]()
    while planned := source.plan(position, Limits(rows=3)):
        for part in source.read(planned, COLUMNS, False):
            places += part.bad["place"].to_pylist()
            position = part.position
    assert len(places) == len(set(places)) == 10


@pytest.mark.parametrize("content", [b"\0" * 100, "id,v\n1,\u00e9\n".encode("utf-16-le")])
def test_a_csv_header_with_zero_bytes_is_damage(tmp_path: Path, content: bytes) -> None:
    """A file of zeros, as a power loss leaves one, counted as read without a row."""
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match="zero byte"):
        in_parts(tmp_path, Limits(), False)


@pytest.mark.parametrize("header", ["v\n1\n", "id,id\n1,2\n", "id;v\n1;2\n", " id,v\n1,2\n"])
def test_a_file_without_the_key_column_can_be_quarantined(tmp_path: Path, header: str) -> None:
    """One such file stopped a job that quarantines bad files."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(header)
    (folder / "b.csv").write_text("id,v\n7,x\n")
    table = hoodoo.create(tmp_path / "t", {"id": "bigint", "v": "string"}, key="id")
    with pytest.raises(DataError, match="on_bad_file='quarantine'"):
        hoodoo.ingest(Files(folder, settle_seconds=0), table).run()
    report = hoodoo.ingest(Files(folder, settle_seconds=0, on_bad_file="quarantine"), table).run()
    assert (report.rows, report.bad, dict(report.reasons)) == (2, 1, {"file": 1}) and table.count() == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_max_bytes_bounds_values_that_a_parquet_file_stores_once(
    tmp_path: Path, kind: pa.DataType, stored: bool, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 kB of Parquet became 1.5 GB of memory, whatever max_bytes was."""
    monkeypatch.setattr(file_blocks, "_RECORD_MAX", 1 << 20)
    dictionary = pa.array(["a" * 100_000, "b" * 50_000, "c"]).cast(kind)
    indices = pa.array([None if at % 7 == 6 else at % 3 for at in range(90)], pa.int32())
    texts = pa.DictionaryArray.from_arrays(indices, dictionary)
    texts = texts if stored else texts.cast(kind)
    numbers = pa.array([at % 4 for at in range(90)]).dictionary_encode()
    rows = pa.table({"id": pa.array(range(90)), "v": texts, "n": numbers})
    pa.parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=40)
    columns = pa.schema([("id", pa.int64()), ("v", kind), ("n", pa.int64())])
    source, position, found = Files(tmp_path, settle_seconds=0), "", list[dict[str, Any]]()
    while planned := source.plan(position, Limits(bytes=400_000)):
        for part in source.read(planned, columns, False):
            assert part.rows.nbytes <= 1_000_000
            assert not part.rows.num_columns or part.rows.schema.field("v").type == kind
            found += part.rows.to_pylist()
            position = part.position
        source = Files(tmp_path, settle_seconds=0) if fresh else source
    assert found == rows.to_pylist()


def test_equal_bad_rows_of_files_with_similar_names_are_all_quarantined(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a,source:b.jsonl", "a%source:b.jsonl", "a,position:b.jsonl", "__null__"):
        (folder / name).write_text("no json\n")
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id")
    report = hoodoo.ingest(Files(folder, settle_seconds=0, format="json"), table, name="a,source:b").run()
    assert report.bad == table.quarantine().count() == 3  # names that begin with '_' are skipped
