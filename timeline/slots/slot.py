"""Slots, which are numbered commit files of a table.

A slot is a canonical JSON object that ends with the SHA-256 of its content. It contains the digest of the previous
slot, so that a forged, forked or truncated sequence is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.names import is_change_log_path, require_data_file_path, require_path_in_folders
from hoodoo.timeline.layout import INDEX, TIMELINE
from hoodoo.timeline.slots.shape import matches_types

VERSIONS = (1, 2, 3, 4)
"""Format versions of slots (commit files) that this release reads.

Version 1 has no merged, sorted, origin and changes. Version 3 adds `needs`, a list of required features. Version 4 adds
source positions of applications.
"""
SETTINGS, SCHEMA, COLUMNS, ORDER, TRANSFORMS = "settings", "schema", "columns", "order", "transforms"
PLACED, PARTIAL, STREAMED = "placed", "partial", "streamed"
KNOWN = frozenset({SETTINGS, SCHEMA, COLUMNS, ORDER, TRANSFORMS, PLACED, PARTIAL, STREAMED})
"""Format features that this release supports, as slots (commit files) list them in `needs`."""
SIZE_MAX = 256 << 20
DEPTH_MAX = 64
BASE, LOG = "base", "log"
COMPLETED, PLANNED, ROLLED_BACK = "completed", "planned", "rolled_back"
UNDO, RESTORE, CLUSTER, LOG_COMPACT, SALVAGE = "UNDO", "RESTORE", "CLUSTER", "LOG_COMPACT", "SALVAGE"
ALTER = "ALTER_SCHEMA"
"""Apache Hudi's operation name for a commit that changes the table's columns, but no rows."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """Data file of a commit.

    Attributes:
        rows: Number of rows of a base file, or of records of a log.
        index: The path of the index entry, or ''. The entry has all keys of a base file, or the deleted keys of a log.
        stats: Statistics by column: [minimum, maximum, null count] as JSON values (format/parquet/statistics.py).
        sorted: The sort order of a clustered base file, as named by compactor/clustering/units.py.
        origin: 'hudi' if another engine wrote the file. Logs of other engines may contain new keys, partial updates and
            reinserted keys, which hoodoo's logs never contain.
        changes: Hudi's change logs of a base file that rewrote another file: path -> [bytes, digest or '']. They are
            deleted together with the base file.
        schema: The id of the table schema that the file was written with; 0 for the first schema. Column names in
            `stats` and `sorted` are from that schema.
        order: For a base file, the digest of the key hashes in row order, if its index entry has the row of each key.
            For a log, the digest of the base file that its records refer to by row. '' if rows are unknown.
        decoded: Size in memory of the rows of a Parquet log, in bytes. 0 for all other files.
        partial: 1 for a log of hoodoo with rows that set only some columns. `stats` only cover columns that a row sets.
        blocks: For a log that several commits may have appended to (table version 6), the instant whose blocks belong
            to this file; '<' followed by an instant means all earlier instants. '' if all blocks belong to one commit.
            Not stored in slots.
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
        return self.path.rpartition("/")[2]

    @property
    def external(self) -> bool:
        """True if another engine wrote the file.

        Its counts may be wrong in that case, and a log may contain partial rows, or rows with new keys.
        """
        return bool(self.origin) or not self.digest  # a file that has not been adopted has no digest

    @property
    def content(self) -> tuple[str, str]:
        return self.path, self.blocks

    def contains_log_blocks_of(self, instant: str) -> bool:
        if self.blocks.startswith("<"):
            return instant < self.blocks[1:]
        return self.blocks in ("", instant)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.changes)


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Planned compaction of one group of files."""

    partition: str
    file_id: str
    base: str
    logs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotBody:
    """Content of a slot without its number.

    Attributes:
        inserted: References to the sorted key hashes of inserted rows (timeline/slots/keyset.py).
        deleted: References to the sorted key hashes of deleted rows.
        merged: The paths of logs whose records are now in the logs of this slot.
        victims: (path, partition) of the data files that a clean operation deletes.
        swept: The index entries of `victims`.
        savepoint: The name of a savepoint.
        position: The slot that the savepoint keeps, or 0 if the savepoint is deleted. For a restore, the slot whose
            rows are restored.
        transaction: The application and version of the commit, or None.
        reached: The source position of the application after the commit, or ''.
        settings: Properties that apply from this slot on and override hoodie.properties: name -> text. '' restores the
            default.
        columns: The table's columns from this slot on, in the format of format/table_schema.py. {} if unchanged.
        needs: Features that a reader must support. A reader that lacks a feature must reject the table.
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
    """Slot, which is a numbered commit file of a table.

    It exists if and only if the write is committed.

    Attributes:
        seq: The number of the slot.
        action: The requested action of the instant (docs/format.md 4.2).
        completed_at: The completion time, in ms since 1970.
        published: The path of another engine's completed instant that this slot describes, or '' if hoodoo publishes
            the instant after the slot.
        placed: 1 if every row of another engine's files was found in the partition that the transforms compute.
        versions: The versions of all applications after an undo.
        all_reached: The source positions of all applications after an undo.
        streamed: The source position that the commit publishes for Apache Hudi's streamer: text, owner, reporting
            application (timeline/slots/streamed.py). () if the commit publishes no position. For an undo, the position
            that is valid again.
        schema: `columns` as Avro text without ids, in slots of earlier releases.
        schema_before: `columns_before` as Avro text without ids, in slots of earlier releases.
        columns_before: The columns before the change, in the first column change of a table.
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
    def records_undo(self) -> bool:
        """True if another engine undid earlier commits."""
        return bool(self.published) and self.operation in (UNDO, RESTORE)

    @property
    def compacts(self) -> bool:
        return self.outcome == COMPLETED and self.action == "compaction"

    @property
    def commits(self) -> bool:
        """True for a completed write."""
        return self.outcome == COMPLETED and self.action in ("commit", "deltacommit", "replacecommit")

    @property
    def writes_rows(self) -> bool:
        """True if the commit changes rows of the table.

        Clustering and log compaction only move rows, and a column change at most rewrites them.
        """
        return self.commits and self.operation not in (CLUSTER, LOG_COMPACT, ALTER)

    @property
    def has_current_schema(self) -> bool:
        return self.commits and self.operation not in (CLUSTER, LOG_COMPACT)


def _field_types(of: Any) -> list[tuple[str, type]]:
    plain = {"str": str, "int": int, "dict": dict, "tuple": tuple}
    return [(f.name, plain[str(f.type).partition("[")[0]]) for f in fields(of) if f.name != "transaction"]


_NAMES = tuple(f.name for f in fields(Slot))
_KINDS: dict[Any, list[tuple[str, type]]] = {of: _field_types(of) for of in (Slot, DataFile, PlannedGroup)}


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def encode_commit_file(slot: Slot) -> bytes:
    """Encode a commit file.

    The bytes of equal commits are equal.
    """
    has_version_2_fields = slot.merged or any(file.sorted or file.origin or file.changes for file in slot.files)
    lowest_version = (
        4 if slot.reached or slot.all_reached else 3 if slot.needs else 2 if has_version_2_fields else 1
    )  # lowest version
    body: dict[str, Any] = {
        name: value for name in _NAMES if (value := getattr(slot, name)) not in ((), "", {}, None, 0)
    }
    body |= {"seq": slot.seq, "v": lowest_version, "files": [_file_json(file) for file in slot.files]}
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
    return hashlib.sha256(data).hexdigest()


def strict_json(data: bytes, key: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice in a JSON object")
        return found

    def refuse(text: str) -> Any:
        raise ValueError(f"the value {text} is not allowed")

    if len(data) > SIZE_MAX:
        raise CorruptTable(
            f"File {key} is too large: expected at most {SIZE_MAX} bytes, got {len(data)}. Restore it from a backup.",
            file=key,
        )
    try:
        value = json.loads(data, object_pairs_hook=unique, parse_constant=refuse)
        _check_depth(value)
        return value
    except (ValueError, RecursionError) as problem:
        raise CorruptTable(f"File {key} is not valid JSON: {problem}. Restore it from a backup.", file=key) from None


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > DEPTH_MAX:
        raise ValueError("the JSON is nested too deeply")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(child, depth + 1)


def decode_commit_file(data: bytes, key: str) -> Slot:
    """Decode and verify a commit file.

    Args:
        data: The content of the slot's file.
        key: The path of the file, for error messages.

    Raises:
        CorruptTable: The slot is damaged or invalid.
        UnsupportedTable: A newer release wrote the slot.
    """
    end = data.rfind(b',"~":"')
    if end < 0 or hashlib.sha256(data[:end] + b"}").hexdigest().encode() != data[end + 6 : -2]:
        raise CorruptTable(
            f"Slot file {key} is damaged: its digest does not match. Restore the file from a backup. If it is the "
            "newest slot, and its instant is complete in .hoodie/timeline and wrote rows (UPSERT, INSERT, BULK_INSERT "
            "or DELETE), you can instead delete the file and the checkpoint with the same number, if there is one. The "
            "next write then recreates the slot. A change of columns, checks or options cannot be recreated.",
            file=key,
        )
    body = strict_json(data, key)
    if not isinstance(body, dict) or body.pop("v", None) not in VERSIONS:
        raise UnsupportedTable(
            f"Slot file {key} was written by a newer version of hoodoo. Upgrade hoodoo to read this table.", file=key
        )
    del body["~"]
    require_supported_features(body.get("needs", ()), key)
    try:
        return _slot(body)
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise CorruptTable(f"Slot file {key} is invalid: {problem}. Restore it from a backup.", file=key) from None


def require_supported_features(needs: Any, key: str) -> None:
    """Check that this release supports the required features.

    Raises UnsupportedTable if a commit or checkpoint requires an unknown feature. `needs` lists the features, and `key`
    is the path of the file. Raises CorruptTable if `needs` is not a list of strings.
    """
    if not matches_types(list(needs) if isinstance(needs, tuple) else needs, [str]):
        raise CorruptTable(
            f"File {key} is damaged: its list of features is invalid: {str(needs)[:50]}. Restore it from a backup.",
            file=key,
        )
    if unknown := sorted(set(needs) - KNOWN):
        raise UnsupportedTable(
            f"File {key} was written by a newer version of hoodoo and requires the features {', '.join(unknown)}. "
            "Upgrade hoodoo to use this table.",
            file=key,
            features=unknown,
        )


def list_reader_features(files: Sequence[DataFile]) -> list[str]:
    """List the features that readers of data files need."""
    needed = [ORDER] if any(file.order or file.decoded for file in files) else []
    return [*needed, PARTIAL] if any(file.partial for file in files) else needed


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
    body["streamed"] = _decode_streamed(body.get("streamed", []))
    if body.get("transaction"):
        app, version = body["transaction"]
        body["transaction"] = (str(app), int(version))
    slot = Slot(**body)
    _require_declared_types(slot)
    _require_valid_paths(slot)
    return slot


def _decode_streamed(said: Any) -> tuple[str, ...]:
    if said != [] and not (matches_types(said, (str, str, str)) and all(said)):
        raise TypeError(f"the field streamed has the invalid value {str(said)[:50]!r}")
    return tuple(said)


def _require_declared_types(slot: Slot) -> None:
    for one in (slot, *slot.files, *slot.plan):
        for name, kind in _KINDS[type(one)]:
            value: Any = getattr(one, name)
            if (
                not isinstance(value, kind)
                or isinstance(value, bool)
                or isinstance(value, int)
                and not 0 <= value < 1 << 63
            ):
                raise TypeError(f"the field {name} has the invalid value {str(value)[:50]!r}")
    pairs, planned = (*slot.replaced, *slot.victims), (path for group in slot.plan for path in group.logs)
    texts = [*(text for pair in pairs for text in pair), *slot.overwritten, *slot.swept, *slot.merged, *planned]
    texts += [*slot.settings, *slot.settings.values(), *slot.all_reached.values()]
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(one, dict) for one in (*slot.inserted, *slot.deleted)
    ):
        raise TypeError("a list in the slot contains a value that is not a string")


def check_changes(file: DataFile) -> None:
    if not matches_types(file.changes, {str: (int, str)}):
        raise ValueError(f"the changes of file {file.path} have the invalid value {str(file.changes)[:50]}")
    for path in file.changes:
        if not is_change_log_path(require_data_file_path(path)) or path.rpartition("/")[0] != file.partition:
            raise ValueError(f"file {path} is not a change log of file {file.path}")


def _require_valid_paths(slot: Slot) -> None:
    # Otherwise, cleaning could delete files outside of the table.
    for file in slot.files:
        require_data_file_path(file.path)
        if file.path.rpartition("/")[0] != file.partition:
            raise ValueError(f"file {file.path} is not in its partition {file.partition!r}")
        if file.index:
            require_path_in_folders(file.index, INDEX)
        if file.previous:
            require_data_file_path(file.previous)
        check_changes(file)
    for path in (
        *(path for group in slot.plan for path in (*([group.base] if group.base else ()), *group.logs)),
        *(path for path, _ in slot.victims),
        *slot.merged,
    ):
        require_data_file_path(path)
    for path in slot.swept:
        require_path_in_folders(path, INDEX)
    if slot.published:
        require_path_in_folders(slot.published, TIMELINE)
