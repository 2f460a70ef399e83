"""What a stream on Spark calls for each of its micro-batches: one commit, exactly once however often Spark tries.

Spark numbers the batches of a checkpoint, and the table remembers the newest number of each sink's name. Knows nothing
else of streams.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from hoodoo.arguments import application_version, one_of
from hoodoo.errors import OptionError

OPERATIONS = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite")


class Target(Protocol):
    """A table, as far as a sink knows it: its operations are called by name."""

    @property
    def path(self) -> str: ...


class Sink:
    """Made by Table.sink(); call it with a DataFrame and the number of its batch."""

    def __init__(self, table: Target, name: str, operation: str = "upsert", **arguments: Any) -> None:
        one_of("operation", operation, OPERATIONS)
        application_version((name, 0))
        known = inspect.signature(getattr(table, operation)).parameters.keys() - {"data", "rows", "transaction"}
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
        """Spark Connect runs it in a process beside the server, to which it sends no code."""
        from hoodoo.engine.spark import dumps, reduced_with_code

        return reduced_with_code(
            "hoodoo.table.sink", "_sink", (dumps((self.table, self.name, self.operation, self.arguments)),), whole=True
        )

    def __call__(self, frame: Any, batch_id: int) -> None:
        getattr(self.table, self.operation)(frame, transaction=(self.name, batch_id), **self.arguments)


def _sink(packed: bytes) -> Sink:
    from hoodoo.engine.spark import loads

    table, name, operation, arguments = loads(packed)
    return Sink(table, name, operation, **arguments)
