"""Tables that Apache Hudi writes by buckets are not written to: Hudi looks for a key in its bucket only, and
a write of ours and one of Hudi's left 38 rows of 28 keys.
"""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import golden_tables as golden
import pyarrow as pa
import pytest
from memory_store import MemoryStore

import hoodoo
from hoodoo.index.buckets import require_no_bucket_index
from hoodoo.timeline.layout import SLOTS
from hoodoo.writers.routing import route

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string())])
ROWS = [{"id": f"k{n}", "city": city} for n in range(4) for city in ("x", "y")]


def bucket_ids(end: str = "-0") -> Callable[[Callable[[], str]], str]:
    numbers = iter(range(10_000))
    return lambda token: f"{next(numbers) % 4:08d}{str(uuid.uuid4())[8:]}{end}"


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("end", ["-0", ""], ids=["upsert", "bulk insert"])
def test_a_table_of_buckets_is_read_but_not_adopted(
    tmp_path: Path, kind: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "generate_file_id", bucket_ids(end))
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", type=kind)
    made.upsert(ROWS)
    shutil.rmtree(tmp_path / "t" / ".hoodie" / ".hoodoo")
    table = hoodoo.open(tmp_path / "t")
    before = dict(table.handle.store.list(""))
    for write in (lambda: table.upsert(ROWS), lambda: table.delete(ROWS), table.compact):
        with pytest.raises(hoodoo.UnsupportedTable, match="bucket index .* hoodoo can only read it") as refused:
            write()
    assert pickle.loads(pickle.dumps(refused.value)).details["file_id"].startswith("0000000")
    assert dict(table.handle.store.list("")) == before and table.scan().count() == len(ROWS)


def test_a_table_of_ours_that_hudi_comes_to_write_by_buckets_is_refused_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", type="copy_on_write")
    table.upsert(ROWS)
    shutil.copytree(tmp_path / "t", tmp_path / "other")
    with monkeypatch.context() as inside:
        inside.setattr(route, "generate_file_id", bucket_ids())
        hoodoo.open(tmp_path / "other").insert([{"id": "new", "city": "x"}], bulk=True)
    for path in (tmp_path / "other").rglob("*"):
        to = tmp_path / "t" / path.relative_to(tmp_path / "other")
        if path.is_file() and ".hoodoo" not in path.parts and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    again = hoodoo.open(tmp_path / "t")
    slots = sorted(key for key, _ in again.handle.store.list(SLOTS))
    with pytest.raises(hoodoo.UnsupportedTable, match="bucket index"):
        again.upsert(ROWS)
    assert sorted(key for key, _ in again.handle.store.list(SLOTS)) == slots


def test_consistent_hashing_is_known_by_what_hudi_keeps_of_it(tmp_path: Path) -> None:
    path = golden.unpack("mor_ordered", tmp_path)
    kept = path / ".hoodie" / ".bucket_index" / "consistent_hashing_metadata" / "00000000000000.hashing_meta"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    table = hoodoo.open(path)
    with pytest.raises(hoodoo.UnsupportedTable, match="bucket index"):
        table.upsert(table.scan().to_arrow())


def test_a_uuid_of_digits_among_many_is_chance_and_numbers_above_any_bucket_are_uuids() -> None:
    ours = [f"{number:08x}-44b5-46af-9d80-8084676fc6ae-0" for number in range(0xA0000000, 0xA0000000 + 500)]
    bucket = "00000003-44b5-46af-9d80-8084676fc6ae-0"
    require_no_bucket_index(MemoryStore(), [])
    require_no_bucket_index(MemoryStore(), ["12345678-44b5-46af-9d80-8084676fc6ae-0"])
    require_no_bucket_index(MemoryStore(), [*ours, bucket])
    for ids in ([bucket], [*ours[:50], bucket]):
        with pytest.raises(hoodoo.UnsupportedTable):
            require_no_bucket_index(MemoryStore(), ids)


def test_a_new_file_group_is_never_taken_for_a_bucket() -> None:
    """A table of one file group was refused where its random id began with eight such digits: one in 430,000."""
    taken = "00001812-44b5-46af-9d80-8084676fc6ae"
    with pytest.raises(hoodoo.UnsupportedTable):
        require_no_bucket_index(MemoryStore(), [f"{taken}-0"])
    require_no_bucket_index(MemoryStore(), [route.generate_file_id(lambda: taken.replace("-", ""))])


@pytest.mark.parametrize("digits", ["00001812", "12345678", "99999999"])
def test_a_new_file_id_never_begins_with_eight_decimal_digits(digits: str) -> None:
    """Apache Hudi's writers with a bucket index parsed them as the number of a bucket: two of a hundred ids."""
    made = route.generate_file_id(lambda: digits + "44b546af9d808084676fc6ae")
    assert not made[:8].isdecimal() and made[1:] == f"{digits[1:]}-44b5-46af-9d80-8084676fc6ae-0"
    assert (
        route.generate_file_id(lambda: "1234567f44b546af9d808084676fc6ae") == "1234567f-44b5-46af-9d80-8084676fc6ae-0"
    )
