"""Keys that have more than one row: `inspect.duplicates`, on the command line too, and what a table says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.cli.main import main
from hoodoo.readers.duplicates import find_duplicate_keys

KINDS = ("merge_on_read", "copy_on_write")
SCHEMA = pa.schema([("id", pa.int64()), ("partition", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def rows(*ids: int, city: str, n: int = 0) -> list[dict[str, Any]]:
    return [{"id": one, "partition": f"p{one}", "city": city, "n": n} for one in ids]


def moved(path: Path, kind: str) -> hoodoo.Table:
    """A table of two key columns in which 2 is in two partitions and 3 in three; 4 was, and 5 is back in one."""
    table = hoodoo.create(
        path, SCHEMA, key=("id", "partition"), partition_by="city", type=kind, compact_after_logs=None
    )
    table.insert(rows(*range(1, 50), city="rome"))
    table.upsert(rows(2, 3, 4, 5, city="oslo"))
    table.upsert(rows(3, city="bonn"))
    table.upsert(rows(1, 2, 3, city="rome", n=1))  # the same rows again, in logs of one of the kinds
    table.delete(rows(4, city="rome"))
    table.delete(rows(5, city="oslo"))
    return table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part_rows", [1 << 22, 7])
def test_keys_of_several_partitions_are_named_with_their_count_and_folders(
    tmp_path: Path, kind: str, part_rows: int
) -> None:
    table = moved(tmp_path / "t", kind)
    expected = [
        {"id": 2, "partition": "p2", "count": 2, "partitions": ["city=oslo", "city=rome"]},
        {"id": 3, "partition": "p3", "count": 3, "partitions": ["city=bonn", "city=oslo", "city=rome"]},
    ]
    assert table.inspect.duplicates().to_pylist() == expected
    config, history, view = table.handle.at(None)
    assert find_duplicate_keys(history, config, view, part_rows).to_pylist() == expected
    earlier = table.history()[-3]  # the upsert to oslo
    assert table.inspect.duplicates(as_of=earlier)["id"].to_pylist() == [2, 3, 4, 5]
    assert table.inspect.duplicates(as_of="earliest").num_rows == 0
    assert table.inspect.duplicates().schema.field("partitions").type == pa.list_(pa.string())


def test_a_table_without_duplicates_has_none_and_the_columns_all_the_same(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    assert table.inspect.duplicates().num_rows == 0
    table.insert(rows(*range(100), city="rome"))
    assert (
        table.inspect.duplicates().schema.names == ["id", "count", "partitions"]
        and table.inspect.duplicates().num_rows == 0
    )


def test_a_new_table_says_once_what_a_key_is_where_keys_may_move(tmp_path: Path) -> None:
    told = "(a key in two partitions is two rows)"
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="n")
    assert repr(made).count(told) == 1 and len(repr(made).splitlines()) == 2
    assert told not in repr(hoodoo.open(made.path))
    made.insert(rows(1, city="rome"))
    assert told not in repr(made)
    for number, partition_by in enumerate((None, "id", hoodoo.bucket(4, "id"))):
        assert told not in repr(hoodoo.create(tmp_path / f"u{number}", SCHEMA, key="id", partition_by=partition_by))
    assert told in repr(
        hoodoo.create(tmp_path / "v", SCHEMA, key="id", partition_by=["id", hoodoo.truncate(1, "city")])
    )


def test_the_command_line_lists_them_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = moved(tmp_path / "t", "merge_on_read")

    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments])
        return code, capsys.readouterr().out

    code, said = run("duplicates", table.path, "--json")
    assert code == 1 and [json.loads(line)["count"] for line in said.splitlines()] == [2, 3]
    assert run("duplicates", table.path, "--as-of", "2", "--json") == (0, "")
    code, said = run("verify", table.path, "--json")
    assert code == 0 and "duplicates" not in json.loads(said)
    code, said = run("verify", table.path, "--duplicates", "--json")
    assert code == 1 and json.loads(said)["ok"] and json.loads(said)["duplicates"] == 2
    code, said = run("verify", table.path, "--duplicates")
    assert code == 1 and "city=bonn" in said and "hoodoo duplicates PATH" in said
    table.delete(rows(2, 3, city="oslo") + rows(3, city="bonn"))
    assert run("verify", table.path, "--duplicates")[0] == run("duplicates", table.path)[0] == 0
