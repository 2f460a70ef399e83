"""A file group with damage in it heals: every sound row stays, and what is lost is named and must be accepted."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiers import sized

import hoodoo
from hoodoo.compactor import table_salvage
from hoodoo.format.log import block as log_block
from hoodoo.timeline.layout import SALVAGED
from hoodoo.writers.batches import batch

SCHEMA = pa.schema([("id", pa.string()), ("s", pa.string()), ("n", pa.int64())])
BAD = b"caf\xe9"
Row = tuple[str, str | bytes, int]


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches go in as releases before this one took them: without a look at their values."""
    monkeypatch.setattr(batch, "validate_columns", lambda data, names, key: data.select(names))


def rows(*given: Row) -> pa.Table:
    texts = [text.encode() if isinstance(text, str) else text for _, text, _ in given]
    raw = pa.array(texts, pa.binary())
    text = pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2])
    return pa.table({"id": [one[0] for one in given], "s": text, "n": [one[2] for one in given]})


def make(path: Path, **options: Any) -> hoodoo.Table:
    quiet = {"compact_after_logs": None, "clean_every": None}
    return hoodoo.create(path / "t", SCHEMA, key="id", **quiet | options)


def seen(table: hoodoo.Table) -> dict[str, str]:
    found = table.scan().to_arrow()
    found.validate(full=True)
    return {row["id"]: row["s"] for row in found.to_pylist()}


def logs(table: hoodoo.Table) -> list[str]:
    return [log.file.path for group in table.handle.history.head().groups() for log in group.logs]


def flip(table: hoodoo.Table, path: str, at: int) -> None:
    """One bit of a file is not what was written."""
    file = Path(table.path) / path
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def damaged(path: Path, **options: Any) -> hoodoo.Table:
    """`a` has an unreadable version over a sound one; `b` and `c` have sound ones, before and in the same log."""
    table = make(path, **options)
    table.upsert(rows(("a", "a1", 1), ("b", "b1", 1), ("c", "c1", 1)))
    table.upsert(rows(("b", "b2", 2)))
    table.upsert(rows(("a", BAD, 2), ("c", "c2", 2)))
    with pytest.raises(hoodoo.CorruptTable, match=r"\.log\.1_\S+ cannot be read.*hoodoo salvage"):
        seen(table)
    return table


def test_a_loss_is_named_and_refused_until_it_is_accepted(tmp_path: Path) -> None:
    """Such a file group could be read, compacted and updated by nobody any more, for ever."""
    table = damaged(tmp_path)
    log = logs(table)[1]
    before, bytes_before = table.cursor, (Path(table.path) / log).read_bytes()
    found = table.maintenance.salvage(dry_run=True)
    assert [(place.file, place.block, place.row, place.rows) for place in found.places] == [(log, 0, 0, 1)]
    assert [(loss.key, loss.kept, loss.file) for loss in found.lost] == [("a", True, log)]
    with pytest.raises(hoodoo.OptionError, match="newest version of 1 rows .*'a'.*accept_loss") as caught:
        table.maintenance.salvage()
    assert caught.value.details == {"option": "accept_loss", "keys": ["a"], "lost": 1}
    assert table.cursor == before and not list(table.handle.store.list(SALVAGED))
    done = table.maintenance.salvage(accept_loss=True)
    assert done.instant and not done.dry_run and (done.groups, done.rows, done.lost) == (1, 3, found.lost)
    assert seen(table) == {"a": "a1", "b": "b2", "c": "c2"} and table.verify().ok
    assert (Path(table.path) / SALVAGED / log).read_bytes() == bytes_before and done.kept_aside == (SALVAGED + log,)
    assert table.maintenance.salvage().ok and table.cursor.seq == before.seq + 1, "a table without damage is left alone"


def test_rows_keep_their_commit_times(tmp_path: Path) -> None:
    table = damaged(tmp_path)
    since = table.cursor
    table.maintenance.salvage(accept_loss=True)
    assert table.incremental(since).count() == 0
    assert table.incremental("earliest").count() == 3


@pytest.mark.parametrize("cure", ["upsert", "delete"])
def test_a_row_of_a_damaged_group_can_be_replaced_and_deleted_and_is_no_loss_then(tmp_path: Path, cure: str) -> None:
    table = damaged(tmp_path)
    if cure == "upsert":
        assert table.upsert(rows(("a", "a3", 3), ("b", "b3", 3))).updated == 2
    else:
        assert table.delete(pa.table({"id": ["a", "b"]})).deleted == 2
    report = table.maintenance.salvage()
    assert report.lost == [] and report.instant
    assert seen(table) == ({"a": "a3", "b": "b3", "c": "c2"} if cure == "upsert" else {"c": "c2"})
    table.upsert(rows(("a", "a4", 4), ("d", "d4", 4)))
    table.compact()
    assert seen(table)["a"] == "a4" and table.verify().ok


def test_who_must_rewrite_a_damaged_group_is_told_what_to_run(tmp_path: Path) -> None:
    table = damaged(tmp_path)
    table.delete(pa.table({"id": ["a"]}))
    actions: list[Callable[[], Any]] = [
        lambda: table.upsert(rows(("a", "back", 9))),
        lambda: table.insert(rows(("new", "x", 1))),
        table.compact,
        lambda: table.get(["b"]),
    ]
    for action in actions:
        with pytest.raises(hoodoo.CorruptTable, match="Run `hoodoo salvage`"):
            action()
    copied = make(tmp_path / "c", type="copy_on_write")
    copied.upsert(rows(("a", "a1", 1)))
    [group] = copied.handle.history.head().groups()
    flip(copied, group.base.file.path, 100)
    with pytest.raises(hoodoo.CorruptTable, match="run `hoodoo salvage`"):
        copied.upsert(rows(("a", "a2", 1)))


def test_the_ordering_column_says_which_version_was_the_newest(tmp_path: Path) -> None:
    """A damaged row that would have lost anyway is no loss."""
    table = make(tmp_path, order_by="n")
    table.upsert(rows(("a", "a1", 5), ("b", "b1", 5)))
    table.upsert(rows(("a", BAD, 3), ("b", BAD, 7)))
    assert [(loss.key, loss.kept) for loss in table.maintenance.salvage(dry_run=True).lost] == [("b", True)]
    table.upsert(rows(("b", "b2", 6)))
    assert [loss.key for loss in table.maintenance.salvage(dry_run=True).lost] == ["b"], (
        "it has the largest value still"
    )
    table.upsert(rows(("b", "b3", 7)))
    assert table.maintenance.salvage().lost == []
    assert seen(table) == {"a": "a1", "b": "b3"}


@pytest.mark.parametrize("order_by", ["damaged", None])
def test_a_column_may_be_called_as_the_one_was_that_marks_damage(tmp_path: Path, order_by: str | None) -> None:
    """A table ordered by a column `damaged` could not be salvaged: it stood there twice."""
    schema = SCHEMA.set(2, pa.field("damaged", pa.int64()))
    quiet: dict[str, Any] = {"compact_after_logs": None, "clean_every": None, "order_by": order_by}
    table = hoodoo.create(tmp_path / "t", schema, key="id", **quiet)
    for given in ([("a", "a1", 5), ("b", "b1", 5)], [("a", "a2", 6), ("b", BAD, 7)]):
        table.upsert(rows(*given).rename_columns(schema.names))
    report = table.maintenance.salvage(accept_loss=True)
    assert [(loss.key, loss.kept) for loss in report.lost] == [("b", True)]
    assert seen(table) == {"a": "a2", "b": "b1"}


def test_an_open_compaction_plan_lets_a_damaged_group_go(tmp_path: Path) -> None:
    """Its plan could never be run, and a group under a plan takes logs only."""
    table = damaged(tmp_path)
    with pytest.raises(hoodoo.CorruptTable):
        table.compact()
    assert table.maintenance.lag().open_plans == 1
    table.maintenance.salvage(accept_loss=True)
    table.compact()
    table.upsert(rows(("d", "d1", 1)))
    assert table.maintenance.lag().open_plans == 0
    assert seen(table) == {"a": "a1", "b": "b2", "c": "c2", "d": "d1"} and table.verify().ok


def test_a_writer_that_comes_in_between_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = damaged(tmp_path)
    other, real = hoodoo.open(table.path), table_salvage._write_readable_rows

    def slower(*given: Any) -> Any:
        monkeypatch.setattr(table_salvage, "_write_readable_rows", real)
        other.upsert(rows(("a", "a3", 3), ("b", "b3", 3)))
        return real(*given)

    monkeypatch.setattr(table_salvage, "_write_readable_rows", slower)
    assert table.maintenance.salvage(accept_loss=True).lost == [], "what the writer brought is looked at anew"
    assert seen(table) == {"a": "a3", "b": "b3", "c": "c2"} and table.verify().ok


def test_a_log_whose_bytes_changed_is_not_trusted_and_its_deletes_are_named_too(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.upsert(rows(("a", "a1", 1), ("b", "b1", 1), ("c", "c1", 1)))
    table.upsert(rows(("a", "a2", 2)))
    table.delete(pa.table({"id": ["c"]}))
    for log in logs(table):
        flip(table, log, -14)
    assert [problem.code for problem in table.verify().problems] == ["DAMAGED_FILE", "DAMAGED_FILE"]
    lost = table.maintenance.salvage(accept_loss=True).lost
    assert [(loss.key, loss.kept) for loss in lost] == [("a", True), ("c", True)]
    assert seen(table) == {"a": "a1", "b": "b1", "c": "c1"} and table.verify().ok


def test_of_a_damaged_base_the_other_row_groups_stay_and_newer_logs_with_them(tmp_path: Path) -> None:
    table = make(tmp_path, row_group_rows=1000)
    count = 3000
    table.upsert(rows(*((f"k{n:05}", f"{n}", 1) for n in range(count))))
    table.upsert(rows(("k00000", "new", 2), ("k02999", "new", 2)))
    [group] = table.handle.history.head().groups()
    page = pq.read_metadata(Path(table.path) / group.base.file.path).row_group(0).column(6)
    flip(table, group.base.file.path, page.data_page_offset + page.total_compressed_size - 3)
    report = table.maintenance.salvage(dry_run=True)
    assert {(place.block, place.rows) for place in report.places} == {(0, 1000), (None, 0)}
    named = [loss.key for loss in report.lost if loss.key]
    assert sorted(named) == [f"k{n:05}" for n in range(1, 1000)] and len(report.lost) == 999
    table.maintenance.salvage(accept_loss=True)
    assert len(seen(table)) == 2001 and seen(table)["k00000"] == seen(table)["k02999"] == "new" and table.verify().ok


def test_a_base_that_is_gone_leaves_what_its_logs_hold(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.upsert(rows(("a", "a1", 1), ("b", "b1", 1)))
    table.upsert(rows(("a", "a2", 2)))
    [group] = table.handle.history.head().groups()
    (Path(table.path) / group.base.file.path).unlink()
    report = table.maintenance.salvage(accept_loss=True)
    assert [(loss.key, loss.rows) for loss in report.lost] == [(None, 2)] and report.kept_aside == ()
    assert seen(table) == {"a": "a2"}


def test_text_in_a_base_that_is_not_utf8_is_named_and_salvaged(tmp_path: Path) -> None:
    """A copy-on-write table gave it back as it was, and every reader that looked failed without a place."""
    table = make(tmp_path, type="copy_on_write")
    table.upsert(rows(("a", "a1", 1), ("b", BAD, 1), ("c", "c1", 1)))
    [problem] = table.verify().problems
    assert (problem.code, problem.text[:20]) == ("UNREADABLE", "row group 0, row 1: ")
    assert [(loss.key, loss.kept) for loss in table.maintenance.salvage(accept_loss=True).lost] == [("b", False)]
    assert seen(table) == {"a": "a1", "c": "c1"} and table.verify().ok


def test_groups_without_damage_stay_as_they_are(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("p", pa.string()))
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="p", compact_after_logs=None)
    for text in ("x", "y"):
        both = rows(("a", text, 1), ("b", text, 1)).append_column("p", pa.array(["p1", "p2"]))
        table.upsert(both)
    table.upsert(rows(("a", BAD, 2)).append_column("p", pa.array(["p1"])))
    [whole] = table.handle.history.head().groups(["p=p2"])
    table.maintenance.salvage(accept_loss=True)
    assert list(table.handle.history.head().groups(["p=p2"])) == [whole]
    assert seen(table) == {"a": "y", "b": "y"} and table.verify().ok


def test_verify_names_block_and_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that all was well of a log that nobody could read."""
    monkeypatch.setattr(log_block, "BLOCK_MAX", 1)
    table = make(tmp_path)
    names = [f"k{n}" for n in range(6)]
    table.upsert(rows(*((name, "x", 1) for name in names)))
    table.upsert(rows(*((name, BAD if name in ("k2", "k5") else "y", 2) for name in names)))
    [log] = logs(table)
    found = [(problem.code, problem.file, problem.text.partition(":")[0]) for problem in table.verify().problems]
    assert found == [("UNREADABLE", log, "block 2, row 0"), ("UNREADABLE", log, "block 5, row 0")]


def test_a_purge_is_not_proved_while_a_copy_kept_aside_holds_the_key(tmp_path: Path) -> None:
    table = damaged(tmp_path)
    [aside] = table.maintenance.salvage(accept_loss=True).kept_aside
    report = table.maintenance.purge(pa.table({"id": ["a"]}), older_than_hours=0)
    assert not report.files_proved and report.holders == (aside,)
    table.handle.store.delete(aside)
    assert table.maintenance.purge(pa.table({"id": ["a"]}), older_than_hours=0).files_proved


@pytest.mark.parametrize("order_by", [None, "n", ("id", "n")], ids=["None", "n", "id, n"])
@pytest.mark.parametrize("seed", range(4))
def test_any_damage_leaves_each_key_with_its_newest_sound_version(
    tmp_path: Path, seed: int, order_by: str | tuple[str, ...] | None
) -> None:
    rng = random.Random(seed)
    table = make(tmp_path, order_by=order_by)
    names = [f"k{n}" for n in range(8)]
    table.upsert(rows(*((name, "0", 0) for name in names)))
    versions: dict[str, list[tuple[int, int, str | None]]] = {name: [(0, 0, "0")] for name in names}
    for step in range(1, 7):
        given = [
            (name, BAD if rng.random() < 0.3 else str(step), rng.randrange(9))
            for name in rng.sample(names, rng.randrange(1, 6))
        ]
        table.upsert(rows(*given))
        for name, text, value in given:
            rank = value if order_by else step
            versions[name].append((rank, step, None if isinstance(text, bytes) else text))
    want = {name: max(one for one in all_ if one[2] is not None)[2] for name, all_ in versions.items()}
    lost = sorted(name for name, all_ in versions.items() if max(all_, key=lambda one: one[:2])[2] is None)
    report = table.maintenance.salvage(accept_loss=True)
    assert sorted(loss.key or "" for loss in report.lost) == lost
    assert seen(table) == want and table.verify().ok


# ---- footers, which no checksum of Parquet covers
def footer_at(data: bytes) -> int:
    """Where the footer of a Parquet file begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def lost_rows(report: table_salvage.SalvageReport) -> int:
    return sum(1 if loss.key is not None else loss.rows for loss in report.lost)


@pytest.mark.both
def test_no_flipped_bit_of_a_footer_changes_an_answer_or_loses_a_row_unsaid(tmp_path: Path) -> None:
    """A bit of a column's name made that column null in every row, one of a row count made rows vanish; scans said
    nothing, and salvage made it final with nothing named as lost.
    """
    table = make(tmp_path, row_group_rows=1024)
    given = rows(*((f"k{number:04}", f"text {number}", number) for number in range(1500)))
    table.upsert(given)
    file = next((tmp_path / "t").glob("*.parquet"))
    whole = file.read_bytes()
    begin = footer_at(whole)
    rng, wanted = random.Random(7), sorted(table.scan().to_arrow().to_pylist(), key=repr)
    names = [
        at for name in (b"\x01s", b"\x01n", b"\x02id", b"_hoodie_record_key") if (at := whole.find(name, begin)) > 0
    ]
    places = [at + 1 for at in names] + [rng.randrange(begin, len(whole) - 8) for _ in range(sized(150, 3000))]
    for at in places:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        fresh = hoodoo.open(table.path)
        try:
            assert sorted(fresh.scan().to_arrow().to_pylist(), key=repr) == wanted
        except hoodoo.CorruptTable:
            report = fresh.maintenance.salvage(dry_run=True)
            assert report.rows + lost_rows(report) == 1500, at
    file.write_bytes(whole)


def test_the_refusal_counts_rows_whose_keys_nobody_can_read(tmp_path: Path) -> None:
    """A file group of which nothing could be read was said to lose "1 keys"."""
    table = make(tmp_path)
    table.upsert(rows(*((f"k{number}", "x", number) for number in range(276))))
    file = next((tmp_path / "t").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(hoodoo.OptionError, match="276 rows .*whose keys cannot be read.*restore"):
        hoodoo.open(table.path).maintenance.salvage()


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_rows_of_a_damaged_base_come_from_the_slice_before_it(tmp_path: Path, kind: str) -> None:
    """A compacted base was cut short, and every row of it called lost, while the slice that it was made of lay beside
    it. Of a rewrite by a writer the slice before may be older: then each key is named, and kept. A key that the rewrite
    deleted does not come back.
    """
    table = make(tmp_path, type=kind)
    table.upsert(rows(*((f"k{number}", "old", number) for number in range(5))))
    table.upsert(rows(("k1", "new", 1)))
    table.delete([{"id": "k0"}])
    table.compact()
    table.upsert(rows(("k2", "newest", 2)))
    base = next(group.base.file.path for group in table.handle.history.head().groups() if group.base)
    Path(table.path, base).write_bytes(b"PAR1")
    report = hoodoo.open(table.path).maintenance.salvage(dry_run=True)
    if kind == "merge_on_read":
        assert report.lost == []
        wanted = {"k1": "new", "k2": "newest"}
    else:
        assert sorted((loss.key, loss.kept) for loss in report.lost) == [(f"k{number}", True) for number in range(1, 5)]
        wanted = {"k1": "new", "k2": "old"}
    assert hoodoo.open(table.path).maintenance.salvage(accept_loss=True).rows == 4
    assert seen(hoodoo.open(table.path)) == {"k3": "old", "k4": "old"} | wanted
    assert {problem.file for problem in hoodoo.open(table.path).verify().problems} == {base}  # older snapshots need it


@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_a_lost_index_entry_is_made_anew(tmp_path: Path, how: str) -> None:
    """Upserts and look-ups of the file group ended for good, and nothing could repair it, though the entry follows from
    the base file beside it.
    """
    table = make(tmp_path)
    table.upsert(rows(("a", "x", 1), ("b", "y", 2)))
    table.upsert(rows(("a", "z", 3)))
    entry = next(group.base.file.index for group in table.handle.history.head().groups() if group.base)
    flip(table, entry, -1)
    if how == "deleted":
        Path(table.path, entry).unlink()
    with pytest.raises(hoodoo.CorruptTable, match="hoodoo salvage"):
        hoodoo.open(table.path).upsert(rows(("b", "!", 4)))
    report = hoodoo.open(table.path).maintenance.salvage()
    assert (report.rows, report.lost, [place.file for place in report.places]) == (2, [], [entry])
    hoodoo.open(table.path).upsert(rows(("b", "!", 4)))
    assert seen(hoodoo.open(table.path)) == {"a": "z", "b": "!"}


def test_a_compacted_slice_that_is_damaged_itself_is_no_proof_that_nothing_is_lost(tmp_path: Path) -> None:
    """Its older row was taken for the newest one, and nothing was named as lost."""
    table = make(tmp_path)
    table.upsert(rows(("a", "old", 1), ("b", "old", 1)))
    table.upsert(rows(("a", "new", 2)))
    [log] = logs(table)
    table.compact()
    flip(table, log, -1)
    base = next(group.base.file.path for group in table.handle.history.head().groups() if group.base)
    Path(table.path, base).write_bytes(b"PAR1")
    lost = hoodoo.open(table.path).maintenance.salvage(dry_run=True).lost
    assert {("a", True)} <= {(loss.key, loss.kept) for loss in lost}
    with pytest.raises(hoodoo.OptionError, match="accept_loss"):
        hoodoo.open(table.path).maintenance.salvage()
