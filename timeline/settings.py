"""A table's options and checks change by a slot, so that two who change them lose nothing, and every reader knows since
when they hold.

hoodie.properties is rewritten from the slots afterwards (timeline/hudi/publish.py), for whoever reads only that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hoodoo.timeline.commits.draft import SlotDraft
from hoodoo.timeline.instant import OPTIONS
from hoodoo.timeline.properties import check_properties as table_checks
from hoodoo.timeline.properties import table_options
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import Options
from hoodoo.timeline.slots.slot import SETTINGS, Slot
from hoodoo.timeline.timeline import TableTimeline


def change(timeline: TableTimeline, given: Mapping[str, Any], check: Callable[[Options], Options]) -> Slot:
    """Take a slot that sets the options `given`; others stay as they are by then. check: raises OptionError for what
    does not go together.
    """

    def draft(config: TableConfig) -> SlotDraft:
        check(table_options.with_options(given, config.options))
        return SlotDraft("SET_OPTIONS", settings=table_options.changes(config.options, given), needs=(SETTINGS,))

    return _settled(timeline, draft)


def change_checks(timeline: TableTimeline, checks: Callable[[TableConfig], Mapping[str, str]]) -> Slot:
    """Take a slot from which on the table has exactly `checks` of its configuration as it is by then: name -> text.
    They raise for what does not fit it.
    """

    def draft(config: TableConfig) -> SlotDraft:
        gone = dict.fromkeys(table_checks.to_properties(table_checks.stored(config.raw)), "")
        return SlotDraft("SET_CHECKS", settings=gone | table_checks.to_properties(checks(config)), needs=(SETTINGS,))

    return _settled(timeline, draft)


def _settled(timeline: TableTimeline, draft: Callable[[TableConfig], SlotDraft]) -> Slot:
    """The slot of `draft`. What it refuses of the table as it is now is refused before anything is begun."""
    state = timeline.ready()
    draft(state.config)
    return timeline.settle(OPTIONS, lambda view: draft(timeline.known().config), state)
