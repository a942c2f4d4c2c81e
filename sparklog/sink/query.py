"""The running query, as seen from inside foreachBatch; the only place that asks Spark's JVM."""

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
_ALL_FIELDS: Final = 2**31 - 1  # Spark leaves out those behind the 25th
# Numbers of columns and objects differ from run to run, and so may where and how fast one reads.
_PASSING: Final = re.compile(r"#\d+L?|@[0-9a-f]+|\b(?:starting|ending|max|min)\w*=[^,\]]*,? ?")


def source_offsets(offsets: bytes) -> Offsets:
    """The offset of each source, from the text of `offsets/N`: a line each, `-` for none."""
    lines = offsets.decode(errors="replace").splitlines()[2:]
    return tuple(None if line == "-" else line for line in lines)


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query at work. `checkpoint` is a URL or path; `plan` holds offsets/N's bytes."""

    id: str
    run: str
    checkpoint: str
    app: str
    jvm: Any
    name: str = ""

    def planned_offsets(self, batch: int) -> bytes | None:
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

    def start_offsets(self) -> dict[str, str]:
        """Return where the sources of this micro-batch begin: {its end: its start}, as JSON.

        Only of sources that tell (Kafka's, rate's, Python's); of others nothing is known.
        """
        leaves = self.jvm.execution.lastExecution().optimizedPlan().collectLeaves().iterator()
        found = {}
        while leaves.hasNext():
            leaf = leaves.next()
            if leaf.getClass().getSimpleName() == _SCAN and leaf.startOffset().isDefined():
                found[leaf.endOffset().get().json()] = leaf.startOffset().get().json()
        return found

    def running_query_ids(self) -> list[str]:
        """Return the ids of the queries that run in this application, this one's included."""
        return [str(execution.id().toString()) for execution in self.jvm.active.values()]


@dataclass(frozen=True, slots=True)
class _Handles:
    gateway: Any
    execution: Any
    active: Any  # {query id: execution} of the application


_known: LruCache[str, Query] = LruCache(_KNOWN_MAX)  # query id -> its run of now, or the last one


def running_query(df: DataFrame) -> Query | None:
    """Find the query that calls foreachBatch with `df`; None outside of one, and on Connect.

    The session that foreachBatch sees is a clone which doesn't list the query; what all sessions
    share does. Another thread than foreachBatch's own has no property that names the query: it is
    the one whose session that is. Who groups jobs by another name changes nothing.
    Source: SharedState.activeStreamingQueries, StreamExecution (Spark 4.3).
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
    """A short name of what the query does: its own plan, and foreachBatch's up to the sink.

    Empty if the plans' texts don't tell it all: of functions they show the name, of tables that are
    joined the columns, and two queries that differ in these alone are two.
    Cost: some ms, for the plans are rendered as texts.
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
    """Ask where the micro-batch begins, and who else runs in this Spark application."""
    alive = frozenset(query.running_query_ids())
    before = query.planned_offsets(batch - 1) if batch else None
    if before is not None:
        return BatchStart(source_offsets(before), alive)
    begun = query.start_offsets()
    return BatchStart(tuple(begun.get(end or "") for end in ends), alive)
