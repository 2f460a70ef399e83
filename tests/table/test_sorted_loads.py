"""insert(bulk=True, sort_by=...) sorts rows by columns, and refuses columns that cannot be sorted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64()), ("tags", pa.list_(pa.string()))])
ROWS = 4_000


def rows(seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    fares = [None if n % 50 == 0 else float(fare) for n, fare in enumerate(rng.integers(0, 500, ROWS))]
    columns = [rng.permutation(ROWS), rng.choice(["rome", "oslo"], ROWS), fares, [["a"]] * ROWS]
    return pa.table(columns, schema=SCHEMA)


def files(table: hoodoo.Table) -> dict[str, list[pa.Table]]:
    found: dict[str, list[pa.Table]] = {}
    for path in Path(table.path).rglob("*.parquet"):
        found.setdefault(path.parent.name, []).append(pq.ParquetFile(path).read())
    return found


def made(path: Path, **options: object) -> hoodoo.Table:
    return hoodoo.create(path, SCHEMA, key="id", partition_by="city", **options)


def test_rows_of_a_partition_stand_in_order_and_its_files_follow_each_other(tmp_path: Path) -> None:
    table = made(tmp_path / "t", target_file_bytes=20_000)
    table.insert(rows(), sort_by=["fare", "id"], bulk=True)
    for mine in files(table).values():
        assert len(mine) > 1
        last = float("-inf")
        for part in sorted(mine, key=lambda part: pa.compute.min(part["fare"]).as_py()):
            pairs = [
                (row["fare"] is None, row["fare"] or 0, row["id"]) for row in part.select(["fare", "id"]).to_pylist()
            ]
            assert pairs == sorted(pairs)  # nulls last
            known = part["fare"].drop_null()
            assert known[0].as_py() >= last
            last = known[-1].as_py()
    assert table.scan().to_arrow().sort_by("id")["fare"].equals(rows().sort_by("id")["fare"])


def test_without_sort_rows_stand_as_they_came(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.insert(rows(), bulk=True)
    for city, [part] in files(table).items():
        came = rows().filter(pa.compute.field("city") == city.removeprefix("city="))
        assert part["id"].to_pylist() == came["id"].to_pylist()


def test_a_read_that_filters_by_the_column_opens_fewer_files_than_without_the_order(tmp_path: Path) -> None:
    opened = {}
    for sort in (None, "fare"):
        table = made(tmp_path / str(sort), target_file_bytes=20_000)
        table.insert(rows(), sort_by=sort, bulk=True)
        found = table.scan(where="fare >= 490")
        opened[sort] = len(found.tasks())
        assert found.count() == len([fare for fare in rows()["fare"].to_pylist() if fare is not None and fare >= 490])
    assert opened["fare"] < opened[None]


def test_a_column_that_the_batch_itself_brings_can_be_sorted_by(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.insert(rows().append_column("n", pa.array(range(ROWS, 0, -1))), evolve=True, sort_by="n", bulk=True)
    for mine in files(table).values():
        for part in mine:
            assert part["n"].to_pylist() == sorted(part["n"].to_pylist())


@pytest.mark.parametrize(
    ("sort", "error"),
    [
        ("fares", hoodoo.ColumnError),
        ("tags", hoodoo.ColumnError),
        (["fare", "fare"], hoodoo.OptionError),
        (7, hoodoo.OptionError),
    ],
)
def test_what_cannot_be_sorted_by_is_refused_before_anything_is_written(
    tmp_path: Path, sort: object, error: type[hoodoo.HoodooError]
) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(error):
        table.insert(rows(), sort_by=sort, bulk=True)  # type: ignore[arg-type]
    assert not files(table) and table.scan().count() == 0
