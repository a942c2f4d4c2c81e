"""Micro-batches of a query, as its sink commits them."""

import pyarrow as pa

from sparklog import Log
from sparklog.log.commit import CommitResult, Identity
from sparklog.storage.staging import Framing


def commit_batch(
    log: Log, writer: str, batch: int, rows: pa.Table, *, topic: str = "t",
    fingerprint: str = "", framing: Framing | None = None,
) -> CommitResult:  # fmt: skip
    """Commit `rows` as a micro-batch of `writer`; its number is its fingerprint by default."""
    stager = log.stager(framing or Framing())
    for part in rows.to_batches():
        stager.add(log.topic(topic), part)
    identity = Identity(writer=writer, batch=batch, fingerprint=fingerprint or f"{batch}")
    return log.commit(stager.finish(), identity=identity)
