"""One commit: staged chunks become visible in all their partitions together, once.

Source: PROTOCOL, "COMMIT" and "Identity of a micro-batch".
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sparklog.clock import iso, monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import BatchConflictError, InvalidRequestError, StorageUnavailableError
from sparklog.fs import FileSystem
from sparklog.log.batch_gaps import warn_of_gap
from sparklog.log.batch_windows import walk
from sparklog.log.committed_batches import find_commit
from sparklog.log.timeline import find_abandoned
from sparklog.logdir.chunk_files import is_adoptable
from sparklog.logdir.free_space import check_space
from sparklog.logdir.offset_checkpoints import RECOVERY_POINT, read_offsets, write_offsets
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.topics import refuse_brokers_own
from sparklog.storage.ledger_records import AppendRecord, CommitRecord, Ranges
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.query_origin import QueryOrigin, predecessor

if TYPE_CHECKING:
    from sparklog.logdir.commit_log import LogDirCommits

WINDOW_BYTES: Final = 16 << 20
_LOGGER: Final = logging.getLogger(__name__)

Ends = dict[str, dict[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole v2 record batches with offsets from 0, for one partition; in memory or in a file.

    A file lies in a log dir; see `sparklog.logdir.chunk_files`.
    """

    topic: str
    partition: int
    data: bytes | bytearray | memoryview | None = None
    path: str | None = None
    size_bytes: int
    records: int
    min_timestamp: int  # ms
    max_timestamp: int  # ms
    idempotent: bool = False  # its batches carry a producer: in memory, alone in its commit
    synced_boot_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which micro-batch: equal fingerprints mean the same planned offsets, so the same rows.

    `origin`: the query behind it, by which one that lost its id is known again.
    """

    writer: str
    batch: int
    fingerprint: str
    origin: QueryOrigin | None = None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`ends` is {topic: {partition: (first offset, end offset)}} of what the commit wrote."""

    replayed: bool
    time_ms: int
    ends: Ends


def commit(
    session: "LogDirCommits",
    chunks: Sequence[Chunk],
    *,
    identity: Identity | None = None,
    app: str = "",
    source: Mapping[str, Any] | None = None,
    at: Mapping[tuple[str, int], int] | None = None,
) -> CommitResult:
    """Append all chunks, in their order, as one atomic commit; nothing if it is a replay.

    `at`: {(topic, partition): offset} where partitions must end before, as chunks lie there.
    Raises: BatchConflictError if the batch number was committed with another fingerprint;
    InvalidRequestError if a partition ends elsewhere than `at` says; UnknownTopicError;
    StorageUnavailableError if the disk is full or fails (the log is then as it was);
    DataCorruptionError if a partition is offline.
    Cost: one fdatasync a touched partition, one for the ledger, one for the watermarks.
    """
    began_ms = monotonic_ms()
    with session.meters.committing():
        result = _commit(session, chunks, identity, app=app, source=source, at=at or {})
    if result.replayed:
        session.meters.replays.add()
    else:
        session.meters.committed(began_ms, (chunk.size_bytes for chunk in chunks))
    return result


def _commit(
    session: "LogDirCommits",
    chunks: Sequence[Chunk],
    identity: Identity | None,
    *,
    app: str,
    source: Mapping[str, Any] | None,
    at: Mapping[tuple[str, int], int],
) -> CommitResult:
    asked_ms = session.clock()
    with session.locked():
        if session.sync and session.state.unsynced:
            write_snapshot(session)  # "committed already" must mean durable
        if identity is not None:
            earlier = committed(session, identity)
            if earlier is not None:
                return earlier
            _check_origin(session, identity, {chunk.topic for chunk in chunks})
        elif not chunks:
            return CommitResult(False, session.clock(), {})
        _check(session, chunks)
        _check_ends(session, at)
        duplicate = _duplicate(session, chunks)
        if duplicate is not None:
            return CommitResult(True, session.state.time_ms, duplicate)
        snapshot_if_due(session)
        if identity is not None:
            warn_of_gap(session, identity.writer, identity.batch)
        touched = sorted({(chunk.topic, chunk.partition) for chunk in chunks})
        bases = {key: session.writer(*key).state.base for key in touched}
        with session.step(touched, sync=session.sync) as step:
            stamp_ms = _append_time(session, touched)
            ends = _append(session, chunks, stamp_ms)
            if session.sync:
                for key in touched:
                    with session.meters.flushing():
                        session.writer(*key).sync()
            record = AppendRecord(
                ends=ends,
                source=dict(source) if source else None,
                app=app,
                size_bytes=sum(chunk.size_bytes for chunk in chunks),
                duration_ms=max(0, session.clock() - asked_ms),
                idempotent=any(chunk.idempotent for chunk in chunks),
                stamped=stamp_ms is not None,
                time_ms=stamp_ms or 0,  # at the least: the next one's can't lie before
            )
            step.record = record if identity is None else _identified(record, identity)
        if session.sync:
            _advance_recovery_points(session, bases)
        time_ms = session.state.time_ms
    for chunk in chunks:
        if chunk.path is not None:
            with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
                session.fs.unlink(chunk.path)
    return CommitResult(False, time_ms, _by_topic(ends))


def _identified(record: AppendRecord, identity: Identity) -> CommitRecord:
    origin = identity.origin
    return CommitRecord.of(
        record,
        writer=identity.writer,
        batch=identity.batch,
        fingerprint=identity.fingerprint,
        origin=None if origin is None else replace(origin, look=None, is_meant=False),
    )


def _by_topic(ranges: Ranges) -> Ends:
    """Return {topic: {partition: (first offset, end offset)}}."""
    found: Ends = {}
    for (topic, partition), span in ranges.items():
        found.setdefault(topic, {})[partition] = span
    return found


def committed(session: "LogDirCommits", identity: Identity) -> CommitResult | None:
    """Return what this very micro-batch wrote, None if it was never committed. Under the lock.

    Raises BatchConflictError if its number was committed with another fingerprint.
    """
    last = session.state.writers.get(identity.writer)
    if last is None or identity.batch > last.batch:
        return None
    fingerprint, time_ms, ends = last.fingerprint, last.time_ms, last.ends
    if identity.batch < last.batch or ends is None:
        hit = find_commit(
            session.fs, session.home, session.ledger.end, {identity.writer}, identity.batch
        )
        found = hit[1] if hit else None
        if found is not None:
            fingerprint, time_ms, ends = found.fingerprint, found.time_ms, found.ends
        elif identity.batch != last.batch:
            fingerprint, ends = "", None
    if fingerprint == identity.fingerprint:
        return CommitResult(True, time_ms, _by_topic(ends or {}))
    if not fingerprint:
        raise BatchConflictError(
            f"writer {identity.writer} has committed up to batch {last.batch} of {session.home}; "
            f"what batch {identity.batch} was is not in the ledger any more, so a replay can't be "
            "told from new rows; nothing was written. Its checkpoint was restored or rewound: "
            "restore a newer one, give the restarted query another sink name (option `name` or "
            "`writerId`), or reset the writer in the log to the batch before (Log.reset)"
        )
    raise BatchConflictError(
        f"writer {identity.writer} committed batch {identity.batch} of {session.home} at "
        f"{iso(time_ms)} with other source offsets (last batch {last.batch}); nothing was written. "
        "Its checkpoint was lost, copied or rewound: give the restarted query another sink name "
        "(option `name` or `writerId`) to append its rows anew, restore the checkpoint that "
        "belongs to this log, or reset the writer in the log to the batch before (Log.reset)"
    )


def _check_origin(session: "LogDirCommits", identity: Identity, topics: Set[str]) -> None:
    """Refuse the rows of a query that was here before, under an id that it has lost."""
    if identity.origin is None:
        return
    state = session.state
    ends = {key: end for key, end in state.ends.items() if key[0] in topics}
    held = {key[0] for key, end in ends.items() if end > state.starts.get(key, 0)}
    found = predecessor(state.origins, identity.writer, identity.origin, held)
    if found is None:
        return
    raise BatchConflictError(
        f"writer {identity.writer} is new to {', '.join(sorted(found.topics))} of {session.home}, "
        f"but has the {found.evidence} of {found.writer}, which has read up to "
        f"{', '.join(str(end) for end in found.ends)} and written that there; batch "
        f"{identity.batch} begins before, so these rows would be there twice. Nothing was written. "
        "The checkpoint was deleted or replaced: restore it, or begin at those offsets "
        "(startingOffsets). If it is another query, or the rows are to be appended anew, say so by "
        f"option `name` or `writerId`, or forget the old one: Log.reset({found.writer!r}, -1)"
    )


def _check(session: "LogDirCommits", chunks: Sequence[Chunk]) -> None:
    """Refuse what can't be appended before anything is touched."""
    needed: dict[str, int] = {}
    now = session.clock()
    for chunk in chunks:
        refuse_brokers_own(chunk.topic)
        log = session.writer(chunk.topic, chunk.partition)
        config = log.config
        late = now - config.message_timestamp_before_max_ms
        early = now + config.message_timestamp_after_max_ms
        if not config.log_append_time and not (
            late <= chunk.min_timestamp and chunk.max_timestamp <= early
        ):
            raise InvalidRequestError(
                f"{chunk.topic}-{chunk.partition}: timestamps {chunk.min_timestamp}.."
                f"{chunk.max_timestamp} ms lie outside of {late}..{early}, which the topic's "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow"
            )
        directory = os.path.dirname(log.path)
        size = 0 if _adoptable(session, chunk, log) else chunk.size_bytes  # it is there already
        needed[directory] = needed.get(directory, 0) + size
    check_space(session, needed)


def _check_ends(session: "LogDirCommits", at: Mapping[tuple[str, int], int]) -> None:
    for key, offset in at.items():
        end = session.state.ends.get(key, 0)
        if end != offset:
            raise InvalidRequestError(
                f"{key[0]}-{key[1]} ends at {end}, and records from offset {offset} on were to "
                "follow: somebody else writes to it; nothing was written"
            )


def _duplicate(session: "LogDirCommits", chunks: Sequence[Chunk]) -> Ends | None:
    """Judge an idempotent producer's append; its old offsets if it was made before."""
    if not any(chunk.idempotent for chunk in chunks):
        return None
    if len(chunks) > 1 or chunks[0].data is None:
        raise InvalidRequestError(
            "an idempotent append must fit one segment (segment.bytes) of one partition; "
            "append smaller tables"
        )
    (chunk,) = chunks
    assert chunk.data is not None
    found = session.writer(chunk.topic, chunk.partition).check_producer(chunk.data)
    return None if found is None else {chunk.topic: {chunk.partition: found}}


def _append_time(session: "LogDirCommits", touched: Sequence[tuple[str, int]]) -> int | None:
    """What topics with message.timestamp.type=LogAppendTime get (ms); None if there are none.

    It never goes back: the ledger's time doesn't (PROTOCOL, H14), and a broker's is looked at.
    """
    logs = [session.writer(*key) for key in touched]
    stamped = [log.stamped_ms for log in logs if log.config.log_append_time]
    return max(session.clock(), session.state.time_ms, *stamped) if stamped else None


def _append(
    session: "LogDirCommits", chunks: Sequence[Chunk], stamp_ms: int | None
) -> dict[TopicPartition, OffsetRange]:
    ends: dict[TopicPartition, OffsetRange] = {}
    epoch = session.state.epoch
    for chunk in chunks:
        log = session.writer(chunk.topic, chunk.partition)
        first = log.end_offset
        when = stamp_ms if log.config.log_append_time else None
        if _adoptable(session, chunk, log):
            assert chunk.path is not None
            log.adopt(
                chunk.path, leader_epoch=epoch, size_bytes=chunk.size_bytes, append_time_ms=when
            )
        else:
            for data in windows(session.fs, chunk):
                log.append(data, epoch, append_time_ms=when)
        key = TopicPartition(chunk.topic, chunk.partition)
        first = ends[key].first if key in ends else first
        ends[key] = OffsetRange(first, log.end_offset)
    return ends


def _adoptable(session: "LogDirCommits", chunk: Chunk, log: PartitionLog) -> bool:
    return is_adoptable(
        session.fs,
        chunk.path,
        size_bytes=chunk.size_bytes,
        synced_boot_id=chunk.synced_boot_id,
        partition_path=log.path,
        config=log.config,
    )


def windows(fs: FileSystem, chunk: Chunk) -> Iterator[bytes | bytearray | memoryview]:
    """Yield a chunk's bytes in pieces of whole batches, about WINDOW_BYTES each.

    Raises InvalidRequestError, when it comes to it, for a file that isn't whole batches up to the
    announced size. One in memory is given as it is: the append looks at it.
    """
    if chunk.data is not None:
        yield chunk.data
        return
    assert chunk.path is not None
    with fs.open(chunk.path) as file:
        end, error = 0, None
        for window in walk(
            file, limit=chunk.size_bytes, check_crc=False, window_bytes=WINDOW_BYTES
        ):
            end, error = window.batches.end, window.batches.error
            if end > window.position:
                yield memoryview(window.data)[: end - window.position]
    if end != chunk.size_bytes:
        reason = error.reason if error else "a batch is not whole"
        raise InvalidRequestError(
            f"{chunk.path} was announced with {chunk.size_bytes} bytes of batches, at byte {end}: "
            f"{reason}; nothing was committed, stage the rows anew"
        )


def snapshot_if_due(session: "LogDirCommits", *, destructive: bool = False) -> None:
    """Begin a new ledger segment, with a snapshot of the state, when the active one is full.

    Also when a synced commit follows unsynced ones (flush=none): recovery after a power cut gives
    up what lies behind the first loss since the last snapshot, so a synced commit needs one, and
    so does a step whose effects can't be taken back (`destructive`).
    """
    unsynced = session.state.unsynced and (session.sync or destructive)
    if session.ledger.wants_snapshot or unsynced:
        write_snapshot(session)


def write_snapshot(session: "LogDirCommits") -> None:
    """Make all that was committed durable, then begin a new ledger segment with a snapshot."""
    fs = session.fs
    for topic, partition in sorted(session.state.unsynced):
        path = session.partition_path(topic, partition)
        for name in fs.listdir(path):
            with fs.open(os.path.join(path, name), write=True) as file:
                session.sync_file(file)
        fs.sync_dir(path)
    if session.state.unsynced:
        session.ledger.log.sync()
    if session.state.abandoned is None:  # an older sparklog wrote here: its segments may expire
        session.state.abandoned = find_abandoned(fs, session.home, session.ledger.end)
    with session.step() as step:
        session.ledger.log.roll()
        step.record = session.state.snapshot()


def _advance_recovery_points(
    session: "LogDirCommits", bases: Mapping[tuple[str, int], int]
) -> None:
    # A saving for the next FULL recovery, nothing more: a failure costs time then.
    try:
        rolled = [key for key, base in bases.items() if session.writer(*key).state.base != base]
        by_dir: dict[str, dict[tuple[str, int], int]] = {}
        for key in rolled:
            log = session.writer(*key)
            by_dir.setdefault(os.path.dirname(log.path), {})[key] = log.state.base
        for directory, points in by_dir.items():
            known = read_offsets(session.fs, directory, RECOVERY_POINT)
            write_offsets(session.fs, directory, RECOVERY_POINT, {**known, **points})
    except Exception:
        _LOGGER.warning("%s: recovery points not written", session.home, exc_info=True)
