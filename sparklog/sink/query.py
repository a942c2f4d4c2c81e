"""The running query, as seen from inside foreachBatch; the only place that asks Spark's JVM."""

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

_KNOWN_MAX: Final = 64


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


_known: dict[str, Query] = {}  # run id -> query; of this process's runs, a few


def running(df: DataFrame) -> Query | None:
    """Find the query that calls foreachBatch with `df`; None outside of one, and on Connect.

    The session that foreachBatch sees is a clone which doesn't list the query; what all sessions
    share does. Source: SharedState.activeStreamingQueries, StreamExecution (Spark 4.3).
    """
    if not hasattr(df, "_jdf"):  # Spark Connect: no JVM here
        return None
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    run = context.getLocalProperty("spark.jobGroup.id")  # a query's jobs are grouped by its run
    if query_id is None or run is None:
        return None
    query = _known.get(run)
    if query is None:
        query = _look_up(df, query_id, run)
        if query is not None:
            _known[run] = query
            while len(_known) > _KNOWN_MAX:
                _known.pop(next(iter(_known)), None)
    return query


def _look_up(df: DataFrame, query_id: str, run: str) -> Query | None:
    session = df.sparkSession
    context = session.sparkContext
    jvm: Any = context._jvm
    key = jvm.java.util.UUID.fromString(query_id)
    execution = session._jsparkSession.sharedState().activeStreamingQueries().get(key)
    if execution is None or execution.runId().toString() != run:
        return None
    return Query(
        query_id,
        run,
        execution.resolvedCheckpointRoot(),
        context.applicationId,
        _Handles(jvm, execution),
    )
