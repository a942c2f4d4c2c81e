"""Closed segments in a bucket: a log object each, and a manifest that makes the segment visible.

Damaged segments are never copied (`segment_objects`). If a segment is deleted or replaced while it
is read, `SourceChangedError` is raised, and the caller that recorded COPY_STARTED deletes the
uploaded objects. All names contain the segment id, so a repeated copy writes the same names, and
without encryption the same bytes. Manifests are deleted before logs, so that a reader of the bucket
alone never finds a manifest without its log.
Source: RemoteStorageManager (KIP-405); RLMCopyTask.copyLogSegment (Kafka 4.1).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.storage.segment_store import (
    PutResult,
    SegmentPut,
    SourceChangedError,
)
from sparklog.tiered.copying.segment_objects import put_log
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    log_object,
    manifest_object,
    parse,
)
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_segment import RemoteSegment


class RemoteStorageManager:
    """The `SegmentStore` of remote storage: copies segments concurrently. Thread-safe.

    Args:
        store: The bucket.
        clock: The clock.
        keyring: Encrypts the copies.
        throttle: Called with the number of bytes read.
        threads: The number of concurrent copies.
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
        """Copy segments, `threads` concurrently, and yield a result for each.

        Errors are in the results.
        """
        stop: list[Exception] = []

        def one(put: SegmentPut[RemoteSegment]) -> PutResult[RemoteSegment]:
            if stop:
                return PutResult(put, error=stop[0])
            try:
                manifest = self.copy(put, check=check)
            except (SparklogError, OSError) as error:
                # These two concern a single segment. Any other error, such as a lost lease or an
                # unavailable store, would fail all further copies too.
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
        """Delete copies: the manifests, then the logs."""
        check()
        # Manifests first, so that a reader of the bucket alone never finds a manifest without its
        # log.
        self._store.delete([manifest_object(s) for s in segments])
        check()
        self._store.delete([log_object(s) for s in segments])

    def copy(
        self, put: SegmentPut[RemoteSegment], *, check: Callable[[], None] = lambda: None
    ) -> Manifest:
        """Upload a segment, unless an earlier attempt with the same id is complete.

        Cost: a few requests, and a pass over the log; a few MiB of memory. After an error the
        caller deletes uploaded objects.

        Raises:
            SourceChangedError: The local segment was deleted or replaced.
            DataCorruptionError: The local segment is damaged.
            StorageUnavailableError: The bucket can't be written.
        """
        if put.resumed:
            finished = self._finished(put, check)
            if finished is not None:
                return finished
            if self._keyring is not None:  # a process with the earlier data key may still write
                raise SourceChangedError(
                    f"{put.segment.id}: an interrupted encrypted copy can't be resumed"
                )
        made = put_log(
            self._store, put, keyring=self._keyring, throttle=self._throttle, check=check
        )
        # The later copy of overlapping copies is the valid one, even if the clock was set back
        # since.
        time_ms = max(self._clock(), *(old.time_ms + 1 for old in put.replaces), 0)
        manifest, raw = made.manifest(time_ms)
        check()
        self._store.put(manifest.name, raw)
        return manifest

    def _finished(
        self, put: SegmentPut[RemoteSegment], check: Callable[[], None]
    ) -> Manifest | None:
        """Return the manifest of this copy if an earlier attempt has completed the copy."""
        name = manifest_object(put.segment)
        check()
        try:
            manifest, _ = parse(self._store.get(name, limit=MANIFEST_BYTES_MAX), path=name)
        except (FileNotFoundError, DataCorruptionError):
            return None
        segment = manifest.segment
        if replace(segment, state=put.segment.state, time_ms=put.segment.time_ms) != put.segment:
            return None
        return manifest
