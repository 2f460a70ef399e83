"""A table's options and checks change by a slot, so that two who change them lose nothing, and every reader knows since
when they hold.

hoodie.properties is rewritten from the slots afterwards (timeline/hudi/publish.py), for whoever reads only that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hoodoo.timeline import checks as table_checks
from hoodoo.timeline import options as table_options
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.draft import SlotDraft
from hoodoo.timeline.instant import OPTIONS
from hoodoo.timeline.options import Options
from hoodoo.timeline.slot import SETTINGS, Slot
from hoodoo.timeline.timeline import Timeline
from hoodoo.timeline.view import View


def change(timeline: Timeline, given: Mapping[str, Any], check: Callable[[Options], Options]) -> Slot:
    """Take a slot that sets the options `given`; others stay as they are by then. check: raises OptionError for what
    does not go together.
    """

    def draft(view: View) -> SlotDraft:
        before = timeline.known().config.options
        check(table_options.with_options(given, before))
        return SlotDraft("SET_OPTIONS", settings=table_options.changes(before, given), needs=(SETTINGS,))

    return timeline.settle(OPTIONS, draft)


def change_checks(timeline: Timeline, checks: Mapping[str, str], check: Callable[[TableConfig], object]) -> Slot:
    """Take a slot from which on the table has exactly `checks`. check: raises what does not fit the table as it is by
    then.
    """

    def draft(view: View) -> SlotDraft:
        config = timeline.known().config
        check(config)
        gone = dict.fromkeys(table_checks.to_properties(table_checks.stored(config.raw)), "")
        return SlotDraft("SET_CHECKS", settings=gone | table_checks.to_properties(checks), needs=(SETTINGS,))

    return timeline.settle(OPTIONS, draft)
