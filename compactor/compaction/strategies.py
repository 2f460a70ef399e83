"""Strategies for choosing files to compact.

All functions are pure functions of a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hoodoo.arguments import suggest_value
from hoodoo.compactor.compaction.triggers import behind, log_bytes
from hoodoo.errors import OptionError
from hoodoo.redact import printable
from hoodoo.timeline.slots.slot import PlannedGroup
from hoodoo.timeline.views.view import FileGroup, View

_PLAN_GROUPS = 64  # few enough that several workers share a table
_PLAN_IO_BYTES = 16 << 30


@dataclass(frozen=True)
class CompactionPlan:
    groups: tuple[FileGroup, ...]

    def __bool__(self) -> bool:
        return bool(self.groups)

    def as_requested(self) -> tuple[PlannedGroup, ...]:
        return tuple(
            PlannedGroup(
                group.partition,
                group.file_id,
                group.base_path,
                tuple(log.file.path for log in group.logs),
            )
            for group in self.groups
        )


def io_bytes(group: FileGroup) -> int:
    return 2 * group.base_bytes + log_bytes(group)


def _by_log_size(view: View, due: Sequence[FileGroup]) -> list[FileGroup]:
    return sorted(due, key=log_bytes, reverse=True)


def _by_newest_partition(view: View, due: Sequence[FileGroup]) -> list[FileGroup]:
    # Partitions named by date come newest first.
    return sorted(_by_log_size(view, due), key=lambda group: group.partition, reverse=True)


def _by_whole_partition(view: View, due: Sequence[FileGroup]) -> list[FileGroup]:
    # The partitions have no logs afterwards. Partitions with the most log bytes come first.
    due_partitions = {group.partition for group in due}
    weight = {partition: sum(map(log_bytes, view.groups([partition]))) for partition in due_partitions}
    return sorted(
        (group for group in behind(view) if group.partition in due_partitions),
        key=lambda group: (-weight[group.partition], group.partition, -log_bytes(group)),
    )


STRATEGIES: dict[str, Callable[[View, Sequence[FileGroup]], list[FileGroup]]] = {
    "log_size": _by_log_size,
    "newest_partitions": _by_newest_partition,
    "whole_partition": _by_whole_partition,
}


@dataclass(frozen=True)
class CompactionStrategy:
    """Strategy for choosing files to compact.

    Attributes:
        order: Order of the file groups: 'log_size' (most log bytes first), 'newest_partitions' or 'whole_partition'.
        io_bytes: Maximum number of bytes that one plan reads and writes. A plan has at least one file group.
        groups: Maximum number of file groups in one plan.
    """

    order: str = "log_size"
    io_bytes: int = _PLAN_IO_BYTES
    groups: int = _PLAN_GROUPS

    def __post_init__(self) -> None:
        if not isinstance(self.order, str) or self.order not in STRATEGIES:
            raise OptionError(
                f"Strategy {printable(self.order)} does not exist: expected one of "
                f"{', '.join(STRATEGIES)}.{suggest_value(self.order, tuple(STRATEGIES))}",
                option="strategy",
            )
        if self.io_bytes < 1:
            raise OptionError(
                f"Option io_bytes is invalid: expected an integer of at least 1, got {self.io_bytes!r}.",
                option="io_bytes",
            )

    def plan(self, view: View, due: Iterable[FileGroup]) -> CompactionPlan:
        chosen: list[FileGroup] = []
        remaining_bytes = self.io_bytes
        for group in STRATEGIES[self.order](view, list(due))[: self.groups]:
            remaining_bytes -= io_bytes(group)
            if remaining_bytes < 0 and chosen:
                break
            chosen.append(group)
        return CompactionPlan(tuple(chosen))
