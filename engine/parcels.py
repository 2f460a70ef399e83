"""Tasks as data: what all tasks of a job have in common is pickled once, what is a task's own by itself, so that a task
unpickles its own part and not those of the others.

In common are Arrow schemas and objects of classes that say `travels_once = True`, such as a table's store and its
configuration, wherever in a task they stand.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def pack(task: Any, items: Sequence[Any]) -> tuple[bytes, list[bytes]]:
    """(`task` and all that the items have in common, each item without it), for `Parcels`."""
    from pyspark.cloudpickle import CloudPickler

    common: dict[int, tuple[int, Any]] = {}  # by identity; what is kept here keeps its identity

    class Pickler(CloudPickler):
        def persistent_id(self, value: Any) -> int | None:
            if isinstance(value, pa.Schema) or getattr(type(value), "travels_once", False):
                return common.setdefault(id(value), (len(common), value))[0]
            return None

    parts = []
    for item in items:
        sink = io.BytesIO()
        Pickler(sink).dump(item)  # type: ignore[no-untyped-call]  # pyspark gives no types for it
        parts.append(sink.getvalue())
    whole = io.BytesIO()
    CloudPickler(whole).dump((task, [value for _, value in common.values()]))  # type: ignore[no-untyped-call]
    return whole.getvalue(), parts


class Parcels:
    """Unpacks what `pack` gave, where the tasks run. The common part is loaded when the first item is."""

    def __init__(self, common: bytes) -> None:
        self._common = common
        self._loaded: tuple[Any, list[Any]] | None = None

    @property
    def _opened(self) -> tuple[Any, list[Any]]:
        if self._loaded is None:
            self._loaded = pickle.loads(self._common)
        return self._loaded

    def run(self, part: bytes) -> Any:
        """What the task makes of an item."""
        return self._opened[0](self.item(part))

    def item(self, part: bytes) -> Any:
        shared = self._opened[1]

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, number: int) -> Any:
                return shared[number]

        return Unpickler(io.BytesIO(part)).load()
