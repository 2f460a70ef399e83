"""Error classes of hoodoo.

    HoodooError
    ├── TryAgainError        the same call may succeed later
    │   ├── CommitConflict       other writers committed first more often than the retry limit
    │   ├── CommitUnknown        the commit may or may not exist: call .resolve()
    │   ├── LockHeld             an Apache Hudi writer holds the table lock
    │   ├── PurgeBlocked         a savepoint, a pin or a consumer needs files that a purge must delete
    │   ├── SourceChanged        data of a source was deleted or rewritten during the read
    │   ├── SourceUnavailable    a source did not respond before the deadline
    │   └── StoreUnavailable     the store did not respond before the deadline
    ├── CallError            fix the call
    │   ├── OptionError          an option is unknown, invalid or incompatible with the table
    │   ├── SchemaError          a schema cannot be stored without loss, or a schema change is not allowed
    │   ├── RewriteNeeded        a schema change must rewrite files, but rewrite=True is missing
    │   ├── TableExists          create() found an existing table
    │   ├── NestedTable          the path is inside another table, or contains one
    │   ├── TableNotFound        there is no table at the path
    │   ├── PositionError        the position does not exist in this table
    │   ├── PredicateError       `where` cannot be parsed or does not match the columns
    │   ├── ExpressionError      an SQL expression cannot be parsed, does not match the columns, or cannot be evaluated
    │   ├── ForeignExport        another writer committed to the Iceberg or Delta metadata of the table
    │   ├── CatalogRefused       a catalog rejects the entry of the table
    │   ├── SourceLost           a source no longer has the data after the position of the application
    │   │   └── Overtaken            Apache Hudi's streamer has read beyond the position of the application
    │   ├── AlreadyCommitted     maintenance.rollback() of an instant that is already completed or rolled back
    │   ├── BucketNotFound       the bucket does not exist at this endpoint
    │   ├── CredentialsError     credentials are missing, or the store rejects them
    │   │   ├── NoCredentials        no credentials were found
    │   │   ├── KeyRefused           the access key is unknown, or the session token has expired
    │   │   └── SignatureRefused     the secret key is wrong, or the clock is off
    │   └── EngineError          the engine does not support the call, or a library is not installed
    ├── DataError            fix the data
    │   ├── ColumnError          a column is missing, unknown, or has a value that cannot be converted without loss
    │   ├── KeyValueError        a record key is null, too long or ambiguous
    │   ├── PartitionValueError  a partition value is not a valid folder name
    │   ├── OrderingError        an ordering value is null or NaN, or cannot be represented in Hudi
    │   ├── CheckFailed          a row fails a check of the table
    │   ├── TooManyBadRows       the batch exceeds the limits for bad rows of on_bad_rows="quarantine"
    │   ├── DuplicateKeys        a batch with duplicates="fail" contains a key twice
    │   ├── KeyExists            insert() of a key that is already in the table
    │   └── KeyNotFound          upsert(new_keys="fail") of a key that is missing from the table
    └── TableError           restore or upgrade the table, or choose another one
        ├── CorruptTable         stored data differs from what the table recorded
        ├── UnsupportedTable     the table has a version or feature that hoodoo does not support
        ├── StoreRefused         the store does not support what commits need, or its clock differs from the local one
        ├── StoreFull            the store is full
        ├── StoreDenied          read or write permission is missing, or the file system is read-only
        ├── SnapshotExpired      cleaning deleted the snapshot at the position
        ├── RangeUndone          another engine rolled back the position
        ├── TableReplaced        the opened table was deleted, and a different table was created at its path
        └── Fenced               another process rolled back this write attempt

Each class has a stable `code`, and each message describes the problem and the remedy. Errors can be pickled, so that
they can be sent from Spark workers. This module does not import other hoodoo modules, so that every module can import
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


def _rebuild(cls: type[HoodooError], message: str, details: dict[str, Any]) -> HoodooError:
    return cls(message, **details)


class HoodooError(Exception):
    """Base class of all hoodoo errors.

    Attributes:
        code: The stable code of the class, in capitals.
        message: A description of the problem and the remedy.
        details: The objects that the message is about, such as the column, the option or the file, as plain values.
    """

    code: ClassVar[str] = "HOODOO"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


class TryAgainError(HoodooError):
    """Base class of temporary errors.

    The call may succeed later.
    """

    code = "TRY_AGAIN"


class CommitConflict(TryAgainError):
    """Error raised when a write conflicts with other writes."""

    code = "COMMIT_CONFLICT"


class CommitUnknown(TryAgainError):
    """Error raised when the outcome of a commit is unknown.

    `details` has `instant`, `slot` and `nonce`.

    Attributes:
        ask: The function that `resolve` calls. It is set where the error is raised, and is not pickled.
    """

    code = "COMMIT_UNKNOWN"
    ask: Callable[[], bool] | None = None  # set where it is raised; not pickled

    def resolve(self) -> bool:
        """Find out whether the commit succeeded.

        If the commit is still pending, it is rolled back.

        Returns:
            True if the batch was committed. False if it never will be, so that you can write it again.

        Raises:
            StoreUnavailable: The store still does not respond.
            CommitUnknown: The store still does not confirm its content.
            CallError: The error was raised in another process. Open the table and call its
                `maintenance.resolve(instant)`.
        """
        if self.ask is None:
            raise CallError(
                "This error came from another process. Open the table in this process and call "
                "maintenance.resolve(instant).",
                **self.details,
            )
        return self.ask()


class LockHeld(TryAgainError):
    """Error raised when Apache Hudi holds the lock of the table."""

    code = "LOCK_HELD"


class PurgeBlocked(TryAgainError):
    """Error raised when a purge must not delete a file yet.

    `details` has `savepoints` (names), `leases` (slots), `consumers` (names) and `files` (the first ten).
    """

    code = "PURGE_BLOCKED"


class SourceChanged(TryAgainError):
    """Error raised when a source changed during a read."""

    code = "SOURCE_CHANGED"


class SourceUnavailable(TryAgainError):
    """Error raised when a source such as Kafka did not respond."""

    code = "SOURCE_UNAVAILABLE"


class StoreUnavailable(TryAgainError):
    """Error raised when a store such as S3 did not respond."""

    code = "STORE_UNAVAILABLE"


class CallError(HoodooError):
    """Base class of errors in the arguments of a call."""

    code = "CALL"


class OptionError(CallError):
    """Error raised when an option or argument is invalid."""

    code = "OPTION"


class SchemaError(CallError):
    """Error raised when a schema or a schema change is invalid."""

    code = "SCHEMA"


class RewriteNeeded(CallError):
    """Error raised when a schema change needs `rewrite=True`.

    `details` has `groups` (the number of file groups to rewrite), `rows` and `bytes`.
    """

    code = "REWRITE_NEEDED"


class TableExists(CallError):
    """Error raised when a table already exists."""

    code = "TABLE_EXISTS"


class NestedTable(CallError):
    """Error raised when one table would contain another table."""

    code = "NESTED_TABLE"


class TableNotFound(CallError):
    """Error raised when a table does not exist."""

    code = "TABLE_NOT_FOUND"


class PositionError(CallError):
    """Error raised when a position in the table's history is invalid."""

    code = "POSITION"


class PredicateError(CallError):
    """Error raised when a `where` condition or a check is invalid."""

    code = "PREDICATE"


class ExpressionError(CallError):
    """Error raised when an SQL expression is invalid."""

    code = "EXPRESSION"


class ForeignExport(CallError):
    """Error raised when another program changed exported metadata.

    Pass `rebuild=True` to rebuild the metadata.

    `details` has `format` and `version` (the version that another writer committed).
    """

    code = "FOREIGN_EXPORT"


class CatalogRefused(CallError):
    """Error raised when a catalog rejects an entry.

    If an export raises it, the exported metadata is complete. `details` has `identifier`, the name in the catalog.
    """

    code = "CATALOG_REFUSED"


class SourceLost(CallError):
    """Error raised when unread data of a source was deleted.

    Unread data is the data after the position that the application stored in the table.
    """

    code = "SOURCE_LOST"


class Overtaken(SourceLost):
    """Error raised when Apache Hudi's streamer has read further than a job.

    The table then already has the next rows of the application. `details` has `application`, and `position`, the
    position of the streamer.
    """

    code = "OVERTAKEN"


class AlreadyCommitted(CallError):
    """Error raised when a rolled back instant is not pending."""

    code = "ALREADY_COMMITTED"


class EngineError(CallError):
    """Error raised when an engine or a library does not support a call."""

    code = "ENGINE"


class BucketNotFound(CallError):
    """Error raised when a bucket does not exist.

    `details` has `bucket` and `endpoint`.
    """

    code = "BUCKET_NOT_FOUND"


class CredentialsError(CallError):
    """Error raised when a store rejects the credentials.

    `details` has `bucket` and `endpoint`.
    """

    code = "CREDENTIALS"


class NoCredentials(CredentialsError):
    """Error raised when no credentials were found."""

    code = "NO_CREDENTIALS"


class KeyRefused(CredentialsError):
    """Error raised when a store rejects the access key."""

    code = "KEY_REFUSED"


class SignatureRefused(CredentialsError):
    """Error raised when a store rejects the signature of a request."""

    code = "SIGNATURE_REFUSED"


class DataError(HoodooError):
    """Base class of errors in the rows of a batch."""

    code = "DATA"


class ColumnError(DataError):
    """Error raised when a column of a batch is invalid."""

    code = "COLUMN"


class KeyValueError(DataError):
    """Error raised when a record key is invalid."""

    code = "KEY_VALUE"


class PartitionValueError(DataError):
    """Error raised when a partition value is invalid."""

    code = "PARTITION_VALUE"


class OrderingError(DataError):
    """Error raised when an ordering value is invalid."""

    code = "ORDERING"


class CheckFailed(DataError):
    """Error raised when a row violates a check of the table.

    `details` has `check` (its name), `text`, `row` and `key`.
    """

    code = "CHECK_FAILED"


class TooManyBadRows(DataError):
    """Error raised when a batch has too many bad rows.

    `details` has `bad` (at least this many bad rows were found), `rows` (the number of rows in the batch), `quarantine`
    (the path of the table that stores the first bad rows) and `reasons`.
    """

    code = "TOO_MANY_BAD_ROWS"


class DuplicateKeys(DataError):
    """Error raised when a batch contains a key twice."""

    code = "DUPLICATE_KEYS"


class KeyExists(DataError):
    """Error raised when an inserted key already exists."""

    code = "KEY_EXISTS"


class KeyNotFound(DataError):
    """Error raised when a key does not exist."""

    code = "KEY_NOT_FOUND"


class TableError(HoodooError):
    """Base class of errors in a stored table."""

    code = "TABLE"


class CorruptTable(TableError):
    """Error raised when a file of the table is missing or damaged."""

    code = "CORRUPT_TABLE"


class UnsupportedTable(TableError):
    """Error raised when hoodoo does not support a table."""

    code = "UNSUPPORTED_TABLE"


class StoreRefused(TableError):
    """Error raised when a store cannot commit safely."""

    code = "STORE_REFUSED"


class StoreFull(TableError):
    """Error raised when a store is full."""

    code = "STORE_FULL"


class StoreDenied(TableError):
    """Error raised when access to a store is denied."""

    code = "STORE_DENIED"


class SnapshotExpired(TableError):
    """Error raised when cleaning deleted the files of a snapshot."""

    code = "SNAPSHOT_EXPIRED"


class RangeUndone(TableError):
    """Error raised when another engine rolled back a commit."""

    code = "RANGE_UNDONE"


class TableReplaced(TableError):
    """Error raised when a table was replaced by another table."""

    code = "TABLE_REPLACED"


class Fenced(TableError):
    """Error raised when another process rolled back a running write."""

    code = "FENCED"
