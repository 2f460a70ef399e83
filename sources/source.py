"""Interface of a source, and the values that its methods take and return.

A position is a string in the source's own format. The table stores it in the commit of the rows that were read up to
it. The source itself stores nothing, so several processes may use it at once. A source does not know the table.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral, Real

import pyarrow as pa

from hoodoo.arguments import is_utf8
from hoodoo.errors import DataError, OptionError
from hoodoo.redact import printable

BAD = pa.schema([("place", pa.string()), ("reason", pa.string()), ("detail", pa.string()), ("payload", pa.binary())])
"""Schema of bad rows: the location in the source, a short reason, details in one line, and the original bytes."""
REPLAYABLE = BAD.append(pa.field("kept", pa.binary()))
"""`BAD` with the form in which the quarantine stores a message for a replay. Null: the original bytes are stored."""

_PLACING = b"hoodoo.placing"
_PLACE_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Limits:
    """Limits of one batch. A batch has at least one item of the source.

    Attributes:
        rows: Maximum number of rows, if the source can count rows in advance.
        bytes: Maximum number of decoded bytes.
        bad_rows: Maximum number of bad rows. A source may raise TooManyBadRows if there are more.
    """

    rows: int = 500_000
    bytes: int = 256 << 20
    bad_rows: int = 1_000


@dataclass(frozen=True)
class Planned:
    """Range of a source that one batch reads. Items that arrive later are not in the range.

    Attributes:
        what: The range, in any form that the source chooses.
        position: Position after the range: a string that is not empty and does not begin with `sha256:`. A position of
            more than 16 KiB is stored in a file, and the commit contains its digest, `sha256:...`. `Job.reset` accepts
            the digest too.

    Raises:
        OptionError: The position is invalid.
    """

    what: object
    position: str

    def __post_init__(self) -> None:
        if not _is_text(self.position) or not self.position:
            raise _wrong("Planned", "position", "a non-empty string that UTF-8 can encode", self.position)


@dataclass(frozen=True)
class Placing:
    """Key, partition and ordering columns of a table, for sources of change events.

    Attributes:
        key: Key columns, each with all its names. The name in the table comes first.
        placed_by: Names of the columns that determine the partition of a row.
        order_by: Names of the columns that determine which version of a row is newer.
        made: Generated partition columns, such as 'day(ts)'.
    """

    key: tuple[tuple[str, ...], ...] = ()
    placed_by: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    @property
    def key_names(self) -> frozenset[str]:
        """All names of the key columns."""
        return frozenset(name for names in self.key for name in names)

    def noted_on(self, columns: pa.Schema) -> pa.Schema:
        """Add this object to the metadata of the schema that `Source.read` receives.

        Args:
            columns: The columns of the table.

        Returns:
            The schema with the metadata.
        """
        return columns.with_metadata({_PLACING: json.dumps(asdict(self))})

    @staticmethod
    def of(columns: pa.Schema) -> Placing:
        """Read the object from the metadata of a schema.

        Args:
            columns: The schema that `Source.read` receives.

        Returns:
            The object; an empty one if the schema has no such metadata.
        """
        said = json.loads((columns.metadata or {}).get(_PLACING, b"{}"))
        key = tuple(tuple(names) for names in said.get("key", ()))
        others = (tuple(said.get(name, ())) for name in ("placed_by", "order_by", "made"))
        return Placing(key, *others)


@dataclass(frozen=True)
class Part:
    """Rows that a source read, and bad rows.

    Attributes:
        rows: The rows, with the columns of the source.
        bad: The bad rows, as `BAD`. The location of a bad row is equal each time that the row is read.
        unknown: Columns that were left out.
        skipped: Number of messages that change no row.
        unavailable: Placeholder string for a value that was not sent. None: no placeholder is used.
        position: Position after the part, if reading ended before the end of the planned range. '' (default): reading
            reached the end.
        emptied: True if the source was truncated at `position`. Then all rows of the table are deleted, and no row of
            the batch is written. Default False.
        bytes: Number of bytes read. Default 0: the source does not count bytes.
        unplaced: True if stored rows of these keys may be in other partitions, so that the job must look them up.
            Default False.
        lost: Number of messages that were deleted from the source before they were read. Default 0.
        origin: Path of the file of the rows, for errors and for the quarantine. Default '': not a file.

    Raises:
        OptionError: An attribute has the wrong type.
    """

    rows: pa.Table
    bad: pa.Table = field(default_factory=BAD.empty_table)
    unknown: tuple[str, ...] = ()
    skipped: int = 0
    unavailable: str | None = None
    position: str = ""
    emptied: bool = False
    bytes: int = 0
    unplaced: bool = False
    lost: int = 0
    origin: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.rows, pa.Table):
            raise _wrong("Part", "rows", "a pyarrow Table", self.rows)
        if not isinstance(self.bad, pa.Table) or not _is_bad(self.bad.schema):
            raise _wrong("Part", "bad", f"a pyarrow Table with the columns {BAD.names}", self.bad)
        if isinstance(self.unknown, str) or not all(isinstance(name, str) for name in self.unknown):
            raise _wrong("Part", "unknown", "a tuple of names", self.unknown)
        if not _is_text(self.position):
            raise _wrong("Part", "position", "a string that UTF-8 can encode", self.position)
        if self.unavailable is not None and not isinstance(self.unavailable, str):
            raise _wrong("Part", "unavailable", "a string or None", self.unavailable)
        for name, count in (("skipped", self.skipped), ("bytes", self.bytes), ("lost", self.lost)):
            if not isinstance(count, Integral):
                raise _wrong("Part", name, "an integer", count)


@dataclass(frozen=True)
class SourceLag:
    """Items of a source that wait.

    Attributes:
        waiting: Number of items.
        unit: Kind of the items, such as 'files'.
        seconds: Age of the oldest item in seconds; 0 without waiting items.
        partitions: Number of items in each partition of a topic; empty for other sources.

    Raises:
        OptionError: An attribute has the wrong type.
    """

    waiting: int
    unit: str
    seconds: float
    partitions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.waiting, Integral):
            raise _wrong("SourceLag", "waiting", "an integer", self.waiting)
        if not isinstance(self.unit, str):
            raise _wrong("SourceLag", "unit", "a string, such as 'files'", self.unit)
        if not isinstance(self.seconds, Real):
            raise _wrong("SourceLag", "seconds", "a number", self.seconds)
        if not isinstance(self.partitions, Mapping):
            raise _wrong("SourceLag", "partitions", "a mapping of names to numbers", self.partitions)


class Source(ABC):
    """Interface of the sources of ingestion jobs.

    Attributes:
        name: Name that is equal in each run. It is the default name of the job.
        reads_ahead: True if another thread may call `plan` and `read`, one call at a time. A job then prefetches the
            next batch during a commit. False (default): one thread makes all calls.
    """

    name: str
    reads_ahead: bool = False

    @abstractmethod
    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the range of the next batch.

        Args:
            position: Position of an earlier plan; '' for the first batch.
            limits: Limits of the batch.

        Returns:
            The range; None if all items of the source were read.

        Raises:
            SourceLost: The items after the position were deleted.
        """

    @abstractmethod
    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read a range. If a key occurs more than once, its newest row comes last.

        Args:
            planned: A result of `plan` in this process.
            columns: Columns of the table, with the types that text is converted to. `Placing.of` returns the key.
            unknown: True if other columns are wanted too. False: they are left out, and `Part.unknown` lists them.

        Yields:
            Rows and bad rows, in parts of any size.

        Raises:
            SourceChanged: The source changed after `plan`. The job then plans again.
            DataError: The range cannot be read.
        """

    @abstractmethod
    def lag(self, position: str) -> SourceLag:
        """Count the items after a position.

        Args:
            position: Position of an earlier plan; '' for the beginning.

        Returns:
            The number of items and the age of the oldest item.
        """

    def refused(self, origin: str, problem: DataError) -> pa.Table | None:
        """Quarantine a file whose columns do not match the table.

        Args:
            origin: The `origin` of the part that has the columns.
            problem: The error.

        Returns:
            A row for the file, as `BAD`, for the quarantine. The source then yields no more rows of the file from this
            `read`. None (default): the error stops the job.
        """
        return None

    def to_hudi(self, position: str) -> str:
        """Convert a position to a checkpoint of Apache Hudi's streamer.

        Args:
            position: Position of a plan.

        Returns:
            The checkpoint; '' (default) if no checkpoint is exact enough to lose no row.
        """
        return ""

    def from_hudi(self, checkpoint: str) -> str:
        """Convert a checkpoint of Apache Hudi's streamer to a position.

        Args:
            checkpoint: The checkpoint.

        Returns:
            A position from which no row is lost.

        Raises:
            OptionError: The source does not support checkpoints (default), or the checkpoint is invalid.
        """
        raise OptionError(
            f"{printable(self.name)} cannot continue from a checkpoint of Apache Hudi's streamer.", option="checkpoint"
        )

    def position_at(self, start: str) -> str:
        """Return the position for a named point in the source.

        Args:
            start: 'earliest', 'latest', an ISO 8601 time from which rows are read, or a position of an earlier plan.

        Returns:
            The position.

        Raises:
            OptionError: The source does not support `start`. By default, only positions are supported.
            SourceLost: The position belongs to another source.
        """
        if not start.startswith("{"):
            raise OptionError(
                f"{printable(self.name)} can only start at a position of an earlier plan, got {printable(start)}.",
                option="start",
            )
        self.lag(start)
        return start


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_utf8(value)


def _is_bad(columns: pa.Schema) -> bool:
    return any(columns.names == one.names and columns.types == one.types for one in (BAD, REPLAYABLE))


def _wrong(kind: str, name: str, wanted: str, found: object) -> OptionError:
    text = f"a Table of {found.column_names}" if isinstance(found, pa.Table) else printable(found)
    return OptionError(f"{name} of hoodoo.sources.{kind} must be {wanted}, got {text}.", option=name, answer=kind)


def hudi_place(source: Source, position: str) -> str:
    """Convert a position to a checkpoint of Apache Hudi's streamer, if it is short enough to store in each commit.

    Args:
        source: A source, or an object with the methods of a source.
        position: Position of a plan.

    Returns:
        The checkpoint; '' if it is too long or the source lacks the method `to_hudi`.
    """
    said: str = source.to_hudi(position) if hasattr(source, "to_hudi") else ""
    return said if len(said.encode()) <= _PLACE_BYTES_MAX else ""
