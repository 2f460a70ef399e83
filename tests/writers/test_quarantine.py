"""Bad rows go once to the table beside, however often and in whatever order they come; the good ones are written."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import seaweed
import xxhash

import hoodoo
from hoodoo.readers.predicate import checks
from hoodoo.storage.s3 import S3Store
from hoodoo.table.quarantine import Replayed
from hoodoo.table.quarantine import replay as replaying
from hoodoo.writers import sources
from hoodoo.writers.batches import bad_rows
from hoodoo.writers.batches.bad_rows import deserialize_row, serialize_row
from hoodoo.writers.batches.batch import prepare_batch

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        pa.field("n", pa.int32(), nullable=False),
        ("ts", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us")),
    ]
)
LOOSE = pa.schema([*(SCHEMA.field(name) for name in ("id", "city")), ("n", pa.int64()), *list(SCHEMA)[3:]])
"""What comes in: wider numbers than the table's, any of them null."""
CHECKS = {"small": "n < 1000"}
GOOD = {"id": "a", "city": "x", "n": 1, "ts": 1.0, "tags": ["t"], "at": 0}
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a value that does not fit": ({"n": 1 << 40}, "cast", "'n'"),
    "a time that nobody can show": ({"at": 1 << 62}, "unsound", "'at'"),
    "a null to be ordered by": ({"ts": None}, "null_order", "'ts'"),
    "a NaN to be ordered by": ({"ts": math.nan}, "null_order", "'ts'"),
    "a null in a required column": ({"n": None}, "null_column", "'n'"),
    "a null key": ({"id": None}, "null_key", "'id'"),
    "an empty key": ({"id": ""}, "bad_key", "'id'"),
    "a key too long": ({"id": "k" * (65 << 10)}, "bad_key", "'id'"),
    "a partition that is refused": ({"city": "__HIVE_DEFAULT_PARTITION__"}, "bad_partition", "'city'"),
    "a check that fails": ({"n": 5000}, "check", "'small'"),
}


def rows(*found: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**GOOD, **one} for one in found], LOOSE)


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", checks=CHECKS)


def told(table: hoodoo.Table, state: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.quarantine().rows(state).to_pylist()
    return found


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_is_kept_with_its_reason_and_bytes_and_the_others_are_written(table: hoodoo.Table, kind: str) -> None:
    change, reason, named = BAD[kind]
    given = rows({"id": "g"}, change, {"id": "h"})
    with pytest.raises(hoodoo.DataError) as refused:
        table.upsert(given)
    with pytest.raises(hoodoo.TableNotFound, match="no quarantine yet"):
        table.quarantine().table.count()  # type: ignore[attr-defined]
    result = table.upsert(given, on_bad_rows="quarantine")
    assert (result.inserted, result.quarantined) == (2, 1)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["g", "h"]
    [kept] = told(table)
    assert (kept["source"], kept["reason"], kept["state"], kept["resolved_at"]) == ("t", reason, "new", None)
    assert named in kept["detail"] and "row 0" not in kept["detail"]
    assert (
        refused.value.message.replace(", row 1", "").replace(" in row 1", "").replace("Row 1", "Row")
        == (kept["detail"])
    ), "what the write would have said"
    assert (
        deserialize_row(kept["payload"]).select(LOOSE.names).cast(LOOSE).equals(given.slice(1, 1))
        or "NaN" in kept["detail"]
    )
    assert (
        not kept["payload_cut"] and abs(kept["at"].timestamp() * 1000 - table.handle.environment.now_ms()) < 3_600_000
    )
    assert table.quarantine().table.verify().ok and table.verify().ok


WRITES: dict[str, Callable[..., Any]] = {
    "insert": lambda t, data, **how: t.insert(data, **how),
    "bulk_insert": lambda t, data, **how: t.insert(data, **how, bulk=True),
    "insert_overwrite": lambda t, data, **how: t.insert_overwrite(data, **how),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_sets_bad_rows_aside(table: hoodoo.Table, write: str) -> None:
    result = WRITES[write](table, rows({"id": "g"}, {"id": None}), on_bad_rows="quarantine")
    assert (result.inserted, result.quarantined, table.scan().count()) == (1, 1, 1)


def test_a_retry_in_any_order_and_layout_keeps_each_row_once(table: hoodoo.Table) -> None:
    """Position is the row's bytes and its number among equal rows: chunks, slices, dictionaries, order do not count."""
    bad = [{"id": None, "n": 1}, {"id": None, "n": 1}, {"id": None, "n": 2}, {"n": 1 << 40}]
    given = rows({"id": "g"}, *bad)
    table.upsert(given, on_bad_rows="quarantine")
    first = {one["position"] for one in told(table)}
    assert len(first) == 4 and sorted(position[-2:] for position in first) == [":0", ":0", ":0", ":1"]
    shuffled = given.take([4, 2, 0, 3, 1])
    ways = [
        shuffled,
        pa.concat_tables([shuffled.slice(2), shuffled.slice(0, 2)]),
        shuffled.set_column(1, "city", shuffled["city"].dictionary_encode()),
        shuffled.select([*reversed(shuffled.schema.names)]),
        shuffled.replace_schema_metadata({"made": "elsewhere"}),
        pa.concat_tables([rows({"id": "z"}), shuffled]).slice(1),
    ]
    for way in ways:
        hoodoo.open(table.path).upsert(way, on_bad_rows="quarantine")
        assert {one["position"] for one in told(table)} == first
    table.upsert(rows(bad[0], bad[0], bad[0]), on_bad_rows="quarantine")
    assert len(told(table)) == 5, "a third equal row is another row"


def test_bytes_of_a_row_do_not_depend_on_how_arrow_holds_it() -> None:
    values = {"a": ["x" * 40, None], "b": [[{"k": "v", "m": None}], None]}
    plain = pa.table({"a": pa.array(values["a"]), "b": pa.array(values["b"])})
    views = plain.set_column(0, "a", pa.array(values["a"], pa.string_view()))
    ends = plain.set_column(0, "a", pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(values["a"])))
    hidden = pa.StringArray.from_buffers(2, pa.array([0, 40, 44], pa.int32()).buffers()[1], pa.py_buffer(b"x" * 44))
    below = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), *hidden.buffers()[1:]])
    for other in (views, ends, plain.set_column(0, "a", below), pa.concat_tables([plain, plain]).slice(2)):
        assert [serialize_row(other, row) for row in (0, 1)] == [serialize_row(plain, row) for row in (0, 1)]


def test_a_position_does_not_change_with_releases() -> None:
    """It is the key of rows in tables that are there: other bytes would keep each row a second time."""
    table = pa.table({"id": pa.array([None], pa.string()), "n": pa.array([1], pa.int64())})
    assert xxhash.xxh3_128_hexdigest(serialize_row(table, 0)) == "5d2479dc8a722a288c3f4e7b0355cb0b"


def test_an_application_is_the_source_of_its_rows(table: hoodoo.Table) -> None:
    for version in (1, 2):
        table.upsert(rows({"id": None}), transaction=("job", version), on_bad_rows="quarantine")
    table.upsert(rows({"id": None}), on_bad_rows="quarantine")
    found = {(one["source"], one["application"], one["number"]) for one in told(table)}
    assert found == {("job", "job", 1), ("job", "job", 2), ("t", "", None)}
    for name in ("__null__", "a,position:b,source:"):  # the key of the quarantine refuses such values
        assert table.upsert(rows({"id": None}), transaction=(name, 1), on_bad_rows="quarantine").quarantined == 1
    assert table.quarantine().count() == 5


def test_too_many_bad_rows_commit_nothing_and_the_first_hundred_are_there(table: hoodoo.Table) -> None:
    before = table.cursor
    with pytest.raises(hoodoo.TooManyBadRows) as stopped:
        table.upsert(
            rows(*[{"id": f"g{n}"} for n in range(300)], *[{"n": 2000 + n} for n in range(200)]),
            on_bad_rows=hoodoo.BadRowLimits(rows=150, share=1.0),
        )
    assert stopped.value.details["quarantine"] == table.quarantine().path == table.path + "__quarantine"
    assert stopped.value.code == "TOO_MANY_BAD_ROWS" and "check" in stopped.value.message
    assert table.cursor == before and table.quarantine().count() == 100
    kept = [deserialize_row(one["payload"])["n"][0].as_py() for one in told(table)]
    assert sorted(kept) == list(range(2000, 2100))


def test_where_none_may_be_bad_the_first_hundred_are_kept_all_the_same(table: hoodoo.Table) -> None:
    with pytest.raises(hoodoo.TooManyBadRows):
        table.upsert(rows({"id": "g"}, *[{"n": 2000 + n} for n in range(120)]), on_bad_rows=hoodoo.BadRowLimits(rows=0))
    assert table.quarantine().count() == 100 and not table.scan().count()


@pytest.mark.parametrize(("good", "bad", "fits"), [(98, 1, True), (99, 1, True), (98, 2, False), (10, 9, True)])
def test_the_share_counts_from_a_hundred_rows_on(table: hoodoo.Table, good: int, bad: int, fits: bool) -> None:
    given = rows(*[{"id": f"g{n}"} for n in range(good)], *[{"id": None, "n": n} for n in range(bad)])
    if fits:
        assert table.upsert(given, on_bad_rows="quarantine").inserted == good
    else:
        with pytest.raises(hoodoo.TooManyBadRows):
            table.upsert(given, on_bad_rows="quarantine")
        assert not table.scan().count()


def test_what_is_no_row_s_fault_is_refused_as_ever(table: hoodoo.Table) -> None:
    for given in (
        rows({}).drop_columns(["n"]),
        rows({}).append_column("more", pa.array([1])),
        rows({}).set_column(2, "n", pa.array(["text"])),
    ):
        with pytest.raises(hoodoo.ColumnError):
            table.upsert(given, on_bad_rows="quarantine")
    assert not table.quarantine().count(None)
    with pytest.raises(hoodoo.DuplicateKeys):
        table.upsert(rows({}, {}, {"id": None}), duplicates="fail", on_bad_rows="quarantine")
    for wrong in ({"on_bad_rows": "drop"}, {"on_bad_rows": 5}):
        with pytest.raises(hoodoo.OptionError):
            table.upsert(rows({}), **wrong)


def test_a_payload_of_more_than_a_mebibyte_is_cut(table: hoodoo.Table) -> None:
    table.upsert(rows({"id": None, "tags": ["x" * (2 << 20)]}), on_bad_rows="quarantine")
    [kept] = told(table)
    assert kept["payload_cut"] and len(kept["payload"]) == 64 << 10
    assert table.quarantine().replay() == Replayed(cut=1)
    with pytest.raises(hoodoo.OptionError, match="beginning"):
        table.quarantine().original(kept["position"])


def test_rows_are_kept_before_the_good_ones_are_committed(table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies in between left bad rows that nobody would find again, had it been the other way."""
    monkeypatch.setattr(sources, "find_files_by_key", lambda *given, **named: (_ for _ in ()).throw(KeyboardInterrupt))
    given = rows({"id": "g"}, {"id": None})
    with pytest.raises(KeyboardInterrupt):
        table.upsert(given, on_bad_rows="quarantine")
    monkeypatch.undo()
    assert not table.scan().count()
    table.upsert(given, on_bad_rows="quarantine")
    assert (table.scan().count(), table.quarantine().count()) == (1, 1)


def test_a_row_that_fails_a_check_set_meanwhile_is_set_aside_too(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, locate = hoodoo.open(table.path), sources.find_files_by_key

    def located(context: Any, *arguments: Any, **named: Any) -> Any:
        if other.checks == CHECKS:
            other.set_checks({"tiny": "n < 10"})
        return locate(context, *arguments, **named)

    monkeypatch.setattr(sources, "find_files_by_key", located)
    result = table.upsert(rows({"id": "g"}, {"id": "b", "n": 50}), on_bad_rows="quarantine")
    assert (result.inserted, result.quarantined) == (1, 1)
    assert "'tiny'" in told(table)[0]["detail"]


def test_a_check_that_was_given_up_sets_no_row_aside_by_a_handle_that_knew_it(table: hoodoo.Table) -> None:
    hoodoo.open(table.path).set_checks({})
    assert table.upsert(rows({"n": 5000}), on_bad_rows="quarantine").quarantined == 0


# ---------------------------------------------------------------- trying again, giving up, purging


def test_replay_writes_what_fits_by_now_and_says_what_does_not(table: hoodoo.Table) -> None:
    table.upsert(rows({"id": "b", "n": 5000, "ts": 5.0}, {"id": None}), on_bad_rows="quarantine")
    aside = table.quarantine()
    assert aside.replay().bad == 2
    table.set_checks({})
    table.upsert(rows({"id": "c"}))
    done = aside.replay()
    assert (done.replayed, done.bad, done.cut) == (1, 1, 0) and "'id'" in done.details[0]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["b", "c"]
    assert {one["state"]: one["resolved_at"] is None for one in told(table)} == {"replayed": False, "new": True}
    table.upsert(rows({"id": "b", "n": 5000, "ts": 5.0}), on_bad_rows="quarantine")
    assert aside.replay().replayed == 0 and aside.count() == 1
    table.set_checks(CHECKS)
    table.upsert(rows({"id": "b", "n": 5000, "ts": 5.0}), on_bad_rows="quarantine")
    assert aside.count("replayed") == 1, "a retry does not make it new again"


def test_an_older_row_from_the_quarantine_loses_by_the_ordering_column(table: hoodoo.Table) -> None:
    table.upsert(rows({"id": "b", "n": 5000, "ts": 1.0}), on_bad_rows="quarantine")
    table.set_checks({})
    table.upsert(rows({"id": "b", "n": 7, "ts": 2.0}))
    assert table.quarantine().replay().replayed == 1
    assert table.scan().to_arrow()["n"].to_pylist() == [7]


def test_without_order_by_a_replay_over_a_key_that_exists_needs_overwrite(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", checks=CHECKS)
    table.upsert(rows({"id": "b", "n": 5000}, {"id": "c", "n": 6000}), on_bad_rows="quarantine")
    table.set_checks({})
    table.upsert(rows({"id": "b", "n": 7}))
    aside = table.quarantine()
    with pytest.raises(hoodoo.OptionError, match="overwrite=True"):
        aside.replay()
    assert (table.scan().count(), aside.count()) == (1, 2), "nothing was written"
    [theirs] = [one["position"] for one in told(table) if aside.original(one["position"])["id"][0].as_py() == "b"]
    assert aside.drop(theirs) == 1 and aside.drop([theirs]) == 0
    assert aside.replay().replayed == 1, "the key is not there: nothing to lose"
    assert {one["id"]: one["n"] for one in table.scan().to_arrow().to_pylist()} == {"b": 7, "c": 6000}
    table.set_checks({"n": "n > 0"})
    table.upsert(rows({"id": "b", "n": -1}), on_bad_rows="quarantine")
    table.set_checks({})
    assert aside.replay(overwrite=True).replayed == 1
    assert {one["id"]: one["n"] for one in table.scan().to_arrow().to_pylist()} == {"b": -1, "c": 6000}


def test_a_quarantine_without_rows_is_empty_and_its_repr_says_whose_it_is(table: hoodoo.Table) -> None:
    aside = table.quarantine()
    assert aside.count() == 0 and not len(aside.rows()) and aside.drop("x") == 0 and repr(aside).endswith("/t>")
    assert aside.replay() == Replayed()
    with pytest.raises(hoodoo.OptionError, match="position|Position"):
        aside.original("nowhere")


def test_a_payload_that_is_no_row_is_named_and_stands_in_no_other_s_way(table: hoodoo.Table) -> None:
    """Anybody may write into an ordinary table."""
    table.upsert(rows({"id": "b", "n": 5000}), on_bad_rows="quarantine")
    aside = table.quarantine()
    strange = (
        aside.rows()
        .set_column(1, "position", pa.array(["x"]))
        .set_column(4, "payload", pa.array([b"\xff\xff\xff\xff?"]))
    )
    aside.table.upsert(strange)
    table.set_checks({})
    done = aside.replay()
    assert (done.replayed, done.bad) == (1, 1) and "cannot be decoded" in done.details[0]
    assert table.maintenance.purge(rows({"id": "z"}).select(["id", "city"])).quarantine_unread == 1


def test_a_purge_takes_rows_of_the_quarantine_along(table: hoodoo.Table) -> None:
    table.upsert(
        rows({"id": "secret"}, {"id": "secret", "n": 1 << 40}, {"id": "other", "n": 5000}, {"id": None}),
        on_bad_rows="quarantine",
    )
    aside = table.quarantine()
    report = table.maintenance.purge(rows({"id": "secret"}).select(["id", "city"]))
    assert report.files_proved and (report.rows_deleted, report.quarantined, report.quarantine_unread) == (1, 1, 0)
    assert aside.count() == 2 and report.bounds_in_slots
    store = aside.table.handle.store
    for place in (store, table.handle.store):
        assert not [key for key, _ in place.list("") if b"secret" in place.get(key) and "/commits/" not in key]


def test_a_blocked_purge_leaves_the_quarantine_and_hudis_metadata_table(table: hoodoo.Table) -> None:
    """Both were purged before the purge looked for savepoints, leases and consumers."""
    table.upsert(rows({"id": "secret", "n": 1 << 40}, {"id": "kept"}), on_bad_rows="quarantine")
    table.upsert(rows({"id": "secret", "n": 1}))
    table.savepoints.create("eod")
    metadata = Path(table.path, ".hoodie", "metadata", "x")
    metadata.parent.mkdir()
    metadata.touch()
    with pytest.raises(hoodoo.PurgeBlocked, match="eod"):
        table.maintenance.purge(rows({"id": "secret"}).select(["id", "city"]))
    assert table.quarantine().count() == 1 and metadata.exists()
    table.savepoints.delete("eod")
    assert table.maintenance.purge(rows({"id": "secret"}).select(["id", "city"])).quarantined == 1
    assert table.quarantine().count() == 0 and not metadata.exists()


def test_a_purge_is_not_proved_while_a_row_of_the_quarantine_cannot_be_looked_into(table: hoodoo.Table) -> None:
    table.upsert(rows({"id": "a"}, {"n": 5000, "tags": ["x" * (2 << 20)]}), on_bad_rows="quarantine")
    report = table.maintenance.purge(rows({"id": "a"}).select(["id", "city"]))
    assert not report.files_proved and report.quarantine_unread == 1 and not report.holders


def test_the_quarantine_is_beside_the_table_in_the_same_kind_of_store(table: hoodoo.Table) -> None:
    assert table.handle.store.beside("__q").uri == table.path + "__q"  # type: ignore[union-attr]
    bucket = S3Store("s3://bucket/lake/t", {"endpoint": "http://127.0.0.1:9"})
    beside = bucket.beside("__q")
    assert beside is not None and beside.uri == "s3://bucket/lake/t__q" and beside._options == bucket._options
    assert S3Store("s3://bucket").beside("__q") is None, "another bucket is another place"


# ---------------------------------------------------------------- against a model


@pytest.mark.parametrize("seed", range(4))
def test_random_batches_and_retries_agree_with_a_dict(tmp_path: Path, seed: int) -> None:
    """Good rows land, each bad one is named once, and batches that come again in any order change nothing."""
    rng = random.Random(seed)
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", order_by="ts", checks=CHECKS)
    good: dict[str, tuple[float, int]] = {}
    bad: dict[tuple[Any, ...], int] = {}
    batches = []
    for clock in range(1, 6):
        here = [{"id": f"k{rng.randrange(20)}", "n": rng.randrange(900), "ts": float(clock)} for _ in range(20)]
        for _ in range(rng.randrange(6)):
            here.append({**rng.choice(here), **rng.choice([change for change, *_ in BAD.values()])})
        rng.shuffle(here)
        batches.append(here)
        seen: dict[tuple[Any, ...], int] = {}
        for one in here:
            whole = {**GOOD, **one}
            faulty = any(
                all(whole[name] is value or whole[name] == value for name, value in change.items())
                for change, *_ in BAD.values()
            )
            if faulty:
                bytes_ = (serialize_row(rows(one), 0),)
                seen[bytes_] = seen.get(bytes_, 0) + 1
                bad[bytes_] = max(bad.get(bytes_, 0), seen[bytes_])
            elif good.get(whole["id"], (0.0, 0))[0] <= whole["ts"]:
                good[whole["id"]] = (whole["ts"], whole["n"])
        table.upsert(rows(*here), on_bad_rows=hoodoo.BadRowLimits(share=1.0))
    for here in rng.sample(batches, 3):
        again = rng.sample(here, len(here))
        hoodoo.open(table.path).upsert(
            rows(*[one for one in again if one.get("id") is None or one["n"] is None or one["n"] >= 1000]),
            on_bad_rows=hoodoo.BadRowLimits(share=1.0),
        )
    assert {one["id"]: (one["ts"], one["n"]) for one in table.scan().to_arrow().to_pylist()} == good
    assert table.quarantine().count() == sum(bad.values())
    assert table.verify().ok and table.quarantine().table.verify().ok


@pytest.mark.parametrize("seed", range(10))
def test_a_row_is_bad_among_others_exactly_if_it_is_refused_alone(table: hoodoo.Table, seed: int) -> None:
    rng = random.Random(seed)
    changes = [change for change, *_ in BAD.values()]
    found = [
        {"id": f"k{n}"} | (rng.choice(changes) if rng.random() < 0.3 else {}) for n in range(rng.randrange(1, 200))
    ]
    found = [one | (rng.choice(changes) if rng.random() < 0.1 else {}) for one in found]
    config = table.handle.config
    held = checks.load_checks(config)
    alone = set()
    for number, one in enumerate(found):
        try:
            prepare_batch(rows(one), config, checks=held)
        except hoodoo.DataError:
            alone.add(number)
    assert set(bad_rows.faults(rows(*found), config, held, 1_000)) == alone


@pytest.mark.xdist_group("s3")
def test_on_s3_the_quarantine_is_a_prefix_beside(s3: dict[str, Any]) -> None:
    table = hoodoo.create(f"s3://{seaweed.BUCKET}/bad/t", SCHEMA, key="id", storage=s3, checks=CHECKS)
    given = rows({"id": "g"}, {"id": None}, {"id": "b", "n": 5000})
    for _ in range(2):
        assert table.upsert(given, on_bad_rows="quarantine").quarantined == 2
    aside = hoodoo.open(table.path, storage=s3).quarantine()
    assert (aside.path, aside.count()) == (f"s3://{seaweed.BUCKET}/bad/t__quarantine", 2)
    table.set_checks({})
    assert (aside.replay().replayed, table.scan().count()) == (1, 2)
    assert table.verify().ok and aside.table.verify().ok


def test_a_quarantine_that_lost_its_properties_is_no_empty_one(table: hoodoo.Table) -> None:
    """It was taken for none: nothing waited, nothing was replayed, and a purge was proved over a row that it held."""
    table.upsert(rows({"n": 1 << 40, "id": "secret"}), on_bad_rows=hoodoo.BadRowLimits(share=1))
    for file in Path(table.quarantine().path).glob(".hoodie/hoodie.properties*"):
        file.unlink()
    aside = table.quarantine()
    calls: list[Callable[[], Any]] = [
        aside.count,
        aside.rows,
        aside.replay,
        lambda: aside.drop("x"),
        lambda: aside.table,
    ]
    for call in (*calls, lambda: table.maintenance.purge([{"id": "secret", "city": "x"}])):
        with pytest.raises(hoodoo.CorruptTable, match=r"hoodie.properties of table .* is missing"):
            call()
    with pytest.raises(hoodoo.CorruptTable):
        table.upsert(rows({"n": 1 << 40}), on_bad_rows=hoodoo.BadRowLimits(share=1))


@pytest.mark.parametrize("order_by", [None, "ts"])
def test_a_replay_that_could_not_be_noted_says_that_the_rows_are_there_and_is_called_again(
    tmp_path: Path, order_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that nothing was committed, and the call that it asked for was refused since the rows were there."""
    order = {"order_by": order_by} if order_by else {}
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", checks=CHECKS, **order)
    table.upsert(rows({"n": 5000}, {"n": 6000, "id": "b"}), on_bad_rows=hoodoo.BadRowLimits(share=1))
    table.set_checks({})
    aside = table.quarantine()

    def fails(*_: Any) -> None:
        raise hoodoo.StoreFull("No space left. Nothing was committed.", key="x")

    with monkeypatch.context() as patched:
        patched.setattr(replaying, "set_row_state", fails)
        with pytest.raises(hoodoo.StoreFull, match=r"2 quarantined rows were written to .*t, .*__quarantine") as told:
            aside.replay()
    assert told.value.details == {"key": "x"}
    assert aside.count() == 2 and sorted(table.scan().to_arrow()["n"].to_pylist()) == [5000, 6000]
    table.upsert(rows({"id": "other"}))
    head = table.cursor
    assert aside.replay().replayed == 2 and aside.count() == 0 and aside.count("replayed") == 2
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 5000, 6000]
    if not order_by:
        assert table.cursor == head  # nothing was written again


def test_a_replay_beside_rows_that_are_there_writes_the_others_and_refuses_one_that_differs(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="city", checks=CHECKS)
    table.upsert(rows({"n": 5000}, {"n": 6000, "id": "b"}), on_bad_rows=hoodoo.BadRowLimits(share=1))
    table.set_checks({})
    table.upsert(rows({"n": 6000, "id": "b", "ts": 2.0}))
    with pytest.raises(hoodoo.OptionError, match=r"1 keys are already in the table, such as .*b"):
        table.quarantine().replay()
    assert table.get([{"id": "a", "city": "x"}]).num_rows == 0
    table.upsert(rows({"n": 6000, "id": "b"}))
    assert table.quarantine().replay().replayed == 2
    assert table.get([{"id": "a", "city": "x"}])["n"].to_pylist() == [5000]
