"""Options of a table and their validation.

The validation covers name, type and range. `check` in compactor/cleaning/retention.py also validates
partition_ttl_hours, because it depends on the table's partitions. docs/guide.md lists the options for users.

Options are stored in hoodie.properties as `hoodoo.<name>`. Settings that affect results (key, partitioning, ordering,
table type) are arguments of `create`, not options.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hoodoo.errors import OptionError
from hoodoo.redact import printable
from hoodoo.sizes import LARGEST, convert_size_argument
from hoodoo.timeline.properties.synonyms import translate_option_name

PREFIX = "hoodoo."
ARGUMENTS = (
    *("path", "schema", "key", "partition_by", "order_by", "type", "storage", "name", "change_log", "checks"),
    "allow_moving_keys",
)
"""Arguments of create() that are not table options."""
_DIGITS_MAX = 40
MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """Options of a table.

    They are arguments of `create` and `Table.set_options`, and are stored in the table.

    Attributes:
        target_file_bytes: Target size of a base file, in bytes or as a size such as '120MiB'. A larger size gives fewer
            files, but makes rewrites more expensive. Default 120 MiB.
        compact_after_logs: A writer compacts a file group with at least this many log files if no worker is alive.
            None: writers do not compact. Default 10.
        compact_age_seconds: A worker compacts log files that are older than this many seconds, even if there are few.
            None: age does not trigger compaction. Default 600.
        compact_log_ratio: A worker compacts a file group whose log files have more than this many bytes per byte of its
            base file, and more than 1 MiB. None: the ratio does not trigger compaction. Default 0.5.
        compact_read_amplification: A worker compacts the largest log files while a read of the table takes more than
            this many bytes per byte of base files. None: read amplification does not trigger compaction. Default 1.5.
        slow_after_logs: If a file group has at least this many log files, a writer waits after each commit to it, so
            that workers can catch up. None: writers never wait. Default 30.
        clean_every: A writer or worker cleans and archives after this many commits. A writer then also packs small
            files if no worker is alive. None: writers do not clean, archive or pack. Workers also clean and archive
            every hour. Default 20.
        retain_hours: Snapshots younger than this many hours stay readable. Superseded files need space until then.
            Default 168.
        retain_commits: At least this many of the newest commits stay readable. Default 10.
        retain_versions: At most this many versions of a file group stay, even if `retain_hours` and `retain_commits`
            would keep more. None (default): no limit.
        consumer_hours: Cleaning waits for a lagging consumer this many hours longer than `retain_hours`. Unread files
            need space until then. Default 168.
        partition_ttl_hours: Partitions that received no rows for this many hours are dropped. None (default): never.
        archive_after_hours: Slots older than this many hours are archived if no snapshot, savepoint or plan needs them.
            Default 720.
        archive_keep_instants: Number of instants that stay in Hudi's timeline, which each commit lists. Older instants
            move into the history folder when they are older than every retention and than a day. Default 1,000.
        hudi_writers: True if Apache Hudi writes to the table concurrently. Each commit then holds Hudi's lock while it
            completes, and looks for Hudi's commits. This takes two more requests per commit. Default False.
        partial_logs: True (default) if an update, or an upsert of some columns, logs only the columns that it sets. It
            applies to merge-on-read tables without `order_by`. Use False if incremental queries of other engines need
            whole rows.
        export_formats: The formats that engines without Hudi support read: 'delta', 'iceberg', 'both' or 'none'
            (default). A worker exports a changed table. A writer or worker also exports before cleaning. See
            docs/other-engines.md.
        export_every_seconds: Seconds between two exports of a worker. Each export adds an Iceberg snapshot, which stays
            as long as retention keeps it. Default 60.
        export_mode: Rows of a merge-on-read table that engines read from an export. 'read_optimized' (default): rows as
            of the last compaction of each file group. 'merged': the current rows of the table.
        worker_timeout_seconds: A worker counts as dead after this many seconds without a heartbeat. Default 60.
        compression: The compression of base files: 'zstd' (default), 'snappy', 'gzip', 'lz4' or 'none'.
        log_format: The format of rows in new log files: 'avro' (default) or 'parquet'. Parquet takes about a third of
            the bytes, and single columns can be read. Existing log files stay unchanged.
        row_group_rows: Number of rows per Parquet row group. Fewer rows give finer skipping, but larger footers.
            Default 131,072.
        checkpoint_every: Number of slots between two checkpoints of the file view. A smaller number makes opening
            faster, but writes more bytes per commit. Default 20.
        max_retries: Number of conflicts that a write retries before it raises CommitConflict. Default 20.
        commit_timeout_seconds: Seconds during which a write checks whether its slot was written before it raises
            CommitUnknown. Default 60.
    """

    # Behaviour
    target_file_bytes: int = 120 * MIB
    compact_after_logs: int | None = 10
    compact_age_seconds: float | None = 600.0
    compact_log_ratio: float | None = 0.5
    compact_read_amplification: float | None = 1.5
    slow_after_logs: int | None = 30
    clean_every: int | None = 20
    retain_hours: float = 168.0
    retain_commits: int = 10
    retain_versions: int | None = None
    consumer_hours: float = 168.0
    partition_ttl_hours: float | None = None
    archive_after_hours: float = 720.0
    archive_keep_instants: int = 1_000
    hudi_writers: bool = False
    partial_logs: bool = True
    export_formats: str = "none"
    export_every_seconds: float = 60.0
    export_mode: str = "read_optimized"
    worker_timeout_seconds: float = 60.0
    # Speed
    compression: str = "zstd"
    log_format: str = "avro"
    row_group_rows: int = 131_072
    checkpoint_every: int = 20
    max_retries: int = 20
    commit_timeout_seconds: float = 60.0


_NULLABLE = {
    "compact_after_logs",
    "clean_every",
    "retain_versions",
    "partition_ttl_hours",
    "compact_age_seconds",
    "compact_log_ratio",
    "compact_read_amplification",
    "slow_after_logs",
}
_KINDS_OF_NONE: dict[str, type] = {
    "retain_versions": int,
    "partition_ttl_hours": float,
}  # types of options whose default is None
_FROM_ONE = {
    "row_group_rows",
    "checkpoint_every",
    "clean_every",
    "compact_after_logs",
    "archive_keep_instants",
    "retain_versions",
    "slow_after_logs",
}
_SIZES = {"target_file_bytes"}
NO_FORMAT, DELTA, ICEBERG, BOTH_FORMATS = "none", "delta", "iceberg", "both"
READ_OPTIMIZED, MERGED = "read_optimized", "merged"
"""Values of the option export_mode: whether an export includes the changes in log files.

READ_OPTIMIZED skips log files. MERGED exports deletes for the rows of base files that logs replaced or deleted, and
writes the new rows of logs.
"""
_NAMES = frozenset(field.name for field in fields(Options))
EXPORT_MODES = (READ_OPTIMIZED, MERGED)
_WORDS = {
    "compression": ("zstd", "snappy", "gzip", "lz4", "none"),
    "log_format": ("avro", "parquet"),
    "export_formats": (NO_FORMAT, DELTA, ICEBERG, BOTH_FORMATS),
    "export_mode": EXPORT_MODES,
}
"""Allowed values of the options that are strings."""


def _number(name: str, value: Any, kind: type) -> Any:
    try:
        if isinstance(value, bool):
            raise ValueError
        if not isinstance(value, (int, float, str)) or isinstance(value, str) and len(value) > _DIGITS_MAX:
            raise ValueError
        number = kind(value)
        if not math.isfinite(number) or number > LARGEST:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise OptionError(
            f"Option {name} must be {'an integer' if kind is int else 'a number'} up to {LARGEST:,}, got "
            f"{printable(value)}.",
            option=name,
        ) from None
    if kind is int and not isinstance(value, str) and number != value:
        raise OptionError(f"Option {name} must be an integer, got {printable(value)}.", option=name)
    least = 1 if name in _FROM_ONE else 0
    if number < least:
        raise OptionError(f"Option {name} must be at least {least}, got {printable(value)}.", option=name)
    return number


def _typed(name: str, value: Any) -> Any:
    if value is None or value in ("none", "None", "null") and name in _NULLABLE:
        if name in _NULLABLE:
            return None
        raise OptionError(f"Option {name} must not be None. Pass a value, or omit the option.", option=name)
    if name in _SIZES:
        return convert_size_argument(name, value)
    default = getattr(Options, name)
    if isinstance(default, bool):
        if str(value).lower() not in ("true", "false"):
            raise OptionError(f"Option {name} must be True or False, got {printable(value)}.", option=name)
        return str(value).lower() == "true"
    if isinstance(default, str):
        if not isinstance(value, str) or value not in _WORDS[name]:
            raise OptionError(
                f"Option {name} must be one of {', '.join(_WORDS[name])}, got {printable(value)}.", option=name
            )
        return value
    return _number(name, value, _KINDS_OF_NONE.get(name) or (int if isinstance(default, int) else float))


def validate_new_options(given: Mapping[str, Any], base: Options | None = None) -> Options:
    """Validate new options of a table.

    Returns them combined with the current options. Raises OptionError for an invalid value or an unknown name, with a
    hint to the most similar name.
    """
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            near = (
                [translate_option_name(name, known)]
                if translate_option_name(name, known)
                else difflib.get_close_matches(name[:100], known, 1, 0.5)
            )
            if argument := translate_option_name(name, ARGUMENTS):
                hint = f" Did you mean {argument!r}, an argument of create()? It cannot be changed later."
            else:
                hint = f" Did you mean {near[0]!r}?" if near else f" Valid options: {', '.join(known)}."
            raise OptionError(f"Unknown option {printable(name)}.{hint}", option=name)
    return replace(base or Options(), **{name: _typed(name, value) for name, value in given.items()})


def to_properties(options: Options) -> dict[str, str]:
    changed = {f.name: getattr(options, f.name) for f in fields(Options) if getattr(options, f.name) != f.default}
    return {PREFIX + name: "none" if value is None else str(value) for name, value in changed.items()}


def convert_options(before: Options, given: Mapping[str, Any]) -> dict[str, str]:
    """Convert new option values to changed table properties.

    '' removes a property, so that the default applies.
    """
    written = to_properties(validate_new_options(given, before))
    return {PREFIX + name: written.get(PREFIX + name, "") for name in given}


def is_option(name: str) -> bool:
    return name.startswith(PREFIX) and name[len(PREFIX) :] in _NAMES


def from_properties(properties: Mapping[str, str]) -> Options:
    return validate_new_options({name[len(PREFIX) :]: value for name, value in properties.items() if is_option(name)})
