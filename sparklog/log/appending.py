"""Append Arrow data from plain Python: check columns, split into commits, frame, commit."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa

from sparklog.errors import InvalidRequestError
from sparklog.log.commit import Ends, commit
from sparklog.storage.commits import CommitLog
from sparklog.storage.home import Home
from sparklog.storage.staging import Framing, Stager
from sparklog.storage.view import TopicInfo

Data: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader
APPEND_BYTES: Final = 64 << 20
"""Approximate size of a commit when `append` gets a RecordBatchReader."""

_COLUMNS: Final = ("key", "value", "headers", "partition", "timestamp")


def known_topic(home: Home, name: str, look: Callable[[str], TopicInfo]) -> TopicInfo:
    """Return a topic as of the last change that this process knows. The commit checks it again.

    Args:
        home: The log.
        name: The name of the topic.
        look: Looks up a topic that the commit log does not know.
    """
    commits = home.commits
    if commits.offline:
        with commits.exclusive():  # taking the lock looks again for missing directories
            pass
    known = commits.state.topics.get(name)
    return look(name) if known is None else home.describe(name, known)


def append(
    commits: CommitLog,
    stage: Callable[[Framing], Stager],
    topic: TopicInfo,
    data: Data,
    *,
    partition: int | None,
    producer: tuple[int, int, int] | None,
    framing: Framing,
) -> Ends:
    """Append `data` in a single commit, or a stream of data in several. See `Log.append`.

    Args:
        commits: The log's commits.
        stage: Returns a new stager for each commit.
        topic: The topic.
        data: The rows.
        partition: The partition of all rows, if given.
        producer: (producer id, epoch, first sequence) of an idempotent producer.
        framing: How rows are grouped into record batches and compressed.
    """
    if producer is not None:
        # A stream is committed in parts, but a retry must find the append as a whole.
        if partition is None or isinstance(data, pa.RecordBatchReader):
            raise InvalidRequestError(
                "an append with `producer` needs a pyarrow Table or RecordBatch as data, and the "
                "argument `partition`"
            )
        framing = replace(framing, producer=producer)
    ends: Ends = {}
    for piece in _pieces(data):
        stager = stage(framing)
        for rows in piece:
            stager.add(topic, _checked(rows), partition=partition)
        result = commit(commits, stager.finish())
        for p, (first, end) in result.ends.get(topic.name, {}).items():
            spans = ends.setdefault(topic.name, {})
            spans[p] = (min(first, spans.get(p, (first, end))[0]), end)
    return ends


def _checked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows, or raise InvalidRequestError if a column is not valid for `append`."""
    unknown = [name for name in rows.schema.names if name not in _COLUMNS]
    if unknown or "value" not in rows.schema.names:
        raise InvalidRequestError(
            f"the data must have a column value, and may have the columns key, headers, partition "
            f"and timestamp; got the columns {rows.schema.names}"
        )
    return rows


def _pieces(data: Data) -> Iterator[list[pa.RecordBatch]]:
    """Yield the rows of each commit: all rows, or at least APPEND_BYTES of a stream.

    Raises:
        InvalidRequestError: `data` has another type.
    """
    if isinstance(data, pa.RecordBatch):
        yield [data]
    elif isinstance(data, pa.Table):
        yield data.to_batches()
    elif isinstance(data, pa.RecordBatchReader):
        piece: list[pa.RecordBatch] = []
        size = 0
        for rows in data:
            piece.append(rows)
            size += rows.nbytes
            if size >= APPEND_BYTES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece
    else:
        raise InvalidRequestError(
            "data must be a pyarrow Table, RecordBatch or RecordBatchReader, such as "
            "pyarrow.table({'key': ['N14228'], 'value': ['late']}); got an object of type "
            f"{type(data).__name__}"
        )
