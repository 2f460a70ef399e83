"""Sink for Spark streams.

Spark numbers the micro-batches of a checkpoint. The table stores the newest batch number of each sink by sink name.
With `positions`, it also stores the source offsets. Spark itself always continues from its checkpoint. Other
applications can continue from the stored offsets.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from hoodoo.arguments import ApplicationVersion, check_allowed_value, check_flag, convert_transaction
from hoodoo.engine.stream_offsets import stream_offsets
from hoodoo.errors import CommitConflict, OptionError
from hoodoo.redact import printable
from hoodoo.table.handle import TableHandle
from hoodoo.timeline.applications import application

OPERATIONS = ("upsert", "insert", "delete", "insert_overwrite")
_POSITION = '{"source":"spark","offsets":%s}'
_NOT_OF_A_BATCH = {
    "data",
    "transaction",
    "where",
    "params",
    "if_head",
}  # set by the sink, or not applicable to a batch


class SinkTable(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def handle(self) -> TableHandle: ...


class Sink:
    """Sink for `foreachBatch` of a Spark stream.

    Call it with a DataFrame and its batch number. Batches whose number is already committed are skipped.

    Attributes:
        table: The table that the sink writes to.
        name: The name of the sink.
        operation: The table method that writes each micro-batch.
        positions: Whether each commit stores the source offsets of the stream.
        arguments: Further arguments of the table method.
    """

    def __init__(
        self, table: SinkTable, name: str, operation: str = "upsert", positions: bool = False, **arguments: Any
    ) -> None:
        """Create a sink.

        Users call `Table.sink`.

        Args:
            table: The table that the sink writes to.
            name: The name of the sink, 1 to 1,000 characters.
            operation: The table method that writes each micro-batch. Default 'upsert'.
            positions: True stores the source offsets of the stream in each commit. Default False.
            **arguments: Further arguments of the table method.

        Raises:
            OptionError: The operation is unknown, the name is empty or too long, or the operation does not accept one
                of the arguments.
        """
        check_allowed_value("operation", operation, OPERATIONS)
        convert_transaction((name, 0))
        known = inspect.signature(getattr(table, operation)).parameters.keys() - _NOT_OF_A_BATCH
        for argument in arguments:
            if argument not in known:
                raise OptionError(
                    f"{operation} has no argument {argument!r}. Its arguments are: "
                    f"{', '.join(sorted(known)) or 'none'}.",
                    option=argument,
                )
        self.table, self.name, self.operation, self.arguments = table, name, operation, arguments
        self.positions = check_flag("positions", positions)

    def __repr__(self) -> str:
        return f"<hoodoo sink {self.name!r}: {self.operation} into {self.table.path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sink for Spark workers.

        Spark Connect runs the sink in a process next to the server, where hoodoo may not be installed.
        """
        from hoodoo.engine.spark import dumps, reduce_with_code

        return reduce_with_code(
            "hoodoo.table.sink",
            "_sink",
            (dumps((self.table, self.name, self.operation, self.positions, self.arguments)),),
            whole=True,
        )

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write a micro-batch in one commit.

        A micro-batch that is already committed is skipped.

        Args:
            frame: The rows of the micro-batch, as a Spark DataFrame.
            batch_id: The number of the micro-batch.

        Raises:
            CommitConflict: Another stream or another checkpoint has already written with this sink name.
            EngineError: The source offsets of the stream are not available.
            HoodooError: Any error that the table method raises.
        """
        transaction: ApplicationVersion | tuple[str, int] = (self.name, batch_id)
        if self.positions:
            transaction = self._create_transaction(stream_offsets(frame, batch_id), batch_id)
        getattr(self.table, self.operation)(frame, transaction=transaction, **self.arguments)

    def _create_transaction(self, offsets: str, batch_id: int) -> ApplicationVersion:
        """Return the transaction of a micro-batch.

        A retry of a committed batch gets the version of that commit, so the write skips it. Raises CommitConflict if
        the batch does not follow the newest one that the table stores for this sink.
        """
        view = self.table.handle.look().view
        at, position = application(self.name, view.transactions, view.reached), _POSITION % offsets
        elsewhere = batch_id == at.version and at.position not in ("", position)
        if elsewhere or batch_id not in (at.version, at.version + 1):
            remedy = "Give the sink another name, and the stream a new checkpoint."
            if batch_id == 0:
                remedy = "The checkpoint is new, and each checkpoint needs its own sink. Give this sink another name."
            raise CommitConflict(
                f"Sink {printable(self.name)} is at batch "
                f"{at.version}{f' with position {printable(at.position)}' if at.position else ''}, but this "
                f"stream writes batch {batch_id}, which ends at {printable(offsets)}. Another stream uses this "
                f"sink name, or the checkpoint was replaced. Nothing was written. {remedy}",
                application=self.name,
                version=at.version,
            )
        return at.next(position)._replace(version=batch_id)


def _sink(packed: bytes) -> Sink:
    from hoodoo.engine.spark import loads

    table, name, operation, positions, arguments = loads(packed)
    return Sink(table, name, operation, positions, **arguments)
