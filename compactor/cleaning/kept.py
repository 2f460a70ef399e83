"""Reasons why cleaning kept files."""

from __future__ import annotations

from collections.abc import Sequence

from hoodoo.compactor.cleaning.retention import (
    Retention,
    find_oldest_kept_snapshot,
    find_oldest_retained_commit,
    list_consumers_delaying_cleaning,
)
from hoodoo.timeline.holds import leases
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import ReplacedFile, View


def explain_kept_files(timeline: TableTimeline, keep: Retention) -> str:
    view = timeline.history.head()
    if not view.superseded:
        return "no file was replaced since the last cleaning, and files of the newest snapshot always stay"
    replaced = view.superseded
    beyond = [entry for entry in replaced if entry.dropped <= find_oldest_kept_snapshot(timeline, view, keep)]
    reasons = (
        _describe_holders(timeline, view, beyond) if beyond else _describe_retention(timeline, view, keep, replaced)
    )
    return f"{'; '.join(reasons)}. Files that were replaced: {len(replaced):,}"


def _describe_holders(timeline: TableTimeline, view: View, beyond: Sequence[ReplacedFile]) -> list[str]:
    reasons = [
        f"savepoint {name!r} needs them"
        for name, seq in sorted(view.savepoints.items())
        if any(entry.is_needed_at(seq) for entry in beyond)
    ]
    leased = sorted(leases.list_protected_commits(timeline.store))
    reasons += [f"a pin holds slot {seq}" for seq in leased if any(entry.is_needed_at(seq) for entry in beyond)]
    paths = {entry.path for entry in beyond}
    reasons += [
        f"the open compaction plan {instant} needs them"
        for instant, plan in sorted(view.plans.items())
        if any(path in paths for group in plan.groups for path in (group.base, *group.logs))
    ]
    return reasons or ["another writer or service was active; clean again"]


def _describe_retention(
    timeline: TableTimeline, view: View, keep: Retention, replaced: Sequence[ReplacedFile]
) -> list[str]:
    first = min(entry.dropped for entry in replaced)
    reasons = []
    if find_oldest_retained_commit(timeline, view, keep.hours, 1) < first:
        reasons.append(f"retain_hours={keep.hours:g} keeps the snapshots of that time")
    if find_oldest_retained_commit(timeline, view, 0, keep.commits) < first:
        reasons.append(
            f"retain_commits={keep.commits} keeps the snapshots of the newest {keep.commits} commits, however old"
        )
    reasons += [
        f"consumer {consumer.name!r} has only read up to slot {consumer.position}"
        for consumer in list_consumers_delaying_cleaning(timeline, view, keep)
        if consumer.position < first
    ]
    return reasons
