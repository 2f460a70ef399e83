"""Public function `hoodoo.use`, which sets the folder in use."""

from __future__ import annotations

import os

from hoodoo.errors import CallError
from hoodoo.hints import takes
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline.layout import PROPERTIES

_used: list[str] = []  # the folder of the last call, or empty


@takes
def use(folder: str | os.PathLike[str] | None) -> None:
    """Set the folder in which `hoodoo.sql` finds tables by name.

    After `hoodoo.use("lake")`, `SELECT ... FROM gold` reads the table at lake/gold, and in Spark SQL, `CREATE TABLE
    gold (...) USING hoodoo` creates it. Names ignore case. The folder applies to all sessions of this process. Tables
    that are passed to `sql`, and tables and views of the Spark session, hide tables of the folder.

    Args:
        folder: A local folder or 's3://bucket/prefix'. None: no folder.

    Raises:
        CallError: The folder is a table.
        OptionError: The path is not valid.
    """
    if folder is None:
        _used.clear()
        return
    store = open_store(folder)
    if store.exists(PROPERTIES):
        raise CallError(
            f"Path {store.uri} is a table: expected a folder of tables. Pass its parent folder, or open the table with "
            "hoodoo.open(path).",
            path=store.uri,
        )
    _used[:] = [store.uri]


def folder_in_use() -> str | None:
    return _used[0] if _used else None


def tables_in_folder() -> dict[str, str]:
    """Return the paths of the subfolders of the folder in use, by lower-case name.

    The subfolders may not be tables. If two names differ only in case, the first one is used.
    """
    if not _used:
        return {}
    return {name.lower(): f"{_used[0]}/{name}" for name in reversed(open_store(_used[0]).folders())}
