"""Every error hoodoo raises, grouped by what the caller does next.

    HoodooError
    ├── TryAgainError        the same call may succeed later
    │   ├── CommitConflict       other writers kept winning; the retry bound is spent
    │   ├── CommitUnknown        the commit may or may not exist: ask .resolve()
    │   ├── LockHeld             an Apache Hudi writer keeps its lock
    │   ├── PurgeBlocked         a savepoint, reader or consumer still needs what a purge has to delete
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
    │   ├── AlreadyCommitted     rollback() of a completed instant
    │   ├── BucketNotFound       there is no such bucket at this endpoint
    │   ├── CredentialsError     nothing to sign with, or the store does not take it
    │   │   ├── NoCredentials        no credentials were found
    │   │   ├── KeyRefused           the store does not know the access key, or the token has expired
    │   │   └── SignatureRefused     the secret key is another one, or the clock is off
    │   └── EngineError          the engine asked for is not to be had here
    ├── DataError            fix the data
    │   ├── ColumnError          a column is missing, unknown, or does not survive its cast
    │   ├── KeyValueError        a record key that is null, too long or ambiguous
    │   ├── PartitionValueError  a partition value that cannot be a folder name
    │   ├── OrderingError        a null or NaN ordering value
    │   ├── CheckFailed          a row that fails a check of the table
    │   ├── TooManyBadRows       more bad rows than on_bad_rows="quarantine" may set aside
    │   ├── DuplicateKeys        one key twice in a batch under duplicates="fail"
    │   └── KeyExists            insert() of keys that are there
    └── TableError           restore, upgrade or choose another table
        ├── CorruptTable         bytes that are not what the table says they are
        ├── UnsupportedTable     a table version or feature hoodoo does not handle
        ├── StoreRefused         the store cannot do what commits need, or its clock and ours disagree
        ├── StoreFull            no room left
        ├── StoreDenied          no permission to read or write there, or a read-only file system
        ├── SnapshotExpired      the position asked for was cleaned away
        ├── RangeUndone          the position asked for was taken back by another engine
        ├── TableReplaced        the table was deleted, and another one created in its place, since it was opened
        └── Fenced               this attempt was rolled back by somebody else

Each has a stable `code`, pickles (it crosses Spark workers), and names what is wrong and what to do.
This module knows nothing else of hoodoo, so every room may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


def _rebuild(cls: type[HoodooError], message: str, details: dict[str, Any]) -> HoodooError:
    return cls(message, **details)


class HoodooError(Exception):
    """Base of all: `code` is stable, `details` holds the offending names as plain values."""

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
    code = "TRY_AGAIN"


class CommitConflict(TryAgainError):
    code = "COMMIT_CONFLICT"


class CommitUnknown(TryAgainError):
    """Raised past the deadline while the slot write is unresolved; details: instant, slot, nonce."""

    code = "COMMIT_UNKNOWN"
    ask: Callable[[], bool] | None = None  # set where it is raised; not pickled

    def resolve(self) -> bool:
        """Was it committed? Looks at the table now; False means that it was not and never will be, so that the batch
        may be written again.

        Raises StoreUnavailable or CommitUnknown while the store still does not answer, and CallError in another process
        than the writer's.
        """
        if self.ask is None:
            raise CallError(
                "This error came from another process; open the table there and call resolve(instant).", **self.details
            )
        return self.ask()


class LockHeld(TryAgainError):
    code = "LOCK_HELD"


class PurgeBlocked(TryAgainError):
    """details: savepoints (names), leases (slots), consumers (names), files (the first ten)."""

    code = "PURGE_BLOCKED"


class StoreUnavailable(TryAgainError):
    code = "STORE_UNAVAILABLE"


class CallError(HoodooError):
    code = "CALL"


class OptionError(CallError):
    code = "OPTION"


class SchemaError(CallError):
    code = "SCHEMA"


class RewriteNeeded(CallError):
    """details: groups (file groups to rewrite), rows, bytes."""

    code = "REWRITE_NEEDED"


class TableExists(CallError):
    code = "TABLE_EXISTS"


class NestedTable(CallError):
    code = "NESTED_TABLE"


class TableNotFound(CallError):
    code = "TABLE_NOT_FOUND"


class PositionError(CallError):
    code = "POSITION"


class PredicateError(CallError):
    code = "PREDICATE"


class AlreadyCommitted(CallError):
    code = "ALREADY_COMMITTED"


class EngineError(CallError):
    code = "ENGINE"


class BucketNotFound(CallError):
    """details: bucket, endpoint."""

    code = "BUCKET_NOT_FOUND"


class CredentialsError(CallError):
    """details: bucket, endpoint."""

    code = "CREDENTIALS"


class NoCredentials(CredentialsError):
    code = "NO_CREDENTIALS"


class KeyRefused(CredentialsError):
    code = "KEY_REFUSED"


class SignatureRefused(CredentialsError):
    code = "SIGNATURE_REFUSED"


class DataError(HoodooError):
    code = "DATA"


class ColumnError(DataError):
    code = "COLUMN"


class KeyValueError(DataError):
    code = "KEY_VALUE"


class PartitionValueError(DataError):
    code = "PARTITION_VALUE"


class OrderingError(DataError):
    code = "ORDERING"


class CheckFailed(DataError):
    """details: check (its name), text, row, key."""

    code = "CHECK_FAILED"


class TooManyBadRows(DataError):
    """details: bad (rows found, at least), rows (of the batch), quarantine (where the first are), reasons."""

    code = "TOO_MANY_BAD_ROWS"


class DuplicateKeys(DataError):
    code = "DUPLICATE_KEYS"


class KeyExists(DataError):
    code = "KEY_EXISTS"


class TableError(HoodooError):
    code = "TABLE"


class CorruptTable(TableError):
    code = "CORRUPT_TABLE"


class UnsupportedTable(TableError):
    code = "UNSUPPORTED_TABLE"


class StoreRefused(TableError):
    code = "STORE_REFUSED"


class StoreFull(TableError):
    code = "STORE_FULL"


class StoreDenied(TableError):
    code = "STORE_DENIED"


class SnapshotExpired(TableError):
    code = "SNAPSHOT_EXPIRED"


class RangeUndone(TableError):
    code = "RANGE_UNDONE"


class TableReplaced(TableError):
    """The table was deleted and another one was created in its place since it was opened."""

    code = "TABLE_REPLACED"


class Fenced(TableError):
    code = "FENCED"
