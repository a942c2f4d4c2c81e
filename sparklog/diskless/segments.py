"""The extents of a partition as `sparklog.storage.segments.PartitionSegments`.

Each extent counts as a segment with a location, a size and a largest timestamp that are known
without a request. Closed segments have their indexes in a manifest, once it is written. Extents of
commits have no indexes and are read from their start, which is never far.

If an object is missing or too short, a merge, retention or deletion has replaced it since the
extents were listed, and its entry was created before. Therefore new entries are folded first; only
an object that the state still refers to counts as damaged.
"""

import errno
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import Epochs as KnownEpochs
from sparklog.diskless.extent_logs import ExtentLogs
from sparklog.diskless.extent_objects import ExtentObjects, Keys, ObjectEndsError
from sparklog.diskless.extents import Extent, Extents, index_of
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import LOG, SNAPSHOT, TXNINDEX, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.log.batch_windows import marker_reader, walk
from sparklog.log.producer_state import ProducerState
from sparklog.storage.segments import (
    IndexBytes,
    IndexKind,
    SegmentLog,
    SegmentMetadata,
    StaleReadError,
    UndeterminedLossError,
)
from sparklog.tiered.reading.remote_objects import OpenedSegment
from sparklog.tiered.reading.remote_segment_log import BytesLog
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition of the log's state, at a point in time.

    Attributes:
        end: The log end offset.
        producers: Whether batches may have a producer, and belong to transactions.
    """

    topic_id: str
    extents: Extents
    end: int
    epochs: KnownEpochs
    keys: Keys
    gaps: bool
    producers: bool


def partition_state(state: DisklessState, key: TopicPartition) -> PartitionState | None:
    """Return a partition in a state, or None."""
    topic = state.log.topics.get(key.topic)
    if topic is None or key.partition not in topic.dirs:
        return None
    return PartitionState(
        topic.id,
        state.extents.get(key, ()),
        state.log.ends[key],
        state.epochs.get(key, ()),
        state.keys,
        key in state.gaps,
        key in state.log.idempotent or key in state.producers,
    )


class DisklessSegments:
    """A partition's extents. Listing them needs no request: they come from the log's known state.

    Args:
        where: The partition's URL, with its topic id.
        key: The partition.
        log_id: The id of the log.
        objects: Reads the objects that contain the extents.
        look: Returns the partition's state; None after its deletion.
        news: Applies new ledger entries to the known state. It is called when an object is not
            found, because a merge may have replaced the object. None if the caller does this.
        eager: Whether the caller reads all extents from the first on, so that data are fetched
            ahead.
    """

    def __init__(
        self,
        where: str,
        key: TopicPartition,
        log_id: str,
        objects: ExtentObjects,
        look: Callable[[], PartitionState | None],
        news: Callable[[], object] | None = None,
        *,
        eager: bool = False,
    ) -> None:
        self._where, self._key, self._log_id, self._objects = where, key, log_id, objects
        self._look, self._news, self._eager = look, news, eager
        self._state = self._looked()
        self._logs = self._logs_of(self._state)
        self._bare: set[str] = set()  # segments without a manifest
        self.gaps = self._state.gaps

    @property
    def where(self) -> str:
        """The partition's URL, including the topic id."""
        return self._where

    @property
    def topic_id(self) -> str | None:
        """The topic's id."""
        return self._state.topic_id

    def bases(self) -> list[int]:
        """Return the extents' base offsets; only the end if no record is left."""
        return [e.base for e in self._listed().extents] or [self._state.end]

    def metadata(self) -> list[SegmentMetadata]:
        """Return the metadata of the extents, from the state."""
        state = self._listed()
        listed = [
            SegmentMetadata(
                e.base, e.end, e.size, e.max_timestamp, False, self._objects.url(e.object)
            )
            for e in state.extents
        ]
        end = state.end
        return listed or [SegmentMetadata(end, end, 0, -1, False, self._path(end, LOG))]

    def max_timestamp(self, base: int) -> int | None:
        """Return an extent's largest timestamp (ms), from the state."""
        at = self._find(base)
        if at is None:
            return -1 if self._is_empty_at(base) else None
        return self._logs.extents[at].max_timestamp

    def modified_ms(self, base: int) -> int:
        """Return when an extent's object was written (ms). Cost: a listing of its name, once."""
        at = self._find(base)
        if at is None:
            raise self._missing(self._path(base, LOG))
        name = self._logs.extents[at].object
        put_ms = self._objects.put_ms(name)
        if put_ms is None:
            raise self._missing(self._objects.url(name))
        return put_ms

    def log(self, base: int) -> SegmentLog:
        """Open an extent as a segment's log.

        Raises:
            FileNotFoundError: No extent starts at `base`.
        """
        at = self._find(base)
        if at is not None:
            return _Healed(self._logs, at, self)
        if self._is_empty_at(base):
            return BytesLog(self._path(base, LOG), b"")
        raise self._missing(self._path(base, LOG))

    def index(self, base: int, kind: IndexKind) -> SegmentLog | None:
        """Return an index from a closed segment's manifest, or None."""
        data = self._index(base, kind)
        return None if data is None else BytesLog(self._path(base, kind), data)

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return an index's bytes, or None."""
        data = self._index(base, kind)
        return None if data is None else IndexBytes(memoryview(data))

    def producer_snapshots(self) -> list[int]:
        """Return the offsets for which a producer snapshot exists: the ends of closed segments.

        If no batch has a producer, these are the ends of all extents.
        """
        producers = self._listed().producers
        return [e.end for e in self._logs.extents if e.segment or not producers]

    def producer_snapshot(self, offset: int) -> bytes:
        """Return the producer snapshot at `offset`, the end of an extent.

        Cost: a manifest; without it, a pass over the batches since the previous snapshot, unless no
            batch has a producer.

        Raises:
            FileNotFoundError: No extent ends there.
        """
        extents = self._logs.extents
        at = index_of(extents, offset - 1)
        if at == len(extents) or extents[at].end != offset:
            raise self._missing(f"{self._where}/{snapshot_name(offset)}")
        if not self._state.producers:
            return format_snapshot([])
        return self._part(extents[at], SNAPSHOT) or format_snapshot(self._replayed(at)[0].entries())

    def producers_at(self, offset: int) -> ProducerState:
        """Return the producer state at any `offset`.

        Cost: as `producer_snapshot`; within an extent also a pass over its batches.
        """
        extents = self._logs.extents
        at = min(index_of(extents, offset - 1), len(extents) - 1)
        if extents[at].end == offset and (raw := self._part(extents[at], SNAPSHOT)):
            return self._restored(extents[at], raw)
        return self._replayed(at, offset)[0]

    def _restored(self, extent: Extent, raw: bytes) -> ProducerState:
        path = f"{self._where}/{snapshot_name(extent.end)}"
        return ProducerState(extent.end, parse_snapshot(raw, path), expiration_ms=_NO_LIMIT)

    def _replayed(self, at: int, end: int = _NO_LIMIT) -> tuple[ProducerState, bytes]:
        """Compute the producer state after extent number `at`, and the extent's transaction index.

        Reads batches from the newest earlier snapshot on, up to offset `end`.
        """
        extents = self._logs.extents
        first, state = 0, ProducerState(extents[0].base, expiration_ms=_NO_LIMIT)
        for number in range(at - 1, -1, -1):
            raw = self._part(extents[number], SNAPSHOT)
            if raw is not None:
                state, first = self._restored(extents[number], raw), number + 1
                break
        aborted = b""
        for number in range(first, at + 1):
            log = self.log(extents[number].base)
            for window in walk(log, check_crc=False):
                table = window.batches.table
                table = table[table["base_offset"] < end]
                entries = state.apply(table, marker_reader(window, log.path))
                if number == at:
                    aborted += entries
        return state, aborted

    def leader_epochs(self) -> Epochs:
        """Return the leader epochs, from the state."""
        return list(self._listed().epochs)

    def first_local_base(self) -> int | None:
        """Return None: no segment is on this host's disks."""
        return None

    def remote_end(self) -> int | None:
        """Return the end, as all records are in the store; None without records."""
        state = self._listed()
        return state.end if state.extents else None

    # --- the known state -------------------------------------------------------------------------

    def _looked(self) -> PartitionState:
        state = self._look()
        if state is None:
            raise self._missing(self._where)
        return state

    def _listed(self) -> PartitionState:
        state = self._looked()
        if state is not self._state:
            # Otherwise the opened logs stay, with the ranges that they have prefetched.
            if state.extents is not self._logs.extents:
                self._logs = self._logs_of(state)
            self._state = state
        # A service may have written missing manifests since the last listing.
        self._bare.clear()
        return state

    def _logs_of(self, state: PartitionState) -> ExtentLogs:
        return ExtentLogs(
            self._objects, self._log_id, self._key.topic, state.extents, state.keys,
            eager=self._eager,
        )  # fmt: skip

    def _find(self, base: int) -> int | None:
        extents = self._logs.extents
        at = index_of(extents, base)
        return at if at < len(extents) and extents[at].base == base else None

    def _is_empty_at(self, base: int) -> bool:
        return not self._logs.extents and base == self._state.end

    def is_there(self, extent: Extent) -> bool:
        """Fold new entries; return True if an extent is still part of the log."""
        if self._news is None:
            return False
        self._news()
        state = self._look()
        if state is None or state.topic_id != self._state.topic_id:
            return False
        at = index_of(state.extents, extent.base)
        return at < len(state.extents) and state.extents[at].place == extent.place

    # --- manifests -------------------------------------------------------------------------------

    def _remote(self, extent: Extent) -> RemoteSegment:
        return RemoteSegment(
            topic=self._key.topic,
            topic_id=self._state.topic_id,
            partition=self._key.partition,
            id=extent.segment,
            base=extent.base,
            end=extent.end,
            max_timestamp=extent.max_timestamp,
            size=extent.size,
            epochs=self._state.epochs,
            state=SegmentState.COPY_FINISHED,
            time_ms=0,
        )

    def _opened(self, extent: Extent) -> OpenedSegment | None:
        """Return a closed segment with its manifest; None for an extent without a manifest."""
        if not extent.segment or extent.segment in self._bare:
            return None
        try:
            return self._objects.remote.open(self._remote(extent))
        except FileNotFoundError:
            self._bare.add(extent.segment)
            return None

    def _part(self, extent: Extent, name: str) -> bytes | None:
        opened = self._opened(extent)
        return None if opened is None else opened.part(name)

    def _index(self, base: int, kind: IndexKind) -> bytes | None:
        at = self._find(base)
        if at is None:
            return None
        if kind == TXNINDEX:
            return self.transactions(base) or None
        return self._part(self._logs.extents[at], kind)

    def transactions(self, base: int) -> bytes:
        """Return the `.txnindex` of the extent at `base`, computed from the batches if needed.

        Needs no request if no batch has a producer, or if no broker wrote the extent.
        """
        at = self._find(base)
        if at is None:
            raise self._missing(self._path(base, LOG))
        extent = self._logs.extents[at]
        if not extent.segment or not self._state.producers:
            return b""
        opened = self._opened(extent)
        return self._replayed(at)[1] if opened is None else opened.part(TXNINDEX) or b""

    def loss(
        self, extent: Extent, error: FileNotFoundError | ObjectEndsError
    ) -> DataCorruptionError:
        """Return the error for an extent whose object is missing or too short."""
        is_missing = isinstance(error, FileNotFoundError)
        fault = "the object is missing" if is_missing else f"the object is cut off ({error})"
        cure = "restore it from a copy of the bucket"
        if extent.segment:
            home = shlex.quote(self._objects.store.url)
            cure = (
                f"`sparklog verify {home} --repair` writes the segment again, while the objects "
                f"that it was merged from exist; otherwise {cure}"
            )
        return DataCorruptionError(
            f"{fault}, and its records can't be read; {cure}", path=self.url_of(extent),
            first=extent.base, end=extent.end,
        )  # fmt: skip

    def url_of(self, extent: Extent) -> str:
        """The URL of an extent's object."""
        return self._objects.url(extent.object)

    def _path(self, base: int, suffix: str) -> str:
        return f"{self._where}/{base:020d}{suffix}"

    @staticmethod
    def _missing(path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "not in the log any more", path)


class _Healed:
    """An extent's log, which reports whether the extent was replaced if its object is missing.

    If an object is missing or too short, new ledger entries are folded. If the extent was replaced,
    StaleReadError is raised, and the reader lists the segments again.
    """

    def __init__(self, logs: ExtentLogs, at: int, segments: DisklessSegments) -> None:
        self._log = logs.open(at) if not logs.extents[at].pieces else None
        self._logs, self._at, self._segments = logs, at, segments
        self._extent = logs.extents[at]
        self.path = logs.path_of(self._extent)

    def size(self) -> int:
        """Return the size in bytes."""
        return self._extent.size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer at the end.

        Raises:
            StaleReadError: The extent was replaced, or that can't be determined.
            DataCorruptionError: An object is damaged.
        """
        extent = self._extent
        try:
            if self._log is None:  # an extent in a table, which is read first
                self._log = self._logs.open(self._at)
            return self._log.pread(size, at)
        except UndeterminedLossError as error:
            raise StaleReadError(str(error)) from error
        except (FileNotFoundError, ObjectEndsError) as error:
            if self._segments.is_there(extent):
                raise self._segments.loss(extent, error) from error
            raise StaleReadError(
                f"offsets [{extent.base}, {extent.end}) were moved to another object: {error}"
            ) from error
