"""Every option of a table, declared once: default, effect, cost. They are kept in hoodie.properties as `hoodoo.<name>`.

What decides results (key, partitioning, ordering, table type) is not an option but an argument of `create`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hoodoo.errors import OptionError
from hoodoo.storage.redact import printable
from hoodoo.timeline.synonyms import meant

PREFIX = "hoodoo."
ARGUMENTS = ("path", "schema", "key", "partition_by", "order_by", "type", "storage", "name", "change_log", "checks")
"""What create() takes besides options."""
_MAX = 10**12
_DIGITS_MAX = 40
MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """What a table does by itself and what that may cost: arguments of create() and set_options(), kept in the
    table.
    """

    # Behaviour
    target_file_bytes: int = 120 * MIB  # size a base file grows to; larger: fewer files, dearer rewrites
    # logs of one file group before a writer compacts it itself, if no worker lives; None: never
    compact_after_logs: int | None = 10
    # a worker compacts logs that are older, however few they are; None: age does not count
    compact_age_s: float | None = 600.0
    # ... a file group whose logs have this many bytes per byte of its base (and more than 1 MiB)
    compact_log_ratio: float | None = 0.5
    # ... the largest logs, while reading the table takes this many bytes per byte compacted
    compact_read_amplification: float | None = 1.5
    # logs of one file group from which a writer waits after each commit for workers that fall behind; None: never
    slow_after_logs: int | None = 30
    clean_every: int | None = 20  # a writer cleans after this many commits; None: never
    retain_hours: float = 168.0  # snapshots younger than this stay readable; costs the space of superseded files
    retain_commits: int = 10  # ... and at least this many of the newest commits
    # at most this many versions of a file group stay, even if hours and commits would keep more; None: no limit
    retain_versions: int | None = None
    # how long beyond retain_hours a clean waits for a consumer that is behind; costs the space of what it has not read
    consumer_hours: float = 168.0
    # partitions in which no row was written for this long are dropped; None: never
    partition_ttl_hours: float | None = None
    # slots older than this are archived, once no snapshot, savepoint or plan needs them
    archive_after_hours: float = 720.0
    # instants of Hudi's timeline beyond this many move into its history, once older than every retention; each commit
    # lists them
    archive_keep_instants: int = 1_000
    # Apache Hudi writes at the same time: hold its lock while completing, look for its commits under it; costs two
    # requests a commit
    hudi_writers: bool = False
    worker_timeout_s: float = 60.0  # a worker without a heartbeat for this long counts as gone
    # Speed
    compression: str = "zstd"  # of base files: zstd, snappy, gzip, lz4 or none
    # of rows in logs: avro, or parquet, which takes a third of the bytes and reads one column without the others; logs
    # that are there stay as they are
    log_format: str = "avro"
    row_group_rows: int = 131_072  # rows of one Parquet row group; smaller: finer skipping, larger footers
    # slots between checkpoints of the file view; smaller: faster open, more bytes per commit
    checkpoint_every: int = 20
    max_retries: int = 20  # conflicts a write survives by rebasing before CommitConflict
    commit_timeout_s: float = 60.0  # how long an unresolved slot write is resolved before CommitUnknown


_NULLABLE = {
    "compact_after_logs",
    "clean_every",
    "retain_versions",
    "partition_ttl_hours",
    "compact_age_s",
    "compact_log_ratio",
    "compact_read_amplification",
    "slow_after_logs",
}
_KINDS_OF_NONE: dict[str, type] = {
    "retain_versions": int,
    "partition_ttl_hours": float,
}  # what an option takes whose default is None
_FROM_ONE = {
    "target_file_bytes",
    "row_group_rows",
    "checkpoint_every",
    "clean_every",
    "compact_after_logs",
    "archive_keep_instants",
    "retain_versions",
    "slow_after_logs",
}
_WORDS = {"compression": ("zstd", "snappy", "gzip", "lz4", "none"), "log_format": ("avro", "parquet")}
"""What options take that are words."""


def _number(name: str, value: Any, kind: type) -> Any:
    try:
        if isinstance(value, bool):
            raise ValueError
        if not isinstance(value, (int, float, str)) or isinstance(value, str) and len(value) > _DIGITS_MAX:
            raise ValueError
        number = kind(value)
        if not math.isfinite(number) or number > _MAX:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise OptionError(
            f"Option {name} takes {'a whole number' if kind is int else 'a number'} up to {_MAX:,}, got "
            f"{printable(value)}.",
            option=name,
        ) from None
    if kind is int and not isinstance(value, str) and number != value:
        raise OptionError(f"Option {name} takes a whole number, got {printable(value)}.", option=name)
    least = 1 if name in _FROM_ONE else 0
    if number < least:
        raise OptionError(f"Option {name} takes a number from {least}, got {printable(value)}.", option=name)
    return number


def _typed(name: str, value: Any) -> Any:
    if value is None or value == "none" and name in _NULLABLE:
        if name in _NULLABLE:
            return None
        raise OptionError(f"Option {name} needs a value, got None.", option=name)
    default = getattr(Options, name)
    if isinstance(default, bool):
        if str(value).lower() not in ("true", "false"):
            raise OptionError(f"Option {name} takes True or False, got {printable(value)}.", option=name)
        return str(value).lower() == "true"
    if isinstance(default, str):
        if not isinstance(value, str) or value not in _WORDS[name]:
            raise OptionError(
                f"Option {name} takes one of {', '.join(_WORDS[name])}, got {printable(value)}.", option=name
            )
        return value
    return _number(name, value, _KINDS_OF_NONE.get(name) or (int if isinstance(default, int) else float))


def with_options(given: Mapping[str, Any], base: Options | None = None) -> Options:
    """`base` (default: the defaults) changed by `given`. Raises OptionError naming the nearest known name."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            near = [meant(name, known)] if meant(name, known) else difflib.get_close_matches(name[:100], known, 1, 0.5)
            if argument := meant(name, ARGUMENTS):
                hint = f" Did you mean {argument!r}, an argument of create()? It cannot be changed later."
            else:
                hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}."
            raise OptionError(f"Unknown option {printable(name)}.{hint}", option=name)
    return replace(base or Options(), **{name: _typed(name, value) for name, value in given.items()})


def to_properties(options: Options) -> dict[str, str]:
    """Only what differs from the default, so that better defaults reach old tables."""
    changed = {f.name: getattr(options, f.name) for f in fields(Options) if getattr(options, f.name) != f.default}
    return {PREFIX + name: "none" if value is None else str(value) for name, value in changed.items()}


def changes(before: Options, given: Mapping[str, Any]) -> dict[str, str]:
    """Properties that make `before` into what with_options(given, before) is: name -> text, '' for the default."""
    written = to_properties(with_options(given, before))
    return {PREFIX + name: written.get(PREFIX + name, "") for name in given}


def is_option(name: str) -> bool:
    """Tell whether `name` is that of a property with an option known here."""
    return name.startswith(PREFIX) and name[len(PREFIX) :] in {field.name for field in fields(Options)}


def from_properties(properties: Mapping[str, str]) -> Options:
    """Inverse of `to_properties`; names a newer release wrote are ignored."""
    return with_options({name[len(PREFIX) :]: value for name, value in properties.items() if is_option(name)})
