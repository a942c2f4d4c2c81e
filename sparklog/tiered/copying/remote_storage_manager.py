"""Closed segments in a bucket: each its log as an object, and the manifest that makes it visible.

The log is read in whole batches whose CRCs are checked on the way, and both indexes are made anew
out of the batches that pass: what is damaged never gets a copy, and a copy's indexes are right
whatever a disk did to the local ones. A segment that is retired or replaced while it is read gives
`SourceChangedError`; whoever recorded COPY_STARTED then removes what was uploaded. Every name has
the segment's id in it, so a copy that is made again writes the same names, and without encryption
the same bytes. Deleted, the manifests go before the logs: a reader of the bucket alone never finds
one without its log. Source: RemoteStorageManager (KIP-405); RLMCopyTask.copyLogSegment (Kafka 4.1).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

import crc32c

from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.checkpoint_files import format_epochs
from sparklog.format.index import IndexState, final_time_entry, index_entries
from sparklog.fs import Buffer
from sparklog.log.batch_windows import walk
from sparklog.logdir.cleaning.options import Throttle, unthrottled
from sparklog.storage.segment_store import (
    PutResult,
    SegmentPut,
    SourceChangedError,
    source_changed,
)
from sparklog.tiered.encryption.envelope import DataKey, new_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import (
    Manifest,
    log_object,
    manifest_object,
    packed,
    parse,
    to_bytes,
)
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState


class RemoteStorageManager:
    """`SegmentStore` of a tier: copies segments, several at once. Threads may share it.

    Args: keyring: encrypts if given. throttle: is told of bytes read. threads: copies at a time.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        *,
        keyring: Keyring | None = None,
        throttle: Throttle = unthrottled,
        threads: int = 1,
    ) -> None:
        self._store, self._clock, self._keyring = store, clock, keyring
        self._throttle, self._threads = throttle, threads

    def put(
        self,
        puts: Sequence[SegmentPut[RemoteSegment]],
        *,
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[PutResult[RemoteSegment]]:
        """Copy them, `threads` at a time, and yield each as it ends; errors are in the result."""
        stop: list[Exception] = []

        def one(put: SegmentPut[RemoteSegment]) -> PutResult[RemoteSegment]:
            if stop:
                return PutResult(put, error=stop[0])
            try:
                manifest = self.copy(put, check=check)
            except (SparklogError, OSError) as error:
                if not isinstance(error, SourceChangedError | DataCorruptionError):
                    stop.append(error)
                return PutResult(put, error=error)
            return PutResult(put, manifest.segment, manifest.stored_size)

        if self._threads <= 1 or len(puts) == 1:
            yield from map(one, puts)
            return
        with ThreadPoolExecutor(self._threads, "sparklog-copier") as pool:
            for done in as_completed([pool.submit(one, put) for put in puts]):
                yield done.result()

    def delete(
        self, segments: Sequence[RemoteSegment], *, check: Callable[[], None] = lambda: None
    ) -> None:
        """Remove copies: the manifests, then the logs."""
        check()
        self._store.delete([manifest_object(s) for s in segments])
        check()
        self._store.delete([log_object(s) for s in segments])

    def copy(
        self, put: SegmentPut[RemoteSegment], *, check: Callable[[], None] = lambda: None
    ) -> Manifest:
        """Upload a segment; what it was resumed from and is whole already stays.

        Raises: SourceChangedError; DataCorruptionError: the local segment is damaged;
        StorageUnavailableError. What was uploaded then is for the caller to remove.
        Cost: a few requests, and a pass over the log; a few MiB of memory.
        """
        if put.resumed:
            found = self._finished(put, check)
            if found is not None:
                return found
            if self._keyring is not None:  # whoever had the other key may still write
                raise SourceChangedError(
                    f"{put.segment.id}: an encrypted copy is not resumed but made anew"
                )
        key = wrapped = None
        if self._keyring is not None:
            key, wrapped = new_data_key(self._keyring, put.segment.id)
        source = Source(put, self._throttle, check)
        size = put.segment.size
        pieces: Iterable[Buffer] = source if key is None else key.seal(source, size)
        stored_size = size if key is None else key.stored_size(size)
        stored = _Summed(pieces)
        check()
        self._store.put_stream(log_object(put.segment), stored, stored_size)
        parts = _parts(put, source)
        source.check_unmoved()
        places, body = packed(parts)
        manifest = Manifest(
            segment=put.segment.become(
                SegmentState.COPY_FINISHED,
                max(self._clock(), *(old.time_ms + 1 for old in put.replaces), 0),
            ),
            config=put.config,
            crc32c=source.crc32c,
            stored_size=stored_size,
            stored_crc32c=stored.crc32c,
            parts=places,
            gaps=put.gaps,
            replaces=tuple(old.id for old in put.replaces),
            encryption=wrapped,
        )
        check()
        self._store.put(manifest.name, to_bytes(manifest, _sealed(key, body)))
        return manifest

    def _finished(
        self, put: SegmentPut[RemoteSegment], check: Callable[[], None]
    ) -> Manifest | None:
        """The manifest of this very copy, if an earlier attempt came so far."""
        name = manifest_object(put.segment)
        check()
        try:
            manifest, _ = parse(self._store.get(name), path=name)
        except (FileNotFoundError, DataCorruptionError):
            return None
        found = manifest.segment
        if replace(found, state=put.segment.state, time_ms=put.segment.time_ms) != put.segment:
            return None
        return manifest


def _parts(put: SegmentPut[RemoteSegment], source: "Source") -> dict[str, bytes]:
    segment, data = put.segment, put.data
    epochs = data.leader_epochs()
    parts = {
        ".index": bytes(source.index),
        ".timeindex": bytes(source.timeindex),
        ".snapshot": data.producer_snapshot(),
        "leader-epoch-checkpoint": format_epochs(epochs or segment.epochs),
    }
    if segment.has_txn_index:
        parts[".txnindex"] = data.transaction_index()
    return parts


def _sealed(key: DataKey | None, body: bytes) -> bytes:
    return body if key is None else key.seal_body(body)


class _Summed:
    """Pieces as they are stored; `crc32c` is of all that the last pass gave."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = pieces
        self.crc32c = 0

    def __iter__(self) -> Iterator[Buffer]:
        self.crc32c = 0
        for piece in self._pieces:
            self.crc32c = crc32c.crc32c(piece, self.crc32c)
            yield piece


class Source:
    """The bytes of a segment, in whole batches; each iter() begins anew.

    After a pass `crc32c` is of all bytes, `index` and `timeindex` are what Kafka would rebuild.
    Raises, from the iterator: SourceChangedError, DataCorruptionError.
    """

    def __init__(
        self, put: SegmentPut[RemoteSegment], throttle: Throttle, check: Callable[[], None]
    ) -> None:
        self._put, self._throttle, self._check = put, throttle, check
        self._version = put.data.version()
        self.crc32c = 0
        self.index, self.timeindex = bytearray(), bytearray()

    def __iter__(self) -> Iterator[Buffer]:
        segment, self.crc32c = self._put.segment, 0
        self.index, self.timeindex, state = bytearray(), bytearray(), IndexState()
        at, end = 0, segment.base
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
                        raise self._torn(at, end, "its offsets go back")
                    index, timeindex, state = index_entries(
                        table, segment.base, self._put.interval_bytes, state
                    )
                    self.index += index
                    self.timeindex += timeindex
                    # A view: copying each window took two thirds of this pass.
                    piece = memoryview(window.data)[: batches.end - window.position]
                    if len(table):
                        end = int(table["last_offset"][-1]) + 1
                    at += len(piece)
                    self._throttle(len(piece))
                    self.crc32c = crc32c.crc32c(piece, self.crc32c)
                    yield piece
        except FileNotFoundError as error:
            raise source_changed(self._put.data.where) from error
        self.timeindex += final_time_entry(segment.base, state)[0]
        self.check_unmoved()
        if at != segment.size or end > segment.end:
            raise self._torn(at, end, "it holds other batches than its place in the log says")

    def check_unmoved(self) -> None:
        """Raise SourceChangedError unless the source is still what it was at first."""
        if self._put.data.version() != self._version:
            raise source_changed(self._put.data.where)

    def _torn(self, at: int, end: int, what: str) -> DataCorruptionError:
        return DataCorruptionError(
            f"{what}; it is not copied. Restore the file from a copy",
            path=self._put.data.where,
            position=at,
            first=end,
            end=self._put.segment.end,
        )
