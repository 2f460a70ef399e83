"""The options of a table: each is declared here with its default and its effect, and checked here (`with_options`).

Checked are name, type and range. One more rule needs the table's partitions: `check` in compactor/cleaning/retention.py
looks at partition_ttl_hours. docs/guide.md has a table of the options for users.

Options are kept in hoodie.properties as `hoodoo.<name>`. What decides results (key, partitioning, ordering, table type)
is not an option but an argument of `create`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hoodoo.errors import OptionError
from hoodoo.redact import printable
from hoodoo.timeline.properties.synonyms import meant

PREFIX = "hoodoo."
ARGUMENTS = (
    *("path", "schema", "key", "partition_by", "order_by", "type", "storage", "name", "change_log", "checks"),
    "allow_moving_keys",
)
"""What create() takes besides options."""
_MAX = 10**12
_DIGITS_MAX = 40
MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """The options of a table: arguments of `create` and `Table.set_options`, kept in the table.

    Attributes:
        target_file_bytes: The size that a base file grows to, in bytes. A larger one gives fewer files and costlier
            rewrites. Default 120 MiB.
        compact_after_logs: How many log files a file group may have before a writer compacts it, where no worker lives.
            None: writers do not compact. Default 10.
        compact_age_s: A worker compacts log files that are older than this many seconds, however few they are. None:
            age does not count. Default 600.
        compact_log_ratio: A worker compacts a file group whose log files have this many bytes for each byte of its base
            file, and more than 1 MiB. None: it does not count. Default 0.5.
        compact_read_amplification: A worker compacts the largest log files while reading the table takes this many
            bytes for each byte of the compacted table. None: it does not count. Default 1.5.
        slow_after_logs: From this many log files of one file group a writer waits after each commit, for workers that
            fall behind. None: writers never wait. Default 30.
        clean_every: A writer or worker cleans and archives after this many commits. A writer also packs small files
            then, where no worker lives. None: writers do none of it. Workers clean and archive every hour too. Default
            20.
        retain_hours: Snapshots younger than this many hours stay readable. It costs the space of superseded files.
            Default 168.
        retain_commits: At least this many of the newest commits stay readable. Default 10.
        retain_versions: At most this many versions of a file group stay, even if `retain_hours` and `retain_commits`
            would keep more. None (default): no limit.
        consumer_hours: How many hours beyond `retain_hours` a clean waits for a consumer that is behind. It costs the
            space of what the consumer has not read. Default 168.
        partition_ttl_hours: Partitions in which no row was written for this many hours are dropped. None (default):
            never.
        archive_after_hours: Slots older than this many hours are archived, once no snapshot, savepoint or plan needs
            them. Default 720.
        archive_keep_instants: How many instants stay in Hudi's timeline, which each commit lists. Older ones move into
            its history folder once they are older than every retention. Default 1,000.
        hudi_writers: True if Apache Hudi writes to the table at the same time. Each commit then holds Hudi's lock while
            it completes, and looks for Hudi's commits under it. It costs two requests a commit. Default False.
        partial_logs: True (default) if an update, or an upsert of some columns, logs only the columns that it sets, in
            a merge-on-read table without `order_by`. False where incremental queries of other engines have to show
            whole rows.
        export_formats: The formats in which engines without Hudi read the table: 'delta', 'iceberg', 'both' or 'none'
            (default). A worker exports where the table changed; a writer or worker does before it cleans. See
            docs/other-engines.md.
        export_every_s: How many seconds lie between two exports of a worker. Each makes a snapshot of Iceberg, which is
            kept as long as retention keeps it. Default 60.
        export_mode: What such engines see of a merge-on-read table: 'read_optimized' (default), rows as of the last
            compaction of each file group, or 'merged', the rows of the table.
        worker_timeout_s: A worker without a heartbeat for this many seconds counts as gone. Default 60.
        compression: The compression of base files: 'zstd' (default), 'snappy', 'gzip', 'lz4' or 'none'.
        log_format: The format of rows in log files: 'avro' (default), or 'parquet', which takes a third of the bytes
            and reads one column without the others. Log files that are there stay as they are.
        row_group_rows: How many rows a Parquet row group has. Fewer give finer skipping and larger footers. Default
            131,072.
        checkpoint_every: How many slots lie between two checkpoints of the file view. Fewer make opening faster and
            cost more bytes a commit. Default 20.
        max_retries: How many conflicts a write rebases over before it raises CommitConflict. Default 20.
        commit_timeout_s: How many seconds a write asks whether its slot was written before it raises CommitUnknown.
            Default 60.
    """

    # Behaviour
    target_file_bytes: int = 120 * MIB
    compact_after_logs: int | None = 10
    compact_age_s: float | None = 600.0
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
    export_every_s: float = 60.0
    export_mode: str = "read_optimized"
    worker_timeout_s: float = 60.0
    # Speed
    compression: str = "zstd"
    log_format: str = "avro"
    row_group_rows: int = 131_072
    checkpoint_every: int = 20
    max_retries: int = 20
    commit_timeout_s: float = 60.0


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
NO_FORMAT, DELTA, ICEBERG, BOTH_FORMATS = "none", "delta", "iceberg", "both"
READ_OPTIMIZED, MERGED = "read_optimized", "merged"
"""What an export makes of logs: it passes over them, or it says which rows of base files they replaced or deleted, and
writes the rows that they made.
"""
_NAMES = frozenset(field.name for field in fields(Options))
EXPORT_MODES = (READ_OPTIMIZED, MERGED)
_WORDS = {
    "compression": ("zstd", "snappy", "gzip", "lz4", "none"),
    "log_format": ("avro", "parquet"),
    "export_formats": (NO_FORMAT, DELTA, ICEBERG, BOTH_FORMATS),
    "export_mode": EXPORT_MODES,
}
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
    return name.startswith(PREFIX) and name[len(PREFIX) :] in _NAMES


def from_properties(properties: Mapping[str, str]) -> Options:
    """Inverse of `to_properties`; names a newer release wrote are ignored."""
    return with_options({name[len(PREFIX) :]: value for name, value in properties.items() if is_option(name)})
