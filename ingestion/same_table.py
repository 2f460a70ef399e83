"""Check that a job does not read the table that it writes. Its own commits would be new changes forever."""

from __future__ import annotations

import os
from contextlib import suppress

from hoodoo.errors import OptionError
from hoodoo.sources.table_changes import TableChanges
from hoodoo.table import Table


def require_other(source: object, table: Table) -> None:
    """Raise OptionError if `source` contains the changes of `table` itself, even with another form of its path."""
    if isinstance(source, TableChanges) and _is_same(source.table, table):
        raise OptionError(
            f"{table.path} cannot take in its own changes: each batch would be a change that the next one takes in. "
            "Give the job another table to write.",
            option="source",
        )


def _is_same(one: Table, other: Table) -> bool:
    mine, theirs = one.handle.store, other.handle.store
    if mine.identity == theirs.identity:
        return True
    with suppress(OSError):  # one of them is not a local folder
        return os.path.samefile(mine.uri, theirs.uri)
    return False


__all__ = ["require_other"]
