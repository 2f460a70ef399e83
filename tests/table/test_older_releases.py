"""Tables that older releases of hoodoo wrote are read, written, served and archived by this one.

tools/golden_own.py makes them.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import hoodoo

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "golden_own"
TABLES = sorted(path.relative_to(FOLDER).as_posix().removesuffix(".json") for path in FOLDER.glob("*/*.json"))
sys.path.append(str(ROOT / "tools"))

from golden_own import plain, rows  # noqa: E402


def unpack(name: str, folder: Path) -> tuple[hoodoo.Table, dict[str, Any]]:
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return hoodoo.open(folder / Path(name).name), json.loads((FOLDER / f"{name}.json").read_text())


def test_there_are_tables_of_the_first_release() -> None:
    assert len([name for name in TABLES if name.startswith("0.1.0/")]) == 7


@pytest.mark.parametrize("name", TABLES)
def test_every_snapshot_and_all_changes_are_what_the_older_release_read(name: str, tmp_path: Path) -> None:
    table, facts = unpack(name, tmp_path)
    assert table.cursor.seq == facts["head"]
    assert plain(table.scan().to_arrow()) == facts["rows"]
    for slot, wanted in facts["snapshots"].items():
        assert plain(table.scan(as_of=hoodoo.Cursor(table.cursor.table, int(slot))).to_arrow()) == wanted
    since = hoodoo.Cursor(table.cursor.table, facts["since"])
    assert plain(table.changes(since).to_arrow()) == facts["changes"]
    assert table.verify().problems == []


@pytest.mark.parametrize("name", [name for name in TABLES if not name.endswith("/adopted")])
def test_writes_and_services_go_on_where_the_older_release_ended(name: str, tmp_path: Path) -> None:
    table, facts = unpack(name, tmp_path)
    table.upsert(rows(99, 1, 2, 77))
    table.delete(rows(100, 3).select(["id", "city", "ts"]))
    wanted = {row["id"]: row for row in map(json.loads, facts["rows"]) if row["id"] not in (1, 2, 3)}
    wanted |= {row["id"]: row for row in map(json.loads, plain(rows(99, 1, 2, 77)))}
    table.compact()
    table.maintenance.cluster()
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    table.maintenance.archive(older_than_hours=0)
    again = hoodoo.open(tmp_path / Path(name).name)
    assert {row["id"]: row for row in map(json.loads, plain(again.scan().to_arrow()))} == wanted
    assert again.verify().problems == []
