"""Options of the Spark data source `hoodoo`.

Options appear in plans, logs and the Spark UI. So secrets are rejected as options, and each process takes its
credentials from its environment.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hoodoo.arguments import ApplicationVersion, check_allowed_value
from hoodoo.errors import OptionError
from hoodoo.readers.progress import StreamLimits
from hoodoo.redact import printable
from hoodoo.table import Table
from hoodoo.table import open as open_table
from hoodoo.timeline.properties.synonyms import translate_option_name
from hoodoo.timeline.properties.table_options import ARGUMENTS
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions, limits_of

SNAPSHOT, INCREMENTAL, CHANGES, READ_OPTIMIZED = "snapshot", "incremental", "changes", "read_optimized"
_STORAGE = ("endpoint", "region", "allow_http", "allow_network_fs")
_SECRET = re.compile(r"secret|token|password|passwd|credential|access[._-]?key", re.IGNORECASE)
_COMMON = ("path", "mode", *_STORAGE)
_OF_MODE = {
    SNAPSHOT: ("as_of", "columns", "where", "meta"),
    READ_OPTIMIZED: ("as_of", "columns", "where", "meta"),
    INCREMENTAL: ("since", "until", "columns", "where", "meta", "deletes"),
    CHANGES: ("since", "until", "columns", "where", "versions"),
}
_OF_STREAM = ("startingPosition", "maxCommitsPerTrigger", "maxFilesPerTrigger", "maxRowsPerTrigger", "consumer")
_BAD_ROWS = ("on_bad_rows", "max_bad_rows", "max_bad_share")
_COLUMNS = ("evolve", "missing")
_OF_WRITE = ("path", "operation", "transaction", "duplicates", "existing", *_COLUMNS, *_BAD_ROWS, *_STORAGE)
_OF_SINK = ("sink", "checkpointLocation", "queryName")
_SINK_MAX = 900  # maximum number of characters, because the query id is appended
OPERATIONS = ("upsert", "insert", "bulk_insert", "delete")


_OF_CREATE_TABLE = "owner"  # Spark adds this option only for CREATE TABLE
_NO_TABLE = (
    "Spark does not pass options to a table from CREATE TABLE ... USING hoodoo. For a new table, run "
    "hoodoo.sql(spark, \"CREATE TABLE name (...) USING hoodoo LOCATION 'path' TBLPROPERTIES ('key' = "
    "'...')\"), which also creates a view. For an existing table, run CREATE TEMPORARY VIEW name USING hoodoo "
    "OPTIONS (path '...')."
)


def _check_option_names(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Check the names of options.

    Spark ignores case, so the check restores the case of the names.

    Raises:
        OptionError: A name is unknown or looks like a secret.
    """
    names = {name.lower(): name for name in known}
    for name in given:
        if _SECRET.search(name):
            raise OptionError(
                f"Option {printable(name)} would be visible in plans and logs. Put credentials into the "
                "environment of the driver and of the workers (AWS_ACCESS_KEY_ID, a profile, a role), or read "
                "and write with hoodoo.open(path, storage=...).",
                option=name,
            )
        if name.lower() not in names:
            ours = translate_option_name(name, names.values())
            near = [ours.lower()] if ours else difflib.get_close_matches(name.lower()[:100], names, 1, 0.5)
            hint = f"Did you mean {names[near[0]]!r}?" if near else f"Valid options: {', '.join(names.values())}."
            if (argument := translate_option_name(name, ARGUMENTS[1:])) and not ours:
                hint = f"The {argument} of a table is set by hoodoo.create({argument}=...). Leave the option out."
            raise OptionError(f"Unknown option {printable(name)}. {hint}", option=name)
    return {names[name.lower()]: value for name, value in given.items()}


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    check_allowed_value(name, value, ("true", "false"))
    return value == "true"


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,17}", text, re.ASCII):
        raise OptionError(f"Option {name} must be an integer of at least 1, got {printable(text)}.", option=name)
    return int(text)


def parse_column_names(text: str | None) -> list[str] | None:
    """Parse a list of column names.

    Args:
        text: The names separated by commas, or as a JSON list. None: the option is not set.

    Returns:
        The names, or None if the option is not set.

    Raises:
        OptionError: `text` starts like a JSON list, but is not a list of strings.
    """
    if text is None:
        return None
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",")]
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(
            f"Option columns must be names separated by commas, or a JSON list of names, got {printable(text)}.",
            option="columns",
        )
    return names


def _storage(options: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: options[name] for name in ("endpoint", "region") if name in options}
    return found | {name: True for name in ("allow_http", "allow_network_fs") if _flag(options, name)}


def _path(options: Mapping[str, str]) -> str:
    if not options.get("path"):
        raise OptionError(
            f"The data source needs a path. Pass it as load(path), or as the option path. {_NO_TABLE}", option="path"
        )
    return options["path"]


@dataclass(frozen=True)
class ReadOptions:
    """Options of a Spark batch or stream read.

    Attributes:
        path: The path of the table.
        storage: Store options, as in `hoodoo.open`.
        mode: 'snapshot', 'read_optimized', 'incremental' or 'changes'.
        as_of: The position of the snapshot. None: the newest slot.
        since: The position after which changes are read. None: 'earliest'.
        until: The position at which the changes end. None: the newest slot.
        columns: The names of the columns to read. None: all columns.
        where: A filter condition. None: all rows.
        meta: True also reads Hudi's five meta columns.
        deletes: True also returns the keys of deleted rows, in mode 'incremental'.
        versions: 'net' or 'all', in mode 'changes'.
        limits: The maximum size of a micro-batch of a stream.
        consumer: The name of the consumer that the stream advances. None: no consumer.
    """

    path: str
    storage: Mapping[str, Any] = field(default_factory=dict)
    mode: str = SNAPSHOT
    as_of: str | None = None
    since: str | None = None
    until: str | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    meta: bool = False
    deletes: bool = False
    versions: str = "net"
    limits: StreamLimits = StreamLimits()
    consumer: str | None = None

    @staticmethod
    def parse(given: Mapping[str, str], stream: bool | None = False) -> ReadOptions:
        """Parse the options of a Spark read.

        Args:
            given: The options by name, in any case.
            stream: True for a stream, False (default) for a batch read, None if this is not known yet.

        Returns:
            The parsed options.

        Raises:
            OptionError: An option is unknown, contains a secret, has an invalid value, or is not supported in the mode.
        """
        if _OF_CREATE_TABLE in given:
            raise OptionError(_NO_TABLE, option=_OF_CREATE_TABLE)
        everywhere = dict.fromkeys((*_COMMON, *(name for names in _OF_MODE.values() for name in names), *_OF_STREAM))
        options = _check_option_names(given, everywhere)
        maybe_stream = stream is None and not {"as_of", "until"} & options.keys()
        guess = INCREMENTAL if stream or stream is None and "deletes" in options else SNAPSHOT
        mode = options.get("mode", guess).lower()
        check_allowed_value("mode", mode, (INCREMENTAL, CHANGES) if stream else tuple(_OF_MODE))
        allowed = {*_COMMON, *_OF_MODE[mode]}
        if stream or maybe_stream:
            allowed |= {*_OF_STREAM, "since", "deletes"} if "mode" not in options else set(_OF_STREAM)
        for name in options:
            if name not in allowed or stream and name == "until":
                where = (
                    "a stream"
                    if stream and name == "until"
                    else f"mode {mode!r}"
                    if name not in _OF_STREAM
                    else "a batch read"
                )
                raise OptionError(f"Option {name!r} has no effect on {where}. Leave it out.", option=name)
        if "since" in options and "startingPosition" in options:
            raise OptionError(
                "Options since and startingPosition have the same meaning. Pass only one of them.", option="since"
            )
        versions = options.get("versions", "net").lower()
        check_allowed_value("versions", versions, ("net", "all"))
        columns = parse_column_names(options.get("columns"))
        return ReadOptions(
            _path(options),
            _storage(options),
            mode,
            options.get("as_of"),
            options.get("since", options.get("startingPosition")),
            options.get("until"),
            None if columns is None else tuple(columns),
            options.get("where"),
            _flag(options, "meta"),
            _flag(options, "deletes"),
            versions,
            StreamLimits(*(_number(options, f"max{what}PerTrigger") for what in ("Commits", "Files", "Rows"))),
            options.get("consumer"),
        )

    def open(self) -> Table:
        """Open the table at the path in the options.

        Returns:
            The table.

        Raises:
            TableNotFound: There is no table at the path.
        """
        return open_table(self.path, storage=self.storage)


@dataclass(frozen=True)
class SparkWriteOptions:
    """Options of a Spark write.

    Attributes:
        path: The path of the table.
        storage: Store options, as in `hoodoo.open`.
        operation: 'upsert', 'insert', 'bulk_insert' or 'delete'.
        existing: 'fail' or 'keep': the action of an insert for keys that are already in the table.
        write: The general write options.
        named: True if the option `operation` was set. The default is 'insert', because Spark fills the missing columns
            of an INSERT with nulls, and these nulls must not silently replace stored values.
    """

    path: str
    storage: Mapping[str, Any]
    operation: str
    existing: str
    write: WriteOptions
    named: bool = True

    @staticmethod
    def parse(given: Mapping[str, str], stream: bool = False) -> SparkWriteOptions:
        """Parse the options of a Spark write.

        Args:
            given: The options by name, in any case.
            stream: True for a stream, which accepts further options. False (default) for a batch.

        Returns:
            The parsed options.

        Raises:
            OptionError: An option is unknown, contains a secret, has an invalid value, or is not supported by the
                operation.
        """
        options = _check_option_names(given, (*_OF_WRITE, *_OF_SINK) if stream else _OF_WRITE)
        operation = options.get("operation", "insert").lower()
        check_allowed_value("operation", operation, OPERATIONS)
        duplicates, existing = options.get("duplicates", "newest"), options.get("existing", "fail")
        check_allowed_value("duplicates", duplicates, ("newest", "fail"))
        check_allowed_value("existing", existing, ("fail", "keep"))
        if "existing" in options and operation not in ("insert", "bulk_insert"):
            raise OptionError("Option 'existing' needs operation 'insert' or 'bulk_insert'.", option="existing")
        if "duplicates" in options and operation == "delete":
            raise OptionError(
                "Option 'duplicates' has no effect on operation 'delete'. Leave it out.", option="duplicates"
            )
        if operation == "delete" and (named := [name for name in (*_COLUMNS, *_BAD_ROWS) if name in options]):
            raise OptionError(
                f"Option {named[0]!r} has no effect on operation 'delete'. Leave it out.", option=named[0]
            )
        evolve, missing = options.get("evolve", "false").lower(), options.get("missing", "fail")
        check_allowed_value("evolve", evolve, ("true", "false"))
        check_allowed_value("missing", missing, ("fail", "null"))
        return SparkWriteOptions(
            _path(options),
            _storage(options),
            operation,
            existing,
            WriteOptions(
                operation == "delete",
                duplicates,
                missing,
                evolve == "true",
                _limits(options),
                _transaction(options.get("transaction")),
            ),
            "operation" in options,
        )

    def open(self) -> Table:
        """Open the table at the path in the options.

        Returns:
            The table.

        Raises:
            TableNotFound: There is no table at the path.
        """
        return open_table(self.path, storage=self.storage)


@dataclass(frozen=True)
class SparkStreamOptions:
    """Options of a Spark stream write.

    Attributes:
        write: The write options of each micro-batch.
        sink: The sink name. The table stores the newest batch number under this name.
        checkpoint: The location of the checkpoint, which contains the id of the query.
    """

    write: SparkWriteOptions
    sink: str
    checkpoint: str

    @staticmethod
    def parse(given: Mapping[str, str]) -> SparkStreamOptions:
        """Parse the options of a Spark stream write.

        Args:
            given: The options by name, in any case.

        Returns:
            The parsed options.

        Raises:
            OptionError: `sink` or `checkpointLocation` is missing, or `transaction` is set. Or an option is unknown,
                contains a secret, has an invalid value, or is not supported by the operation.
        """
        write = SparkWriteOptions.parse(given, stream=True)
        options = {name.lower(): value for name, value in given.items()}
        sink = options.get("sink", "")
        if not 0 < len(sink) <= _SINK_MAX:
            raise OptionError(
                f'A stream needs the option sink, a name of 1 to {_SINK_MAX} characters: .option("sink", '
                '"name"). The table stores the newest batch under this name, so that each batch is written '
                "once.",
                option="sink",
            )
        if "transaction" in options:
            raise OptionError(
                "A stream does not accept the option transaction. The stream sets it from sink and the number of "
                "the batch.",
                option="sink",
            )
        checkpoint = options.get("checkpointlocation", "")
        if not checkpoint:
            raise OptionError(
                'A stream into a table needs .option("checkpointLocation", ...). The setting '
                "spark.sql.streaming.checkpointLocation is not visible to a data source, which identifies the "
                "query by its checkpoint.",
                option="checkpointLocation",
            )
        return SparkStreamOptions(write, sink, checkpoint)


def _limits(options: Mapping[str, str]) -> BadRowLimits | None:
    default = BadRowLimits()
    share = options.get("max_bad_share", str(default.share))
    if not re.fullmatch(r"\d{1,9}(\.\d{1,18})?", share, re.ASCII):
        raise OptionError(
            f"Option max_bad_share must be a number such as 0.01, got {printable(share)}.", option="max_bad_share"
        )
    rows = options.get("max_bad_rows", str(default.rows))
    if not re.fullmatch(r"\d{1,12}", rows, re.ASCII):
        raise OptionError(
            f"Option max_bad_rows must be an integer from 0, got {printable(rows)}.", option="max_bad_rows"
        )
    return BadRowLimits(int(rows), float(share)) if limits_of(options.get("on_bad_rows", "fail")) else None


def _transaction(text: str | None) -> ApplicationVersion | None:
    if text is None:
        return None
    match = re.fullmatch(r"(.+):(\d{1,18})", text, re.ASCII | re.DOTALL)
    if not match:
        raise OptionError(
            f"Option transaction must be application:version, with an integer as version, got {printable(text)}.",
            option="transaction",
        )
    return ApplicationVersion(match[1], int(match[2]))
