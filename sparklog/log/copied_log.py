"""Rules for a new log that is copied from another log: a fork, an import, a move to another home.

- `chosen_topics`, `copied_config`, `copied_topics`: the topics of the copy
- `copied_state`, `next_epoch`: the state with which the ledger of the copy starts
- `prefix_below`, `check_dense`: the batches up to the end of the copy, and whether records are
  missing
- `copy_all`: runs the copies of files or objects in parallel
"""

import collections
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.log.batch_windows import Window, walk
from sparklog.log.fork_points import batch_is_cut, compacted
from sparklog.log.timeline import within
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import SegmentLog
from sparklog.storage.topic_state import TopicState

T = TypeVar("T")
_OF_REMOTE_STORAGE: Final = ("remote.", "local.")


# -- the state of the copy


def chosen_topics(
    home: str, held: Collection[str], topics: Collection[str] | None
) -> list[str]:
    """Return the topics to copy from `home`, sorted: `topics`, or all topics that it holds.

    Raises:
        UnknownTopicError: A topic is missing.
        InvalidRequestError: `topics` is empty.
    """
    unknown = sorted(set(topics or ()) - set(held))
    if unknown:
        raise UnknownTopicError(
            f"{home} has no topic {', '.join(unknown)}; it has: {', '.join(sorted(held))}",
            path=home,
        )
    if topics is not None and not topics:
        raise InvalidRequestError("topics: name at least one, or leave it out for all of them")
    return sorted(held if topics is None else set(topics))


def copied_config(config: Mapping[str, str], *, keeps_retention: bool = True) -> dict[str, str]:
    """Return a topic's config without the options for remote storage, which a copy does not have.

    Without `keeps_retention`, the options for retention are left out too: the next round could
    delete records that were just restored.
    """
    left_out = _OF_REMOTE_STORAGE if keeps_retention else (*_OF_REMOTE_STORAGE, "retention.")
    return {name: value for name, value in config.items() if not name.startswith(left_out)}


def copied_topics(state: LogState) -> dict[str, TopicState]:
    """Return the topics of a log that a copy contains: all but the internal topics."""
    return {name: topic for name, topic in state.topics.items() if name not in INTERNAL}


def copied_state(
    state: LogState,
    topics: Mapping[str, TopicState],
    *,
    starts: Mapping[TopicPartition, int],
    epoch: int,
    time_ms: int,
) -> LogState:
    """Return the state with which the ledger of a copied log starts.

    Writers, their last micro-batches and the ends of deleted topics are as in `state`. A copy has
    only local segments, contains no deleted topics, and was never moved between log dirs. The CRCs
    of the last batches are unknown, because a partition may end elsewhere or be rewritten.

    Args:
        state: The state of the old log at the point where the copy ends.
        topics: The topics of the copy, with their ids, configs and log dirs there.
        starts: The log starts of the copy.
        epoch: The leader epoch of the copy; see `next_epoch`.
        time_ms: The time of the first ledger record.
    """
    ends = {key: end for key, end in state.ends.items() if key.topic in topics}
    copy = LogState(
        topics={name: replace(topic, left={}) for name, topic in topics.items()},
        ends=ends,
        starts={key: start for key in ends if (start := starts.get(key, 0))},
        dropped={key: end for key, end in state.dropped.items() if key.topic not in INTERNAL},
        writers=dict(state.writers),
        origins=dict(state.origins),
        epoch=epoch,
        time_ms=time_ms,
        idempotent=state.idempotent & ends.keys(),
        lost=state.lost,
    )
    copy.abandoned = None if state.abandoned is None else within(state.abandoned, copy)
    return copy


def next_epoch(epoch: int, partitions: Iterable[Iterable[tuple[int, int]]] = ()) -> int:
    """Return the leader epoch of a copy: above the old log's, so that its readers notice the copy.

    Args:
        epoch: The leader epoch of the old log.
        partitions: The leader epochs of its partitions, with their start offsets.
    """
    return max([epoch, *(each for epochs in partitions for each, _ in epochs)]) + 1


def offsets_by_topic(
    ends: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return {topic: {partition: (log start, end)}}, from the offsets by partition."""
    offsets: dict[str, dict[int, tuple[int, int]]] = {}
    for key, end in sorted(ends.items()):
        offsets.setdefault(key.topic, {})[key.partition] = starts.get(key, 0), end
    return offsets


# -- the batches of the copy


@dataclass(frozen=True, slots=True)
class BatchPrefix:
    """The first batches of a segment.

    Attributes:
        size: The position after the last of these batches.
        end: The offset after them.
        max_timestamp: Their largest timestamp (ms); -1 without batches.
    """

    size: int
    end: int
    max_timestamp: int


def prefix_below(
    log: SegmentLog, base: int, end: int, *, start: int = 0, reads_rest: bool = False
) -> BatchPrefix:
    """Return the batches of a segment below offset `end`: their size, end and largest timestamp.

    Args:
        log: The log of the segment.
        base: The base offset of the segment.
        end: The end of the copy.
        start: The position of a batch below `end`. Earlier batches are not read, and not included
            in the largest timestamp.
        reads_rest: Read the log to its end, so that the log compares its checksum.

    Raises:
        InvalidRequestError: A batch contains records on both sides of `end`.
        DataCorruptionError: A batch below `end` is damaged.
    """
    size, reached, latest = start, base, -1
    windows = walk(log, start=start, check_crc=False)
    for window in windows:
        table = window.batches.table
        below = table[table["last_offset"] < end]
        if len(below):
            size = int(below["position"][-1] + below["size"][-1])
            reached = int(below["last_offset"][-1]) + 1
            latest = max(latest, int(below["max_timestamp"].max()))
        if len(below) < len(table):
            first = int(table["base_offset"][len(below)])
            if first < end:
                last = int(table["last_offset"][len(below)])
                raise batch_is_cut(log.path, first, last, end)
            if reads_rest:  # the log compares the checksum when its last byte has been read
                collections.deque(windows, maxlen=0)
            break
        if window.batches.error is not None:
            raise window.batches.error
    return BatchPrefix(size, reached, latest)


def check_dense(key: TopicPartition, start: int, end: int, windows: Iterable[Window]) -> None:
    """Raise InvalidRequestError if a record of [start, end) was compacted away.

    Args:
        key: The partition.
        start: The log start of the copy.
        end: The end of the copy.
        windows: The batches of the partition's segments, in order.

    Raises:
        DataCorruptionError: A batch is damaged.
    """
    at = start
    for window in windows:
        if window.batches.error is not None:
            raise window.batches.error
        table = window.batches.table
        table = table[(table["last_offset"] >= start) & (table["base_offset"] < end)]
        if not len(table):
            continue
        first, last = table["base_offset"], table["last_offset"]
        is_complete = (last - first + 1 == table["count"]).all()
        if not is_complete or first[0] > at or (first[1:] != last[:-1] + 1).any():
            raise compacted(str(key), end)
        at = int(last[-1]) + 1
    if at < end:
        raise compacted(str(key), end)


# -- copying


def copy_all(
    jobs: Iterable[Callable[[], T]],
    threads: int,
    *,
    cancel: Callable[[], None] = lambda: None,
) -> Iterator[T]:
    """Run all jobs, `threads` of them at a time; yield their results in order.

    After an error no further job starts. The error is raised when the running jobs have ended.

    Args:
        jobs: The copies to make.
        threads: The number of threads; up to 1, this thread runs the jobs.
        cancel: Called after an error, so that running jobs stop waiting for a store.
    """
    if threads <= 1:
        yield from (job() for job in jobs)
        return
    with ThreadPoolExecutor(threads, "sparklog-copy") as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            cancel()  # otherwise Ctrl-C would wait for threads that wait for the store
            pool.shutdown(cancel_futures=True)
            raise
