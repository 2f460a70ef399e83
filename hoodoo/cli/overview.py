"""Overview of all commands for `hoodoo --help`."""

from __future__ import annotations

from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Start": ("demo", "create", "info", "options", "drop", "check-store"),
    "Write": ("upsert", "insert", "update", "delete", "purge", "ingest", "applications", "quarantine"),
    "Read": ("scan", "get", "sql", "incremental", "changes", "diff", "files", "duplicates"),
    "Columns": ("schema", "alter"),
    "History": ("history", "timeline", "savepoint", "restore"),
    "Maintain": ("services", "worker", "compact", "cluster", "clean", "archive", "expire"),
    "Repair": ("verify", "sweep", "rollback", "resolve", "salvage"),
    "Connect": ("export", "register", "adopt"),
}
"""Command names by task, in the order of the overview."""

_NAME = max(len(name) for names in GROUPS.values() for name in names)


def format_overview(summaries: Mapping[str, str]) -> str:
    """Format the list of commands for `hoodoo --help`.

    Args:
        summaries: The summary of each command. Only the part before the first semicolon is shown.
    """
    lines = []
    for group, names in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:<{_NAME}}  {summaries[name].partition(';')[0]}" for name in names]
    return "\n".join(lines)


__all__ = ["GROUPS", "format_overview"]
