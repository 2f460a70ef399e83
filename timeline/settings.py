"""Settings of a table, which are options and checks.

Concurrent changes are therefore not lost, and a change applies from its slot on. For other engines, hoodie.properties
is then rewritten from the slots (timeline/hudi/publish.py).
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


def change_options(timeline: TableTimeline, given: Mapping[str, Any], check: Callable[[Options], Options]) -> Slot:
    """Change options of a table.

    All other options are kept.

    Args:
        timeline: The timeline of the table.
        given: The new values by option name.
        check: Raises OptionError for an invalid combination of options.
    """

    def draft(config: TableConfig) -> SlotDraft:
        check(table_options.validate_new_options(given, config.options))
        return SlotDraft(
            "SET_OPTIONS", settings=table_options.convert_options(config.options, given), needs=(SETTINGS,)
        )

    return _commit_settings(timeline, draft)


def replace_checks(timeline: TableTimeline, checks: Callable[[TableConfig], Mapping[str, str]]) -> Slot:
    """Replace all row checks of a table.

    Args:
        timeline: The timeline of the table.
        checks: Returns the new checks (name -> condition) for the current configuration. Raises an error if they are
            invalid.
    """

    def draft(config: TableConfig) -> SlotDraft:
        gone = dict.fromkeys(table_checks.to_properties(table_checks.stored(config.raw)), "")
        return SlotDraft("SET_CHECKS", settings=gone | table_checks.to_properties(checks(config)), needs=(SETTINGS,))

    return _commit_settings(timeline, draft)


def _commit_settings(timeline: TableTimeline, draft: Callable[[TableConfig], SlotDraft]) -> Slot:
    # An invalid change raises an error before any write.
    state = timeline.prepare_for_write()
    draft(state.config)
    return timeline.settle(OPTIONS, lambda view: draft(timeline.last_state().config), state)
