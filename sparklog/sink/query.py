"""The running streaming query, as seen from foreachBatch.

All requests to Spark's JVM about a query are in this module.
"""

import contextlib
import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from sparklog.checkpoint.log_backed.layout import RUNS_SCHEME
from sparklog.lru_cache import LruCache
from sparklog.spark_versions import TREE_STRING_FLAGS
from sparklog.storage.query_origin import BatchStart, Offsets

_KNOWN_MAX: Final = 64
_SCAN: Final = "StreamingDataSourceV2ScanRelation"
_OPAQUE: Final = ("PYTHON_UDF", "SCALA_UDF", "PLAN_EXPRESSION")  # code, and tables in subqueries
_ALL_FIELDS: Final = 2**31 - 1  # by default Spark omits fields behind the 25th
# Text that can differ between runs: ids of columns and objects, and the range and rate of reads.
_PASSING: Final = re.compile(r"#\d+L?|@[0-9a-f]+|\b(?:starting|ending|max|min)\w*=[^,\]]*,? ?")


def source_offsets(offsets: bytes) -> Offsets:
    """Return the offset of each source from the text of `offsets/N`; None for "-".

    In format 2 of the offset log (Spark 4.2), each line begins with the name of the source.
    """
    lines = offsets.decode(errors="replace").splitlines()
    is_named = lines[:1] == ["v2"]
    texts = (line.partition(":")[2] if is_named else line for line in lines[2:])
    return tuple(None if text == "-" else text for text in texts)


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
        """Return the bytes of `offsets/<batch>` from any checkpoint manager, or None."""
        log = self.jvm.execution.offsetLog()
        offsets = log.get(batch)
        if offsets.isEmpty():
            return None
        out = self.jvm.gateway.java.io.ByteArrayOutputStream()
        # Spark writes the file with the same method, so the bytes have the same fingerprint.
        log.serialize(offsets.get(), out)
        return bytes(out.toByteArray())

    @property
    def is_in_runs(self) -> bool:
        """Whether sparklog's manager keeps the checkpoint in an object store."""
        return self.checkpoint.startswith(RUNS_SCHEME)

    def checkpoint_file(self, name: str) -> bytes | None:
        """Return a file of a checkpoint in runs, or None. Cost: no request, usually."""
        path, fs = self._located(name)
        if not fs.exists(path):
            return None
        with contextlib.closing(fs.open(path)) as stream:
            return bytes(stream.readAllBytes())

    def delete_checkpoint_file(self, name: str) -> None:
        """Delete a file of a checkpoint in runs; the note of a reset durably, at once."""
        path, fs = self._located(name)
        fs.delete(path, False)

    def _located(self, name: str) -> tuple[Any, Any]:
        conf = self.jvm.execution.sparkSessionForStream().sessionState().newHadoopConf()
        path = self.jvm.gateway.org.apache.hadoop.fs.Path(f"{self.checkpoint}/{name}")
        return path, path.getFileSystem(conf)

    def start_offsets(self) -> dict[str, str]:
        """Return {end offset: start offset} of this micro-batch's sources, as JSON texts.

        Sources that report no offsets are missing. Kafka's, rate's and Python's sources do.
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

    Source: SharedState.activeStreamingQueries, StreamExecution (Spark 4.3).
    """
    if not hasattr(df, "_jdf"):  # Spark Connect: no JVM here
        return None
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    query = _known.get(query_id or "")
    # A restarted query keeps its id and has a new execution; a new SparkContext has a new JVM view.
    if query is not None and query.jvm.gateway is context._jvm and query.jvm.execution.isActive():
        return query
    query = _look_up(df, query_id)
    if query is not None:
        _known.put(query.id, query)
    return query


def _look_up(df: DataFrame, query_id: str | None) -> Query | None:
    session, context = df.sparkSession._jsparkSession, df.sparkSession.sparkContext
    # The session in foreachBatch is a clone that doesn't list the query, so `streams.active` is
    # empty there. The state that all sessions share lists every query.
    active = session.sharedState().activeStreamingQueries()
    jvm: Any = context._jvm
    if query_id is not None:
        execution = active.get(jvm.java.util.UUID.fromString(query_id))
    else:  # a thread that the user's function started doesn't have the query's local property
        own = (e for e in active.values() if e.sparkSessionForStream().equals(session))
        execution = next(own, None)
    if execution is None:
        return None
    return Query(
        execution.id().toString(),
        execution.runId().toString(),
        str(execution.resolvedCheckpointRoot()),
        context.applicationId,
        _Handles(jvm, execution, active),
        execution.name() or "",
    )


def plan_digest(query: Query, df: DataFrame) -> str:
    """Return a digest of the query's own plan and of foreachBatch's plan up to the sink.

    The digest is empty if the text of a plan does not describe the query completely.

    Cost: a few ms to render the plans.
    """
    own, batch = query.jvm.execution.analyzedPlan(), df._jdf.queryExecution().analyzed()
    patterns = query.jvm.gateway.org.apache.spark.sql.catalyst.trees.TreePattern
    opaque = [getattr(patterns, name)() for name in _OPAQUE]
    rows = batch.collectLeaves()
    # The text of a plan shows only the name of a function, and only the columns of a joined table.
    # Two different queries could have the same text then, and one would be rejected as the other.
    if rows.size() != 1 or any(p.containsPattern(o) for p in (own, batch) for o in opaque):
        return ""
    leaves = own.collectLeaves().iterator()
    while leaves.hasNext():
        if not leaves.next().isStreaming():
            return ""
    texts = (plan.treeString(True, False, _ALL_FIELDS, *TREE_STRING_FLAGS) for plan in (own, batch))
    plain = "\n".join(_PASSING.sub("", text) for text in texts)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def batch_start(query: Query, batch: int, ends: Offsets) -> BatchStart:
    """Return where the micro-batch starts, and which queries run in this application."""
    alive = frozenset(query.running_query_ids())
    before = query.planned_offsets(batch - 1) if batch else None
    if before is not None:
        return BatchStart(source_offsets(before), alive)
    # Batch 0 has no predecessor: ask the sources of the running micro-batch.
    begun = query.start_offsets()
    return BatchStart(tuple(begun.get(end or "") for end in ends), alive)
