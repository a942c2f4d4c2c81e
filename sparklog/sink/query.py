"""The running query, as seen from foreachBatch. The only module that calls Spark's JVM for it."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from sparklog.lru_cache import LruCache
from sparklog.storage.query_origin import BatchStart, Offsets

_KNOWN_MAX: Final = 64
_SCAN: Final = "StreamingDataSourceV2ScanRelation"
_OPAQUE: Final = ("PYTHON_UDF", "SCALA_UDF", "PLAN_EXPRESSION")  # code, and tables in subqueries
_ALL_FIELDS: Final = 2**31 - 1  # by default Spark omits fields behind the 25th
# Text that can differ between runs: ids of columns and objects, and the range and rate of reads.
_PASSING: Final = re.compile(r"#\d+L?|@[0-9a-f]+|\b(?:starting|ending|max|min)\w*=[^,\]]*,? ?")


def source_offsets(offsets: bytes) -> Offsets:
    """Return the offset of each source from the text of `offsets/N`; None for "-"."""
    lines = offsets.decode(errors="replace").splitlines()[2:]
    return tuple(None if line == "-" else line for line in lines)


@dataclass(frozen=True, slots=True)
class Query:
    """A running streaming query. `checkpoint` is a URL or a path."""

    id: str
    run: str
    checkpoint: str
    app: str
    jvm: Any
    name: str = ""

    def planned_offsets(self, batch: int) -> bytes | None:
        """Return the bytes of `offsets/<batch>` from any checkpoint manager, or None.

        They are identical to the file's bytes, because Spark writes both with the same method.
        """
        log = self.jvm.execution.offsetLog()
        offsets = log.get(batch)
        if offsets.isEmpty():
            return None
        out = self.jvm.gateway.java.io.ByteArrayOutputStream()
        log.serialize(offsets.get(), out)
        return bytes(out.toByteArray())

    def start_offsets(self) -> dict[str, str]:
        """Return {end offset: start offset} of this micro-batch's sources, as JSON texts.

        Only for sources that report offsets (Kafka's, rate's, Python's).
        """
        leaves = self.jvm.execution.lastExecution().optimizedPlan().collectLeaves().iterator()
        starts = {}
        while leaves.hasNext():
            leaf = leaves.next()
            if leaf.getClass().getSimpleName() == _SCAN and leaf.startOffset().isDefined():
                starts[leaf.endOffset().get().json()] = leaf.startOffset().get().json()
        return starts

    def running_query_ids(self) -> list[str]:
        """Return the ids of all queries that run in this application, including this query."""
        return [str(execution.id().toString()) for execution in self.jvm.active.values()]


@dataclass(frozen=True, slots=True)
class _Handles:
    gateway: Any
    execution: Any
    active: Any  # {query id: execution} of all running queries


_known: LruCache[str, Query] = LruCache(_KNOWN_MAX)  # query id -> its present or last run


def running_query(df: DataFrame) -> Query | None:
    """Return the query that calls foreachBatch with `df`, if any; None on Spark Connect.

    The session in foreachBatch is a clone that does not list the query, but the state shared by all
    sessions does. In a thread without the property that names the query, the query is found by its
    session. Setting another job group has no effect. Source: SharedState.activeStreamingQueries,
    StreamExecution (Spark 4.3).
    """
    if not hasattr(df, "_jdf"):  # Spark Connect: no JVM here
        return None
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    query = _known.get(query_id or "")
    if query is not None and query.jvm.gateway is context._jvm and query.jvm.execution.isActive():
        return query
    query = _look_up(df, query_id)
    if query is not None:
        _known.put(query.id, query)
    return query


def _look_up(df: DataFrame, query_id: str | None) -> Query | None:
    session, context = df.sparkSession._jsparkSession, df.sparkSession.sparkContext
    active = session.sharedState().activeStreamingQueries()
    jvm: Any = context._jvm
    if query_id is not None:
        execution = active.get(jvm.java.util.UUID.fromString(query_id))
    else:
        own = (e for e in active.values() if e.sparkSessionForStream().equals(session))
        execution = next(own, None)
    if execution is None:
        return None
    return Query(
        execution.id().toString(),
        execution.runId().toString(),
        execution.resolvedCheckpointRoot(),
        context.applicationId,
        _Handles(jvm, execution, active),
        execution.name() or "",
    )


def plan_digest(query: Query, df: DataFrame) -> str:
    """Return a digest of the query's own plan and of foreachBatch's plan up to the sink.

    Empty if the plans' texts are incomplete: they show only the name of a function and the columns
    of a joined table, so two different queries could have the same text. Cost: a few ms to render
    the plans.
    """
    own, batch = query.jvm.execution.analyzedPlan(), df._jdf.queryExecution().analyzed()
    patterns = query.jvm.gateway.org.apache.spark.sql.catalyst.trees.TreePattern
    opaque = [getattr(patterns, name)() for name in _OPAQUE]
    rows = batch.collectLeaves()
    if rows.size() != 1 or any(p.containsPattern(o) for p in (own, batch) for o in opaque):
        return ""
    leaves = own.collectLeaves().iterator()
    while leaves.hasNext():
        if not leaves.next().isStreaming():
            return ""
    texts = (plan.treeString(True, False, _ALL_FIELDS, False, False) for plan in (own, batch))
    plain = "\n".join(_PASSING.sub("", text) for text in texts)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def batch_start(query: Query, batch: int, ends: Offsets) -> BatchStart:
    """Return where the micro-batch starts, and which queries run in this application."""
    alive = frozenset(query.running_query_ids())
    before = query.planned_offsets(batch - 1) if batch else None
    if before is not None:
        return BatchStart(source_offsets(before), alive)
    begun = query.start_offsets()
    return BatchStart(tuple(begun.get(end or "") for end in ends), alive)
