"""What the command line does not show, or cannot write, is not lost without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

import hoodoo
from hoodoo.cli.main import main


@pytest.fixture
def four(tmp_path: Path) -> str:
    """A table whose second slot inserted four rows."""
    table = hoodoo.create(tmp_path / "t", {"id": "bigint", "v": "double"}, key="id")
    table.insert([{"id": n, "v": float(n)} for n in range(4)])
    return table.path


@pytest.mark.parametrize("command", ["changes", "incremental"])
@pytest.mark.parametrize("limit", [0, 1, 3, 4, 9])
def test_a_position_to_go_on_from_is_told_only_where_all_rows_are_shown(
    four: str, command: str, limit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--limit` told the position after the rows that it left out: whoever went on from there never saw them."""
    assert main([command, four, "--since", "1", "--limit", str(limit)]) == 0
    said = capsys.readouterr().out
    assert ("next --since" in said) == (limit >= 4)
    assert ("the position for the next read is not shown" in said) == (limit < 4)
    assert main([command, four, "--since", "1", "--limit", str(limit), "--output", str(tmp_path / "x.csv")]) == 0
    assert ("cursor" in capsys.readouterr().out) == (limit >= 4)


@pytest.mark.parametrize("odd", ["nan", "inf", "-inf"])
def test_a_json_file_that_would_turn_a_number_into_null_is_refused(
    four: str, odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hoodoo.open(four).upsert([{"id": 1, "v": float(odd)}])
    assert main(["scan", four, "--output", str(tmp_path / "x.jsonl")]) == 1
    assert "Write to a .parquet or .csv file" in capsys.readouterr().err
    assert list(tmp_path.glob("x*")) == []
    assert main(["scan", four, "--output", str(tmp_path / "x.csv")]) == 0


def test_bytes_that_are_no_text_are_refused_in_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = hoodoo.create(tmp_path / "t", {"id": "bigint", "b": "binary"}, key="id")
    table.insert([{"id": 1, "b": b"\xff\xfe"}])
    assert main(["scan", table.path, "--output", str(tmp_path / "x.csv")]) == 1
    assert "Write to a .parquet file, or leave the column out with --columns" in capsys.readouterr().err


def test_verify_says_where_it_did_not_look_for_keys_with_several_rows(
    four: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a damaged table it left them out without a word."""
    assert main(["verify", four, "--duplicates"]) == 0
    assert "not searched" not in capsys.readouterr().out
    (base,) = Path(four).glob("*.parquet")
    base.write_bytes(base.read_bytes()[:-1])
    assert main(["verify", four, "--duplicates"]) == 1
    assert "were not searched, because the table is damaged" in capsys.readouterr().out
