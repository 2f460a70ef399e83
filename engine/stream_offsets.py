"""How far a stream on Spark has read its sources by a micro-batch, as it wrote into the checkpoint before.

Spark's progress report says it of the batch before, and rows say it only where none was filtered; the checkpoint is
what Spark itself goes on from.
"""

from __future__ import annotations

import json
from typing import Any

from hoodoo.errors import EngineError

_QUERY = "sql.streaming.queryId"  # Spark sets it on the thread that runs a query


def stream_offsets(frame: Any, batch_id: int) -> str:
    """Look up where a micro-batch ends.

    Args:
        frame: The frame of the micro-batch, as `foreachBatch` gives it.
        batch_id: The number of the micro-batch.

    Returns:
        A JSON array with the offset of each source, in Spark's words; of Kafka that is {"topic": {"0": next offset}}.

    Raises:
        EngineError: Nobody can say: Spark Connect does not, and a frame that comes from no stream has none.
    """
    session = frame.sparkSession
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise EngineError(
            "Spark Connect does not tell how far a stream has read. Leave positions out of sink(), or run the stream "
            "in the process of the driver."
        )
    query = session.sparkContext.getLocalProperty(_QUERY)
    if query is None:
        raise EngineError("positions=True is for writeStream.foreachBatch(): this frame comes from no stream.")
    jvm = session.sparkContext._jvm
    running = session._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    written = running.offsetLog().get(batch_id) if running is not None else None
    if written is None or written.isEmpty():
        raise EngineError(f"The checkpoint of stream {query} has no offsets of batch {batch_id}.")
    offsets = written.get().offsets()
    said = [offsets.apply(at) for at in range(offsets.size())]
    return json.dumps([json.loads(one.get().json()) if one.isDefined() else None for one in said])


__all__ = ["stream_offsets"]
