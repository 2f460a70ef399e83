"""Planted bugs of exports to Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bug_registry import Patch, bug
from simulation import SLOW, Scene

from hoodoo.errors import ForeignExport
from hoodoo.exports import overlays
from hoodoo.exports.base_files import CommitChanges, live, yield_commit_changes
from hoodoo.exports.delta import delta_export
from hoodoo.exports.delta.actions import encode
from hoodoo.exports.delta.delta_schema import Json
from hoodoo.exports.delta.log import DeltaLogState, delta_commit_file_path
from hoodoo.exports.iceberg import iceberg_export
from hoodoo.exports.iceberg.metadata_files import HINT
from hoodoo.exports.request import ExportRequest
from hoodoo.exports.writing import MetadataFileWriter
from hoodoo.timeline.history import History
from hoodoo.timeline.views.view import FileGroup

_EXPORTED = Scene(("exporter", "exporter", "compactor", "cleaner"), SLOW)
_ARCHIVED = Scene(("exporter", "exporter", "clusterer", "merger", "archiver", "cleaner"), SLOW)


@bug("exports: one history", "a version is put whether or not somebody else put one of that number", _EXPORTED)
def versions_put_over_others(patch: Patch) -> None:
    def once(self: MetadataFileWriter, key: str, data: bytes) -> None:
        self.store.put(key, data)
        self._count(data)

    patch(MetadataFileWriter, "create_once", once)


@bug(
    "exports: one history",
    "an exporter that lost a number puts what it made under the next one",
    _EXPORTED,
)
def memory_gone_on_from(patch: Patch) -> None:
    def commit(self: Any, state: DeltaLogState, said: Sequence[Json]) -> None:
        version = state.version
        while version < state.version + 5:
            try:
                self.writing.create_once(delta_commit_file_path(version), encode(said))
                break
            except FileExistsError:
                version += 1
        self.versions += 1

    patch(delta_export._Exporter, "_commit", commit)


@bug("exports: one history", "the hint names a metadata file before it is there", _EXPORTED)
def hinted_before_it_is_there(patch: Patch) -> None:
    once = MetadataFileWriter.create_once

    def hasty(self: MetadataFileWriter, key: str, data: bytes) -> None:
        if key.startswith("metadata/v"):
            self.store.put(HINT, key.removeprefix("metadata/v").partition(".")[0].encode())
        once(self, key, data)

    patch(MetadataFileWriter, "create_once", hasty)


@bug("exports: the view of a slot", "a version of an older slot has the files of the newest one only", _EXPORTED)
def removed_by_the_newest_view(patch: Patch) -> None:
    def by_the_newest(history: History, after: int, until: int) -> Iterator[CommitChanges]:
        there = live(history.known_head())
        for step in yield_commit_changes(history, after, until):
            added = {path: file for path, file in step.changes.added.items() if path in there}
            yield replace(step, changes=replace(step.changes, added=added))

    patch(delta_export, "yield_commit_changes", by_the_newest)


@bug("exports: overlays", "an overlay stays although the logs of its file group changed", _EXPORTED)
def overlays_of_older_logs(patch: Patch) -> None:
    def of_the_base(group: FileGroup) -> int:
        return min(entry.seq for entry in group.files())

    patch(overlays, "_newest_slot", of_the_base)


@bug("exports: retention", "overlays go that the oldest readable slot has, once newer slots have others", _ARCHIVED)
def overlays_swept_by_the_newest_view(patch: Patch) -> None:
    def passed(history: History) -> Callable[[str], bool]:
        newest = {overlays._group_hash(one): overlays._newest_slot(one) for one in history.head().groups()}

        def is_older(name: str) -> bool:
            parsed = overlays._NAME.fullmatch(name)
            return parsed is not None and int(parsed[2], 16) < newest.get(parsed[1], 1 << 40)

        return is_older

    patch(delta_export, "create_unused_file_test", passed)
    patch(iceberg_export, "create_unused_file_test", passed)


@bug("exports: retention", "versions are deleted before a checkpoint stands for them", _EXPORTED)
def versions_deleted_without_a_checkpoint(patch: Patch) -> None:
    patch(delta_export._Exporter, "_write_checkpoint", lambda self, state, view, is_newest, from_log: None)


@bug("exports: retention", "a version stays whose files a clean has deleted", _EXPORTED)
def versions_stay_without_their_files(patch: Patch) -> None:
    patch(delta_export, "unchanged", lambda history, after, until: True)


@bug("exports: retention", "a snapshot stays whose files a clean has deleted", _EXPORTED)
def snapshots_stay_without_their_files(patch: Patch) -> None:
    patch(iceberg_export, "unchanged", lambda history, after, until: True)


@bug("exports: company", "files that others deleted meanwhile are taken for damage", _ARCHIVED)
def taken_for_damage(patch: Patch) -> None:
    def once(request: ExportRequest, format: str, folder: str, remedy: str, run: Callable[[int], Any]) -> Any:
        for _ in range(20):
            try:
                return run(request.until)
            except FileExistsError:
                continue
            except FileNotFoundError as problem:
                raise ForeignExport(str(problem)) from None
        raise AssertionError

    patch(delta_export, "export_with_retries", once)
    patch(iceberg_export, "export_with_retries", once)
