"""Files of hostile senders: what is in them is set aside, or the file is named, and no process ends by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoodoo
from hoodoo.errors import DataError, HoodooError
from hoodoo.sources import Files, Limits

SCHEMA = pa.schema([("id", pa.string()), ("f", pa.float64())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def ids(table: hoodoo.Table) -> list[str]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def taken(folder: Path, table: hoodoo.Table) -> Any:
    return hoodoo.ingest(Files(folder, settle_seconds=0), table, on_bad_rows=hoodoo.BadRowLimits(share=1)).run()


@pytest.mark.parametrize(
    "value",
    ["[" * 20_000 + "]" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000, "[" * 20_000],
    ids=["lists", "objects", "open lists"],
)
def test_a_row_that_is_nested_too_deeply_is_set_aside(folder: Path, table: hoodoo.Table, value: str) -> None:
    (folder / "a.jsonl").write_text(f'{{"id":"a"}}\n{{"id":"b","u":{value}}}\n{{"id":"c"}}\n')
    report = taken(folder, table)
    assert (report.rows, report.bad, ids(table)) == (3, 1, ["a", "c"])


def test_a_number_that_is_too_large_is_set_aside(folder: Path, table: hoodoo.Table) -> None:
    large = ["9" * 309, "9" * 308 + "e5", "1e400"]
    lines = [f'{{"id":"j{at}","f":{number}}}\n' for at, number in enumerate(large)]
    (folder / "a.jsonl").write_text('{"id":"a","f":1}\n' + "".join(lines))
    (folder / "b.csv").write_text("id,f\nb,2\n" + "".join(f"c{at},{number}\n" for at, number in enumerate(large)))
    report = taken(folder, table)
    assert (report.rows, report.bad, ids(table)) == (8, 6, ["a", "b"])


def test_parquet_whose_pages_are_not_what_their_checksums_say_is_damaged(folder: Path, table: hoodoo.Table) -> None:
    rows = pa.table({"id": [f"k{number:02}" for number in range(50)], "f": [1.0] * 50})
    pq.write_table(rows, folder / "a.parquet", write_page_checksum=True, compression="none", use_dictionary=False)
    data = (folder / "a.parquet").read_bytes()
    at = data.index(b"k17")
    (folder / "a.parquet").write_bytes(data[: at + 2] + b"6" + data[at + 3 :])
    with pytest.raises(DataError, match="'a.parquet' cannot be read as parquet"):
        taken(folder, table)
    assert ids(table) == []


def test_parquet_that_is_damaged_behind_its_footer_is_named(folder: Path, table: hoodoo.Table) -> None:
    pq.write_table(pa.table({"id": [f"key {number}" for number in range(500)]}), folder / "sound.parquet")
    sound = (folder / "sound.parquet").read_bytes()
    (folder / "sound.parquet").unlink()
    found = 0
    for at in range(4, len(sound) - 12, max(1, len(sound) // 60)):
        (folder / "a.parquet").write_bytes(sound[:at] + b"\xff\xff\xff\xff" + sound[at + 4 :])
        try:
            next(
                iter(
                    Files(folder, settle_seconds=0).read(
                        Files(folder, settle_seconds=0).plan("", Limits()), SCHEMA, False
                    )
                )
            )  # type: ignore[arg-type]
        except HoodooError as problem:
            assert "a.parquet" in problem.message
            found += 1
    assert found > 20
