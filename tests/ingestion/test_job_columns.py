"""Columns of what a job reads: of another type, missing or new, and what a transformation makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from job_files import files, ids, put
from whole_numbers import Numbers, row

import hoodoo
from hoodoo.errors import ColumnError, DataError, SourceLost, TooManyBadRows
from hoodoo.sources import Part, Planned


def test_new_columns_are_left_out_and_named_or_added_or_refused(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", row(1, more=7))
    with pytest.raises(ColumnError, match="'more'"):
        hoodoo.ingest(files(folder), table, new_columns="fail").run()
    assert hoodoo.ingest(files(folder), table, name="one").run().unknown == ("more",)
    assert hoodoo.ingest(files(folder), table, name="two", new_columns="add").run().unknown == ()
    assert table.scan().to_arrow()["more"].to_pylist() == [7]


def test_files_of_one_batch_may_have_other_columns_and_types(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", {"id": 1, "part": "a", "ts": 1})
    (folder / "b.csv").write_text("ts,id,part,v\n2,2,b,17\n")
    pa.parquet.write_table(
        pa.table(
            {"id": pa.array([3], pa.int32()), "part": ["a"], "ts": [1.0], "v": pa.array(["x"], pa.large_string())}
        ),
        folder / "c.parquet",
    )
    assert hoodoo.ingest(files(folder), table).run().rows == 3
    assert sorted(map(str, table.scan(["id", "ts", "v"]).to_arrow().to_pylist())) == [
        "{'id': 1, 'ts': 1, 'v': None}",
        "{'id': 2, 'ts': 2, 'v': '17'}",
        "{'id': 3, 'ts': 1, 'v': 'x'}",
    ]


def test_a_value_that_does_not_fit_in_one_file_changes_no_value_of_another(folder: Path, table: hoodoo.Table) -> None:
    """A common type of whole numbers and doubles is double, which does not hold 2 ** 53 + 1."""
    big = 2**53 + 1
    put(folder, "a.jsonl", row(1, big))
    doubles = pa.table({"id": [3, 4, 5], "part": ["a"] * 3, "ts": [1.5, 2.0, None], "v": ["x"] * 3})
    pa.parquet.write_table(doubles, folder / "b.parquet")
    report = hoodoo.ingest(files(folder), table, on_bad_rows=hoodoo.BadRowLimits(share=1)).run()
    assert (report.rows, report.bad) == (4, 2)
    assert sorted(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == [2, big]
    assert sorted(table.quarantine().rows()["reason"].to_pylist()) == ["cast", "null_order"]


def test_a_column_of_another_kind_stops_the_job_and_loses_no_row(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", row(1))
    wrong = pa.table({"id": [2], "part": pa.array([b"a"]), "ts": [1], "v": ["x"]})
    pa.parquet.write_table(wrong, folder / "b.parquet")
    with pytest.raises(ColumnError, match="'part' has the wrong type: expected string, got binary"):
        hoodoo.ingest(files(folder), table).run()
    coded = pa.table({"id": [2], "part": pa.array(["b"]).dictionary_encode(), "ts": [1], "v": ["x"]})
    pa.parquet.write_table(coded, folder / "b.parquet")
    assert hoodoo.ingest(files(folder), table).run().rows == 2 and ids(table) == [1, 2]


def test_too_many_values_that_do_not_fit_stop_the_job(folder: Path, table: hoodoo.Table) -> None:
    pa.parquet.write_table(
        pa.table({"id": range(200), "part": ["a"] * 200, "ts": [1.5] * 200, "v": ["x"] * 200}), folder / "b.parquet"
    )
    with pytest.raises(TooManyBadRows, match="of 200 rows"):
        hoodoo.ingest(files(folder), table).run()
    assert len(table.quarantine().rows()) == 100 and table.inspect.application(f"files:{folder}").version == -1


def test_a_batch_that_lacks_a_column_keeps_overwrites_or_is_refused(folder: Path, table: hoodoo.Table) -> None:
    table.upsert([row(1)])
    put(folder, "a.jsonl", {"id": 1, "part": "b", "ts": 2})
    with pytest.raises(ColumnError):
        hoodoo.ingest(files(folder), table, missing="fail").run()
    hoodoo.ingest(files(folder), table, name="keep", missing="keep").run()
    assert table.scan().to_arrow()["v"].to_pylist() == ["v1"]
    hoodoo.ingest(files(folder), table, name="null").run()
    assert table.scan().to_arrow()["v"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "ID,v\n1,x\n", "lacks the key column 'id': expected it among its columns"),
        ("a.csv", "id;part;ts;v\n1;a;1;x\n", "lacks the key column 'id'"),
        ("a.csv", "id,id\n1,2\n", "has the column 'id' twice"),
        ("a.csv", "part,ts\na,1\nb,x\n", "lacks the key column 'id'"),
    ],
)
def test_a_file_without_a_key_column_stops_the_job_and_is_not_taken(
    folder: Path, table: hoodoo.Table, name: str, text: str, said: str
) -> None:
    """Its columns were all left out as unknown, and its rows with them."""
    (folder / name).write_text(text)
    with pytest.raises(ColumnError, match=said):
        hoodoo.ingest(files(folder), table).run()
    assert table.inspect.application(f"files:{folder}").version == -1


def test_an_object_without_a_key_is_kept_as_it_came(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", '{"ID": 7, "v": "x"}', row(1), {**row(2), "id": None})
    assert hoodoo.ingest(files(folder), table, on_bad_rows=hoodoo.BadRowLimits(share=1)).run().bad == 2 and ids(
        table
    ) == [1]
    aside = table.quarantine().rows()
    assert aside["reason"].to_pylist() == ["null_key"] * 2 and b'{"ID": 7, "v": "x"}' in aside["payload"].to_pylist()
    put(folder, "b.jsonl", '{"ID": 8}')
    assert hoodoo.ingest(files(folder), table).run().bad == 1 and len(table.quarantine().rows()) == 3


def test_a_source_that_has_none_of_the_columns_stops_the_job(table: hoodoo.Table) -> None:
    class Strange(Numbers):
        def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
            yield Part(pa.table({}), unknown=("x",))

    with pytest.raises(ColumnError, match="does not have any column of the table"):
        hoodoo.ingest(Strange(5), table).run()


def test_a_transform_sees_every_column_and_says_what_is_written(folder: Path, table: hoodoo.Table) -> None:
    put(folder, "a.jsonl", {"number": 4, "text": "x"}, {"number": 5, "text": "y"})

    def rows(batch: pa.Table) -> pa.Table:
        assert {"number", "text"} <= set(batch.column_names)
        return pa.table(
            {
                "id": batch["number"],
                "part": batch["text"],
                "ts": batch["number"],
                "v": batch["text"],
                "odd": batch["text"],
            }
        )

    hoodoo.ingest(files(folder), table, transform=rows).run()
    assert ids(table) == [4, 5] and "odd" not in table.schema.names
    with pytest.raises(DataError, match="expected a pyarrow Table"):
        hoodoo.ingest(files(folder), table, name="other", transform=lambda batch: None).run()  # type: ignore[arg-type,return-value]


def test_a_transform_that_raises_is_named_with_the_line_and_stops_the_job_before_its_batch(
    folder: Path, table: hoodoo.Table
) -> None:
    put(folder, "a.jsonl", row(1))

    def divided(batch: pa.Table) -> pa.Table:
        return batch.slice(1 // (len(batch) - 1))

    def within_arrow(batch: pa.Table) -> pa.Table:
        return batch.select(["nowhere"])

    for transform, kind in ((divided, ZeroDivisionError), (within_arrow, KeyError)):
        with pytest.raises(DataError, match=f"transform raised {kind.__name__}: .* on rows of 'files:") as told:
            hoodoo.ingest(files(folder), table, transform=transform).run()
        line = transform.__code__.co_firstlineno + 1
        assert f"in {__file__}, line {line}," in told.value.message and isinstance(told.value.__cause__, kind)
        assert told.value.details == {"source": f"files:{folder}", "file": __file__, "line": line}

    def refused(batch: pa.Table) -> pa.Table:
        raise SourceLost("ours")

    with pytest.raises(SourceLost, match="ours"):
        hoodoo.ingest(files(folder), table, transform=refused).run()
    with pytest.raises(DataError, match="transform raised TypeError: .* on rows of"):
        hoodoo.ingest(files(folder), table, transform=int).run()  # type: ignore[arg-type]
    assert table.inspect.applications() == [] and ids(table) == []
