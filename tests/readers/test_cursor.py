"""A position means the same slot however it is written: cursor, commit, slot, instant, digits, a datetime, ISO 8601
text in any zone, how long ago, a savepoint's name.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.readers.cursor import resolve_position
from hoodoo.readers.moments import convert_to_milliseconds, parse_moment

SCHEMA = pa.schema([("id", pa.int64())])


def test_a_time_is_the_same_slot_as_datetime_as_text_and_as_digits(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert([{"id": 1}])
    moment = dt.datetime.fromtimestamp(table.handle.history.head().completed_at / 1000, dt.timezone.utc)
    last = table.upsert([{"id": 2}])
    elsewhere = moment.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    digits = moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03}"
    for written in (
        moment,
        elsewhere,
        moment.isoformat(),
        elsewhere.isoformat(" "),
        moment.isoformat().replace("+00:00", "Z"),
        digits,
    ):
        assert table.scan(as_of=written).to_arrow().to_pylist() == [{"id": 1}]
        assert table.incremental(written).to_arrow().to_pylist() == [{"id": 2}]
    assert table.scan(as_of=last.instant).count() == 2


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    """Slot 2 has row 1, slot 3 rows 1 and 2."""
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    made.upsert([{"id": 1}])
    made.upsert([{"id": 2}])
    return made


def test_a_commit_and_a_slot_are_positions_in_every_form_that_people_have_them(table: hoodoo.Table) -> None:
    first = table.history()[1]
    entry = next(one for one in table.inspect.timeline() if one.slot == 2)
    for written in (first, entry, 2, np.int64(2), "2", first.cursor, first.instant, table.scan(as_of=2)):
        assert table.scan(as_of=written).to_arrow().to_pylist() == [{"id": 1}]
        assert table.incremental(written).to_arrow().to_pylist() == [{"id": 2}]
        assert table.changes("earliest", until=written).count() == 1
    result = table.delete([{"id": 1}])
    assert table.scan(as_of=result).to_arrow().to_pylist() == [{"id": 2}]
    table.savepoints.create("then", as_of=first)
    assert table.savepoints.list()["then"].seq == 2
    with pytest.raises(hoodoo.CommitConflict):
        table.upsert([{"id": 3}], if_head=first)
    table.upsert([{"id": 3}], if_head=result)
    assert table.consumer("billing", first).position.seq == 2
    table.restore(first)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1}]


def test_how_long_ago_is_counted_by_the_clock_of_the_table(table: hoodoo.Table) -> None:
    second = table.history()[0]
    at_ms = round(second.completed.timestamp() * 1000)
    handle = table.handle
    days = 86_400_000
    for ago_ms, written in [
        (days, dt.timedelta(days=1)),
        (days, "1d"),
        (days, "24 hours ago"),
        (days, "1 Day"),
        (2 * 3_600_000, "2 hours ago"),
        (90_000, "1.5m"),
        (30_000, "30s"),
        (14 * days, "2w"),
    ]:
        for shift, seq in ((0, 3), (-1, 2)):
            now_ms = at_ms + ago_ms + shift
            found = resolve_position(handle.history, written, now_ms=lambda now_ms=now_ms: now_ms)
            assert found == seq
    assert table.incremental("1d").count() == 2  # the table is younger, so that all of it is new


def test_text_without_a_zone_is_utc_and_a_date_is_its_beginning(table: hoodoo.Table) -> None:
    for written in (dt.date(2026, 1, 31), "2026-01-31", "2026-01-31 00:00", "2026-01-31T00:00:00"):
        moment = dt.datetime(2026, 1, 31, tzinfo=dt.timezone.utc)
        known = parse_moment(written) if isinstance(written, str) else written
        assert convert_to_milliseconds(known, 0) == moment.timestamp() * 1000
        assert table.scan(as_of=dt.date(9999, 1, 1)).count() == 2
        with pytest.raises(hoodoo.SnapshotExpired, match="did not exist"):
            table.scan(as_of="1999-12-31")


def test_a_time_without_zone_is_refused_with_a_line_that_works(table: hoodoo.Table) -> None:
    naive = dt.datetime(9999, 1, 1)
    with pytest.raises(hoodoo.PositionError, match=r"\.replace\(tzinfo=datetime\.timezone\.utc\)"):
        table.scan(as_of=naive)
    assert table.scan(as_of=naive.replace(tzinfo=dt.timezone.utc)).count() == 2


def test_whoever_wants_to_undo_a_commit_by_a_rollback_is_led_to_restore(table: hoodoo.Table) -> None:
    last = table.history()[0]
    with pytest.raises(hoodoo.AlreadyCommitted, match=r"restore\(2\)"):
        table.maintenance.rollback(last.instant)
    with pytest.raises(hoodoo.PositionError, match=r"restore\(position\)"):
        table.maintenance.rollback(last)  # type: ignore[arg-type]
    table.restore(2)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1}]


def test_whoever_reads_as_of_a_pending_instant_is_led_to_rollback(table: hoodoo.Table) -> None:
    with table.handle.context().timeline.attempt("deltacommit", b"", b"") as pending:
        for call in (lambda: table.scan(as_of=pending.instant), lambda: table.restore(pending.instant)):
            with pytest.raises(hoodoo.PositionError, match=r"maintenance\.rollback\(\) removes this write"):
                call()
