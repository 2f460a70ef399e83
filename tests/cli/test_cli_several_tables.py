"""Commands that take several tables, and patterns that stand for tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import seaweed

import hoodoo
from hoodoo.cli.table_paths import expand_path_patterns
from hoodoo.compactor.compaction import plans
from hoodoo.errors import TableNotFound

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with the tables a, b and east/c, a folder without a table, and a file."""
    for name in ("a", "b", "east/c"):
        hoodoo.create(tmp_path / name, SCHEMA, key="id").upsert([{"id": name, "v": 1}])
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    return tmp_path


@pytest.fixture
def lagging(lake: Path) -> Path:
    """A lake whose table b has too many logs."""
    table = hoodoo.open(lake / "b")
    table.set_options(compact_after_logs=None)
    for number in range(31):
        table.upsert([{"id": "b", "v": number}])
    return lake


def damage(lake: Path) -> None:
    next((lake / "a").rglob("*.parquet")).write_bytes(b"damaged")


@pytest.mark.parametrize(
    ("pattern", "tables"),
    [
        ("*", ["a", "b"]),
        ("[b-z]", ["b"]),
        ("?", ["a", "b"]),
        ("*/*", ["east/c"]),
        ("*ast/c", ["east/c"]),
        ("east/c*", ["east/c"]),
    ],
)
def test_a_pattern_stands_for_the_tables_whose_folders_it_matches(lake: Path, pattern: str, tables: list[str]) -> None:
    assert expand_path_patterns([f"{lake}/{pattern}"], None) == [f"{lake}/{table}" for table in tables]


def test_patterns_of_relative_paths_and_repeated_tables(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake)
    assert expand_path_patterns(["b", "*", "east/*"], None) == ["b", "a", "east/c"]


def test_a_table_whose_name_contains_a_wildcard_is_found_by_its_name(lake: Path) -> None:
    hoodoo.create(lake / "new[1]", SCHEMA, key="id")
    assert expand_path_patterns([f"{lake}/new[1]"], None) == [f"{lake}/new[1]"]


def test_a_pattern_without_tables_is_an_error(lake: Path, run: Any) -> None:
    with pytest.raises(TableNotFound, match="No table matches"):
        expand_path_patterns([f"{lake}/x*"], None)
    assert run("verify", f"{lake}/x*")[0] == 1


@pytest.mark.xdist_group("s3")
def test_a_pattern_on_s3_lists_folders_and_no_files_of_tables(s3: dict[str, Any]) -> None:
    lake = seaweed.place()
    for name in ("one", "two"):
        hoodoo.create(f"{lake}/{name}", SCHEMA, key="id", storage=s3)
    assert expand_path_patterns([f"{lake}/*"], s3) == [f"{lake}/one", f"{lake}/two"]
    assert hoodoo.open(f"{lake}/one", storage=s3).handle.store.folders() == [".hoodie"]


def test_services_prints_one_line_for_each_table_and_the_advice_of_each(lagging: Path, run: Any) -> None:
    code, out, _ = run("services", f"{lagging}/*")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 5
    assert [line.split()[:2] for line in lines[1:3]] == [[f"{lagging}/a", "ok"], [f"{lagging}/b", "lags"]]
    assert lines[3].startswith(f"{lagging}/b: No worker has sent a heartbeat here")


def test_services_with_check_exits_with_3_if_a_table_lags(lagging: Path, run: Any) -> None:
    assert run("services", f"{lagging}/a", "--check")[0] == 0
    assert run("services", f"{lagging}/b", "--check")[0] == 3
    assert run("services", f"{lagging}/*", "--check")[0] == 3
    assert run("services", f"{lagging}/b")[0] == 0
    assert run("services", f"{lagging}/b", f"{lagging}/missing", "--check")[0] == 1


def test_an_open_plan_on_schedule_is_shown_but_does_not_lag(lake: Path, run: Any) -> None:
    table = hoodoo.open(lake / "a")
    table.upsert([{"id": "a", "v": 2}])
    plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
    code, out, _ = run("services", lake / "a", "--check")
    assert plan and code == 0 and f"Plan {plan.instant} has been waiting" in out


def test_files_that_a_savepoint_keeps_are_shown_but_do_not_lag(lake: Path, run: Any) -> None:
    options = {"type": "copy_on_write", "clean_every": 1, "retain_hours": 0, "retain_commits": 1}
    table = hoodoo.create(lake / "kept", SCHEMA, key="id", **options)
    table.insert([{"id": "a", "v": 1}])
    table.savepoints.create("audit")
    for value in range(3):
        table.upsert([{"id": "a", "v": value}])
    table.maintenance.clean()
    code, out, _ = run("services", lake / "kept", "--check")
    assert code == 0 and "savepoint audit holds them" in out


def test_json_has_one_document_for_each_table(lagging: Path, run: Any) -> None:
    code, out, _ = run("services", f"{lagging}/*", f"{lagging}/missing", "--json")
    first, second, missing = map(json.loads, out.splitlines())
    assert (code, first["lags"], second["lags"]) == (1, False, True)
    assert [first["path"], missing["path"]] == [f"{lagging}/a", f"{lagging}/missing"]
    assert missing["error"]["code"] == "TABLE_NOT_FOUND"


def test_verify_shows_which_of_several_tables_is_damaged(lake: Path, run: Any) -> None:
    assert run("verify", f"{lake}/*")[0] == 0
    damage(lake)
    code, out, _ = run("verify", f"{lake}/*")
    assert code == 1
    assert [line.split()[1] for line in out.splitlines()[1:3]] == ["damaged", "ok"]
    assert run("verify", f"{lake}/b")[0] == 0


def test_a_worker_serves_the_tables_that_a_pattern_matches(lagging: Path, run: Any) -> None:
    assert run("worker", f"{lagging}/*", "--once", "--log-level", "error") == (0, "", "")
    assert run("services", f"{lagging}/*", "--check")[0] == 0


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", 1 << 20), ("1MiB", 1 << 20), ("2 GB", 2 * 10**9), ("1.5kb", 1500), ("7B", 7)]
)
def test_sizes_have_units(tmp_path: Path, text: str, size: int) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", target_file_bytes=text)
    assert hoodoo.open(table.path).options.target_file_bytes == size


@pytest.mark.parametrize("text", ["", "1 X", "-1", "1e3", "GB", "1g", "٣", "1" * 40, "2TiB"])
def test_what_is_no_size_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(hoodoo.OptionError, match="target_file_bytes is not a valid size: expected a number of bytes"):
        hoodoo.create(tmp_path / "t", SCHEMA, key="id", target_file_bytes=text)


def test_memory_and_rates_are_sizes(lagging: Path, run: Any) -> None:
    table = hoodoo.open(lagging / "b")
    with pytest.raises(hoodoo.OptionError, match="memory_bytes is not a valid size"):
        table.compact(memory_bytes="2 bytes")
    with pytest.raises(hoodoo.OptionError, match="from 1,048,576"):
        table.compact(memory_bytes="1kB")
    code, _, err = run("compact", table.path, "--memory", "2 pints")
    assert code == 2 and "'2 pints' is not a valid size: expected a number of bytes, or a size such as '2GB'" in err
    assert table.compact(memory_bytes="64MiB", bytes_per_second="1GB").groups == 1
