"""A table whose files somebody forged harms nobody outside it: nothing is read, deleted or written beyond its root, and
the error names the file.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slots import make_slot
from tiers import sized

import hoodoo
from hoodoo.errors import CorruptTable, HoodooError
from hoodoo.format.keys import compute_partition_paths, parse_partition_values
from hoodoo.table import Table
from hoodoo.timeline import layout
from hoodoo.timeline.slots.slot import BASE, DataFile, PlannedGroup, Slot, decode_commit_file, encode_commit_file

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
ESCAPES = [
    "/etc/passwd",
    "../x",
    "a/../../x",
    "s3://other/x",
    "..",
    ".",
    "",
    "a//b",
    "a/./b",
    "C:\\x",
    "..\\x",
    "a\0b",
    "file:///etc/passwd",
    "~/x/../..",
    "//host/share",
    ".hoodie/hoodie.properties",
    ".hoodie/.hoodoo/commits/00000000000000000001",
    "p/notes.txt",
    "p/.bashrc",
    "p/x.parquet",
    "../other/f-0_0-0-0_20260101000000000.parquet",
    "/abs/f-0_0-0-0_20260101000000000.parquet",
    ".hoodie/f-0_0-0-0_20260101000000000.parquet",
    "p/../f-0_0-0-0_20260101000000000.parquet",
]


def make(path: Path, **options: Any) -> Table:
    settings_ = {"compact_after_logs": None, "clean_every": None} | options
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="city", order_by="ts", type="copy_on_write", **settings_)
    for number in range(3):
        table.upsert(pa.table({"id": [1, 2], "city": ["p", "p"], "ts": [number, number]}, SCHEMA))
    return table


def hostile(rng: random.Random, good: Slot) -> Slot:
    path = rng.choice(ESCAPES)
    if rng.random() < 0.3:
        path = rng.choice(["../", "/", "x/../../", "s3://b/"]) + path
    file = good.files[0]
    return rng.choice(
        [
            lambda: replace(good, files=(replace(file, path=path),)),
            lambda: replace(good, files=(replace(file, index=path or "x"),)),
            lambda: replace(good, files=(replace(file, previous=path or "x"),)),
            lambda: replace(good, files=(replace(file, partition=path or "x"),)),
            lambda: replace(good, action="clean", files=(), victims=((path, "city=p"),), min_readable=1),
            lambda: replace(good, action="clean", files=(), swept=(path,), min_readable=1),
            lambda: replace(
                good,
                action="compaction",
                outcome="planned",
                files=(),
                plan=(PlannedGroup("city=p", "f", path or "x", ()),),
            ),
            lambda: replace(
                good, action="compaction", outcome="planned", files=(), plan=(PlannedGroup("city=p", "f", "", (path,)),)
            ),
            lambda: replace(good, published=path or "x"),
        ]
    )()


def test_five_thousand_slots_that_name_files_elsewhere_are_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    good = table.handle.history.slot(table.cursor.seq)
    rng = random.Random(7)
    for _ in range(5000):
        with pytest.raises(CorruptTable):
            decode_commit_file(encode_commit_file(hostile(rng, good)), "commits/5")


def test_a_forged_clean_deletes_nothing_outside_and_nothing_but_data_files(tmp_path: Path) -> None:
    """Even with a valid chain: the slot itself is refused, by name, before anything is done."""
    precious = tmp_path / "precious"
    precious.write_text("x")
    for number, victim in enumerate(
        ["../precious", "/" + str(precious).lstrip("/"), ".hoodie/hoodie.properties", "city=p/../../precious"]
    ):
        table = make(tmp_path / str(number))
        view = table.handle.history.head()
        slot = replace(
            table.handle.history.slot(view.seq),
            seq=view.seq + 1,
            prev=view.sha,
            action="clean",
            files=(),
            victims=((victim, "city=p"),),
            min_readable=2,
        )
        table.handle.store.put(layout.slot_key(slot.seq), encode_commit_file(slot))
        with pytest.raises(CorruptTable) as refused:
            hoodoo.open(tmp_path / str(number))
        assert "commits" in str(refused.value) or "in the table's metadata" in str(refused.value)
        assert precious.read_text() == "x" and (tmp_path / str(number) / layout.PROPERTIES).exists()


def links(root: Path, outside: Path, table: Table) -> list[tuple[Path, Path]]:
    """(link, target) of twenty places where a link could stand for a file or a folder of the table."""
    head = table.cursor.seq
    files = [root / key for key, _ in table.handle.store.list("") if key.endswith(".parquet")][:4]
    instants = [root / key for key, _ in table.handle.store.list(layout.TIMELINE)][:9]
    ours = [root / key for key, _ in table.handle.store.list(layout.OURS) if "/commits/" not in key][:8]
    slots = [root / layout.slot_key(head), root / layout.slot_key(head - 1), root / layout.slot_key(head + 1)]
    folders = [root / "city=p"]
    return [(link, outside / f"{number}") for number, link in enumerate([*files, *instants, *ours, *slots, *folders])]


@pytest.mark.parametrize("number", range(20))
def test_a_planted_symbolic_link_is_not_followed_by_anything_that_deletes_or_writes(
    tmp_path: Path, number: int
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    table = make(tmp_path / "t")
    link, target = links(tmp_path / "t", outside, table)[number]
    if link.is_dir():
        link.rename(target)
    else:
        if link.exists():
            link.rename(target)
        else:
            target.write_bytes(b"somebody's")
    link.symlink_to(target)
    before = {path: path.read_bytes() for path in sorted(outside.rglob("*")) if path.is_file()}
    for call in (
        lambda: hoodoo.open(tmp_path / "t").maintenance.clean(retain_hours=0, retain_commits=1),
        lambda: hoodoo.open(tmp_path / "t").maintenance.sweep(0),
        lambda: hoodoo.open(tmp_path / "t").insert_overwrite(pa.table({"id": [9], "city": ["p"], "ts": [9]}, SCHEMA)),
        lambda: hoodoo.open(tmp_path / "t").maintenance.clean(retain_hours=0, retain_commits=1),
        lambda: hoodoo.open(tmp_path / "t").maintenance.archive(older_than_hours=0, keep_instants=1),
    ):
        try:
            call()
        except HoodooError as refused:
            assert refused.code in ("CORRUPT_TABLE", "STORE_UNAVAILABLE", "TABLE_NOT_FOUND"), refused
    assert {path: path.read_bytes() for path in before if path.exists()} == before


def test_a_timeline_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "t")
    os.chmod(tmp_path / "t" / ".hoodie", 0o777)
    with pytest.raises(hoodoo.StoreRefused, match="chmod"):
        hoodoo.open(tmp_path / "t")
    os.chmod(tmp_path / "t" / ".hoodie", 0o775)
    assert hoodoo.open(tmp_path / "t").scan().count() == 2


def test_what_we_create_is_never_writable_by_everybody(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make(tmp_path / "t")
    finally:
        os.umask(before)
    assert not [path for path in (tmp_path / "t").rglob("*") if path.stat().st_mode & 0o002]


ODD = [
    "..",
    ".",
    "../../etc",
    "/etc",
    "%2e%2e",
    "%2F",
    "a/b",
    "a//b",
    "nul",
    "CON",
    "a\0b",
    "=",
    "city=x",
    "\\",
    "~",
    " ",
    "\n",
    "\x1b[31m",
    "\u202eabc",
    "e\u0301",
    "\u00e9",
    "😀",
]
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(ODD))


@pytest.mark.both
@settings(max_examples=sized(1_000, 10_000))
@given(TEXTS)
def test_a_partition_value_becomes_a_folder_below_the_root_and_back_or_is_refused(value: str) -> None:
    rows = pa.table({"id": [1], "city": [value]})
    try:
        path = compute_partition_paths(rows, ["city"]).dictionary[0].as_py()
    except HoodooError as refused:
        assert refused.code == "PARTITION_VALUE"
        return
    resolved = os.path.normpath(os.path.join("/the/table", path))
    assert resolved.startswith("/the/table/") and "\0" not in path and resolved == os.path.join("/the/table", path)
    assert not path.startswith(".hoodie")
    back = parse_partition_values(path, ["city"], pa.schema([("city", pa.string())]), True, True)["city"]
    assert back == (value or None)


def test_slots_that_were_planted_ahead_or_belong_to_another_table_are_errors_and_never_data(tmp_path: Path) -> None:
    table, other = make(tmp_path / "t"), make(tmp_path / "other")
    head = table.cursor.seq
    foreign = other.handle.store.get(layout.slot_key(head))
    table.handle.store.put(
        layout.slot_key(head + 1), encode_commit_file(replace(decode_commit_file(foreign, ""), seq=head + 1))
    )
    with pytest.raises(CorruptTable, match="does not follow"):
        hoodoo.open(tmp_path / "t")


def test_a_data_file_that_lies_elsewhere_than_its_partition_is_refused() -> None:
    file = DataFile("city=q/f-0_0-0-0_20260101000000000.parquet", "city=p", "f-0", BASE, 1, "", 1)
    slot = make_slot(files=(file,))
    with pytest.raises(CorruptTable, match="is not in its partition"):
        decode_commit_file(encode_commit_file(slot), "commits/1")
