"""Moves an entire log dir to a store, where queries and groups can continue.

Not only the records are moved. Topics keep their ids, configs, log starts and leader epochs;
writers keep their last micro-batches; groups keep their positions; and offsets that resets
abandoned stay abandoned. So a query's checkpoint is valid for the new log too: a micro-batch that
is replayed there is dropped. Segments are copied byte for byte, like copies of tiered storage, each
with its manifest. Segments that are only in the log dir's own remote storage are read from there.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.diskless.extents import Extent, segment_extent
from sparklog.diskless.groups import first_position
from sparklog.diskless.home_object import read_home
from sparklog.diskless.import_objects import (
    BucketTarget,
    MadeLog,
    NewLog,
    NewObject,
    NewPartition,
    NewSegments,
)
from sparklog.diskless.log_creation import current_state
from sparklog.diskless.tier_import import producers_of
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.checkpoint_files import Epochs, topic_id_text
from sparklog.format.names import TXNINDEX, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.log.copied_log import (
    copied_config,
    copied_state,
    copied_topics,
    next_epoch,
    prefix_below,
)
from sparklog.log.log import Log, view_of
from sparklog.log.producer_state_loading import load_producer_state
from sparklog.log.timeline import find_abandoned, find_commit
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.logdir.home import commits_of
from sparklog.opening import Path, holds_own_log, open_log, url_of
from sparklog.progress import Progress, shows_progress
from sparklog.storage.group_store import Groups
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.ledger_records import LastMicroBatch
from sparklog.storage.log_state import LogState
from sparklog.storage.segment_store import SegmentPut
from sparklog.storage.segments import PartitionSegments, SegmentLog
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tiered.target import open_store

_NO_EPOCHS: Final = ((0, 0),)
_OFFSETS_MAX: Final = 2**31 - 1  # the largest relative offset of an index
_NEVER_EXPIRES: Final = 2**63 - 1
_ID_HEAD: Final = bytes(6) + b"\x01"  # no service's term; made of segments


@shows_progress("moving")
def move_to_store(
    path: Path,
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    clock: Clock = system_clock,
) -> MadeLog:
    """Move the log dir `path` to the store's place at `url`, which must be empty.

    The log dir stays locked for writers during the call, so all commits are moved; readers can
    continue. The log dir stays unchanged: write to only one of the two from then on.

    Args:
        path: The log dir.
        url: The new place.
        storage_options: Options of fsspec for the store, and for the log dir's own tier.
        options: Options of the log. With a key ring the new log is encrypted.
        threads: The number of segments that are copied at the same time.
        progress: Called with the number of bytes done, and the total.
        clock: The current time.

    Raises:
        InvalidRequestError: There is no log at `path`, `url` isn't empty, another log is being
            created there, or a transaction is open.
        LogLockedError: Another process writes to the log.
        DataCorruptionError: A partition is offline, or segments are damaged.
        StorageUnavailableError: The store fails. No log exists at `url` then; call again to
            continue.

    Cost:
        Two passes over all segments, a PUT and a manifest for each.
    """
    watch = stopwatch()
    if url_of(path) is not None or not holds_own_log(path):
        raise InvalidRequestError(f"{path} is not a log dir of sparklog: pass a log dir")
    store = open_store(url, storage_options)
    target = BucketTarget(store=store, threads=threads, clock=clock)
    remote = options or RemoteOptions()
    keyring = Keyring.load(remote.remote_keyring) if remote.remote_keyring else None
    with open_log(path, mode="rw", storage_options=storage_options, remote=remote) as log:
        commits = commits_of(log)
        with commits.exclusive():

            def plan(log_id: str) -> NewLog:
                if read_home(store) is not None:  # everything but cleaning up was done before
                    return NewLog(
                        log_id=log_id, snapshot=current_state(store).log.snapshot(),
                        partitions=(), objects=(),
                    )  # fmt: skip
                return _Plan(log, commits, store, log_id, keyring, clock).whole()

            new = target.create(f"the log dir {log.path}", plan, progress)
    return target.describe(new, watch(), time_ms=new.snapshot.time_ms)


@dataclass(frozen=True, slots=True)
class _SegmentData:
    """A segment to copy, from the log dir or from the log dir's remote storage.

    Implements `sparklog.storage.segment_store.LogSegmentData`. The segment does not change, because
    the write lock is held.

    Attributes:
        start: The log start offset.
    """

    segments: PartitionSegments
    base: int
    end: int
    start: int

    @property
    def where(self) -> str:
        return self.segments.log(self.base).path

    def version(self) -> object:
        return self.base

    @contextlib.contextmanager
    def log(self) -> Iterator[SegmentLog]:
        log = self.segments.log(self.base)
        with contextlib.ExitStack() as stack:
            if isinstance(log, contextlib.AbstractContextManager):
                stack.enter_context(log)
            yield log

    def transaction_index(self) -> bytes:
        index = self.segments.closed_index(self.base, TXNINDEX)
        return b"" if index is None else bytes(index.data)

    def producer_snapshot(self) -> bytes:
        if self.end in self.segments.producer_snapshots():
            path = f"{self.segments.where}/{snapshot_name(self.end)}"
            with contextlib.suppress(FileNotFoundError, DataCorruptionError):
                raw = self.segments.producer_snapshot(self.end)
                parse_snapshot(raw, path)
                return raw
        state = load_producer_state(
            self.segments, self.end, log_start=self.start, now=0, expiration_ms=_NEVER_EXPIRES
        )
        return format_snapshot(state.entries())

    def leader_epochs(self) -> Epochs:
        return clipped(list(self.segments.leader_epochs()), end=self.end)


class _Plan:
    """The content of the new log. The write lock of the log dir must be held."""

    def __init__(
        self,
        log: Log,
        commits: LogDirCommits,
        target: Store,
        log_id: str,
        keyring: Keyring | None,
        clock: Clock,
    ) -> None:
        self._log, self._commits, self._target = log, commits, target
        self._log_id, self._keyring = log_id, keyring
        self._time_ms = max(clock(), commits.state.time_ms)
        self._segments = NewSegments(target, self._time_ms)

    def whole(self) -> NewLog:
        commits = self._commits
        if commits.offline:
            raise next(iter(commits.offline.values()))
        state = _copied_state(commits, self._time_ms)
        partitions = [self._partition(key, state) for key in sorted(state.ends)]
        state.epoch = next_epoch(commits.state.epoch, (part.epochs for part in partitions))
        return NewLog(
            log_id=self._log_id,
            snapshot=state.snapshot(),
            partitions=partitions,
            objects=[*self._segments.objects, *self._groups()],
            manifests=self._segments.manifests,
            keys=self._segments.keys,
        )

    def _groups(self) -> Iterator[NewObject]:
        readers = Groups(GroupFiles(self._commits.fs, self._commits.home)).readers()
        for path in readers.damaged:
            raise DataCorruptionError(
                "the position of a group can't be read, so it can't be moved: let its reader "
                "commit again, or delete the file to forget the group", path=path,
            )  # fmt: skip
        for reader in readers.groups:
            name, raw = first_position(reader)
            yield NewObject(name, -1, partial(self._target.put, name, raw))

    def _partition(self, key: TopicPartition, state: LogState) -> NewPartition:
        topic = state.topics[key.topic]
        start, end = state.starts.get(key, 0), state.ends[key]
        segments = view_of(self._log).of_partition(*key, _itself, topic.id)
        epochs = tuple(clipped(list(segments.leader_epochs()), start=start, end=end))
        gaps = topic.adopted or topic.parsed().compact or segments.gaps
        extents = [
            self._extent(key, topic, segments, span, start, list(epochs), gaps=gaps)
            for span in _spans(segments, start, end)
        ]
        producers = self._commits.partition_log(*key).producers.entries() if end else []
        return NewPartition(
            key=key,
            extents=tuple(extents),
            epochs=epochs,
            gaps=gaps,
            producers=producers_of(key, producers),
        )

    def _extent(
        self,
        key: TopicPartition,
        topic: TopicState,
        segments: PartitionSegments,
        span: "_Span",
        start: int,
        epochs: Epochs,
        *,
        gaps: bool,
    ) -> Extent:
        data = _SegmentData(segments, span.file, span.end, start)
        config: TopicConfig = topic.parsed()
        segment = RemoteSegment(
            topic=key.topic, topic_id=topic.id, partition=key.partition,
            id=self._id(key, topic, segments, span), base=span.base, end=span.end, size=span.size,
            max_timestamp=span.max_timestamp,
            epochs=tuple(clipped(list(epochs), start=span.base, end=span.end)) or _NO_EPOCHS,
            state=SegmentState.COPY_STARTED, time_ms=0,
            has_txn_index=bool(data.transaction_index()),
        )  # fmt: skip
        put = SegmentPut(
            segment=segment, data=data, config=config.to_dict(), gaps=gaps,
            interval_bytes=config.index_interval_bytes,
        )  # fmt: skip
        self._segments.plan(put, self._keyring)
        return segment_extent(segment)

    def _id(
        self, key: TopicPartition, topic: TopicState, segments: PartitionSegments, span: "_Span"
    ) -> str:
        """Return an id for a segment that depends only on the segment's file and offsets.

        A repeated call then finds the objects of the first call. Encrypted objects get another id
        in each call, because the data key of the first call is lost.
        """
        salt = "" if self._keyring is None else self._log_id
        said = (segments.where, segments.modified_ms(span.file), topic.id, key.partition, span)
        digest = hashlib.sha256(repr((salt, said)).encode()).digest()
        return topic_id_text(_ID_HEAD + digest[: 16 - len(_ID_HEAD)])


def _itself(segments: PartitionSegments) -> PartitionSegments:
    return segments


@dataclass(frozen=True, slots=True)
class _Span:
    """The offsets [base, end) of a segment, and the size of the part with these offsets.

    `file` is the base offset of the segment file.
    """

    file: int
    base: int
    end: int
    size: int
    max_timestamp: int


def _spans(segments: PartitionSegments, start: int, end: int) -> list[_Span]:
    """Return the parts of the segments with offsets [start, end), each up to the next segment.

    Cost: a pass over the batch headers of the local segments.
    """
    listed = segments.metadata()
    found: list[_Span] = []
    for each, after in zip_longest(listed, listed[1:]):
        stop = end if after is None else min(after.base, end)
        if start == end or stop <= start or each.base >= stop:
            continue
        if each.local or each.max_timestamp is None:
            prefix = prefix_below(segments.log(each.base), each.base, stop)
            size, latest = prefix.size, prefix.max_timestamp
        else:
            size, latest = each.size, each.max_timestamp
        span = _Span(each.base, each.base, stop, size, latest)
        is_near = found and stop - found[-1].base <= _OFFSETS_MAX
        # Compaction has removed all records of one of the two segments, so they become one segment
        # of the copy. Its relative offsets must still fit an index entry.
        if is_near and not (size and found[-1].size):
            before = found.pop()
            span = replace(span if size else before, base=before.base, end=stop)
        found.append(span)
    return found


def _copied_state(commits: LogDirCommits, time_ms: int) -> LogState:
    """Return the log dir's state without directories and tier. The epoch is set later."""
    state = LogState()
    state.apply(commits.state.snapshot())
    if state.abandoned is None:
        state.abandoned = find_abandoned(commits, commits.ledger.end)
    state.writers = {name: _whole(commits, name, last) for name, last in state.writers.items()}
    topics = {
        name: replace(
            topic,
            config=copied_config(topic.config),
            dirs=dict.fromkeys(topic.dirs, 0),
        )
        for name, topic in copied_topics(state).items()
    }  # fmt: skip
    return copied_state(state, topics, starts=state.starts, epoch=0, time_ms=time_ms)


def _whole(commits: LogDirCommits, writer: str, last: LastMicroBatch) -> LastMicroBatch:
    """Return the writer's last micro-batch with end offsets, which may be only in the ledger.

    The ledger itself isn't moved.
    """
    if last.ends is not None:
        return last
    found = find_commit(commits, commits.ledger.end, [writer], last.batch)
    return last if found is None else last._replace(ends=found[1].ends)
