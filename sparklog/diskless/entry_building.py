"""Builds the entry of a change: its offsets at a given state, and its inline data."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import Entry, ProducerBatch, ProducerBatches, new_attempt_id
from sparklog.diskless.names import parse_staged
from sparklog.diskless.placement import Placed, settled
from sparklog.diskless.staged_chunks import objects_of
from sparklog.diskless.state import DisklessState
from sparklog.errors import InvalidRequestError, SparklogError, TopicReplacedError
from sparklog.format.scan import Table, scan
from sparklog.log.producer_state import BATCHES_KEPT, ProducerAppends, ProducerState
from sparklog.storage.commits import (
    Change,
    Chunk,
    DuplicateAppend,
    StagingExpiredError,
    WriterResetError,
)
from sparklog.storage.ledger_records import AppendRecord, CommitRecord
from sparklog.storage.offset_ranges import OffsetRange

_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class CommitContext:
    """Data of a commit that are not part of its change or of the log's state.

    Attributes:
        home: The log's URL, for messages.
        now_ms: The time of the commit.
        known: The number of the newest entry that was known when the call began.
        kept_commits: For a reset, {writer: number of the entry with the last remaining commit}.
    """

    home: str
    now_ms: int
    known: int
    kept_commits: Mapping[str, int]


def check_chunks(state: DisklessState, chunks: Sequence[Chunk], *, home: str) -> None:
    """Reject chunks that may not be committed any more.

    Raises:
        TopicReplacedError: The topic was deleted and created again after staging.
        StagingExpiredError: A staged object may have been deleted.
        InvalidRequestError: A chunk was staged for another log.
    """
    for chunk in chunks:
        topic = state.log.topics.get(chunk.topic)
        # "": the topic did not exist yet when the rows were staged.
        if topic is not None and chunk.topic_id not in ("", topic.id):
            raise TopicReplacedError(
                f"topic {chunk.topic} of {home} was deleted and created again after these rows "
                "were staged; no row was committed: stage the rows again"
            )
    check_staged(state, objects_of(chunks), home=home)


def check_staged(state: DisklessState, objects: Collection[str], *, home: str) -> None:
    """Raise an error if staged objects may have been deleted, or belong to another log.

    The errors are those of `check_chunks`.
    """
    for name in objects:
        began = _staged_at(state, name, home)
        if began < state.floor:
            raise StagingExpiredError(
                f"{name} of {home} was staged at entry {began}, which is below the stage floor "
                f"{state.floor} (diskless.stage.retention.ms), so the object may have been "
                "deleted; no row was committed: stage the rows again"
            )


def _staged_at(state: DisklessState, name: str, home: str) -> int:
    began = parse_staged(state.log_id, name)
    if began is None:
        raise InvalidRequestError(
            f"{name} was not staged for the log at {home} (log id {state.log_id}); no row was "
            "committed: stage the rows with a stager of this log"
        )
    return began


def entry_of(
    state: DisklessState, change: Change, placed: Placed, context: CommitContext
) -> tuple[Entry, bytes]:
    """Return the entry of a change that is decided on `state`, and the inline data.

    Args:
        placed: Locations of the change's chunks.

    Raises:
        WriterResetError: The writer was reset after the commit began.
        InvalidRequestError: A chunk does not consist of complete batches from offset 0, or its
            partition does not exist.
    """
    record = change.record
    # Times of entries never decrease, whatever the clocks of the writers say.
    time_ms = max(context.now_ms, state.log.time_ms, record.time_ms)
    epoch = max(state.log.epoch, record.epoch)
    if not isinstance(record, AppendRecord):
        entry = Entry(
            id=new_attempt_id(), prev=state.entry_id, seen=context.known,
            record=replace(record, time_ms=time_ms, epoch=epoch), kept_commits=context.kept_commits,
        )  # fmt: skip
        return entry, b""
    planned = (_staged_at(state, name, context.home) for name in objects_of(change.chunks))
    # Names of staged objects contain the head at which their tasks were planned, which may be
    # older than the state that this call knew when it began.
    seen = min([context.known, *planned])
    before = -1
    if isinstance(record, CommitRecord):
        _check_reset(state, record.writer, seen, context.home)
        before = state.commits.get(record.writer, -1)
    ends = _ends(state, change.chunks)
    ours = {chunk.topic for chunk in change.chunks if not chunk.copied}
    stamped = {topic for topic in ours if state.log.topics[topic].parsed().log_append_time}
    stamps = dict.fromkeys(stamped, time_ms)
    whole = replace(
        record, ends=ends, time_ms=time_ms, epoch=epoch,
        duration_ms=None if change.asked_ms is None else max(0, context.now_ms - change.asked_ms),
    )  # fmt: skip
    entry = Entry(
        id=new_attempt_id(), prev=state.entry_id, record=whole, seen=seen, before=before,
        extents=settled(placed.extents, state.log.ends, epoch=epoch, stamps=stamps),
        keys=placed.keys, producers=_producer_batches(state, change.chunks, stamps),
    )  # fmt: skip
    return entry, placed.data


def _check_reset(state: DisklessState, writer: str, seen: int, home: str) -> None:
    reset = state.resets.get(writer, -1)
    if seen < reset:
        raise WriterResetError(
            f"writer {writer} of {home} was reset (ledger entry {reset}), but the process of this "
            f"commit knew only the entries up to {seen} when it began: the micro-batch may be "
            "planned without the reset. No row was committed: plan the micro-batch again by a "
            "restart of the query from its checkpoint"
        )


def _ends(state: DisklessState, chunks: Sequence[Chunk]) -> dict[TopicPartition, OffsetRange]:
    """Return {partition: the offsets [first, end) that a commit of these chunks gets}."""
    ends: dict[TopicPartition, OffsetRange] = {}
    for chunk in chunks:
        key, known = chunk.key, state.log.ends
        if key not in known:
            raise InvalidRequestError(f"{key} does not exist in the log; no row was committed")
        first, end = ends.get(key, (known[key], known[key]))
        ends[key] = OffsetRange(first, end + chunk.records)
    return ends


def check_batches(chunks: Sequence[Chunk]) -> None:
    """Reject chunks in memory that are not complete batches from offset 0.

    A commit can't be corrected later.

    Raises:
        InvalidRequestError: A chunk is incomplete, or is neither in memory nor staged.
    """
    for chunk in chunks:
        if chunk.data is not None:
            _batches(chunk)
        elif chunk.path is None and chunk.pieces is None:
            raise InvalidRequestError(f"a chunk of {chunk.key} is neither in memory nor staged")


def _batches(chunk: Chunk) -> Table:
    """Check a chunk in memory, and return the table of its batches."""
    assert chunk.data is not None
    batches = scan(chunk.data, path=f"a chunk of {chunk.key}", check_crc=False)
    table = batches.table
    follows = len(table) > 0 and (
        int(table["base_offset"][0]) == 0
        and bool((table["base_offset"][1:] == table["last_offset"][:-1] + 1).all())
        and int(table["last_offset"][-1]) + 1 == chunk.records
        and bool((table["magic"] == _MAGIC).all())
    )
    if not follows or batches.end != len(chunk.data) or batches.end != chunk.size_bytes:
        raise InvalidRequestError(
            f"a chunk of {chunk.key} was announced with {chunk.records} records in "
            f"{chunk.size_bytes} bytes, but it does not consist of complete record batches v2 with "
            f"offsets from 0{'' if batches.error is None else f' ({batches.error.reason})'}; "
            "nothing was committed"
        )
    return table


def check_producers(
    state: DisklessState, chunks: Sequence[Chunk], now_ms: int, *, home: str
) -> list[DuplicateAppend | SparklogError | None]:
    """Check idempotent producers' batches against a state.

    Returns a result per chunk, as `CommitLog.check_producers`.
    """
    known: dict[TopicPartition, ProducerAppends] = {}
    results: list[DuplicateAppend | SparklogError | None] = []
    for chunk in chunks:
        key = chunk.key
        try:
            if key not in known:
                load = partial(_known_producers, state, key, now_ms)
                known[key] = ProducerAppends(load, state.log.ends.get(key, 0), f"{home}/{key}")
            if chunk.idempotent:
                results.append(known[key].judge(_batches(chunk)))
            else:
                known[key].skip(chunk.records)
                results.append(None)
        except SparklogError as error:
            results.append(error)
    return results


def _known_producers(
    state: DisklessState, key: TopicPartition, now_ms: int
) -> ProducerState | None:
    known = state.producers.get(key)
    if known is None or not known.expires(now_ms):
        return known
    # `expire` changes the producer state in place, and other threads read the known state.
    known = known.copy()
    known.expire(now_ms)
    return known


def _producer_batches(
    state: DisklessState, chunks: Sequence[Chunk], stamps: Mapping[str, int]
) -> ProducerBatches:
    """Return the batches of idempotent producers, which update the producer states."""
    by_partition: dict[TopicPartition, tuple[ProducerBatch, ...]] = {}
    ends: dict[TopicPartition, int] = {}
    for chunk in chunks:
        base = ends.get(chunk.key, state.log.ends[chunk.key])
        ends[chunk.key] = base + chunk.records
        if chunk.idempotent:
            table = _batches(chunk)
            # The largest timestamp of a batch, as readers will see it.
            stamp_ms = None if chunk.copied else stamps.get(chunk.topic)
            by_partition[chunk.key] = by_partition.get(chunk.key, ()) + tuple(
                ProducerBatch(
                    int(row["producer_id"]), int(row["producer_epoch"]), int(row["base_sequence"]),
                    base + int(row["base_offset"]), base + int(row["last_offset"]),
                    int(row["max_timestamp"]) if stamp_ms is None else stamp_ms,
                )
                for row in _newest(table[table["producer_id"] >= 0])
            )  # fmt: skip
    return by_partition


def _newest(table: Table) -> Table:
    """Return the rows of each producer's last batches, as many as a producer state keeps.

    A chunk that was copied from another log may contain thousands of batches.
    """
    kept, seen = [], Counter[int]()
    for at in range(len(table) - 1, -1, -1):
        producer_id = int(table["producer_id"][at])
        seen[producer_id] += 1
        if seen[producer_id] <= BATCHES_KEPT:
            kept.append(at)
    return table[kept[::-1]]
