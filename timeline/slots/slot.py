"""Slots: the commit sequence. A write exists when its slot exists; everything else is a claim before it or a
consequence after it.

A slot is canonical JSON, one object, closed by the SHA-256 of what stands before. It names the digest of the slot
before it, so that a planted, forked or shortened sequence is an error. Bytes in, bytes out: this module knows no store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.names import check_below, check_data_path, is_change_log
from hoodoo.timeline.layout import INDEX, TIMELINE
from hoodoo.timeline.slots.shape import fits

VERSIONS = (1, 2, 3, 4)
"""1: without merged, sorted, origin and changes; 3: names in `needs` what a reader must know; 4: with positions of
applications.
"""
SETTINGS, SCHEMA, COLUMNS, ORDER, TRANSFORMS = "settings", "schema", "columns", "order", "transforms"
PLACED, PARTIAL, STREAMED = "placed", "partial", "streamed"
KNOWN = frozenset({SETTINGS, SCHEMA, COLUMNS, ORDER, TRANSFORMS, PLACED, PARTIAL, STREAMED})
"""Features of slots that this release knows. What comes later is named in `needs`, and needs no further version."""
SIZE_MAX = 256 << 20
DEPTH_MAX = 64
BASE, LOG = "base", "log"
COMPLETED, PLANNED, ROLLED_BACK = "completed", "planned", "rolled_back"
UNDO, RESTORE, CLUSTER, LOG_COMPACT, SALVAGE = "UNDO", "RESTORE", "CLUSTER", "LOG_COMPACT", "SALVAGE"
ALTER = "ALTER_SCHEMA"
"""Operation of a commit that changes the table's columns and no row, as Apache Hudi calls it."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One base or log file: what a reader needs to open, check and skip it, and what Hudi's commit metadata reports of
    it.

    rows: rows of a base file, records of a log. stats: column -> [least, greatest, nulls] as JSON values
    (format/parquet/statistics.py).
    index: key of the index entry (base: all keys of the file; log: the keys it deletes), '' if there is none.
    sorted: the order that clustering gave the rows of a base file, as compactor/clustering/units.py names it.
    changes: Hudi's change logs of a base file that rewrote another: path -> [bytes, digest or '']; they live and die
    with it.
    origin: 'hudi' if another engine wrote it, whose logs may hold what ours never do: new keys, partial updates, keys
    that come back.
    schema: id of the table's schema under which its bytes were written; 0: the first. Names in `stats` and `sorted` are
    that schema's.
    order: digest of the key hashes in order of a base file's rows, where its index entry tells the row of each key; of
    a log, that of the base over whose rows all of its records say to lie. '' where rows are not known.
    decoded: bytes in memory of the rows of a log in Parquet, whose size does not tell; 0 of others.
    partial: 1 of a log of ours with rows that set some columns only; `stats` are of the columns that a row sets.
    blocks: of a log to which several commits may have appended (table version 6), the instant whose blocks are meant;
    '<' and an instant: those of all instants before it. '' where all of a log's blocks are one commit's. In no slot
    that is stored.
    """

    path: str
    partition: str
    file_id: str
    kind: str
    size: int
    digest: str
    rows: int
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    previous: str = ""
    index: str = ""
    stats: dict[str, list[Any]] = field(default_factory=dict)
    sorted: str = ""
    origin: str = ""
    changes: dict[str, list[Any]] = field(default_factory=dict)
    schema: int = 0
    order: str = ""
    decoded: int = 0
    partial: int = 0
    blocks: str = ""

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return self.path.rpartition("/")[2]

    @property
    def foreign(self) -> bool:
        """Whether another engine wrote the file.

        Its counts may be wrong then, and a log may hold partial rows, or rows of keys that no base has.
        """
        return bool(self.origin) or not self.digest  # what is not adopted yet has no digest

    @property
    def content(self) -> tuple[str, str]:
        """What of which file this is: of one log, several commits may each have a part."""
        return self.path, self.blocks

    def has_block_of(self, instant: str) -> bool:
        """Tell whether the blocks that `instant` wrote into the file are meant."""
        if self.blocks.startswith("<"):
            return instant < self.blocks[1:]
        return self.blocks in ("", instant)

    @property
    def paths(self) -> tuple[str, ...]:
        """The file and its change logs."""
        return (self.path, *self.changes)


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A file group of a compaction plan: exactly these files become one base file."""

    partition: str
    file_id: str
    base: str
    logs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotBody:
    """What a writer or service decides that its slot says.

    merged: paths of logs whose records the logs of this slot hold from now on.
    victims: (path, partition) of data files that a clean deletes, swept: their index entries.
    transaction, reached: the application and version of the commit; how far the application has read its source then,
    '' where it does not say.
    savepoint, position: a savepoint's name and the slot it keeps (0: it is given up); a restore's position is the slot
    whose rows it brings back.
    settings: properties that hold from this slot on, whatever hoodie.properties says: name -> text, '' for the default.
    columns: the table's columns from this slot on, as format/table_schema.py writes them; {} where they stay.
    needs: features without which the slot is misunderstood; whoever does not know one refuses the table.
    inserted, deleted: where the sorted key hashes of rows that this slot brought or took away are (see
    timeline/slots/keyset.py).
    """

    operation: str
    outcome: str = COMPLETED
    files: tuple[DataFile, ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()
    inserted: tuple[dict[str, str], ...] = ()
    deleted: tuple[dict[str, str], ...] = ()
    plan: tuple[PlannedGroup, ...] = ()
    plan_seq: int = 0
    merged: tuple[str, ...] = ()
    target: str = ""
    target_action: str = ""
    victims: tuple[tuple[str, str], ...] = ()
    swept: tuple[str, ...] = ()
    min_readable: int = 0
    savepoint: str = ""
    position: int = 0
    transaction: tuple[str, int] | None = None
    reached: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot(SlotBody):
    """One entry of the commit sequence: its number `seq`, and its body.

    action: the instant's action as it was requested (docs/format.md 4.2).
    completed_at: ms since 1970.

    published: key of the completed instant that another engine wrote and this slot describes; '' where publication
    follows the slot.
    placed: 1 where each row of files that another engine wrote was seen to lie in the partition that transforms make.
    versions, all_reached: of all applications, as they are after an undo.
    streamed: the place in a source that the commit publishes for Apache Hudi's streamer, as timeline/slots/streamed.py
    has it: text, owner, who said it; () where it publishes none. Of an undo: the place that counts again.
    columns_before: the columns before, in the first change of a table.
    schema, schema_before: the same as Avro text, without ids, in slots of earlier releases.
    """

    seq: int
    prev: str
    table: str
    instant: str
    action: str
    nonce: str
    base_seq: int
    completed_at: int
    writer: str = ""
    overwritten: tuple[str, ...] = ()
    published: str = ""
    placed: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    all_reached: dict[str, str] = field(default_factory=dict)
    streamed: tuple[str, ...] = ()
    schema: str = ""
    schema_before: str = ""
    columns_before: dict[str, Any] = field(default_factory=dict)

    @property
    def undoes(self) -> bool:
        """Whether another engine took back the slots after `position`, and deleted their files."""
        return bool(self.published) and self.operation in (UNDO, RESTORE)

    @property
    def compacts(self) -> bool:
        """Whether it is a completed compaction."""
        return self.outcome == COMPLETED and self.action == "compaction"

    @property
    def commits(self) -> bool:
        """Whether Hudi takes it for a completed write, which had its requested and inflight files before."""
        return self.outcome == COMPLETED and self.action in ("commit", "deltacommit", "replacecommit")

    @property
    def writes_rows(self) -> bool:
        """Whether it changes rows.

        A clustering and a log compaction only move rows; a change of columns at most writes them anew.
        """
        return self.commits and self.operation not in (CLUSTER, LOG_COMPACT, ALTER)

    @property
    def tells_columns(self) -> bool:
        """Whether the schema in its commit's metadata counts; that of a table service may be outdated."""
        return self.commits and self.operation not in (CLUSTER, LOG_COMPACT)


def _kinds(of: Any) -> list[tuple[str, type]]:
    """Fields and the plain type each must have."""
    plain = {"str": str, "int": int, "dict": dict, "tuple": tuple}
    return [(f.name, plain[str(f.type).partition("[")[0]]) for f in fields(of) if f.name != "transaction"]


_NAMES = tuple(f.name for f in fields(Slot))
_KINDS: dict[Any, list[tuple[str, type]]] = {of: _kinds(of) for of in (Slot, DataFile, PlannedGroup)}


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def encode(slot: Slot) -> bytes:
    """Canonical bytes of `slot`; equal slots have equal bytes."""
    later = slot.merged or any(file.sorted or file.origin or file.changes for file in slot.files)
    known_by = 4 if slot.reached or slot.all_reached else 3 if slot.needs else 2 if later else 1  # others are told
    body: dict[str, Any] = {
        name: value for name in _NAMES if (value := getattr(slot, name)) not in ((), "", {}, None, 0)
    }
    body |= {"seq": slot.seq, "v": known_by, "files": [_file_json(file) for file in slot.files]}
    if slot.plan:
        body["plan"] = [asdict(group) for group in slot.plan]
    text = _canonical(body)
    return text[:-1] + b',"~":"' + hashlib.sha256(text).hexdigest().encode() + b'"}'


def _file_json(file: DataFile) -> dict[str, Any]:
    return {
        f.name: value
        for f in fields(DataFile)
        if (value := getattr(file, f.name)) not in ("", {}) and (value != 0 or f.name in ("size", "rows"))
    }


def sha(data: bytes) -> str:
    """Return the SHA-256 of `data` in hex, by which the next slot names this one."""
    return hashlib.sha256(data).hexdigest()


def strict_json(data: bytes, key: str) -> Any:
    """JSON without duplicate names, NaN, or more than 64 levels. Raises CorruptTable naming `key`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    def refuse(text: str) -> Any:
        raise ValueError(f"{text} is not allowed")

    if len(data) > SIZE_MAX:
        raise CorruptTable(f"{key} has {len(data)} bytes, more than any hoodoo writes.", file=key)
    try:
        value = json.loads(data, object_pairs_hook=unique, parse_constant=refuse)
        _check_depth(value)
        return value
    except (ValueError, RecursionError) as problem:
        raise CorruptTable(f"{key} is not valid: {problem}.", file=key) from None


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > DEPTH_MAX:
        raise ValueError("it nests too deeply")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(child, depth + 1)


def decode(data: bytes, key: str) -> Slot:
    """Slot of `data`, its digest and every path in it checked. Raises CorruptTable or UnsupportedTable naming `key`."""
    end = data.rfind(b',"~":"')
    if end < 0 or hashlib.sha256(data[:end] + b"}").hexdigest().encode() != data[end + 6 : -2]:
        raise CorruptTable(
            f"{key} is damaged: its digest does not fit. Restore the file from a backup. Where it is the newest slot, "
            "and its instant is complete in .hoodie/timeline and wrote rows (it says UPSERT, INSERT, BULK_INSERT or "
            "DELETE), delete it instead, and the checkpoint of its number, if there is one: the next write makes it "
            "again. A change of columns, checks or options nothing makes again.",
            file=key,
        )
    body = strict_json(data, key)
    if not isinstance(body, dict) or body.pop("v", None) not in VERSIONS:
        raise UnsupportedTable(f"{key} was written by a newer hoodoo; upgrade to read this table.", file=key)
    del body["~"]
    require_known(body.get("needs", ()), key)
    try:
        return _slot(body)
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise CorruptTable(f"{key} does not hold a slot: {problem}.", file=key) from None


def require_known(needs: Any, key: str) -> None:
    """Raise UnsupportedTable where `needs`, as it stands in the file `key`, names a feature that this release lacks."""
    if not fits(list(needs) if isinstance(needs, tuple) else needs, [str]):
        raise CorruptTable(f"{key} is damaged: it needs {str(needs)[:50]}.", file=key)
    if unknown := sorted(set(needs) - KNOWN):
        raise UnsupportedTable(
            f"{key} was written by a newer hoodoo, with {', '.join(unknown)}; upgrade to use this table.",
            file=key,
            features=unknown,
        )


def features(files: Sequence[DataFile]) -> list[str]:
    """Return the features that a slot with these files needs."""
    found = [ORDER] if any(file.order or file.decoded for file in files) else []
    return [*found, PARTIAL] if any(file.partial for file in files) else found


def _slot(body: dict[str, Any]) -> Slot:
    empty = {"prev": "", "operation": "", "base_seq": 0, "completed_at": 0, "nonce": "", "instant": ""}
    body = {**empty, **body}
    body["files"] = tuple(DataFile(**{"partition": "", "digest": "", **file}) for file in body.get("files", ()))
    body["plan"] = tuple(
        PlannedGroup(**{**{"base": "", "logs": ()}, **group, "logs": tuple(group.get("logs", ()))})
        for group in body.get("plan", ())
    )
    for name in ("replaced", "victims"):
        body[name] = tuple((str(a), str(b)) for a, b in body.get(name, ()))
    for name in ("overwritten", "inserted", "deleted", "swept", "merged", "needs"):
        body[name] = tuple(body.get(name, ()))
    body["streamed"] = _place(body.get("streamed", []))
    if body.get("transaction"):
        app, version = body["transaction"]
        body["transaction"] = (str(app), int(version))
    slot = Slot(**body)
    _check_types(slot)
    _check_paths(slot)
    return slot


def _place(said: Any) -> tuple[str, ...]:
    """What a slot names as `streamed`. Raises TypeError for what is no place."""
    if said != [] and not (fits(said, (str, str, str)) and all(said)):
        raise TypeError(f"streamed is {str(said)[:50]!r}")
    return tuple(said)


def _check_types(slot: Slot) -> None:
    """Every field of the type it is declared with. Raises TypeError naming the field."""
    for one in (slot, *slot.files, *slot.plan):
        for name, kind in _KINDS[type(one)]:
            value: Any = getattr(one, name)
            if (
                not isinstance(value, kind)
                or isinstance(value, bool)
                or isinstance(value, int)
                and not 0 <= value < 1 << 63
            ):
                raise TypeError(f"{name} is {str(value)[:50]!r}")
    pairs, planned = (*slot.replaced, *slot.victims), (path for group in slot.plan for path in group.logs)
    texts = [*(text for pair in pairs for text in pair), *slot.overwritten, *slot.swept, *slot.merged, *planned]
    texts += [*slot.settings, *slot.settings.values(), *slot.all_reached.values()]
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(one, dict) for one in (*slot.inserted, *slot.deleted)
    ):
        raise TypeError("a list holds something else than texts")


def check_changes(file: DataFile) -> None:
    """Raise ValueError where `changes` names something else than change logs beside the file."""
    if not fits(file.changes, {str: (int, str)}):
        raise ValueError(f"changes of {file.path} are {str(file.changes)[:50]}")
    for path in file.changes:
        if not is_change_log(check_data_path(path)) or path.rpartition("/")[0] != file.partition:
            raise ValueError(f"{path} is not a change log of {file.path}")


def _check_paths(slot: Slot) -> None:
    """A slot that names a file which is not a data file, or lies elsewhere, was not written by hoodoo: a clean would
    delete what it names.
    """
    for file in slot.files:
        check_data_path(file.path)
        if file.path.rpartition("/")[0] != file.partition:
            raise ValueError(f"{file.path} does not lie in its partition {file.partition!r}")
        if file.index:
            check_below(file.index, INDEX)
        if file.previous:
            check_data_path(file.previous)
        check_changes(file)
    for path in (
        *(path for group in slot.plan for path in (*([group.base] if group.base else ()), *group.logs)),
        *(path for path, _ in slot.victims),
        *slot.merged,
    ):
        check_data_path(path)
    for path in slot.swept:
        check_below(path, INDEX)
    if slot.published:
        check_below(slot.published, TIMELINE)
