"""Files with old column names or types, which need a rewrite.

Some engines match columns by name (Apache Hudi on Spark, the `hudi` package), and read old files with the newest names
and types. A column change only rewrites the files that these engines would read incorrectly (docs/columns.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.errors import RewriteNeeded
from hoodoo.format.table_schema import Column, TableSchema
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View


@dataclass(frozen=True)
class FilesToRewrite:
    """Files that a column change must rewrite.

    Attributes:
        wrong: File groups with a file that engines would read incorrectly because they match columns by name.
        logged: All other file groups with logs that some engines could no longer read.
    """

    wrong: tuple[FileGroup, ...] = ()
    logged: tuple[FileGroup, ...] = ()

    @property
    def groups(self) -> tuple[FileGroup, ...]:
        return (*self.wrong, *self.logged)


def select_files_to_rewrite(
    config: TableConfig, view: View, after: TableSchema, everything: bool = False
) -> FilesToRewrite:
    """Select the files that a column change must rewrite.

    Args:
        config: The configuration of the table, with its columns before the change.
        view: The view of the table.
        after: The columns after the change.
        everything: True includes files that other engines already read incorrectly, because one of them changed a
            column to a type whose values they convert differently.
    """
    verdicts: dict[int, bool] = {}
    touches_logs = needs_log_rewrite(config.columns, after)
    wrong, logged = [], []
    for group in view.groups():
        files = [entry.file for entry in group.files()]
        for file in files:
            if file.schema not in verdicts:
                verdicts[file.schema] = would_be_misread(
                    config.columns_of(file), None if everything else config.columns, after
                )
        if any(verdicts[file.schema] for file in files):
            wrong.append(group)
        elif touches_logs and group.logs:
            logged.append(group)
    return FilesToRewrite(tuple(wrong), tuple(logged))


def would_be_misread(file: TableSchema, before: TableSchema | None, after: TableSchema) -> bool:
    """Check whether other engines would misread a file.

    A column is read incorrectly if it has a different name in the file, if a different column has its name, or if such
    engines convert its values differently from hoodoo. Types that the change does not affect are ignored.

    Args:
        file: The schema that the file was written with.
        before: The schema of the table before the change, or None to check all types.
        after: The schema that the reader uses.
    """
    known = before.by_id if before else {}
    return has_outdated_names(file, after) or any(
        _is_wrong_type(file.by_id[number], column, nested=after.parent_and_name[number][0] != 0)
        and not (number in known and known[number].kind == column.kind)
        for number, column in after.by_id.items()
        if number in file.by_id
    )


def has_outdated_names(file: TableSchema, now: TableSchema) -> bool:
    """Check whether a file has outdated column names.

    Engines that match columns by name read such a file incorrectly. True if a column of `now` has a different name in
    `file`, or if its name belongs to a different column there.
    """
    names = set(file.parent_and_name.values())
    return any(
        file.parent_and_name[number] != current if number in file.parent_and_name else current in names
        for number, current in now.parent_and_name.items()
    )


def find_outdated_names(config: TableConfig, view: View) -> tuple[FileGroup, ...]:
    """Find the files with outdated column names.

    Such files exist if Apache Hudi renamed a column, or dropped and added it again, with its internal schema.
    They also exist if Hudi wrote during a column change without noticing it.
    """
    if config.columns.hudi is None and not (config.options.hudi_writers and view.schemas):
        return ()  # neither of the two cases can have occurred
    verdicts: dict[int, bool] = {}
    groups = []
    for group in view.groups():
        for entry in group.files():
            if entry.file.schema not in verdicts:
                verdicts[entry.file.schema] = has_outdated_names(config.columns_of(entry.file), config.columns)
            if verdicts[entry.file.schema]:
                groups.append(group)
                break
    return tuple(groups)


def require_current_names(config: TableConfig, view: View) -> None:
    """Check that no file has outdated column names.

    Raises RewriteNeeded if one has. After a commit of hoodoo, which does not contain Hudi's internal schema, other
    engines match columns by name and would read such files incorrectly.
    """
    if groups := find_outdated_names(config, view):
        raise rewrite_needed(
            groups,
            "Column names in old files differ from the table's, because Apache Hudi changed columns with "
            "hoodie.schema.on.read.enable or wrote during a column change: ",
            "Run alter([], rewrite=True) (hoodoo alter PATH rewrite), and then write again.",
        )


def rewrite_needed(
    groups: Sequence[FileGroup], why: str = "", remedy: str = "Pass rewrite=True (--rewrite)."
) -> RewriteNeeded:
    files = [entry.file for group in groups for entry in group.files()]
    rows = sum(group.base.file.rows for group in groups if group.base)
    size = sum(file.size for file in files)
    hint = (
        " Change logs are not rewritten, so Hudi's change queries return null in a renamed column for changes before "
        "the rename."
        if any(file.changes for file in files)
        else ""
    )
    return RewriteNeeded(
        f"{why}{len(groups)} file groups with {rows} rows ({size} bytes) must be rewritten, because engines "
        f"that match columns by name would read them incorrectly. Nothing was changed. {remedy}{hint}",
        groups=len(groups),
        rows=rows,
        bytes=size,
    )


def _is_wrong_type(was: Column, now: Column, nested: bool) -> bool:
    if isinstance(was.kind, str) or isinstance(now.kind, str) or was.kind == now.kind:
        return False
    return nested or pa.types.is_float32(was.kind) or str(was.kind) in now.retyped


def needs_log_rewrite(before: TableSchema, after: TableSchema) -> bool:
    """Check whether log files need a rewrite for other engines."""
    for column in after.by_id.values():
        old = before.by_id.get(column.id)
        if old is None:
            continue
        if old.kind != column.kind or {child.id for child in old.children} != {child.id for child in column.children}:
            return True
    return False


def describe(before: TableSchema | None, after: TableSchema) -> list[str]:
    if before is None:
        return [f"create {', '.join(column.name for column in after.columns)}"]
    changes = []
    for column in after.by_id.values():
        old = before.by_id.get(column.id)
        path = path_of(after, column.id)
        if old is None:
            if after.parent_and_name[column.id][0] == 0 or after.parent_and_name[column.id][0] in before.by_id:
                changes.append(f"add {path} {column.arrow}")
            continue
        if old.name != column.name:
            changes.append(f"rename {path_of(before, column.id)} to {column.name}")
        if old.kind != column.kind and not isinstance(column.kind, str):
            verb = "retype" if str(old.kind) in column.retyped else "widen"
            changes.append(f"{verb} {path} from {old.kind} to {column.kind}")
        if old.required and not column.required:
            changes.append(f"make {path} nullable")
    dropped = [
        one for one in before.by_id if one not in after.by_id and before.parent_and_name[one][0] in (0, *after.by_id)
    ]
    changes += [f"drop {path_of(before, one)}" for one in dropped]
    kept = [column.id for column in before.columns if column.id in {one.id for one in after.columns}]
    if kept != [column.id for column in after.columns if column.id in set(kept)]:
        changes.append(f"order {', '.join(column.name for column in after.columns)}")
    return changes or ["no change"]


def path_of(schema: TableSchema, number: int) -> str:
    around, name = schema.parent_and_name[number]
    if not around:
        return name
    kind = schema.by_id[around].kind
    step = {"list": "[]", "map": "{}"}.get(str(kind), f".{name}")
    return path_of(schema, around) + step


__all__ = [
    "FilesToRewrite",
    "needs_log_rewrite",
    "describe",
    "has_outdated_names",
    "would_be_misread",
    "find_outdated_names",
    "path_of",
    "require_current_names",
    "rewrite_needed",
    "select_files_to_rewrite",
]
