"""Upgrade of a table from version 6 to 9.

Hudi 1.x performs the same upgrade at its first write. The upgrade runs open compaction plans and compacts all logs.
Then it writes a new timeline next to the old one and replaces the properties, which refer to the new timeline.

No other process may write to the table during the upgrade. The table has version 6, with at most an additional
compaction, until the properties are replaced, and version 9 afterwards. Readers see the same rows before and after each
step. After a crash, another upgrade continues from the last finished step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow.parquet as pq

from hoodoo.compactor.compaction.merge_group import MergeTask
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.engine.protocol import Engine
from hoodoo.errors import UnsupportedTable
from hoodoo.format import properties as java
from hoodoo.format.names import RECORD_KEY, BaseFileName, LogFileName, instant_of_ms, ms_of_instant, parse_data_file
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi import archived_timeline, timeline_v1
from hoodoo.timeline.hudi.commit_metadata import compaction_plan, encode_commit_metadata
from hoodoo.timeline.hudi.publish import list_data_files
from hoodoo.timeline.hudi.timeline_v1 import TimelineV1History
from hoodoo.timeline.hudi.upgraded_instants import upgrade_timeline
from hoodoo.timeline.instant import COMPACTION, State
from hoodoo.timeline.layout import HOODIE, PROPERTIES, TIMELINE
from hoodoo.timeline.properties import hoodie_properties, metadata_properties
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import COMPLETED, LOG, DataFile, PlannedGroup, Slot
from hoodoo.timeline.views.view import FileGroup, PendingCompaction, View
from hoodoo.writers.adopt import CommitImporter

_PRECOMBINE, _PAYLOAD = "hoodie.table.precombine.field", "hoodie.compaction.payload.class"
_GENERATOR = "hoodie.table.keygenerator.class"


@dataclass(frozen=True)
class AdoptResult:
    """Result of adopting a table of another engine.

    Attributes:
        version: The version of the table before the call.
        compacted: Number of file groups that were compacted. Version 9 reads the logs of version 6 differently.
        instants: Number of instants in Hudi's new timeline, or 0 if no new timeline was written.
        slot: The number of the newest slot.
    """

    version: int
    compacted: int
    instants: int
    slot: int


def upgrade_table(store: Store, environment: Environment, engine: Engine) -> AdoptResult:
    """Upgrade a table from version 6 to version 9.

    The number `slot` in the result is 0.

    Raises:
        UnsupportedTable: The table cannot be upgraded. Nothing has been written.
        CorruptTable: A file is damaged.
    """
    run = _Upgrade(store, environment, engine)
    run.require_possible()
    metadata_properties.remove_metadata_table(store, environment.now_ms())  # it would not contain the compaction
    compacted = run.compact()
    instants = run.write_timeline()
    newest = _properties_of_version_9(hoodie_properties.load(store))
    store.put(PROPERTIES, hoodie_properties.render(newest, environment.now_ms()))
    return replace(finish_upgrade(store, run.config), compacted=compacted, instants=instants)


def finish_upgrade(store: Store, config: TableConfig) -> AdoptResult:
    """Finish an interrupted upgrade.

    The instants of version 6 are deleted. This last step may be missing after a crash.
    """
    for key in timeline_v1.keys(store):
        store.delete(key)
    return AdoptResult(int(config.raw["hoodie.table.version"]), 0, 0, 0)


class _Upgrade:
    def __init__(self, store: Store, environment: Environment, engine: Engine) -> None:
        self.store, self.environment, self.engine = store, environment, engine
        self.config = hoodie_properties.load(store)
        self.history = TimelineV1History(store, self.config)

    def require_possible(self) -> None:
        view, all_instants = self.history.head(), self.history.instants()
        completed = {entry.time for entry in all_instants if entry.state is State.COMPLETED}
        if not completed:
            raise UnsupportedTable(
                "This table of version 6 contains no commit, so there is nothing to adopt. Delete the folder, and "
                "create the table with hoodoo.create."
            )
        for entry in all_instants:
            if entry.time not in completed and entry.action != COMPACTION:
                raise UnsupportedTable(
                    f"The {entry.action} at {entry.time} is pending. First let Apache Hudi finish it or roll it back: "
                    "any write by Hudi does so.",
                    instant=entry.time,
                )
        if self.config.virtual_keys:
            raise UnsupportedTable(
                "Tables with hoodie.populate.meta.fields=false cannot be adopted, because hoodoo writes only to "
                "tables with meta columns. Create a table with hoodoo.create, and insert the rows of a scan of this "
                "table.",
                property="hoodie.populate.meta.fields",
            )
        if view.savepoints and (shared := self._path_of_shared_log()):
            raise UnsupportedTable(
                f"Log file {shared} contains blocks of several commits, which version 9 cannot distinguish: the "
                f"snapshots of the savepoints {', '.join(sorted(view.savepoints))} would be unreadable. Delete these "
                "savepoints with Hudi first.",
                file=shared,
            )
        upgrade_timeline(self.history)  # raises if version 9 cannot express the history
        CommitImporter(self.history, self.engine, self.environment.now_ms()).require_adoptable(self._seen(view), view)

    def _seen(self, view: View) -> TableConfig:
        return replace(self.config, created=self.history.created()).with_schemas(view.schemas)

    def _path_of_shared_log(self) -> str:
        # Version 9 does not support a log file that several commits wrote to.
        seen = set[str]()
        for slot in self.history.slots(0, self.history.known_head().seq):
            for file in slot.files:
                if file.kind == LOG and (file.path in seen or file.blocks.startswith("<")):
                    return file.path
                seen.add(file.path)
        return ""

    # ---- compaction of all logs of version 6
    def compact(self) -> int:
        # Open compaction plans run first.
        done, view = 0, self.history.head()
        for plan in sorted(view.plans.values(), key=lambda plan: plan.instant):
            done += self._run_compaction_plan(plan, self.history.head())
        view = self.history.head()
        if groups := [group for group in view.groups() if group.logs]:
            done += self._run_compaction_plan(self._planned(view, groups), self.history.head())
            self.history.head()
        return done

    def _planned(self, view: View, groups: Sequence[FileGroup]) -> PendingCompaction:
        newest = max(entry.time for entry in self.history.instants())
        instant = instant_of_ms(max(self.environment.now_ms(), ms_of_instant(newest) + 1))
        plan = tuple(
            PlannedGroup(group.partition, group.file_id, group.base_path, tuple(_log_paths(group))) for group in groups
        )
        sizes = {entry.file.path: entry.file.size for group in groups for entry in group.files()}
        self.store.create(f"{HOODIE}{instant}.compaction.requested", compaction_plan(plan, sizes))
        return PendingCompaction(view.seq + 1, instant, ms_of_instant(instant), plan)

    def _run_compaction_plan(self, plan: PendingCompaction, view: View) -> int:
        # Merges the logs of the plan into base files with the plan's instant. Later logs stay.
        self.store.write_once(f"{HOODIE}{plan.instant}.compaction.inflight", b"")
        config = self._seen(view)
        current_groups = (view.group(planned.partition, planned.file_id) for planned in plan.groups)
        groups = [self._known(config, _logs_before_plan(group, plan.instant)) for group in current_groups if group]
        names = {f"{group.file_id}_0-0-0_{plan.instant}.parquet" for group in groups}
        for _, key in list(list_data_files(self.store, plan.instant)):  # left by an earlier run of the plan
            if isinstance(parse_data_file(name := key.rpartition("/")[2]), BaseFileName) and name not in names:
                self.store.delete(key)
        at_once = max(1, min(self.engine.threads, len(groups)))
        memory = ServiceLimits.memory_bytes if self.engine.remote else ServiceLimits.memory_bytes // at_once
        tasks = [MergeTask(self.store, config, plan.instant, group, memory) for group in groups]
        files = self.engine.map(_merge, tasks)
        slot = Slot(
            seq=view.seq + 1,
            prev="",
            table=view.table,
            instant=plan.instant,
            action=COMPACTION,
            outcome=COMPLETED,
            operation="COMPACT",
            nonce="",
            base_seq=view.seq,
            completed_at=plan.planned_at,
            writer=self.environment.writer(),
            files=tuple(files),
        )
        record = timeline_avro.decode_timeline_file(encode_commit_metadata(slot, config.schema_text, plan.groups))
        self.store.create(f"{HOODIE}{plan.instant}.commit", json.dumps(_without_nulls(record)).encode())
        return len(files)

    def _known(self, config: TableConfig, group: FileGroup) -> FileGroup:
        # A merge needs the origin and the row counts of the files.
        base = group.base and group.base._replace(file=self._counted(group.base.file))
        schema = slices.schema_of(config, slices.columns_to_decode(config, [RECORD_KEY], merging=True))
        rows = sum(len(part) for part in slices.read_log_blocks(self.store, config, group, schema))
        logs = [log._replace(file=replace(log.file, origin="hudi", rows=0)) for log in group.logs]
        if logs:
            logs[-1] = logs[-1]._replace(file=replace(logs[-1].file, rows=rows))
        return replace(group, base=base, logs=tuple(logs))

    def _counted(self, file: DataFile) -> DataFile:
        with slices.opened(self.store, file) as source:
            return replace(file, origin="hudi", rows=pq.read_metadata(source).num_rows)

    # ---- the timeline
    def write_timeline(self) -> int:
        # Version 6 ignores the timeline of version 9. Returns the number of instants in it.
        new = upgrade_timeline(self.history)
        for key, _ in list(self.store.list(TIMELINE)):  # left by an unfinished upgrade
            self.store.delete(key)
        for key, data in new.files:
            self.store.create(key, data)
        if new.archived:
            archived_timeline.append_to_archive(self.store, new.archived)
        return len({key.rpartition("/")[2][:17] for key, _ in new.files})


def _merge(task: MergeTask) -> DataFile:
    return task()


def _log_paths(group: FileGroup) -> Iterator[str]:
    return iter(dict.fromkeys(log.file.path for log in group.logs))


def _logs_before_plan(group: FileGroup, instant: str) -> FileGroup:
    def precedes(file: DataFile) -> bool:
        parsed = parse_data_file(file.name)
        return isinstance(parsed, LogFileName) and parsed.instant < instant

    return replace(group, logs=tuple(log for log in group.logs if precedes(log.file)))


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _properties_of_version_9(config: TableConfig) -> dict[str, str]:
    # The properties are those of an upgrade by Hudi 1.2. The key generator follows from the key and partition columns,
    # so that new keys are encoded like the stored keys. The complex key generator would now encode a single key column
    # differently.
    values = {name: text for name, text in config.raw.items() if name not in (_PRECOMBINE, _PAYLOAD, _GENERATOR)}
    legacy = {"hoodie.table.legacy.payload.class": config.raw[_PAYLOAD]} if config.raw.get(_PAYLOAD) else {}
    order = {"hoodie.table.ordering.fields": ",".join(config.order_by)} if config.order_by else {}
    name, database = config.name, config.raw.get("hoodie.database.name", "")
    return {
        **values,
        **legacy,
        **order,
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": config.raw.get("hoodie.table.initial.version", "6"),
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.table.keygenerator.type": hoodie_properties.key_generator_for(config.key, config.partition_by),
        "hoodie.record.merge.mode": config.merge_mode,
        "hoodie.table.checksum": java.checksum(database, name),
    }


__all__ = ["AdoptResult", "finish_upgrade", "upgrade_table"]
