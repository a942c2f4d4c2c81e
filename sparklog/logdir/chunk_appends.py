"""Appends staged chunks to partition logs: the file changes of a commit before its record.

Call under the write lock, within a step. Source: PROTOCOL, "COMMIT".
"""

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import walk
from sparklog.log.producer_state import ProducerAppends
from sparklog.logdir.free_space import check_space
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offset_checkpoints import RECOVERY_POINT, Offsets, read_offsets, write_offsets
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.storage.commits import Chunk, DuplicateAppend
from sparklog.storage.offset_ranges import OffsetRange

WINDOW_BYTES: Final = 16 << 20
_LOGGER: Final = logging.getLogger(__name__)


def check_room(manager: LogManager, chunks: Sequence[Chunk]) -> None:
    """Raise an error if a partition is offline, or a disk has too little space for the chunks."""
    needed: dict[str, int] = {}
    for chunk in chunks:
        log = manager.partition_log(chunk.topic, chunk.partition)
        directory = os.path.dirname(log.path)
        # An adopted file is renamed, so its bytes are already on the disk.
        size = 0 if _adoptable(manager, chunk, log) else chunk.size_bytes  # already on disk
        needed[directory] = needed.get(directory, 0) + size
    check_space(manager, needed)


def check_producers(
    manager: LogManager, chunks: Sequence[Chunk]
) -> list[DuplicateAppend | SparklogError | None]:
    """Check idempotent producers' batches against the producer state of their partitions.

    Returns:
        A result per chunk: None if it can be appended, a DuplicateAppend if it was appended before,
        or the error that rejects it. See `CommitLog.check_producers`.
    """
    known: dict[TopicPartition, ProducerAppends] = {}
    found: list[DuplicateAppend | SparklogError | None] = []
    for chunk in chunks:
        assert chunk.data is not None
        try:
            log = manager.partition_log(*chunk.key)
            if chunk.key not in known:
                known[chunk.key] = log.producer_appends()
            if chunk.idempotent:
                found.append(known[chunk.key].judge(log.scanned(chunk.data)))
            else:
                known[chunk.key].skip(chunk.records)
                found.append(None)
        except SparklogError as error:
            found.append(error)
    return found


def append_time(manager: LogManager, touched: Collection[TopicPartition]) -> int | None:
    """Return the append time (ms) if a topic has message.timestamp.type=LogAppendTime, else None.

    The time never decreases: it is at least the ledger's time (PROTOCOL, H14), and the append time
    of the last batch, which a broker may have written.
    """
    logs = [manager.partition_log(*key) for key in touched]
    stamped = [log.stamped_ms for log in logs if log.config.log_append_time]
    return max(manager.clock(), manager.state.time_ms, *stamped) if stamped else None


def append_chunks(
    manager: LogManager, chunks: Sequence[Chunk], stamp_ms: int | None
) -> dict[TopicPartition, OffsetRange]:
    """Append the chunks, in their order, to their partitions; large files are renamed to segments.

    `stamp_ms` is the append time for topics with message.timestamp.type=LogAppendTime.

    Returns:
        {partition: range of the appended offsets}.
    """
    ends: dict[TopicPartition, OffsetRange] = {}
    epoch = manager.state.epoch
    for chunk in chunks:
        log = manager.partition_log(chunk.topic, chunk.partition)
        first = log.end_offset
        if chunk.key not in ends:
            log.appended_crc = 0
        # Records that are copied from another log keep the timestamps that readers have already
        # seen.
        when = stamp_ms if log.config.log_append_time and not chunk.copied else None
        if _adoptable(manager, chunk, log):
            assert chunk.path is not None
            log.adopt(
                chunk.path, leader_epoch=epoch, size_bytes=chunk.size_bytes, append_time_ms=when
            )
        else:
            for data in windows(manager.fs, chunk):
                log.append(data, epoch, append_time_ms=when)
        key = chunk.key
        first = ends[key].first if key in ends else first
        # A commit may have several chunks of a partition, but the record has a single range for
        # each.
        ends[key] = OffsetRange(first, log.end_offset)
    return ends


def _adoptable(manager: LogManager, chunk: Chunk, log: PartitionLog) -> bool:
    """Return True if a commit can make a chunk a segment, by rename and without a copy.

    The chunk must be a file that its task made durable in this boot (see `segment_bytes_min`), in
    the partition's log dir, and fit into a segment. `PartitionLog.adopt` checks its contents.
    """
    return (
        chunk.path is not None
        and chunk.synced_boot_id == manager.fs.boot_id()
        and os.path.dirname(chunk.path) == os.path.dirname(log.path)
        and chunk.size_bytes <= log.config.roll_bytes
    )


def windows(fs: FileSystem, chunk: Chunk) -> Iterator[bytes | bytearray | memoryview]:
    """Yield a chunk's bytes in blocks of complete batches, about WINDOW_BYTES each.

    Chunks in memory are yielded unchanged, because the append checks them.

    Raises:
        InvalidRequestError: The file does not consist of complete batches up to the announced size.
            Raised after the last block.
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
    # After the last block, because the file is read only once. The step undoes the blocks that were
    # appended before.
    if end != chunk.size_bytes:
        reason = error.reason if error else "a batch is incomplete"
        raise InvalidRequestError(
            f"{chunk.path} should have {chunk.size_bytes} bytes of batches, but at byte {end}: "
            f"{reason}; nothing was committed, stage the rows again"
        )


def sync_logs(manager: LogManager, touched: Collection[TopicPartition]) -> None:
    """Sync the logs that a step appended to; all are attempted before this returns or raises.

    Cost: the syncs run in parallel, because a journaling file system combines them: eight parallel
    syncs take as long as a single sync, sequential syncs eight times as long.
    """
    logs = [manager.partition_log(*key) for key in touched]
    threads = min(len(logs), manager.fs.sync_threads)
    if threads <= 1:
        for log in logs:
            _sync(manager, log)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="sparklog-sync") as pool:
        under_way = []
        for log in logs:
            try:
                under_way.append(pool.submit(_sync, manager, log))
            except RuntimeError:  # at interpreter exit no threads can be started
                _sync(manager, log)
        for done in under_way:
            done.result()


def _sync(manager: LogManager, log: PartitionLog) -> None:
    with manager.meters.flushing():
        log.sync()


def advance_recovery_points(
    manager: LogManager, bases: Mapping[TopicPartition, int]
) -> None:
    """Write the base offsets of new active segments to Kafka's recovery point files.

    `bases` has the base offset of each partition's active segment before the append: only
    partitions that have rolled since are written. Recovery points only make the next FULL recovery
    faster, so a failure is logged, and not raised.
    """
    try:
        rolled = [
            key
            for key, base in bases.items()
            if manager.partition_log(*key).state.base != base
        ]
        by_dir: dict[str, Offsets] = {}
        for key in rolled:
            log = manager.partition_log(*key)
            by_dir.setdefault(os.path.dirname(log.path), {})[key] = log.state.base
        for directory, points in by_dir.items():
            # Kafka's file has an entry per partition of the log dir, so it is replaced as a whole.
            known = read_offsets(manager.fs, directory, RECOVERY_POINT)
            write_offsets(manager.fs, directory, RECOVERY_POINT, {**known, **points})
    except Exception:
        _LOGGER.warning("%s: recovery points not written", manager.home, exc_info=True)
