"""Planted bugs of appending to Hudi's metadata table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bug_registry import Patch, bug
from simulation import DYING, SLOW, Scene

from hoodoo.storage.store import Store
from hoodoo.timeline.hudi import metadata_table
from hoodoo.timeline.hudi.metadata_table import MetadataTableState
from hoodoo.timeline.properties import metadata_properties
from hoodoo.timeline.slots.slot import Slot

_LISTED = Scene(("lister", "compactor", "cleaner"), SLOW, metadata_table=True)
_DYING = Scene(("lister", "compactor", "cleaner"), DYING, metadata_table=True)


@bug("metadata table 1", "statistics that know nothing of the files stay in use", _LISTED)
def statistics_stay_in_use(patch: Patch) -> None:
    def all_of_them(values: Mapping[str, str]) -> dict[str, str]:
        return dict(values)

    patch(metadata_properties, "with_files_only", all_of_them)


@bug("metadata table 2", "a list completes when its slot did, before a compaction of the lists", _LISTED)
def listed_before_a_compaction(patch: Patch) -> None:
    append = metadata_table.add_commit_files

    def in_its_own_time(store: Store, slot: Slot, table: MetadataTableState) -> None:
        append(store, slot, replace(table, newest_ms=0))

    patch(metadata_table, "add_commit_files", in_its_own_time)


@bug("metadata table 2", "a list that a dead helper began is taken for appended", _DYING)
def begun_is_appended(patch: Patch) -> None:
    look = metadata_table.read_metadata_table

    def hasty(store: Store, instant: str) -> Any:
        found = look(store, instant)
        begun = any(one.time == instant for one in metadata_table._instants(store))
        return found and replace(found, appended=found.appended or begun)

    patch(metadata_table, "read_metadata_table", hasty)
