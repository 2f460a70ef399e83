"""What a source is: three methods and one that it may leave out, and the values that they take and give.

A position is a text that only its source understands. It lies in the table, with the commit of the rows that were read
up to it. So a source keeps nothing that matters, and may be asked by several processes at once. It knows nothing of
tables.
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
"""What a source brings that is no row: where it stands, a word for what is wrong, one line that says it, its bytes."""
REPLAYABLE = BAD.append(pa.field("kept", pa.binary()))
"""`BAD` with the form in which the quarantine stores a message, so that a replay can decode it. Null: as its bytes."""

_PLACING = b"hoodoo.placing"
_PLACE_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Limits:
    """How much one commit takes, at least one item of the source.

    Attributes:
        rows: Rows, where the source can count them before it commits them.
        bytes: Bytes, as the source has them.
        bad_rows: What is no row; with more of it reading may end with TooManyBadRows.
    """

    rows: int = 500_000
    bytes: int = 256 << 20
    bad_rows: int = 1_000


@dataclass(frozen=True)
class Planned:
    """A part of a source that is read by one commit. It is bounded: what comes into the source later is not in it.

    Attributes:
        what: Which part. Its source knows what it means.
        position: The position of the commit that brings this part: a text, not empty. One of more than 16 KiB is kept
            beside the commit, which names it by its digest, `sha256:...`; `Job.reset` takes that as well. So a position
            of a source does not begin with `sha256:`.

    Raises:
        OptionError: The position is no such text.
    """

    what: object
    position: str

    def __post_init__(self) -> None:
        if not _is_text(self.position) or not self.position:
            raise _wrong("Planned", "position", "a text, which UTF-8 can write, and not an empty one", self.position)


@dataclass(frozen=True)
class Placing:
    """How a table tells rows apart: what a source needs to know that brings changes of rows.

    Attributes:
        key: The columns of the key. A column that has two names has both of them, that of the table first.
        placed_by: The columns that tell the partition of a row, by each of their names.
        order_by: The columns that tell which version of a row is newer.
        made: How partition columns are made of those in `placed_by` that are none themselves, such as 'day(ts)'.
    """

    key: tuple[tuple[str, ...], ...] = ()
    placed_by: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    @property
    def key_names(self) -> frozenset[str]:
        """All names of the columns of the key."""
        return frozenset(name for names in self.key for name in names)

    def noted_on(self, columns: pa.Schema) -> pa.Schema:
        """Note it on the columns that `Source.read` is given.

        Args:
            columns: The columns of the table.

        Returns:
            The same columns.
        """
        return columns.with_metadata({_PLACING: json.dumps(asdict(self))})

    @staticmethod
    def of(columns: pa.Schema) -> Placing:
        """Read what was noted.

        Args:
            columns: The columns that `Source.read` is given.

        Returns:
            How the table tells rows apart; of columns without a note, nothing.
        """
        said = json.loads((columns.metadata or {}).get(_PLACING, b"{}"))
        key = tuple(tuple(names) for names in said.get("key", ()))
        others = (tuple(said.get(name, ())) for name in ("placed_by", "order_by", "made"))
        return Placing(key, *others)


@dataclass(frozen=True)
class Part:
    """What a source read.

    Attributes:
        rows: The rows, with the columns that they have there.
        bad: What was no row, as `BAD`. A place is the same whenever it is read.
        unknown: Columns that were asked for by nobody, and left out.
        skipped: How many messages change no row.
        unavailable: The text that stands in these rows for a value that was not sent. None: there is no such text.
        position: How far the source was read, where reading ended before what was planned. '' (default): it did not.
        emptied: True where the source was emptied at the end of what was read: all rows of the table are deleted, and
            none of this commit are written. `position` says where that is. Default False.
        bytes: How many bytes were read, as the source has them. Default 0: it does not count them.
        unplaced: True where the stored rows of these keys may be in other partitions, and deletes do not say theirs:
            they are looked up. Default False.
        lost: How many messages are gone from the source that were not read. Default 0.
        origin: Path of the file that the rows come from, for errors and for the quarantine. Default '': not a file.

    Raises:
        OptionError: An attribute is not of its kind.
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
            raise _wrong("Part", "bad", f"a pyarrow Table of the columns of hoodoo.sources.BAD, {BAD.names}", self.bad)
        if isinstance(self.unknown, str) or not all(isinstance(name, str) for name in self.unknown):
            raise _wrong("Part", "unknown", "a tuple of names", self.unknown)
        if not _is_text(self.position):
            raise _wrong("Part", "position", "a text, which UTF-8 can write", self.position)
        if self.unavailable is not None and not isinstance(self.unavailable, str):
            raise _wrong("Part", "unavailable", "a text, or None", self.unavailable)
        for name, count in (("skipped", self.skipped), ("bytes", self.bytes), ("lost", self.lost)):
            if not isinstance(count, Integral):
                raise _wrong("Part", name, "a whole number", count)


@dataclass(frozen=True)
class SourceLag:
    """What a source has that is not in the table yet.

    Attributes:
        waiting: How many items.
        unit: What an item is, such as 'files'.
        seconds: How long the oldest of them has been waiting; 0 where none is.
        partitions: How many of them are in each partition of a topic; empty for what has no partitions.

    Raises:
        OptionError: An attribute is not of its kind.
    """

    waiting: int
    unit: str
    seconds: float
    partitions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.waiting, Integral):
            raise _wrong("SourceLag", "waiting", "a whole number", self.waiting)
        if not isinstance(self.unit, str):
            raise _wrong("SourceLag", "unit", "a text, such as 'files'", self.unit)
        if not isinstance(self.seconds, Real):
            raise _wrong("SourceLag", "seconds", "a number", self.seconds)
        if not isinstance(self.partitions, Mapping):
            raise _wrong("SourceLag", "partitions", "a mapping of names to numbers", self.partitions)


class Source(ABC):
    """Where rows come from.

    Attributes:
        name: A name that stays the same from run to run: the application of its commits, where nobody names one.
        reads_ahead: True where `plan` and `read` may be called in another thread, one call at a time, so that a job
            which is behind reads the next part while it commits the last one. False (default): in one thread only.
    """

    name: str
    reads_ahead: bool = False

    @abstractmethod
    def plan(self, position: str, limits: Limits) -> Planned | None:
        """Choose what the next commit brings.

        Args:
            position: How far the source was read: the position of an earlier plan, or '' where it never was.
            limits: How much it takes.

        Returns:
            The part, or None where the source has nothing new.

        Raises:
            SourceLost: What comes after the position is gone.
        """

    @abstractmethod
    def read(self, planned: Planned, columns: pa.Schema, unknown: bool) -> Iterator[Part]:
        """Read it, in the order in which later rows win.

        Args:
            planned: What `plan` gave, of this process.
            columns: The columns of the table, as text is to be read. `Placing.of` tells which are its key.
            unknown: Are other columns wanted too? If not they are left out, and named.

        Yields:
            Rows, and what was none, in pieces of any size.

        Raises:
            SourceChanged: It is not there any more as it was planned. Plan again.
            DataError: It cannot be read at all.
        """

    @abstractmethod
    def lag(self, position: str) -> SourceLag:
        """Measure what is not in the table yet.

        Args:
            position: How far the source was read.

        Returns:
            How much waits, and for how long.
        """

    def refused(self, origin: str, problem: DataError) -> pa.Table | None:
        """Set aside a file whose columns do not match the table.

        Args:
            origin: The `origin` of the part that has the columns.
            problem: The error.

        Returns:
            What the quarantine stores instead of the file, as `BAD`. The source then yields no more rows of the file
            from this `read`. None (default): the error stops the job.
        """
        return None

    def to_hudi(self, position: str) -> str:
        """Spell a position as Apache Hudi's streamer does, which then can go on from there.

        Args:
            position: The position of a plan.

        Returns:
            Hudi's text; '' (unless a source says more) where Hudi has none that loses no row.
        """
        return ""

    def from_hudi(self, place: str) -> str:
        """Read a place of Apache Hudi's streamer.

        Args:
            place: Hudi's text.

        Returns:
            The position from which no row is left out.

        Raises:
            OptionError: The source reads none (unless it says more), or this one is not of it.
        """
        raise OptionError(f"{printable(self.name)} cannot go on from where Apache Hudi's streamer is.", option="place")

    def position_at(self, place: str) -> str:
        """Look a place up.

        Args:
            place: 'earliest', 'latest', a time as ISO 8601 writes it, from which on rows are read, or a position of an
                earlier plan.

        Returns:
            The position.

        Raises:
            OptionError: The source has no such place. Unless it says more, it has only positions.
            SourceLost: The position is that of another source.
        """
        if not place.startswith("{"):
            raise OptionError(
                f"{printable(self.name)} goes on from a position of its own only, got {printable(place)}.",
                option="place",
            )
        self.lag(place)
        return place


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_utf8(value)


def _is_bad(columns: pa.Schema) -> bool:
    return any(columns.names == one.names and columns.types == one.types for one in (BAD, REPLAYABLE))


def _wrong(kind: str, name: str, wanted: str, found: object) -> OptionError:
    text = f"a Table of {found.column_names}" if isinstance(found, pa.Table) else printable(found)
    return OptionError(f"{name} of hoodoo.sources.{kind} takes {wanted}, got {text}.", option=name, answer=kind)


def hudi_place(source: Source, position: str) -> str:
    """Return what `source.to_hudi` says of a position.

    Args:
        source: A source, or an object with the three methods of one.
        position: The position of a plan.

    Returns:
        Hudi's text; '' where it is too long for each commit to repeat it, or the source has no such method.
    """
    said: str = source.to_hudi(position) if hasattr(source, "to_hudi") else ""
    return said if len(said.encode()) <= _PLACE_BYTES_MAX else ""
