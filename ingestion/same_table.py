"""Checks of jobs whose source is another table, such as whether both are one table."""

from __future__ import annotations

import os
from contextlib import suppress

from hoodoo.errors import OptionError
from hoodoo.redact import printable
from hoodoo.sources.table_changes import TableChanges
from hoodoo.table import Table


def require_other(source: object, table: Table) -> None:
    """Raise OptionError if a job would read the changes of its own target table, even through another path."""
    if isinstance(source, TableChanges) and _is_same(source.table, table):
        raise OptionError(
            f"{table.path} cannot take in its own changes: each batch would be a change that the next one takes in. "
            "Give the job another table to write.",
            option="source",
        )


def require_not_renamed(source: object, table: Table) -> None:
    """Raise OptionError if an earlier job has read the source table into `table` before the source was renamed.

    The default name of a job contains the path. After a rename, a new job would read all rows again, and never see what
    was deleted in the meantime.
    """
    if not isinstance(source, TableChanges) or table.inspect.application(source.name).version >= 0:
        return
    for one in table.inspect.applications():
        if source.has_read(one.position):
            raise OptionError(
                f"Job {printable(one.name)} has read the source table into {table.path}, before the source table was "
                f"renamed to {source.table.path}. To continue that job, pass name={printable(one.name)} "
                "(--name). To read all rows again, pass another name.",
                option="name",
            )


def _is_same(one: Table, other: Table) -> bool:
    mine, theirs = one.handle.store, other.handle.store
    if mine.identity == theirs.identity:
        return True
    with suppress(OSError):  # one of them is not a local folder
        return os.path.samefile(mine.uri, theirs.uri)
    return False


__all__ = ["require_not_renamed", "require_other"]
