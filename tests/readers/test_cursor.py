"""A position means the same slot however it is written: cursor, instant, digits, a datetime, ISO 8601 text in any zone,
a savepoint's name.
"""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pyarrow as pa

import hoodoo

SCHEMA = pa.schema([("id", pa.int64())])


def test_a_time_is_the_same_slot_as_datetime_as_text_and_as_digits(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert([{"id": 1}])
    time.sleep(0.01)
    moment = dt.datetime.now(dt.timezone.utc)
    time.sleep(0.01)
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


def test_a_savepoint_that_is_called_like_a_day_is_that_savepoint(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert([{"id": 1}])
    table.savepoint("2026-01-31")
    table.upsert([{"id": 2}])
    assert table.scan(as_of="2026-01-31").to_arrow().to_pylist() == [{"id": 1}]
