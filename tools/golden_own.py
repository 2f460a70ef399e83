"""Tables as a release of hoodoo writes them, with what it reads from them, so that later releases prove they open them.

`python tools/golden_own.py tests/data/golden_own/0.1.0` makes the tables of the release that runs it: for each name a
`<name>.tar.gz`, and in `<name>.json` the head slot, the newest snapshot, the snapshot as of each readable slot, and
the changes between the oldest and the newest of those. They are made once per release and never again.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline.environment import Environment

HUDI_TABLES = Path(__file__).parents[1] / "tests" / "data" / "golden"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("note", pa.string())])),
    ]
)
DAY_MS = 86_400_000


class Clock:
    """A second later at each look, so that the tables do not depend on when they are made."""

    def __init__(self) -> None:
        self.ms = 1_790_000_000_000

    def __call__(self) -> int:
        self.ms += 1_000
        return self.ms


def rows(version: int, *ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "city": ("oslo", "rome", "a b/c")[i % 3],
                "ts": version,
                "price": f"{i}.{version % 100:02d}",
                "at": 1_700_000_000_000_000 + i,
                "tags": [str(version), None] if i % 2 else None,
                "place": {"x": i / 4, "note": f"v{version}"} if i % 5 else None,
            }
            for i in ids
        ],
        schema=pa.schema([field.with_type(pa.string()) if field.name == "price" else field for field in SCHEMA]),
    ).cast(SCHEMA)


def keys(*ids: int) -> pa.Table:
    return rows(10**6, *ids).select(["id", "city", "ts"])


def table(path: Path, clock: Clock, kind: str, **options: Any) -> Table:
    settings = {"compact_after_logs": None, "clean_every": None, "checkpoint_every": 4} | options
    hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type=kind, **settings)
    return Table(LocalStore(str(path)), Environment(now_ms=clock))


def history(path: Path, kind: str, **options: Any) -> tuple[Table, Clock]:
    """Inserts, updates, deletes, a transaction, a savepoint and a consumer."""
    clock = Clock()
    made = table(path, clock, kind, **options)
    chance = random.Random(7)
    clock.ms = 1_800_000_000_000
    for version in range(1, 10):
        made.upsert(rows(version, *chance.sample(range(30), 8)), transaction=("loader", version))
    made.delete(keys(*chance.sample(range(30), 4)))
    made.savepoints.create("before")
    made.upsert(rows(20, 1, 2, 40))
    return made, clock


def cow(path: Path) -> None:
    history(path, "copy_on_write")


def mor(path: Path) -> None:
    history(path, "merge_on_read")


def mor_compacted(path: Path) -> None:
    made, _ = history(path, "merge_on_read")
    made.compact()
    made.upsert(rows(30, 1, 5))
    plans.commit_compaction_plan(made.handle.context(), plans.plan_groups_with_logs)  # left open
    made.upsert(rows(31, 1, 6))


def cow_clustered(path: Path) -> None:
    made, _ = history(path, "copy_on_write")
    made.maintenance.cluster()
    made.insert_overwrite(rows(40, 3))


def cow_change_log(path: Path) -> None:
    history(path, "copy_on_write", change_log="before_after")


def mor_archived(path: Path) -> None:
    made, clock = history(path, "merge_on_read", retain_commits=1)
    made.savepoints.delete("before")
    made.compact()
    made.insert_overwrite(rows(50, 7))
    clock.ms += 40 * DAY_MS
    made.upsert(rows(60, 0))
    made.maintenance.clean(retain_hours=0, retain_commits=1)
    made.maintenance.archive()
    made.upsert(rows(61, 0, 9))


def adopted(path: Path) -> None:
    """A table that Hudi began and we went on with."""
    with tarfile.open(HUDI_TABLES / "mor_ordered.tar.gz") as archive:
        archive.extractall(path.parent, filter="data")
    (path.parent / "mor_ordered").rename(path)
    found = hoodoo.open(path)
    found.upsert(found.scan().to_arrow().slice(0, 1))


TABLES: dict[str, Callable[[Path], None]] = {
    made.__name__: made for made in (cow, mor, mor_compacted, cow_clustered, cow_change_log, mor_archived, adopted)
}


def plain(found: pa.Table) -> list[str]:
    """Rows as sorted text: what is compared."""
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found.to_pylist())


def facts(path: Path) -> dict[str, Any]:
    found = hoodoo.open(path)
    head = found.cursor.seq
    snapshots = {}
    for slot in range(1, head + 1):
        try:
            snapshots[str(slot)] = plain(found.scan(as_of=hoodoo.Cursor(found.cursor.table, slot)).to_arrow())
        except hoodoo.SnapshotExpired:
            continue
    since = min(map(int, snapshots))
    return {
        "head": head,
        "rows": plain(found.scan().to_arrow()),
        "snapshots": snapshots,
        "since": since,
        "changes": plain(found.changes(hoodoo.Cursor(found.cursor.table, since)).to_arrow()),
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in TABLES.items():
        with tempfile.TemporaryDirectory() as work:
            path = Path(work, name)
            make(path)
            copy = Path(work, "read", name)
            shutil.copytree(path, copy)
            (folder / f"{name}.json").write_text(json.dumps(facts(copy), indent=1))
            with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
                archive.add(path, name)
        print(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
