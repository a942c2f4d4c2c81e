"""What a change becomes at a state: the entry with its offsets, and the bytes that ride in it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    Entry,
    ObjectKey,
    ProducerBatch,
    key_from_json,
    new_attempt_id,
)
from sparklog.diskless.extents import Extent
from sparklog.diskless.names import new_staged_name, parse_staged
from sparklog.diskless.state import DisklessState
from sparklog.errors import InvalidRequestError, TopicReplacedError
from sparklog.format.scan import Table, scan
from sparklog.storage.commits import Change, Chunk, StagedTooLongError, WriterResetError
from sparklog.storage.ledger_records import AppendRecord, CommitRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.tiered.object_store.store import Store

_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where an entry is made. `home`: the log's URL, for messages.

    `known`: the newest entry that was known when the call began. `befores`: of a reset, {writer:
    entry of its last commit that stays}.
    """

    home: str
    now_ms: int
    known: int
    befores: Mapping[str, int]


def check_chunks(state: DisklessState, chunks: Sequence[Chunk], *, home: str) -> None:
    """Refuse what may not be committed any more.

    Raises: TopicReplacedError, StagedTooLongError; InvalidRequestError: staged for another log.
    """
    for chunk in chunks:
        topic = state.log.topics.get(chunk.topic)
        if topic is not None and chunk.topic_id not in ("", topic.id):
            raise TopicReplacedError(
                f"topic {chunk.topic} of {home} was deleted and made again since these rows were "
                "staged for it; nothing was committed: stage them anew"
            )
        if chunk.path is not None:
            began = _staged_at(state, chunk, home)
            if began < state.floor:
                raise StagedTooLongError(
                    f"{chunk.path} of {home} was staged so long ago (at entry {began}, the floor "
                    f"is {state.floor}; diskless.stage.retention.ms) that it may be gone; nothing "
                    "was committed: stage the rows anew"
                )


def _staged_at(state: DisklessState, chunk: Chunk, home: str) -> int:
    assert chunk.path is not None
    began = parse_staged(state.log_id, chunk.path)
    if began is None:
        raise InvalidRequestError(
            f"{chunk.path} was not staged for the log at {home} (log id {state.log_id}); nothing "
            "was committed: stage the rows with a stager of this log"
        )
    return began


def inline_size(chunks: Sequence[Chunk]) -> int:
    """The bytes of chunks that are in memory alone."""
    return sum(chunk.size_bytes for chunk in chunks if chunk.path is None)


def staged_inline(
    store: Store, state: DisklessState, chunks: Sequence[Chunk]
) -> list[Chunk]:
    """Put what is in memory into one staged object; it stays in memory, too.

    Raises: StorageUnavailableError: nothing is named, and the service will remove what is there.
    Cost: one PUT, or an upload in parts.
    """
    name = new_staged_name(state.log_id, max(state.number, 0), "driver")
    held = [memoryview(c.data).cast("B") for c in chunks if c.path is None and c.data is not None]
    store.put_stream(name, held, sum(map(len, held)))
    found, at = [], 0
    for chunk in chunks:
        if chunk.path is None:
            chunk, at = replace(chunk, path=name, position=at), at + chunk.size_bytes
        found.append(chunk)
    return found


def entry_of(
    state: DisklessState, change: Change, chunks: Sequence[Chunk], moment: Moment
) -> tuple[Entry, bytes]:
    """Return the entry that makes a change at a state, and its inline data.

    Args: chunks: the change's, as they are placed by now.

    Raises: WriterResetError; InvalidRequestError: a chunk isn't whole batches from offset 0, or is
    of a partition that the log hasn't.
    """
    record = change.record
    time_ms = max(moment.now_ms, state.log.time_ms, record.time_ms)
    epoch = max(state.log.epoch, record.epoch)
    if not isinstance(record, AppendRecord):
        entry = Entry(
            id=new_attempt_id(), prev=state.entry_id, seen=moment.known,
            record=replace(record, time_ms=time_ms, epoch=epoch), befores=moment.befores,
        )  # fmt: skip
        return entry, b""
    seen = min([moment.known, *_stagings(state, chunks, moment.home)])
    before = -1
    if isinstance(record, CommitRecord):
        _check_reset(state, record.writer, seen, moment.home)
        before = state.commits.get(record.writer, -1)
    placed = _Placing(state, time_ms, epoch)
    for chunk in chunks:
        placed.add(chunk)
    asked_ms = change.asked_ms
    whole = replace(
        record, ends=placed.ends, time_ms=time_ms, epoch=epoch,
        duration_ms=None if asked_ms is None else max(0, moment.now_ms - asked_ms),
    )  # fmt: skip
    entry = Entry(
        id=new_attempt_id(), prev=state.entry_id, record=whole, extents=tuple(placed.extents),
        seen=seen, before=before, keys=placed.keys, producers=tuple(placed.producers),
    )  # fmt: skip
    return entry, b"".join(placed.data)


def _stagings(state: DisklessState, chunks: Sequence[Chunk], home: str) -> list[int]:
    return [_staged_at(state, chunk, home) for chunk in chunks if chunk.path and not chunk.data]


def _check_reset(state: DisklessState, writer: str, seen: int, home: str) -> None:
    reset = state.resets.get(writer, -1)
    if seen < reset:
        raise WriterResetError(
            f"writer {writer} of {home} was reset (ledger entry {reset}) after this commit was "
            f"begun, or before its process knew (it knew entry {seen}): it may have been planned "
            "without the reset. Nothing was committed: plan the micro-batch again, that is let the "
            "query restart from its checkpoint"
        )


class _Placing:
    """Gives chunks their offsets, one after the other."""

    def __init__(self, state: DisklessState, time_ms: int, epoch: int) -> None:
        self._state, self._time_ms, self._epoch = state, time_ms, epoch
        self.ends: dict[TopicPartition, OffsetRange] = {}
        self.extents: list[tuple[TopicPartition, Extent]] = []
        self.data: list[bytes | bytearray | memoryview] = []
        self.keys: dict[str, ObjectKey] = {}
        self.producers: list[ProducerBatch] = []
        self._inline = 0

    def add(self, chunk: Chunk) -> None:
        """Give a chunk the next offsets of its partition."""
        key, log = chunk.key, self._state.log
        if key not in log.ends:
            raise InvalidRequestError(f"{key} is not in the log; nothing was committed")
        first, base = self.ends.get(key, (log.ends[key], log.ends[key]))
        config = log.topics[chunk.topic].parsed()
        latest = chunk.max_timestamp
        if chunk.data is not None:
            table = _batches(chunk)
            if chunk.idempotent:
                self.producers += _producer_batches(table, base)
        stamp_ms = self._time_ms if config.log_append_time else -1
        extent = Extent(
            base, base + chunk.records, chunk.path or "", chunk.position, chunk.size_bytes,
            latest if stamp_ms < 0 else stamp_ms, self._epoch, -1, stamp_ms=stamp_ms,
        )  # fmt: skip
        if chunk.path is None:
            if chunk.data is None:
                raise InvalidRequestError(f"a chunk of {key} is neither in memory nor staged")
            extent = extent._replace(start=self._inline)
            self._inline += chunk.size_bytes
            self.data.append(chunk.data)
        elif chunk.wrapped_key is not None:
            self.keys[chunk.path] = key_from_json(json.loads(chunk.wrapped_key))
        self.ends[key] = OffsetRange(first, base + chunk.records)
        self.extents.append((key, extent))


def _batches(chunk: Chunk) -> Table:
    """The batches of a chunk in memory, checked: what is committed can't be mended."""
    assert chunk.data is not None
    found = scan(chunk.data, path=f"a chunk of {chunk.key}", check_crc=False)
    table = found.table
    follows = len(table) > 0 and (
        int(table["base_offset"][0]) == 0
        and bool((table["base_offset"][1:] == table["last_offset"][:-1] + 1).all())
        and int(table["last_offset"][-1]) + 1 == chunk.records
        and bool((table["magic"] == _MAGIC).all())
    )
    if not follows or found.end != len(chunk.data) or found.end != chunk.size_bytes:
        raise InvalidRequestError(
            f"a chunk of {chunk.key}, announced with {chunk.records} records in "
            f"{chunk.size_bytes} bytes, isn't whole batches v2 with offsets from 0"
            f"{'' if found.error is None else f' ({found.error.reason})'}; nothing was committed"
        )
    return table


def idempotent_table(chunk: Chunk) -> Table:
    """The batches of an idempotent producer's chunk."""
    return _batches(chunk)


def _producer_batches(table: Table, base: int) -> list[ProducerBatch]:
    return [
        ProducerBatch(
            int(row["producer_id"]), int(row["producer_epoch"]), int(row["base_sequence"]),
            base + int(row["base_offset"]), base + int(row["last_offset"]),
            int(row["max_timestamp"]),
        )
        for row in table[table["producer_id"] >= 0]
    ]
