"""Pickling of tasks that share objects, such as a store.

Objects that the tasks of a job share are pickled only once. A task therefore only unpickles its own part and the shared
part. Shared objects are Arrow schemas, and instances of classes with `travels_once = True`, such as the store and the
configuration of a table, anywhere in a task.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def serialize_tasks(task: Any, items: Sequence[Any]) -> tuple[bytes, list[bytes]]:
    """Serialize tasks that share objects, such as a store.

    Shared objects are serialized only once. Returns the bytes of `task` with the shared objects, and the bytes of each
    item without the shared objects.
    """
    from pyspark.cloudpickle import CloudPickler

    common: dict[int, tuple[int, Any]] = {}  # by id(); the dict keeps the objects alive, so that their ids stay valid

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
    common_sink = io.BytesIO()
    CloudPickler(common_sink).dump((task, [value for _, value in common.values()]))  # type: ignore[no-untyped-call]
    return common_sink.getvalue(), parts


class TaskDeserializer:
    """Deserializer of tasks, and of the objects that they share."""

    def __init__(self, common: bytes) -> None:
        self._common = common
        self._loaded: tuple[Any, list[Any]] | None = None

    @property
    def _shared_parts(self) -> tuple[Any, list[Any]]:
        if self._loaded is None:
            self._loaded = pickle.loads(self._common)
        return self._loaded

    def run(self, part: bytes) -> Any:
        return self._shared_parts[0](self.item(part))

    def item(self, part: bytes) -> Any:
        shared = self._shared_parts[1]

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, number: int) -> Any:
                return shared[number]

        return Unpickler(io.BytesIO(part)).load()
