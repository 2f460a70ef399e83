"""Planted bugs of commits that say how far an application has read its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bug_registry import Patch, bug
from simulation import SLOW, Scene
from stories import what_is_bad_is_kept_before_the_commit_that_moves_past_it

from hoodoo.arguments import ApplicationVersion
from hoodoo.ingestion.batch_writer import BatchWriter
from hoodoo.ingestion.job_quarantine import JobQuarantine
from hoodoo.ingestion.reading import SourceBatch
from hoodoo.timeline import applications
from hoodoo.writers import operations

_READING = Scene(("ingester", "ingester", "ingester", "compactor", "cleaner"), SLOW)


@bug("positions", "a number at or below the newest one is skipped, whatever was read under it", _READING)
def largest_number_wins(patch: Patch) -> None:
    def hasty(given: ApplicationVersion, versions: Mapping[str, int], reached: Mapping[str, str]) -> bool:
        return given.version <= versions.get(given.application, applications.NONE)

    patch(operations, "is_committed", hasty)


@bug("positions", "who lost a race commits what it read all the same", _READING)
def range_committed_after_a_lost_race(patch: Patch) -> None:
    judge = applications.is_committed

    def merging(given: ApplicationVersion, versions: Mapping[str, int], reached: Mapping[str, str]) -> bool:
        if given.position and given.version <= versions.get(given.application, applications.NONE):
            return False
        return judge(given, versions, reached)

    patch(operations, "is_committed", merging)


@bug(
    "positions",
    "what is bad is set aside after the commit that moves past it",
    story=what_is_bad_is_kept_before_the_commit_that_moves_past_it,
)
def quarantine_after_the_commit(patch: Patch) -> None:
    keep, write, waiting = JobQuarantine.read, BatchWriter._commit_batch, list[tuple[JobQuarantine, SourceBatch]]()

    def first_the_rows(writer: BatchWriter, *what: Any) -> Any:
        result = write(writer, *what)
        while waiting:
            keep(*waiting.pop())
        return result

    patch(JobQuarantine, "read", lambda aside, found: waiting.append((aside, found)))
    patch(BatchWriter, "_commit_batch", first_the_rows)
