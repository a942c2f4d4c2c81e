"""The running query, as seen from inside foreachBatch; the only place that asks Spark's JVM."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query at work. `checkpoint` is a URL or path; `plan` holds offsets/N's bytes."""

    id: str
    run: str
    checkpoint: str
    app: str
    jvm: Any

    def planned(self, batch: int) -> bytes | None:
        """Return what `offsets/<batch>` says, from whatever keeps it; None if it isn't there.

        The same bytes as the file's: Spark writes them by the same method.
        """
        log = self.jvm.execution.offsetLog()
        found = log.get(batch)
        if found.isEmpty():
            return None
        out = self.jvm.gateway.java.io.ByteArrayOutputStream()
        log.serialize(found.get(), out)
        return bytes(out.toByteArray())


@dataclass(frozen=True, slots=True)
class _Handles:
    gateway: Any
    execution: Any


def running(df: DataFrame) -> Query | None:
    """Find the query that calls foreachBatch with `df`; None outside of one, and on Connect.

    The session that foreachBatch sees is a clone which doesn't list the query; what all sessions
    share does. Source: SharedState.activeStreamingQueries, StreamExecution (Spark 4.3).
    """
    if not hasattr(df, "_jdf"):  # Spark Connect: no JVM here
        return None
    session = df.sparkSession
    context = session.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        return None
    jvm: Any = context._jvm
    key = jvm.java.util.UUID.fromString(query_id)
    execution = session._jsparkSession.sharedState().activeStreamingQueries().get(key)
    if execution is None:
        return None
    return Query(
        query_id,
        execution.runId().toString(),
        execution.resolvedCheckpointRoot(),
        context.applicationId,
        _Handles(jvm, execution),
    )
