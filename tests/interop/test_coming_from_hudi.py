"""The page "Coming from Apache Hudi" is true: both halves of each pair leave the same rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import hoodoo

PAGE = Path(__file__).parents[2] / "docs" / "from-hudi.md"
_BLOCK = re.compile(r"^```(sql|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({k: v for k, v in row.items() if k[0] != "_"} for row in found), key=lambda row: str(row["id"]))


def test_each_pair_of_the_page_leaves_the_same_rows(
    hudi: SparkSession, hudi_rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    kinds = []
    try:
        for kind, text in _BLOCK.findall(PAGE.read_text()):
            kinds.append(kind)
            if kind == "sql":
                for statement in filter(str.strip, text.replace("{path}", str(tmp_path / "theirs")).split(";")):
                    hudi.sql(statement).collect()
                continue
            exec(compile(text, str(PAGE), "exec"), names)
            theirs, ours = rows(hudi_rows(tmp_path / "theirs")), rows(hudi_rows(tmp_path / "ours"))
            assert ours == theirs
            assert rows(hoodoo.open(tmp_path / "theirs").scan().to_arrow().to_pylist()) == theirs
    finally:
        hudi.sql("DROP TABLE IF EXISTS theirs")
        hudi.sql("SET hoodie.spark.sql.insert.into.operation = insert")
    assert kinds == ["sql", "python"] * 4
    assert ours
