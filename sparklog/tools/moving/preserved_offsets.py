"""Commits records at given offsets, as `import` and `export` do.

A topic for this is created by `Log.create_topic(starts=...)`, so that readers, recovery and verify
know that offsets may be missing. The end of the topic shows how far the copy has come. A commit
names the expected end, so no record is written twice or at a wrong offset, however often the copy
is repeated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.format.sparse_records import encode_spaced
from sparklog.log.commit import CommitResult, Identity
from sparklog.log.log import Log, home_of
from sparklog.storage.commits import Chunk
from sparklog.storage.log_state import LogState
from sparklog.storage.staging import Framing
from sparklog.storage.view import TopicInfo
from sparklog.tools.moving.batch_copy import Copied

COMMIT_BYTES: Final = 32 << 20
"""Bytes of Arrow data, or of batches, after which a commit is made."""

_RECORD: Final = ("key", "value", "headers", "timestamp")


@dataclass(slots=True)
class Run:
    """The next rows of a partition, with column offset, up to but not including offset `end`."""

    start: int
    end: int
    rows: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of Arrow data."""
        return sum(rows.nbytes for rows in self.rows)


def preserves_offsets(log: Log, topic: str) -> bool:
    """Return True if offsets may be missing in a topic, as in a topic created with `starts`."""
    known = _state(log).topics.get(topic)
    return known is not None and known.adopted


def _state(log: Log) -> LogState:
    """Return the current state of the log, with the commits of other processes."""
    commits = home_of(log).commits
    commits.catch_up()
    with commits.exclusive():
        return commits.state


def copied_ends(log: Log, topic: str, writer: str, what: str) -> dict[int, int]:
    """Return {partition: end} of a copied topic, so that `writer` can continue the copy.

    Args:
        log: The log with the copy.
        topic: The topic.
        writer: The name under which the copy is committed.
        what: The original, for error messages.

    Raises:
        InvalidRequestError: The topic contains records of other writers, so that the offsets of the
            next records may be used already.
    """
    spans = log.offsets(topic)
    state = _state(log)
    left, known = _left(state, topic, writer), state.topics[topic].adopted
    for p, (_, end) in spans.items():
        if not known or left[p] != end:
            raise InvalidRequestError(
                f"{topic}-{p} contains records that were not copied from the present {what}: "
                "choose another name or place for the copy"
            )
    return {p: end for p, (_, end) in spans.items()}


def _left(state: LogState, topic: str, writer: str) -> dict[int, int]:
    """Return {partition: end} after the last commit of `writer`, or after the creation."""
    last, known = state.writers.get(writer), state.topics.get(topic)
    if known is None:
        raise UnknownTopicError(f"topic {topic} was deleted during the copy; repeat the copy")
    ends: dict[str, int] = {}
    # The fingerprint of a copy's last batch is the JSON of the ends that it left. Any other writer
    # of this name has the fingerprint of a micro-batch, which says nothing about ends.
    if last is not None and last.fingerprint.startswith("{"):
        ends = json.loads(last.fingerprint)
    # An end below the partition's base belongs to a former topic of this name.
    starts = {p: state.starts.get(TopicPartition(topic, p), 0) for p in known.dirs}
    return {p: max(ends.get(str(p), start), known.bases.get(p, 0)) for p, start in starts.items()}


def commit_runs(
    log: Log,
    topic: str,
    runs: Mapping[int, Run],
    *,
    writer: str,
    framing: Framing | None = None,
    source: Mapping[str, Any] | None = None,
) -> CommitResult:
    """Commit {partition: run} at once, as the next batch of `writer`.

    Also raises the errors of `Log.append`.

    Raises:
        InvalidRequestError: A partition doesn't end where its run starts, or another partition
            doesn't end where `writer` left it, because another process writes to the topic.
        BatchConflictError: The same writer runs elsewhere too.
        RecordTooLargeError: A record is too large for the topic.
    """
    info = _placed(log, topic)
    chunks = [_chunk(info, p, run, framing or Framing()) for p, run in sorted(runs.items())]
    spans = {p: (run.start, run.end) for p, run in runs.items()}
    return _commit(log, topic, chunks, spans, writer=writer, source=source)


def commit_copied(
    log: Log, topic: str, partition: int, copied: Copied, *, writer: str
) -> CommitResult:
    """Commit batches of another log unchanged, as the next batch of `writer`.

    Raises the errors of `commit_runs`.
    """
    _placed(log, topic)
    chunk = Chunk(
        topic=topic,
        partition=partition,
        data=copied.data,
        size_bytes=len(copied.data),
        records=copied.end - copied.start,
        min_timestamp=copied.min_timestamp,
        max_timestamp=copied.max_timestamp,
        idempotent=copied.producers,
        copied=True,
    )
    return _commit(log, topic, [chunk], {partition: (copied.start, copied.end)}, writer=writer)


def _placed(log: Log, topic: str) -> TopicInfo:
    if not preserves_offsets(log, topic):
        raise InvalidRequestError(
            f"topic {topic} was not created as a copy, so no offset may be missing there; "
            "choose the name of a new topic"
        )
    return log.topic(topic)


def _commit(
    log: Log,
    topic: str,
    chunks: Sequence[Chunk],
    spans: Mapping[int, tuple[int, int]],
    *,
    writer: str,
    source: Mapping[str, Any] | None = None,
) -> CommitResult:
    """Commit chunks at {partition: offsets [start, end)}, and record the new ends."""
    state = _state(log)  # the state after the copy, for `copied_ends`
    left, last = _left(state, topic, writer), state.writers.get(writer)
    ends = left | {p: end for p, (_, end) in spans.items()}
    identity = Identity(
        writer=writer,
        batch=0 if last is None else last.batch + 1,
        fingerprint=json.dumps({str(p): end for p, end in sorted(ends.items())}),
    )
    starts = left | {p: start for p, (start, _) in spans.items()}
    at = {(topic, p): start for p, start in starts.items()}
    return log.commit(chunks, identity=identity, source=source, at=at)


def _chunk(info: TopicInfo, partition: int, run: Run, framing: Framing) -> Chunk:
    rows = _whole(run.rows)
    offsets = rows.column("offset").to_numpy(zero_copy_only=False)
    codec, level = framing.compression(info.config)
    made = encode_spaced(
        rows.select([name for name in _RECORD if name in rows.schema.names]),
        np.ascontiguousarray(offsets, np.int64) - run.start,  # a chunk's offsets count from 0
        start=0,
        end=run.end - run.start,
        codec=codec,
        level=level,
        batch_size=framing.batch_size,
        max_message_bytes=min(info.config.max_message_bytes, info.config.segment_bytes),
    )
    return Chunk(
        topic=info.name,
        partition=partition,
        data=made.data,
        size_bytes=len(made.data),
        records=run.end - run.start,
        min_timestamp=made.min_timestamp,
        max_timestamp=made.max_timestamp,
        copied=True,
    )


def _whole(rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if not rows:
        return pa.RecordBatch.from_pydict(
            {"value": pa.nulls(0, pa.binary()), "offset": pa.nulls(0, pa.int64())}
        )
    if len(rows) == 1:
        return rows[0]
    return pa.Table.from_batches(rows).combine_chunks().to_batches()[0]
