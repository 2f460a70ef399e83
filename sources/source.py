"""Interface of sources for ingestion jobs.

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
"""Schema of bad rows: location in the source, a short reason, details, and the original bytes."""
REPLAYABLE = BAD.append(pa.field("kept", pa.binary()))
"""Schema of bad rows with the encoding of a message that a replay needs.

Null stands for the original bytes.
"""

_PLACING = b"hoodoo.placing"
_PLACE_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Limits:
    """Upper limits of one ingestion batch.

    A batch has at least one item of the source.

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
    """Range of a source for the next batch.

    The range consists of files or offsets, for example. Items that arrive later are not part of the range.

    Attributes:
        what: The range, as any object that the source's `read` understands.
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
            raise _invalid_attribute_error("Planned.position must be a non-empty string in UTF-8", self.position)


@dataclass(frozen=True)
class Placing:
    """Columns that place a row in a table.

    They are key, partition and ordering columns. Sources of change events need them, because a delete event contains
    only the key of its row.

    Attributes:
        key: Key columns: for each one a tuple of its current name in the table, then its former names.
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
        """All current and former names of key columns."""
        return frozenset(name for names in self.key for name in names)

    def noted_on(self, columns: pa.Schema) -> pa.Schema:
        """Store key, partition and ordering columns in a schema.

        Args:
            columns: The columns of the table.

        Returns:
            The schema with the metadata.
        """
        return columns.with_metadata({_PLACING: json.dumps(asdict(self))})

    @staticmethod
    def of(columns: pa.Schema) -> Placing:
        """Read key, partition and ordering columns from a schema.

        Args:
            columns: The schema that `Source.read` receives.

        Returns:
            The columns. Each attribute is empty if the schema lacks such metadata.
        """
        placing = json.loads((columns.metadata or {}).get(_PLACING, b"{}"))
        key = tuple(tuple(names) for names in placing.get("key", ()))
        others = (tuple(placing.get(name, ())) for name in ("placed_by", "order_by", "made"))
        return Placing(key, *others)


@dataclass(frozen=True)
class Part:
    """Part of a batch that a source has read.

    Attributes:
        rows: The rows, with the columns of the source.
        bad: The bad rows, with the schema `BAD`. A bad row has the same location each time that it is read.
        unknown: Names of columns that were left out of `rows`, because the table does not have them.
        skipped: Number of messages that change no row.
        unavailable: Placeholder string that a database sends for an unchanged large value. None: no placeholder is
            used.
        position: Position after this part, if reading ended before the end of the planned range. '' (default): reading
            reached the end.
        emptied: True if the source was truncated at `position`. The job then deletes all rows of the table, and writes
            no row of the batch. Default False.
        bytes: Number of bytes read. Default 0: the source does not count bytes.
        unplaced: True if the table may store rows with these keys in other partitions, so that the job must look up
            where. Default False.
        lost: Number of messages that were deleted from the source before they were read. Default 0.
        origin: Path of the file that contains the rows, for errors and for the quarantine. Default '': not a file.

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
            raise _invalid_attribute_error("Part.rows must be a pyarrow Table", self.rows)
        if not isinstance(self.bad, pa.Table) or not _is_bad_rows_schema(self.bad.schema):
            raise _invalid_attribute_error(f"Part.bad must be a pyarrow Table with the columns {BAD.names}", self.bad)
        if isinstance(self.unknown, str) or not all(isinstance(name, str) for name in self.unknown):
            raise _invalid_attribute_error("Part.unknown must be a tuple of names", self.unknown)
        if not _is_text(self.position):
            raise _invalid_attribute_error("Part.position must be a string in UTF-8", self.position)
        if self.unavailable is not None and not isinstance(self.unavailable, str):
            raise _invalid_attribute_error("Part.unavailable must be a string or None", self.unavailable)
        for name, count in (("skipped", self.skipped), ("bytes", self.bytes), ("lost", self.lost)):
            if not isinstance(count, Integral):
                raise _invalid_attribute_error(f"Part.{name} must be an integer", count)


@dataclass(frozen=True)
class SourceLag:
    """Unread items of a source.

    Attributes:
        waiting: Number of unread items.
        unit: Kind of the items, such as 'files'.
        seconds: Age of the oldest unread item in seconds; 0 if all items were read.
        partitions: Number of unread items in each partition of a topic; empty for other sources.

    Raises:
        OptionError: An attribute has the wrong type.
    """

    waiting: int
    unit: str
    seconds: float
    partitions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.waiting, Integral):
            raise _invalid_attribute_error("SourceLag.waiting must be an integer", self.waiting)
        if not isinstance(self.unit, str):
            raise _invalid_attribute_error("SourceLag.unit must be a string, such as 'files'", self.unit)
        if not isinstance(self.seconds, Real):
            raise _invalid_attribute_error("SourceLag.seconds must be a number", self.seconds)
        if not isinstance(self.partitions, Mapping):
            raise _invalid_attribute_error(
                "SourceLag.partitions must be a mapping of names to numbers", self.partitions
            )


class Source(ABC):
    """Interface of a source for ingestion jobs.

    Subclass it to read from a custom source.

    Attributes:
        name: Name of the source, identical in each run. It is the default name of the job.
        reads_ahead: True if another thread may call `plan` and `read`, one call at a time. A job then prefetches the
            next batch during a commit. False (default): one thread makes all calls.
    """

    name: str
    reads_ahead: bool = False

    @abstractmethod
    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose the range for the next batch.

        The range is not read yet.

        Args:
            position: Position after the last range that was read; '' for the first batch.
            limits: Limits of the batch.

        Returns:
            The range and the position after it; None if all items of the source were read.

        Raises:
            SourceLost: The items after the position were deleted.
        """

    @abstractmethod
    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read the rows of a planned range.

        If a key occurs more than once, its newest row comes last.

        Args:
            planned: A result of `plan` in this process.
            columns: Columns of the table, whose types text is converted to. `Placing.of(columns)` returns the key
                columns.
            unknown: True to also return columns that the table does not have. False: they are left out, and
                `Part.unknown` lists them.

        Yields:
            Rows and bad rows, in parts of any size.

        Raises:
            SourceChanged: The source changed after `plan`. The job then plans again.
            DataError: The range cannot be read.
        """

    @abstractmethod
    def lag(self, position: str) -> SourceLag:
        """Count the unread items of the source.

        Args:
            position: Position of an earlier plan; '' for the beginning of the source.

        Returns:
            The number of items and the age of the oldest item.
        """

    def refused(self, origin: str, problem: DataError) -> pa.Table | None:
        """Create the quarantine row of a rejected file.

        The columns of the file do not match the table.

        Args:
            origin: The `origin` of the part whose columns do not match.
            problem: The error that describes the mismatch.

        Returns:
            A row for the file, with the schema `BAD`, for the quarantine. The source then yields no more rows of the
            file from this `read`. None (default): the error stops the job.
        """
        return None

    def to_hudi(self, position: str) -> str:
        """Convert a position to a checkpoint of Hudi's streamer.

        Args:
            position: Position of a plan.

        Returns:
            The checkpoint; '' (default) if the streamer would lose rows with every possible checkpoint.
        """
        return ""

    def from_hudi(self, checkpoint: str) -> str:
        """Convert a checkpoint of Hudi's streamer to a position.

        Args:
            checkpoint: The checkpoint.

        Returns:
            A position from which no row is lost.

        Raises:
            OptionError: The source does not support checkpoints (default), or the checkpoint is invalid.
        """
        raise OptionError(
            f"{printable(self.name)} does not support checkpoints of Apache Hudi's streamer. "
            "Give the job a start position instead.",
            option="checkpoint",
        )

    def position_at(self, start: str) -> str:
        """Convert a start point such as 'latest' to a position.

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
                f"{printable(self.name)} can only start at a position of an earlier plan, got {printable(start)}. "
                "Pass such a position.",
                option="start",
            )
        self.lag(start)
        return start


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_utf8(value)


def _is_bad_rows_schema(columns: pa.Schema) -> bool:
    return any(columns.names == one.names and columns.types == one.types for one in (BAD, REPLAYABLE))


def _invalid_attribute_error(rule: str, value: object) -> OptionError:
    # `rule` begins with the class and the attribute, such as 'Part.rows'.
    text = f"a Table of {value.column_names}" if isinstance(value, pa.Table) else printable(value)
    kind, _, name = rule.split()[0].partition(".")
    return OptionError(f"Attribute hoodoo.sources.{rule}, got {text}.", option=name, answer=kind)


def streamer_checkpoint(source: Source, position: str) -> str:
    checkpoint: str = source.to_hudi(position) if hasattr(source, "to_hudi") else ""
    return checkpoint if len(checkpoint.encode()) <= _PLACE_BYTES_MAX else ""
