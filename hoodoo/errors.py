"""Every error hoodoo raises, grouped by what the caller does next.

    HoodooError
    ├── TryAgainError        the same call may succeed later
    │   ├── CommitConflict       other writers came first more often than the commit may be tried again
    │   ├── CommitUnknown        the commit may or may not exist: ask .resolve()
    │   ├── LockHeld             a writer of Apache Hudi keeps the lock of the table
    │   ├── PurgeBlocked         a savepoint, a reader or a consumer needs what a purge has to delete
    │   ├── SourceChanged        what was to be read from a source was deleted or written anew meanwhile
    │   ├── SourceUnavailable    a source did not answer within the deadline
    │   └── StoreUnavailable     the store did not answer within the deadline
    ├── CallError            fix the call
    │   ├── OptionError          unknown option, or one that contradicts the table
    │   ├── SchemaError          a schema that the format cannot hold without loss, or a change that it refuses
    │   ├── RewriteNeeded        a change of columns that has to rewrite files, and may not
    │   ├── TableExists          create() where a table already is
    │   ├── NestedTable          a table in a folder of another one
    │   ├── TableNotFound        open() where none is
    │   ├── PositionError        not a position of this table
    │   ├── PredicateError       `where` does not parse or does not fit the columns
    │   ├── ExpressionError      an SQL expression does not parse, does not fit the columns, or cannot be evaluated
    │   ├── ForeignExport        another writer committed to the Iceberg or Delta metadata beside the table
    │   ├── CatalogRefused       a catalog does not take the entry of the exported table
    │   ├── SourceLost           a source has no longer what comes after the position of its application
    │   │   └── Overtaken            Apache Hudi's streamer has read on from the place of an application
    │   ├── AlreadyCommitted     rollback() of an instant that was completed or rolled back before
    │   ├── BucketNotFound       there is no such bucket at this endpoint
    │   ├── CredentialsError     nothing to sign with, or the store does not take it
    │   │   ├── NoCredentials        no credentials were found
    │   │   ├── KeyRefused           the store does not know the access key, or the token has expired
    │   │   └── SignatureRefused     the secret key is another one, or the clock is off
    │   └── EngineError          the engine cannot do it, or a library is not installed
    ├── DataError            fix the data
    │   ├── ColumnError          a column is missing, unknown, or has a value that does not survive its cast
    │   ├── KeyValueError        a record key that is null, too long or ambiguous
    │   ├── PartitionValueError  a partition value that cannot be a folder name
    │   ├── OrderingError        an ordering value that is null or NaN, or that Hudi has no form for
    │   ├── CheckFailed          a row that fails a check of the table
    │   ├── TooManyBadRows       more bad rows than on_bad_rows="quarantine" may set aside
    │   ├── DuplicateKeys        one key twice in a batch under duplicates="fail"
    │   ├── KeyExists            insert() of keys that are there
    │   └── KeyNotFound          upsert(new_keys="fail") of keys that are not there
    └── TableError           restore, upgrade or choose another table
        ├── CorruptTable         bytes that are not what the table says they are
        ├── UnsupportedTable     a table version or feature hoodoo does not handle
        ├── StoreRefused         the store cannot do what commits need, or its clock and ours disagree
        ├── StoreFull            no room left
        ├── StoreDenied          no permission to read or write there, or a read-only file system
        ├── SnapshotExpired      the position asked for was cleaned away
        ├── RangeUndone          the position asked for was taken back by another engine
        ├── TableReplaced        the table was deleted and another one created at its path since it was opened
        └── Fenced               this attempt was rolled back by somebody else

Each has a stable `code`, pickles (it crosses Spark workers), and names what is wrong and what to do.
This module imports nothing of hoodoo, so that every other module can import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


def _rebuild(cls: type[HoodooError], message: str, details: dict[str, Any]) -> HoodooError:
    return cls(message, **details)


class HoodooError(Exception):
    """The base class of all errors of hoodoo.

    Attributes:
        code: The stable code of the class, in capitals.
        message: What is wrong and what to do, in words.
        details: The names that the message is about, such as the column, the option or the file, as plain values.
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
    """The same call may succeed later."""

    code = "TRY_AGAIN"


class CommitConflict(TryAgainError):
    """Other writers came first more often than the commit may be tried again."""

    code = "COMMIT_CONFLICT"


class CommitUnknown(TryAgainError):
    """The store did not say in time whether the commit succeeded.

    `details` has `instant`, `slot` and `nonce`.

    Attributes:
        ask: What `resolve` calls. It is set where the error is raised, and is not pickled.
    """

    code = "COMMIT_UNKNOWN"
    ask: Callable[[], bool] | None = None  # set where it is raised; not pickled

    def resolve(self) -> bool:
        """Settle whether the commit succeeded.

        Returns:
            True if the batch was committed. False if it was not and never will be, so that it may be written again.

        Raises:
            StoreUnavailable: The store still does not answer.
            CommitUnknown: The store still does not say what it holds.
            CallError: The error came from another process. Open the table and call its `resolve` with the instant.
        """
        if self.ask is None:
            raise CallError(
                "This error came from another process; open the table there and call resolve(instant).", **self.details
            )
        return self.ask()


class LockHeld(TryAgainError):
    """A writer of Apache Hudi keeps the lock of the table."""

    code = "LOCK_HELD"


class PurgeBlocked(TryAgainError):
    """A savepoint, a reader or a consumer needs a file that a purge has to delete.

    `details` has `savepoints` (names), `leases` (slots), `consumers` (names) and `files` (the first ten).
    """

    code = "PURGE_BLOCKED"


class SourceChanged(TryAgainError):
    """What was to be read from a source was deleted or written anew meanwhile."""

    code = "SOURCE_CHANGED"


class SourceUnavailable(TryAgainError):
    """A source did not answer within the deadline."""

    code = "SOURCE_UNAVAILABLE"


class StoreUnavailable(TryAgainError):
    """The store did not answer within the deadline."""

    code = "STORE_UNAVAILABLE"


class CallError(HoodooError):
    """The call has to be corrected."""

    code = "CALL"


class OptionError(CallError):
    """An option or an argument is unknown, has a value that it cannot have, or contradicts the table."""

    code = "OPTION"


class SchemaError(CallError):
    """The table or the engine cannot hold a schema without loss, or a change of columns is refused."""

    code = "SCHEMA"


class RewriteNeeded(CallError):
    """A change of columns has to rewrite files, and `rewrite=True` was not given.

    `details` has `groups` (the number of file groups to rewrite), `rows` and `bytes`.
    """

    code = "REWRITE_NEEDED"


class TableExists(CallError):
    """A table cannot be created where one is already."""

    code = "TABLE_EXISTS"


class NestedTable(CallError):
    """A table cannot lie in the folder of another table."""

    code = "NESTED_TABLE"


class TableNotFound(CallError):
    """There is no table at the path."""

    code = "TABLE_NOT_FOUND"


class PositionError(CallError):
    """The position is not one of this table."""

    code = "POSITION"


class PredicateError(CallError):
    """A condition cannot be parsed, or it does not fit the columns."""

    code = "PREDICATE"


class ExpressionError(CallError):
    """An SQL expression cannot be parsed, does not fit the columns, or cannot be evaluated on a row."""

    code = "EXPRESSION"


class ForeignExport(CallError):
    """The Iceberg or Delta metadata beside the table is not what an export wrote; `rebuild=True` makes it right.

    `details` has `format` and `version` (the one that is not ours).
    """

    code = "FOREIGN_EXPORT"


class CatalogRefused(CallError):
    """A catalog does not take the entry of the exported Iceberg table: it has another table of that name, for example.

    The export itself is done. `details` has `identifier`, the name in the catalog.
    """

    code = "CATALOG_REFUSED"


class SourceLost(CallError):
    """A source has no longer what comes after the position of its application, or the position is none of it."""

    code = "SOURCE_LOST"


class Overtaken(SourceLost):
    """Apache Hudi's streamer has read on from the place of an application: what comes next is in the table by now.

    `details` has `application`, and `position`, the place of that streamer.
    """

    code = "OVERTAKEN"


class AlreadyCommitted(CallError):
    """An instant that was completed or rolled back before cannot be rolled back."""

    code = "ALREADY_COMMITTED"


class EngineError(CallError):
    """The engine cannot do what the call asks, or a library that the call needs is not installed."""

    code = "ENGINE"


class BucketNotFound(CallError):
    """The bucket does not exist at this endpoint.

    `details` has `bucket` and `endpoint`.
    """

    code = "BUCKET_NOT_FOUND"


class CredentialsError(CallError):
    """The store does not accept the credentials, or there are none.

    `details` has `bucket` and `endpoint`.
    """

    code = "CREDENTIALS"


class NoCredentials(CredentialsError):
    """No credentials were found."""

    code = "NO_CREDENTIALS"


class KeyRefused(CredentialsError):
    """The store does not know the access key, or the session token has expired."""

    code = "KEY_REFUSED"


class SignatureRefused(CredentialsError):
    """The store refuses the signature: the secret key is wrong, or the clock is off."""

    code = "SIGNATURE_REFUSED"


class DataError(HoodooError):
    """The data has to be corrected."""

    code = "DATA"


class ColumnError(DataError):
    """A column is missing, is unknown, or has a value that does not survive its cast."""

    code = "COLUMN"


class KeyValueError(DataError):
    """A record key is null, too long or ambiguous."""

    code = "KEY_VALUE"


class PartitionValueError(DataError):
    """A partition value does not fit its column, or cannot be the name of a folder."""

    code = "PARTITION_VALUE"


class OrderingError(DataError):
    """A value of an ordering column is null or NaN, or Hudi has no form for it."""

    code = "ORDERING"


class CheckFailed(DataError):
    """A row fails a check of the table.

    `details` has `check` (its name), `text`, `row` and `key`.
    """

    code = "CHECK_FAILED"


class TooManyBadRows(DataError):
    """A batch has more bad rows than may be set aside.

    `details` has `bad` (the number of bad rows found, at least), `rows` (the number of rows of the batch), `quarantine`
    (the path of the table that holds the first bad rows) and `reasons`.
    """

    code = "TOO_MANY_BAD_ROWS"


class DuplicateKeys(DataError):
    """A key is twice in a batch that is written with duplicates="fail"."""

    code = "DUPLICATE_KEYS"


class KeyExists(DataError):
    """An insert brings a key that the table has already."""

    code = "KEY_EXISTS"


class KeyNotFound(DataError):
    """An upsert with new_keys="fail" brings a key that the table does not have."""

    code = "KEY_NOT_FOUND"


class TableError(HoodooError):
    """The table has to be restored or upgraded, or another one has to be chosen."""

    code = "TABLE"


class CorruptTable(TableError):
    """Bytes of the table are not what the table says they are."""

    code = "CORRUPT_TABLE"


class UnsupportedTable(TableError):
    """The table has a version or a feature that hoodoo does not handle."""

    code = "UNSUPPORTED_TABLE"


class StoreRefused(TableError):
    """The store cannot do what commits need, or its clock and the clock of this machine disagree."""

    code = "STORE_REFUSED"


class StoreFull(TableError):
    """The store has no room left."""

    code = "STORE_FULL"


class StoreDenied(TableError):
    """The store does not permit the read or the write, or the file system is read-only."""

    code = "STORE_DENIED"


class SnapshotExpired(TableError):
    """The snapshot at the position was cleaned away."""

    code = "SNAPSHOT_EXPIRED"


class RangeUndone(TableError):
    """Another engine took the position back."""

    code = "RANGE_UNDONE"


class TableReplaced(TableError):
    """Another table is at the path now: the one that was opened was deleted."""

    code = "TABLE_REPLACED"


class Fenced(TableError):
    """Somebody else rolled this attempt back."""

    code = "FENCED"
