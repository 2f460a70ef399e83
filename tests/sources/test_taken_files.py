"""Each file of a folder is read once, whatever its times say, whatever happens to files, and wherever batches end."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import seaweed
from tiers import sized

from hoodoo.errors import SourceLost
from hoodoo.sources import Files, Limits, Planned
from hoodoo.sources import files as files_module
from hoodoo.sources.folders import ListedFile
from hoodoo.sources.taken_files import PartiallyReadFile, ReadFile, ReadFiles
from hoodoo.storage.s3 import S3Store

COLUMNS = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("seed", range(20))
def test_every_file_is_read_once_whatever_clocks_moves_links_and_permissions_do(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions rested on change times: chmod read a file again, and a folder that was moved in was never read."""
    rng = random.Random(seed)
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    clock_ms, written, read, position, links = 0, 0, Counter[int](), "", set[Path]()
    monkeypatch.setattr(files_module, "_now_ms", lambda: time.time_ns() // 1_000_000 + clock_ms)

    def write(where: Path) -> Path:
        nonlocal written
        lines = rng.randint(1, 4)
        where.mkdir(exist_ok=True)
        path = where / f"{written}.jsonl"
        path.write_text("".join(f'{{"id": {written + line}}}\n' for line in range(lines)))
        written += lines
        if rng.random() < 0.5:
            moment = time.time() + rng.choice([-1e8, -1e5, -1, 1, 1e5])
            os.utime(path, (moment, moment))
        return path

    def there() -> list[Path]:
        return sorted(path for path in folder.rglob("*.jsonl") if path not in links)

    for step in range(30):
        clock_ms = rng.choice([clock_ms, clock_ms, 0, 10**8, -(10**8)])
        what = rng.choice(["write", "write", "move", "move folder", "link", "chmod", "touch"])
        if what == "write":
            write(folder)
        elif what == "move":
            path = write(outside)
            path.rename(folder / path.name)
        elif what == "move folder":
            write(outside / "day")
            (outside / "day").rename(folder / f"day{step}")
        elif what == "link":
            path = write(outside)
            links.add(folder / f"link{path.name}")
            (folder / f"link{path.name}").symlink_to(path)
        elif there():
            path = rng.choice(there())
            path.chmod(0o600) if what == "chmod" else os.utime(path)
        source = Files(folder, settle_seconds=0, grace_seconds=rng.choice([0, 1e6]))
        for _ in range(rng.randint(0, 2)):
            if planned := source.plan(position, Limits(rng.choice([1, 3, 1000]), rng.choice([1, 40, 10_000]))):
                for part in source.read(planned, COLUMNS, False):
                    if part.rows.num_columns:
                        read.update(part.rows["id"].to_pylist())
                position = part.position or planned.position
    source = Files(folder, settle_seconds=0)
    while planned := source.plan(position, Limits()):
        for part in source.read(planned, COLUMNS, False):
            if part.rows.num_columns:
                read.update(part.rows["id"].to_pylist())
        position = part.position or planned.position
    assert read == dict.fromkeys(range(written), 1)
    assert source.lag(position).waiting == 0


@pytest.mark.both
@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("seed", range(sized(2, 40)))
def test_every_object_of_a_bucket_is_read_once_and_again_if_it_was_overwritten(seed: int, s3: dict[str, Any]) -> None:
    rng, place = random.Random(seed), f"{seaweed.place()}/in"
    store = S3Store(place, s3)
    stored, last, expected, read = dict[str, int](), dict[str, int](), Counter[int](), Counter[int]()
    written, position = 0, ""

    def put(key: str, number: int) -> None:
        store.put(key, b'{"id": %d}\n' % number)
        stored[key] = number

    def consume(planned: Planned) -> str:
        reached = planned.position
        for part in source.read(planned, COLUMNS, False):
            if part.rows.num_columns:
                read.update(part.rows["id"].to_pylist())
            reached = part.position or reached
        return reached

    for _ in range(15):
        what = rng.choice(["new", "new", "below", "same", "copy", "overwrite", "delete"])
        key = rng.choice(sorted(stored)) if stored else ""
        if not key or what in ("new", "below", "overwrite"):
            put(key if key and what == "overwrite" else f"{'day/' * (what == 'below')}{written}.jsonl", written)
            written += 1
        elif what == "delete":
            store.delete(key)
            del stored[key]
        else:
            put(key if what == "same" else f"copy{written}-{rng.random()}.jsonl", stored[key])
        if rng.random() < 0.5:
            source = Files(place, settle_seconds=0, grace_seconds=rng.choice([0, 1e6]), on_change="again", storage=s3)
            expected.update(number for key, number in stored.items() if last.get(key) != number)
            last |= stored
            while planned := source.plan(position, Limits(rng.choice([1, 1000]), rng.choice([1, 30, 10_000]))):
                position = consume(planned)
    assert read == expected and read


def listed(name: str, time_ms: int, stamp: str = "1", changed_ms: int = 0) -> ListedFile:
    return ListedFile(time_ms, name, 1, stamp, changed_ms or time_ms)


def test_a_file_that_left_the_folder_is_forgotten_after_the_grace_and_not_before() -> None:
    taken = ReadFiles("/in").mark_as_read([listed("a", 1), listed("b", 1)])
    there = [listed("b", 1)]
    gone = taken.remove_departed_files(there, [], 1_000, 500)
    assert gone.seen["a"].gone_ms == 1_000 and gone.new([listed("a", 1)]) == []
    assert "a" in gone.remove_departed_files(there, [], 1_500, 500).seen
    assert set(gone.remove_departed_files(there, [], 1_501, 500).seen) == {"b"}
    assert gone.remove_departed_files([*there, listed("a", 1)], [], 9_999, 500).seen["a"].gone_ms == 0


def test_files_below_a_folder_that_cannot_be_read_count_as_there() -> None:
    taken = ReadFiles("/in").mark_as_read([listed("day/a", 1)])
    assert (
        taken.remove_departed_files([], ["day/"], 1_000, 0).remove_departed_files([], ["day/"], 9_000, 0).seen
        == taken.seen
    )


def test_a_position_of_an_earlier_version_counts_older_files_as_read() -> None:
    old = '{"source":"files","upto":17000,"seen":{"young":[18000,"s"]}}'
    taken = ReadFiles.parse(old, "/in")
    files = [listed("old", 16_000), listed("moved", 16_000, changed_ms=19_000), listed("young", 18_000, "s")]
    assert [file.name for file in taken.new(files)] == ["moved"] and taken.to_hudi() == "16999"
    after = taken.remove_departed_files(files, [], 20_000, 0)
    assert set(after.seen) == {"old", "young"} and ReadFiles.parse(after.text(), "/in") == after


@pytest.mark.parametrize(
    "position",
    [
        "{}",
        "null",
        "[]",
        "7",
        "shop.orders,0:17",
        '{"source":"kafka","upto":1,"seen":{}}',
        '{"source":"files","upto":-1,"seen":{}}',
        '{"source":"files","upto":"x","seen":{}}',
        '{"source":"files","upto":1,"seen":["a"]}',
        '{"source":"files","upto":1,"seen":{"a":[1]}}',
        '{"source":"files","upto":1}',
        '{"source":"files","folder":"/in","hudi":0,"seen":{"a":["s"]}}',
        '{"source":"files","folder":"/in","hudi":0}',
    ],
)
def test_a_position_of_another_source_is_refused_and_never_means_the_beginning(position: str) -> None:
    with pytest.raises(SourceLost, match="another source"):
        ReadFiles.parse(position)


def test_a_position_of_another_folder_is_refused_and_says_what_to_do() -> None:
    position = ReadFiles("/in").text()
    with pytest.raises(
        SourceLost, match=r"expected '/out', got '/in'\. To read all its files, give the job another name"
    ):
        ReadFiles.parse(position, "/out")


def test_a_position_is_read_back_as_it_was_written() -> None:
    seen = {'"ü\n': ReadFile("1-2", "d"), "b": ReadFile("", "", 5)}
    taken = ReadFiles("/in", seen, PartiallyReadFile("c", "s", 7, 2), hudi_ms=3)
    assert ReadFiles.parse(taken.text()) == taken
    assert ReadFiles.parse("") == ReadFiles()
