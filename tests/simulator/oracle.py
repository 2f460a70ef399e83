"""What must hold, looked at after every step: invariants I1 to I13 of docs/protocol.md, from bytes in the store and the
actors' intents.

Truth is a plain dictionary (table_model.Model) to which the intents are applied in the order of the slots that carry
their nonces. Slots are read as JSON here, and file groups kept here, on purpose: hoodoo's own history, view and readers
are what is being judged.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from published import TIMELINE, Base, Files, Published, Row
from shared_store import Objects
from table_columns import Columns
from table_model import Model

from hoodoo.arguments import ApplicationVersion
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.storage.store import digest

SLOTS, PUBLISHED = ".hoodie/.hoodoo/commits/", ".hoodie/.hoodoo/published/"
TURN_REQUESTS = SLOTS + "turn-request-"
WATERMARKS = ".hoodie/.hoodoo/watermark/slots-"
_MAY_CHANGE = (".hoodie/.", ".hoodie/timeline/history/_version_")
_COMPLETES_AS = {"compaction": "commit"}
MOVES = ("CLUSTER", "LOG_COMPACT", "ALTER_SCHEMA")
BY_CONDITION = ("update", "delete where")
ADDED = 1_000  # to the value of each row, by an update
Identity = tuple[str, str]


@dataclass
class Intent:
    """One call of an actor that means to change rows. `known`: what its caller was told: '', ok, failed, unknown."""

    number: int
    actor: str
    operation: str
    rows: list[dict[str, Any]]
    partitions: list[str] = field(default_factory=list)
    existing: str = "fail"
    least: int = 0  # of an update or a delete by condition: rows whose ts is at least this match
    position: int = 0  # of a restore: the slot whose rows come back
    transaction: tuple[str, int] | ApplicationVersion | None = None
    begins: int = 0  # of an application that reads a source: the first message of the batch, and the one after its last
    reaches: int = 0
    repeats: bool = False  # a purge deletes again what comes back meanwhile
    known: str = ""
    why: str = ""
    slot: int = 0

    def matches(self, row: dict[str, Any]) -> bool:
        """Whether an update or a delete by condition means the row."""
        return row["ts"] >= self.least and row["city"] in (self.partitions or row["city"])

    def __str__(self) -> str:
        if self.operation == "restore":
            return f"#{self.number} restore slot {self.position}"
        if self.operation in BY_CONDITION:
            where = f"{' '.join(self.partitions)} ts >= {self.least}"
            return f"#{self.number} {self.operation} {where}{f' {self.transaction}' if self.transaction else ''}"
        rows = " ".join(
            f"{row['city']}/{row['id']}{'@' + str(row['ts']) if 'ts' in row else ''}"
            f"{' deleted' if row.get('_hoodie_is_deleted') else ''}"
            for row in self.rows
        )
        extra = f" existing={self.existing}" if self.operation == "insert" else ""
        return (
            f"#{self.number} {self.operation} "
            f"{rows or ' '.join(self.partitions)}{extra}{f' {self.transaction}' if self.transaction else ''}"
        )


@dataclass
class Group:
    """A file group as of a slot, by the slots alone."""

    base: str
    base_seq: int
    logs: tuple[tuple[int, str], ...]

    def paths(self) -> tuple[str, ...]:
        return (self.base, *(path for _, path in self.logs)) if self.base else tuple(path for _, path in self.logs)


class Oracle:
    def __init__(self, objects: Objects, ordered: bool) -> None:
        self.objects = objects
        self.files = Files(objects.data, ordered)
        self.published = Published(self.files)
        self.columns = Columns()
        self.model = Model(("id",), ("city",), ("ts",) if ordered else ())
        self.slots: list[dict[str, Any]] = [{}]
        self.shas = [""]
        self.truth: list[dict[Any, tuple[dict[str, Any], int]]] = [{}]
        self.groups: list[dict[tuple[str, str], Group]] = [{}]
        self.intents: list[Intent] = []
        self.owners: dict[str, Intent] = {}  # nonce -> intent
        self.ended: dict[str, str] = {}  # instant -> completed or rolled_back
        self.applications: dict[str, int] = {}
        self.reached: dict[tuple[str, int], int] = {}  # application and number -> the message after the last it read
        self.open_plans: dict[str, dict[str, Any]] = {}
        self.added: dict[str, dict[str, Any]] = {}  # path -> what the slot says of it
        self.dropped: dict[str, int] = {}
        self.min_readable = 1
        self.savepoints: dict[str, int] = {}
        self.saved: set[str] = set()  # names that ever were savepoints
        self.archived = 0  # slots up to this one may be gone
        self.shown = 0  # slots published so far
        self.violation = ""
        self.may_change = _MAY_CHANGE  # keys that may get other bytes
        self._merged: dict[tuple[str, ...], Base] = {}
        objects.watch = self.watch

    @property
    def head(self) -> int:
        return len(self.slots) - 1

    def wrong(self, invariant: str, text: str) -> None:
        self.violation = self.violation or f"{invariant}: {text}"

    # ---- what changes in the store
    def watch(self, what: str, key: str, before: bytes | None) -> None:
        try:
            if key.startswith(TURN_REQUESTS):
                return
            if key.startswith(SLOTS):
                self._slot_changed(what, key, before)
            elif what == "delete":
                self._deleted(key)
            else:
                self._put(key, before)
        except (AssertionError, KeyError, ValueError, TypeError) as problem:
            self.wrong("I2 no phantom", f"{what} {key}: {type(problem).__name__} {problem}")

    def _put(self, key: str, before: bytes | None) -> None:
        if before is not None and before != self.objects.data[key] and not key.startswith(self.may_change):
            self.wrong("I9 files", f"{key} was replaced by other bytes")
        self.published.put(key)
        if key.startswith((TIMELINE, PUBLISHED)):
            if (
                "_" in key[len(TIMELINE) :]
                and "/" not in key[len(TIMELINE) :]
                and not key.endswith(".savepoint")
                and not any(key == self._final(slot) for slot in self.slots[1:])
            ):
                self.wrong("I2 no phantom", f"{key} was published, which no slot says")
            while self.shown < self.head and self._final(self.slots[self.shown + 1]) in self.objects.data:
                self.shown += 1
            later = [slot for slot in self.slots[self.shown + 1 :] if self._final(slot) == key]
            if later:
                self.wrong("I13 Hudi's view", f"slot {later[0]['seq']} was published before slot {self.shown + 1}")

    def _deleted(self, key: str) -> None:
        self.published.delete(key)
        if key in self.added and self.is_needed(key):
            self.wrong(
                "I9 files",
                (
                    f"{key} of slot {self.added[key]['seq']} was deleted while snapshots from {self.min_readable} on "
                    "or an open plan need it"
                ),
            )

    def is_needed(self, path: str) -> bool:
        if path not in self.dropped or self.dropped[path] > self.min_readable:
            return True
        if any(self.added[path]["seq"] <= seq < self.dropped[path] for seq in self.savepoints.values()):
            return True
        return any(
            path in (group.get("base"), *group.get("logs", ()))
            for plan in self.open_plans.values()
            for group in plan.get("plan", ())
        )

    @staticmethod
    def _final(slot: dict[str, Any]) -> str:
        if slot["outcome"] == "planned":
            return f"{TIMELINE}{slot['instant']}.compaction.requested"
        if slot["action"] == "savepoint":
            return f"{PUBLISHED}{slot['seq']:020d}"
        completes_as = _COMPLETES_AS.get(slot["action"], slot["action"])
        return f"{TIMELINE}{slot['instant']}_{instant_of_ms(slot['completed_at'])}.{completes_as}"

    # ---- slots
    def _slot_changed(self, what: str, key: str, before: bytes | None) -> None:
        seq = int(key[len(SLOTS) :])
        if what == "delete":
            self._slot_archived(key, seq)
            return
        if seq <= self.archived and before is None:
            return  # a late request lands in the place of a slot that was archived: it must not count
        if before is not None:
            self.wrong("I10 slots", f"{key} was replaced")
            return
        data = self.objects.data[key]
        text = data[: data.rfind(b',"~":"')] + b"}"
        slot = json.loads(data)
        if slot["~"] != hashlib.sha256(text).hexdigest():
            self.wrong("I10 slots", f"{key} has a wrong digest")
        if (
            slot["seq"] != self.head + 1
            or int(key[len(SLOTS) :]) != slot["seq"]
            or slot.get("prev", "") != self.shas[-1]
        ):
            self.wrong("I10 slots", f"{key} does not follow slot {self.head}")
            return
        self.shas.append(hashlib.sha256(data).hexdigest())
        self._times(slot)
        self.slots.append(slot)
        self.columns.took(slot)
        self._outcome(slot)
        self._rows(slot)
        self._groups(slot)
        self._names(slot)
        self._compare(slot)

    def _slot_archived(self, key: str, seq: int) -> None:
        mark = max((int(found.rpartition("-")[2]) for found, _ in self.objects.page(WATERMARKS, "", 1000)), default=0)
        stands = bool(self.objects.data.get(f"{WATERMARKS}{mark:020d}"))
        kept = [*self.savepoints.values(), *(plan["seq"] for plan in self.open_plans.values())]
        if seq > mark or not stands or seq >= self.min_readable or seq in kept:
            self.wrong(
                "I10 slots",
                (
                    f"{key} was deleted; watermark {mark}, checkpoint {stands}, readable from {self.min_readable}, "
                    f"kept {kept}"
                ),
            )
        self.archived = max(self.archived, seq)

    def _times(self, slot: dict[str, Any]) -> None:
        own, planned = ms_of_instant(slot["instant"]), slot["outcome"] == "planned"
        before = self.slots[-1].get("completed_at", 0)
        if slot["completed_at"] <= before or (slot["completed_at"] != own if planned else slot["completed_at"] <= own):
            self.wrong(
                "I10 slots",
                (
                    f"slot {slot['seq']} of instant {slot['instant']} completed at {slot['completed_at']}, the one "
                    f"before at {before}"
                ),
            )

    def _outcome(self, slot: dict[str, Any]) -> None:
        outcome, instant = slot["outcome"], slot["instant"]
        if outcome == "planned":
            self.open_plans[instant] = slot
            return
        if outcome == "completed":
            self._end(instant, outcome)
            self.open_plans.pop(instant, None)
        else:
            self._end(slot["target"], outcome)
        self.min_readable = max(self.min_readable, slot.get("min_readable", 0))
        if slot.get("savepoint"):
            self.savepoints.pop(slot["savepoint"], None)
            if slot.get("position"):
                self.savepoints[slot["savepoint"]] = slot["position"]
                self.saved.add(slot["savepoint"])

    def _end(self, instant: str, outcome: str) -> None:
        if instant in self.ended:
            self.wrong("I8 one outcome", f"instant {instant} is {self.ended[instant]} and {outcome}")
        self.ended[instant] = outcome

    def _rows(self, slot: dict[str, Any]) -> None:
        """Apply the intent whose nonce the slot carries; a service that commits has none, for it changes no row."""
        writes = (
            slot["outcome"] == "completed"
            and slot["action"] in ("commit", "deltacommit", "replacecommit")
            and slot["operation"] not in MOVES
        )
        if writes and slot["seq"] > 1:
            intent = self.owners.get(slot["nonce"])
            if intent is None:
                self.wrong("I2 no phantom", f"slot {slot['seq']} carries a nonce that nobody drew for a write")
            else:
                self._apply(intent, slot)
        self.truth.append(dict(self.model.rows))

    def _apply(self, intent: Intent, slot: dict[str, Any]) -> None:
        seq = slot["seq"]
        if intent.slot and not intent.repeats:
            self.wrong("I2 no phantom", f"{intent} is in slots {intent.slot} and {seq}")
        if intent.known == "failed":
            self.wrong("I7 acknowledgement", f"{intent} was reported as failed ({intent.why}) and is in slot {seq}")
        intent.slot = seq
        if intent.transaction:
            application, version = intent.transaction[:2]
            if version <= self.applications.get(application, -1):
                self.wrong("I2 no phantom", f"{intent}: version {version} was committed before")
            if intent.reaches:
                self._follows(intent, slot, application, version)
            self.applications[application] = version
        if intent.operation == "insert" and intent.existing == "fail" and self.model.holds_any(intent.rows):
            self.wrong("I1 lost update", f"{intent} is in slot {seq} although a key existed")
        if intent.operation == "restore":
            self.model.rows = dict(self.truth[intent.position])
        elif intent.repeats and not slot.get("counts", {}).get("deletes"):
            return  # a purge that so far only forgets what a change log names
        else:
            self.carry_out(self.model, intent, seq)

    def _follows(self, intent: Intent, slot: dict[str, Any], application: str, version: int) -> None:
        """Each message of a source is in exactly one commit: a batch begins where the one before ended."""
        before = self.reached.get((application, version - 1), 0)
        if (version, intent.begins) != (self.applications.get(application, -1) + 1, before):
            self.wrong("I2 no phantom", f"{intent} reads from message {intent.begins} on, and {before} is the next")
        if slot.get("reached") != str(intent.reaches):
            self.wrong("I2 no phantom", f"{intent} reaches {intent.reaches}, its slot says {slot.get('reached')}")
        self.reached[application, version] = intent.reaches

    @staticmethod
    def carry_out(model: Model, intent: Intent, seq: int) -> None:
        rows = [dict(row) for row in intent.rows]
        if intent.operation == "upsert":
            model.upsert(rows, seq)
        elif intent.operation in ("insert", "bulk insert"):
            model.insert(rows, seq)
        elif intent.operation == "delete":
            model.delete(rows)
        elif intent.operation == "merge":
            model.merge(rows, lambda stored, row: {**stored, "v": stored["v"] + row["v"]}, seq)
            if intent.partitions:
                model.delete_where(lambda row: intent.matches(row) and not model.names(rows, row))
        elif intent.operation == "upsert columns":
            model.upsert_merged(rows, lambda stored, row: {**stored, "ts": row["ts"]}, "ignore", seq)
        elif intent.operation == "update":
            model.update(lambda row: {"v": row["v"] + ADDED}, intent.matches, seq)
        elif intent.operation == "delete where":
            model.delete_where(intent.matches)
        elif intent.operation == "overwrite":
            model.overwrite(rows, seq, whole=False)
        else:
            model.drop_partitions({(partition,) for partition in intent.partitions})

    def changes_nothing(self, intent: Intent, seq: int) -> bool:
        """Would the intent have left the snapshot at `seq` as it is?"""
        if intent.operation == "restore":
            return self.expected(intent.position) == self.expected(seq)
        model = Model(self.model.key, self.model.partition_by, self.model.order_by, dict(self.truth[seq]))
        self.carry_out(model, intent, -1)
        return model.rows == self.truth[seq]

    # ---- files of a slot
    def _groups(self, slot: dict[str, Any]) -> None:
        groups, seq = dict(self.groups[-1]), slot["seq"]
        if slot["outcome"] == "completed":
            for partition, file_id in slot.get("replaced", ()):
                self._drop(groups.pop((partition, file_id), None), seq)
            for file in slot.get("files", ()):
                self._check_file(file, seq)
                if (
                    slot["action"] == "compaction"
                    and file.get("schema", 1) != self.columns.at[: slot["plan_seq"] + 1][-1]
                ):
                    self.wrong("I9 files", f"{file['path']} has not the columns of the plan in slot {slot['plan_seq']}")
                place = file.get("partition", ""), file["file_id"]
                old = groups.get(place, Group("", 0, ()))
                if file["kind"] == "log":
                    merged = tuple(entry for entry in old.logs if entry[1] in slot.get("merged", ()))
                    self._drop(Group("", 0, merged), seq)
                    old = Group(old.base, old.base_seq, tuple(entry for entry in old.logs if entry not in merged))
                    groups[place] = Group(old.base, old.base_seq, (*old.logs, (seq, file["path"])))
                else:
                    kept = (
                        tuple(entry for entry in old.logs if entry[0] > slot["plan_seq"])
                        if slot.get("plan_seq")
                        else ()
                    )
                    self._drop(Group(old.base, 0, tuple(entry for entry in old.logs if entry not in kept)), seq)
                    groups[place] = Group(file["path"], seq, kept)
        self.groups.append(groups)

    def _drop(self, group: Group | None, seq: int) -> None:
        for path in group.paths() if group else ():
            self.dropped[path] = seq

    def _check_file(self, file: dict[str, Any], seq: int) -> None:
        path = file["path"]
        data = self.objects.data.get(path)
        if data is None:
            self.wrong("I9 files", f"slot {seq} names {path}, which is not there")
        elif len(data) != file["size"] or digest(data) != file["digest"]:
            self.wrong("I9 files", f"slot {seq} names {path} with another size or digest")
        self.added[path] = {"seq": seq, **file}

    def _names(self, slot: dict[str, Any]) -> None:
        """S5, S6: engines that go by the newest names and types read every live file right."""
        for group in self.groups[-1].values() if len(self.columns.schemas) > 1 else ():
            for path in group.paths():
                if why := self.columns.wrong_in(self.added[path], path != group.base):
                    self.wrong("I13 Hudi's view", f"{path} is live at slot {slot['seq']}, and {why}")

    def _value_in(self, path: str) -> str:
        return self.columns.value_in(self.added[path])

    def _compare(self, slot: dict[str, Any]) -> None:
        """I1: the rows of the files that the slots name are the replay of the intents."""
        if self.violation:
            return
        rows: dict[Identity, Row] = {}
        for (partition, file_id), group in self.groups[-1].items():
            paths = group.base, *(path for _, path in group.logs)
            if paths not in self._merged:
                self._merged[paths] = self.files.in_slot_order(group.base, paths[1:], self._value_in)
            for key, row in self._merged[paths].items():
                if (partition, key) in rows:
                    self.wrong(
                        "I3 key twice",
                        f"key {key} of {partition} is in file group {file_id} and another at slot {slot['seq']}",
                    )
                rows[partition, key] = row
        intent = self.owners.get(slot["nonce"])
        if slot.get("operation") == "RESTORE" or intent and intent.operation == "upsert columns":
            self._attribute(rows, slot)
        if rows != (want := self.expected(slot["seq"])):
            self.wrong(
                "I1 lost update", f"at slot {slot['seq']} the files give {shown(rows)}, the replay {shown(want)}"
            )

    def _attribute(self, rows: dict[Identity, Row], slot: dict[str, Any]) -> None:
        """A restore may leave a row where it was or write it anew, as of the restore's own slot, and so may an upsert
        of columns that reads no stored row: the values are the same.
        """
        for place, (row, _) in list(self.model.rows.items()):
            found = rows.get((f"city={place[0]}", place[1]))
            if found and found.commit == slot["instant"]:
                self.model.rows[place] = row, slot["seq"]
        self.truth[-1] = dict(self.model.rows)

    def expected(self, seq: int, after: int = 0) -> dict[Identity, Row]:
        """Rows of the snapshot at `seq`, of those that slots after `after` wrote."""
        found = {}
        for (city, key), (row, slot) in self.truth[seq].items():
            if slot > after:
                found[f"city={city}", key] = Row(row["ts"], row["v"], self.slots[slot]["instant"])
        return found

    # ---- after each step
    def check(self) -> None:
        if self.published.changed and not self.violation:
            self.published.changed = False
            try:
                rows, problem = self.published.rows()
            except (ValueError, KeyError) as broken:
                rows, problem = {}, f"{type(broken).__name__} {broken}"
            names = self.published.newest_columns()
            if problem:
                self.wrong("I13 Hudi's view", problem)
            elif names and names != (want_names := self.columns.names_at(self.shown)):
                self.wrong("I13 Hudi's view", f"Hudi's columns are {names}, at slot {self.shown} they are {want_names}")
            elif rows != (want := self.expected(self.shown)):
                self.wrong(
                    "I13 Hudi's view", f"Hudi sees {shown(rows)}, published up to slot {self.shown}: {shown(want)}"
                )

    # ---- what readers and writers report
    def read(self, seq: int, rows: list[dict[str, Any]], after: int, invariant: str) -> None:
        found: dict[Identity, Row] = {}
        for row in rows:
            place = f"city={row['city']}", row["id"]
            if place in found:
                self.wrong("I3 key twice", f"a reader at slot {seq} got {place} twice")
            found[place] = Row(row["ts"], row[self.columns.value_at(seq)], row["_hoodie_commit_time"])
        if found != (want := self.expected(seq, after)):
            self.wrong(
                invariant,
                (
                    f"a reader got {shown(found)} at slot {seq}{f' since {after}' if after else ''}, the replay says "
                    f"{shown(want)}"
                ),
            )

    def told(self, since: int, until: int, changes: list[dict[str, Any]]) -> None:
        """A consumer was told of these net changes: they are the difference of the two snapshots, each once."""
        before, after = self.truth[since], self.truth[until]
        found: dict[Any, tuple[Any, ...]] = {}
        value = self.columns.value_at(until)
        for change in changes:
            image = change["after"] or change["before"]
            if (place := (image["city"], image["id"])) in found:
                self.wrong("I5 changes", f"{place} was told twice of slots {since} to {until}")
            found[place] = tuple(side and (side["ts"], side[value]) for side in (change["before"], change["after"]))
        want = {}
        for place in before.keys() | after.keys():
            images = tuple(
                (rows[place][0]["ts"], rows[place][0]["v"]) if place in rows else None for rows in (before, after)
            )
            if images[0] != images[1]:
                want[place] = images
        if found != want:
            self.wrong("I5 changes", f"of slots {since} to {until} a consumer was told {found}, the replay says {want}")


def shown(rows: dict[Identity, Row]) -> str:
    return (
        "{"
        + ", ".join(
            f"{partition[5:]}/{key}: ts {row.ts} v {row.v} of {row.commit[8:]}"
            for (partition, key), row in sorted(rows.items())
        )
        + "}"
    )
