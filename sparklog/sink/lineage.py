"""What a running query shows of itself, by which the log knows it again; see log/origins.py."""

import hashlib
import os
import re
from typing import Final

from pyspark.sql import DataFrame

from sparklog.checkpoint.files import local_path
from sparklog.log.origins import Now, Offsets, Origin
from sparklog.sink.options import SinkOptions
from sparklog.sink.query import Query

# Numbers of columns and objects differ from run to run, and so may where and how fast one reads.
_PASSING: Final = re.compile(r"#\d+L?|@[0-9a-f]+|\b(?:starting|ending|max|min)\w*=[^,\]]*,? ?")


def origin_of(
    options: SinkOptions, checkpoint: str, offsets: bytes, *, name: str = "", plan: str = ""
) -> Origin:
    """Describe the query at a micro-batch with these planned offsets.

    Args: name: the query's; plan: of `plan_of`. Empty: unknown.
    """
    root = local_path(checkpoint)
    return Origin(
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

    Cost: some ms, for the plans are rendered as texts.
    """
    own = query.jvm.execution.analyzedPlan().toString()
    texts = (own, df._jdf.queryExecution().analyzed().toString())
    plain = "\n".join(_PASSING.sub("", text) for text in texts)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def now(query: Query, batch: int, ends: Offsets) -> Now:
    """Ask where the micro-batch begins, and who else runs in this Spark application."""
    alive = frozenset(query.others())
    before = query.planned(batch - 1) if batch else None
    if before is not None:
        return Now(sources(before), alive)
    begun = query.begun()
    return Now(tuple(begun.get(end or "") for end in ends), alive)
