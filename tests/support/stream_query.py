"""Drives the stream source as Spark does, without Spark: offsets go to a checkpoint first, then rows, then the word
that they are through.

Every reader, partition and offset crosses a process on the way, so that they are pickled, or turned into JSON and back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from hoodoo.engine.spark import dumps, loads
from hoodoo.spark.parts import get_read_schema
from hoodoo.spark.source_options import ReadOptions
from hoodoo.spark.stream import HoodooStream


@dataclass
class Checkpoint:
    """Offsets that were decided (the first is where the stream starts), the rows of each batch, and how many batches
    are through.
    """

    offsets: list[str] = field(default_factory=list)
    batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    done: int = 0


class Query:
    """One run of a streaming query on a checkpoint; make another to restart it."""

    def __init__(
        self, checkpoint: Checkpoint, path: Any, available_now: bool = False, once: bool = False, **options: Any
    ) -> None:
        parsed = ReadOptions.parse({"path": str(path), **{name: str(value) for name, value in options.items()}}, True)
        self.schema = from_arrow_schema(get_read_schema(parsed.open(), parsed), prefer_timestamp_ntz=True)
        self.checkpoint, self.reader = checkpoint, HoodooStream(parsed, self.schema)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        if not checkpoint.offsets:
            checkpoint.offsets.append(json.dumps(self.reader.initialOffset()))

    def decide(self) -> bool:
        """The end of the next batch into the checkpoint, unless a decided one is not through; False: nothing new."""
        kept = self.checkpoint
        if len(kept.offsets) - 1 > kept.done:
            return True
        start = kept.offsets[-1]
        end = json.dumps(self.reader.latestOffset(json.loads(start), self.limit))
        if end == start:
            return False
        kept.offsets.append(end)
        return True

    def parts(self, number: int) -> list[Any]:
        start, end = (json.loads(text) for text in self.checkpoint.offsets[number : number + 2])
        return [loads(dumps(part)) for part in self.reader.partitions(start, end)]

    def run(self) -> None:
        """The rows of the decided batch; a batch that is run again replaces what it gave."""
        number = self.checkpoint.done
        reader = loads(dumps(self.reader))
        batches = [batch for part in self.parts(number) for batch in reader.read(part)]
        self.checkpoint.batches[number] = pa.Table.from_batches(batches).to_pylist() if batches else []

    def finish(self) -> None:
        self.checkpoint.done += 1
        self.reader.commit(json.loads(self.checkpoint.offsets[self.checkpoint.done]))

    def trigger(self) -> bool:
        if not self.decide():
            return False
        self.run()
        self.finish()
        return True

    def drain(self) -> list[list[dict[str, Any]]]:
        """All batches there are now; their rows."""
        before = self.checkpoint.done
        while self.trigger():
            assert self.checkpoint.done < before + 500, "the stream does not end"
        return [self.checkpoint.batches[number] for number in range(before, self.checkpoint.done)]

    def stop(self) -> None:
        self.reader.stop()
