"""What a running query shows of itself, by which the log knows it again.

See storage/query_origin.py.
"""

import hashlib
import os
import re
from typing import Final

from pyspark.sql import DataFrame

from sparklog.checkpoint.files import local_path
from sparklog.sink.options import SinkOptions
from sparklog.sink.query import Query
from sparklog.storage.query_origin import BatchStart, Offsets, QueryOrigin

_OPAQUE: Final = ("PYTHON_UDF", "SCALA_UDF", "PLAN_EXPRESSION")  # code, and tables in subqueries
_ALL_FIELDS: Final = 2**31 - 1  # Spark leaves out those behind the 25th
# Numbers of columns and objects differ from run to run, and so may where and how fast one reads.
_PASSING: Final = re.compile(r"#\d+L?|@[0-9a-f]+|\b(?:starting|ending|max|min)\w*=[^,\]]*,? ?")


def origin_of(
    options: SinkOptions, checkpoint: str, offsets: bytes, *, name: str = "", plan: str = ""
) -> QueryOrigin:
    """Describe the query at a micro-batch with these planned offsets.

    Args: name: the query's; plan: of `plan_of`. Empty: unknown.
    """
    root = local_path(checkpoint)
    return QueryOrigin(
        checkpoint=checkpoint if root is None else os.path.realpath(root),
        name=name,
        plan=plan,
        ends=sources(offsets),
        is_meant=options.writer_id is not None,
    )


def sources(offsets: bytes) -> Offsets:
    """The offset of each source, from the text of `offsets/N`: a line each, `-` for none."""
    lines = offsets.decode(errors="replace").splitlines()[2:]
    return tuple(None if line == "-" else line for line in lines)


def plan_of(query: Query, df: DataFrame) -> str:
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


def now(query: Query, batch: int, ends: Offsets) -> BatchStart:
    """Ask where the micro-batch begins, and who else runs in this Spark application."""
    alive = frozenset(query.others())
    before = query.planned(batch - 1) if batch else None
    if before is not None:
        return BatchStart(sources(before), alive)
    begun = query.begun()
    return BatchStart(tuple(begun.get(end or "") for end in ends), alive)
