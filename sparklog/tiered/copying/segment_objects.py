"""A segment's two objects: the log, checked and indexed during the upload, then the manifest.

The log is read in complete batches with checked CRCs, and both indexes are rebuilt from the
batches: damaged data are never uploaded, and the indexes are correct even if the local index files
are damaged. If `SegmentPut.committed` is given, the batches are compared with the appends that the
ledger recorded, and a segment of another partition or log is rejected. A record may be written
between the two objects: remote storage writes the manifest at once, a log in a bucket only after
the ledger's entry.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import crc32c

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import format_epochs
from sparklog.format.index import SegmentIndexes
from sparklog.fs import Buffer
from sparklog.log.batch_windows import walk
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.storage.committed_appends import AppendedBatches
from sparklog.storage.segment_store import SegmentPut, source_changed
from sparklog.tiered.encryption.envelope import DataKey, new_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import Manifest, WrappedKey, log_object, packed, to_bytes
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState


@dataclass(frozen=True, slots=True)
class LogObject:
    """The log of a segment that was uploaded, and the facts that its manifest contains.

    Attributes:
        parts: {name in PARTS: content} of the small files.
        key: The data key of an encrypted log.
        wrapped: The data key as the manifest contains it: encrypted by a master key.
    """

    put: SegmentPut[RemoteSegment]
    crc32c: int
    stored_size: int
    stored_crc32c: int
    parts: dict[str, bytes]
    key: DataKey | None = None
    wrapped: WrappedKey | None = None

    def manifest(self, time_ms: int) -> tuple[Manifest, bytes]:
        """Return (manifest, bytes of the manifest's object) of a segment, uploaded at `time_ms`."""
        put = self.put
        places, body = packed(self.parts)
        manifest = Manifest(
            segment=put.segment.become(SegmentState.COPY_FINISHED, time_ms),
            config=put.config,
            crc32c=self.crc32c,
            stored_size=self.stored_size,
            stored_crc32c=self.stored_crc32c,
            parts=places,
            gaps=put.gaps,
            replaces=tuple(old.id for old in put.replaces),
            encryption=self.wrapped,
        )
        sealed = body if self.key is None else self.key.seal_body(body)
        return manifest, to_bytes(manifest, sealed)


def put_log(
    store: Store,
    put: SegmentPut[RemoteSegment],
    *,
    keyring: Keyring | None = None,
    throttle: Throttle = unthrottled,
    check: Callable[[], None] = lambda: None,
) -> LogObject:
    """Upload a segment's log. After an error the caller deletes uploaded objects.

    Cost: a few requests, and a pass over the log; a few MiB of memory.

    Raises:
        SourceChangedError: The local segment was deleted or replaced.
        DataCorruptionError: The local segment is damaged.
        StorageUnavailableError: The bucket can't be written.
    """
    key = wrapped = None
    if keyring is not None:
        key, wrapped = new_data_key(keyring, put.segment.id)
    source = Source(put, throttle, check)
    size = put.segment.size
    pieces: Iterable[Buffer] = source if key is None else key.seal(source, size)
    stored_size = size if key is None else key.stored_size(size)
    stored = _Summed(pieces)
    check()
    store.put_stream(log_object(put.segment), stored, stored_size)
    parts = _parts(put, source)
    # The indexes and the snapshot were read after the log. They must belong to the same segment.
    source.check_unmoved()
    return LogObject(put, source.crc32c, stored_size, stored.crc32c, parts, key, wrapped)


def look_at_log(
    put: SegmentPut[RemoteSegment],
    *,
    throttle: Throttle = unthrottled,
    check: Callable[[], None] = lambda: None,
) -> LogObject:
    """Return the result of `put_log` for a plain log that is already in the store.

    Errors and cost are those of `put_log`, without the upload.
    """
    source = Source(put, throttle, check)
    for _ in source:
        pass
    parts = _parts(put, source)
    return LogObject(put, source.crc32c, put.segment.size, source.crc32c, parts)


def _parts(put: SegmentPut[RemoteSegment], source: "Source") -> dict[str, bytes]:
    segment, data = put.segment, put.data
    epochs = data.leader_epochs()
    parts = {
        ".index": bytes(source.indexes.index),
        ".timeindex": bytes(source.indexes.timeindex),
        ".snapshot": data.producer_snapshot(),
        "leader-epoch-checkpoint": format_epochs(epochs or segment.epochs),
    }
    if segment.has_txn_index:
        parts[".txnindex"] = data.transaction_index()
    return parts


class _Summed:
    """The stored pieces of a log. After an iteration, `crc32c` is the checksum of all pieces."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = pieces
        self.crc32c = 0

    def __iter__(self) -> Iterator[Buffer]:
        self.crc32c = 0
        for piece in self._pieces:
            self.crc32c = crc32c.crc32c(piece, self.crc32c)
            yield piece


class Source:
    """The bytes of a segment, in complete batches. Each iteration begins at the first batch.

    After an iteration, `crc32c` is the checksum of all bytes, and `indexes` are as Kafka would
    rebuild them. The iterator raises SourceChangedError and DataCorruptionError.
    """

    def __init__(
        self, put: SegmentPut[RemoteSegment], throttle: Throttle, check: Callable[[], None]
    ) -> None:
        self._put, self._throttle, self._check = put, throttle, check
        self._version = put.data.version()
        self.crc32c = 0
        self.indexes = SegmentIndexes(put.segment.base, put.interval_bytes)

    def __iter__(self) -> Iterator[Buffer]:
        segment, self.crc32c = self._put.segment, 0
        self.indexes = SegmentIndexes(segment.base, self._put.interval_bytes)
        at, end, appended = 0, segment.base, AppendedBatches()
        try:
            with self._put.data.log() as file:
                for window in walk(file, limit=segment.size):
                    self._check()
                    batches = window.batches
                    if batches.error is not None:
                        self.check_unmoved()
                        raise batches.error
                    table = batches.table
                    if len(table) and int(table["base_offset"][0]) < end:
                        raise self._torn(at, end, "the segment's offsets decrease")
                    self.indexes.take(table)
                    # A view: copying each window took two thirds of this pass.
                    piece = memoryview(window.data)[: batches.end - window.position]
                    if len(table):
                        if self._put.committed is not None:
                            appended.add(window.data, table, window.position)
                        end = int(table["last_offset"][-1]) + 1
                    at += len(piece)
                    self._throttle(len(piece))
                    self.crc32c = crc32c.crc32c(piece, self.crc32c)
                    yield piece
        except FileNotFoundError as error:
            raise source_changed(self._put.data.where) from error
        self.indexes.finish()
        self.check_unmoved()
        if at != segment.size or end > segment.end or not self._reaches(end):
            raise self._torn(at, end, "the batches don't match the segment's offsets")
        self._compare(appended)

    def _compare(self, batches: AppendedBatches) -> None:
        """Raise DataCorruptionError if the batches differ from the committed batches."""
        segment, committed = self._put.segment, self._put.committed
        wrong = committed and committed.first_wrong(batches, segment.base, segment.end)
        if wrong:
            where = self._put.data.where
            subject = "the segments are" if wrong.is_long else "the segment is"
            raise DataCorruptionError(
                f"{subject} not copied: {wrong.message}",
                path=os.path.dirname(where) if wrong.is_long else where,
                first=wrong.first,
                end=wrong.end,
            )

    def _reaches(self, end: int) -> bool:
        """Return True if batches that end at offset `end` can be the complete segment.

        They are if `end` is the segment's end. In a topic with gaps, compaction may have removed
        the last batches. If such a topic is no longer compacted, a segment without batches is
        complete only if it replaces no copy.
        """
        put = self._put
        if end == put.segment.end or not put.gaps:
            return end == put.segment.end
        is_compacted = "compact" in str(put.config.get("cleanup.policy", ""))
        return is_compacted or end > put.segment.base or not put.replaces

    def check_unmoved(self) -> None:
        """Raise SourceChangedError if the source has changed since the first read."""
        if self._put.data.version() != self._version:
            raise source_changed(self._put.data.where)

    def _torn(self, at: int, end: int, what: str) -> DataCorruptionError:
        return DataCorruptionError(
            f"{what}, so the segment is not copied. Restore the file from a copy",
            path=self._put.data.where,
            position=at,
            first=end,
            end=self._put.segment.end,
        )
