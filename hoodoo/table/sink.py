"""The function that a stream on Spark calls for each micro-batch: one commit, exactly once however often Spark tries.

Spark numbers the micro-batches of a checkpoint. The table remembers the newest number of each sink by its name. This
module knows nothing else of streams.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from hoodoo.arguments import application_version, one_of
from hoodoo.errors import OptionError

OPERATIONS = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite")
_NOT_OF_A_BATCH = {
    "data",
    "transaction",
    "where",
    "if_head",
}  # given by the sink, or no rows


class SinkTable(Protocol):
    """A table, as far as a sink knows it: its operations are called by name."""

    @property
    def path(self) -> str: ...


class Sink:
    """A function that writes micro-batches of a stream; `Table.sink` makes it.

    Call it with a DataFrame and the number of its micro-batch. A micro-batch whose number was committed before is
    skipped.

    Attributes:
        table: The table.
        name: The name of the sink.
        operation: The method of the table that writes each micro-batch.
        arguments: Further arguments of that method.
    """

    def __init__(self, table: SinkTable, name: str, operation: str = "upsert", **arguments: Any) -> None:
        """Make a sink.

        Args:
            table: The table.
            name: The name of the sink, 1 to 1,000 characters.
            operation: The method of the table that writes each micro-batch. Default 'upsert'.
            **arguments: Further arguments of that method.

        Raises:
            OptionError: The operation is unknown, the name is empty or too long, or the operation does not take an
                argument.
        """
        one_of("operation", operation, OPERATIONS)
        application_version((name, 0))
        known = inspect.signature(getattr(table, operation)).parameters.keys() - _NOT_OF_A_BATCH
        for argument in arguments:
            if argument not in known:
                raise OptionError(
                    f"{operation} takes no {argument!r}; it takes {', '.join(sorted(known)) or 'nothing besides'}.",
                    option=argument,
                )
        self.table, self.name, self.operation, self.arguments = table, name, operation, arguments

    def __repr__(self) -> str:
        return f"<hoodoo sink {self.name!r}: {self.operation} into {self.table.path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sink with hoodoo's code.

        Spark Connect runs it in a process beside the server, to which it sends no code.
        """
        from hoodoo.engine.spark import dumps, reduced_with_code

        return reduced_with_code(
            "hoodoo.table.sink", "_sink", (dumps((self.table, self.name, self.operation, self.arguments)),), whole=True
        )

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write a micro-batch.

        Args:
            frame: The rows of the micro-batch, as a Spark DataFrame.
            batch_id: The number of the micro-batch.

        Raises:
            HoodooError: What the method of the table raises.
        """
        getattr(self.table, self.operation)(frame, transaction=(self.name, batch_id), **self.arguments)


def _sink(packed: bytes) -> Sink:
    from hoodoo.engine.spark import loads

    table, name, operation, arguments = loads(packed)
    return Sink(table, name, operation, **arguments)
