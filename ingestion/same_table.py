"""Check that a job does not read and write the same table."""

from __future__ import annotations

import os
from contextlib import suppress

from hoodoo.errors import OptionError
from hoodoo.redact import printable
from hoodoo.sources.table_changes import TableChanges
from hoodoo.table import Table


def require_source_is_not_target(source: object, table: Table) -> None:
    if isinstance(source, TableChanges) and _is_same(source.table, table):
        raise OptionError(
            f"{table.path} cannot ingest its own changes, because each batch would create changes for the next batch. "
            "Give the job another target table.",
            option="source",
        )


def require_not_renamed(source: object, table: Table) -> None:
    """Check that the source table was not renamed.

    Raises OptionError if an earlier job has read it under its old path. The default name of a job contains the path.
    After a rename, a new job would read all rows again, and never detect rows that were deleted in the meantime.
    """
    if not isinstance(source, TableChanges) or table.inspect.application(source.name).version >= 0:
        return
    for application in table.inspect.applications():
        if source.has_read(application.position):
            raise OptionError(
                f"Job {printable(application.name)} has read the source table into {table.path}, before the source "
                f"table was renamed to {source.table.path}. To continue that job, pass "
                f"name={printable(application.name)} (--name). To read all rows again, pass another name.",
                option="name",
            )


def _is_same(one: Table, other: Table) -> bool:
    own_store, other_store = one.handle.store, other.handle.store
    if own_store.identity == other_store.identity:
        return True
    with suppress(OSError):  # one of them is not a local folder
        return os.path.samefile(own_store.uri, other_store.uri)
    return False


__all__ = ["require_not_renamed", "require_source_is_not_target"]
