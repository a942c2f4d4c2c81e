"""One segment's copy: its log as an object, then the manifest that makes the copy visible.

The log is read in whole batches whose CRCs are checked on the way, and both indexes are made anew
out of the batches that pass: what is damaged never gets a copy, and a copy's indexes are right
whatever a disk did to the local ones. A segment that is retired or replaced while it is read gives
`SourceChangedError`; whoever recorded COPY_STARTED then removes what was uploaded. Every name has
the segment's id in it, so a copy that is made again writes the same names, and without encryption
the same bytes. Source: RemoteLogManager.RLMCopyTask.copyLogSegment (Kafka 4.1).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import crc32c

from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.checkpoint_files import format_epochs
from sparklog.format.index import IndexState, final_time_entry, index_entries
from sparklog.format.names import log_name, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.fs import Buffer, FileSystem, read_bytes
from sparklog.log.batch_windows import walk
from sparklog.logdir.cleaning.options import Throttle, unthrottled
from sparklog.logdir.partition.indexes import txn_entries
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.producer_snapshots import load_producers
from sparklog.logdir.segment_files import joined
from sparklog.storage.leader_epochs import clipped
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

_NEVER_EXPIRES: Final = 2**63 - 1


class SourceChangedError(SparklogError):
    """The local segment is not there any more, or another one stands in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """A copy that COPY_STARTED was recorded for. `config`: the topic's, as the manifest keeps it.

    `resumed`: another service, or an earlier life of this one, may have uploaded it already.
    `replaces`: the copies whose place this one takes, which are older. `gaps`: whether offsets may
    be missing.
    """

    segment: RemoteSegment
    directory: str
    config: dict[str, str]
    interval_bytes: int
    log_start: int
    resumed: bool = False
    replaces: tuple[RemoteSegment, ...] = ()
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """How a job ended: with the copy in COPY_FINISHED and its bytes in the store, or an error."""

    job: CopyJob
    segment: RemoteSegment | None = None
    stored_bytes: int = 0
    error: Exception | None = None


class Copier:
    """Copies segments, several at once. Threads may share it.

    Args: keyring: encrypts if given. throttle: is told of bytes read. check: is called before each
        piece and each object; what it raises ends the copy (a lease that is lost, a stop).
    """

    def __init__(
        self,
        fs: FileSystem,
        store: Store,
        clock: Callable[[], int],
        *,
        keyring: Keyring | None = None,
        throttle: Throttle = unthrottled,
        check: Callable[[], None] = lambda: None,
        threads: int = 1,
    ) -> None:
        self._fs, self._store, self._clock, self._keyring = fs, store, clock, keyring
        self._throttle, self._check, self._threads = throttle, check, threads

    def copy_all(self, jobs: Sequence[CopyJob]) -> Iterator[Copied]:
        """Copy them, `threads` at a time, and yield each as it ends; errors are in the result.

        What isn't an error of that segment alone (the store is down, a lease is lost) is the
        result of all jobs that haven't begun by then.
        """
        stop: list[Exception] = []

        def one(job: CopyJob) -> Copied:
            if stop:
                return Copied(job, error=stop[0])
            try:
                manifest = self.copy(job)
            except (SparklogError, OSError) as error:
                if not isinstance(error, SourceChangedError | DataCorruptionError):
                    stop.append(error)
                return Copied(job, error=error)
            return Copied(job, manifest.segment, manifest.stored_size)

        if self._threads <= 1 or len(jobs) == 1:
            yield from map(one, jobs)
            return
        with ThreadPoolExecutor(self._threads, "sparklog-copier") as pool:
            for done in as_completed([pool.submit(one, job) for job in jobs]):
                yield done.result()

    def copy(self, job: CopyJob) -> Manifest:
        """Upload a segment; what it was resumed from and is whole already stays.

        Raises: SourceChangedError; DataCorruptionError: the local segment is damaged;
        StorageUnavailableError. What was uploaded then is for the caller to remove.
        Cost: a few requests, and a pass over the log; a few MiB of memory.
        """
        if job.resumed:
            found = self._finished(job)
            if found is not None:
                return found
            if self._keyring is not None:  # whoever had the other key may still write
                raise SourceChangedError(
                    f"{job.segment.id}: an encrypted copy is not resumed but made anew"
                )
        key = wrapped = None
        if self._keyring is not None:
            key, wrapped = new_data_key(self._keyring, job.segment.id)
        source = Source(self._fs, job, self._throttle, self._check)
        size = job.segment.size
        pieces: Iterable[Buffer] = source if key is None else key.seal(source, size)
        stored_size = size if key is None else key.stored_size(size)
        stored = _Summed(pieces)
        self._check()
        self._store.put_stream(log_object(job.segment), stored, stored_size)
        parts = self._parts(job, source)
        source.check_unmoved()
        places, body = packed(parts)
        manifest = Manifest(
            segment=job.segment.become(
                SegmentState.COPY_FINISHED,
                max(self._clock(), *(old.time_ms + 1 for old in job.replaces), 0),
            ),
            config=job.config,
            crc32c=source.crc32c,
            stored_size=stored_size,
            stored_crc32c=stored.crc32c,
            parts=places,
            gaps=job.gaps,
            replaces=tuple(old.id for old in job.replaces),
            encryption=wrapped,
        )
        self._check()
        self._store.put(manifest.name, to_bytes(manifest, _sealed(key, body)))
        return manifest

    def _finished(self, job: CopyJob) -> Manifest | None:
        """The manifest of this very copy, if an earlier attempt came so far."""
        name = manifest_object(job.segment)
        self._check()
        try:
            manifest, _ = parse(self._store.get(name), path=name)
        except (FileNotFoundError, DataCorruptionError):
            return None
        found = manifest.segment
        if replace(found, state=job.segment.state, time_ms=job.segment.time_ms) != job.segment:
            return None
        return manifest

    def _parts(self, job: CopyJob, source: "Source") -> dict[str, bytes]:
        segment, fs, directory = job.segment, self._fs, job.directory
        epochs = clipped(read_epochs(fs, directory), end=segment.end)
        parts = {
            ".index": bytes(source.index),
            ".timeindex": bytes(source.timeindex),
            ".snapshot": producers_at(fs, directory, segment.end, log_start=job.log_start),
            "leader-epoch-checkpoint": format_epochs(epochs or segment.epochs),
        }
        if segment.has_txn_index:
            entries = txn_entries(fs, directory, segment.base, end=segment.end)
            parts[".txnindex"] = entries.tobytes()
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
    """The bytes of a local segment, in whole batches; each iter() begins anew.

    After a pass `crc32c` is of all bytes, `index` and `timeindex` are what Kafka would rebuild.
    Raises, from the iterator: SourceChangedError, DataCorruptionError.
    """

    def __init__(
        self, fs: FileSystem, job: CopyJob, throttle: Throttle, check: Callable[[], None]
    ) -> None:
        self._fs, self._job, self._throttle, self._check = fs, job, throttle, check
        self._path = joined(job.directory, log_name(job.segment.base))
        self._identity = self._look()
        self.crc32c = 0
        self.index, self.timeindex = bytearray(), bytearray()

    def __iter__(self) -> Iterator[Buffer]:
        segment, self.crc32c = self._job.segment, 0
        self.index, self.timeindex, state = bytearray(), bytearray(), IndexState()
        at, end = 0, segment.base
        try:
            with self._fs.open(self._path) as file:
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
                        table, segment.base, self._job.interval_bytes, state
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
            raise self._gone() from error
        self.timeindex += final_time_entry(segment.base, state)[0]
        self.check_unmoved()
        if at != segment.size or end > segment.end:
            raise self._torn(at, end, "it holds other batches than its place in the log says")

    def check_unmoved(self) -> None:
        """Raise SourceChangedError unless the path still names the file that was planned for."""
        if self._look() != self._identity:
            raise self._gone()

    def _look(self) -> tuple[int, int]:
        try:
            size = self._fs.size(self._path)
            found = self._fs.identity(self._path)
        except FileNotFoundError as error:
            raise self._gone() from error
        if size != self._job.segment.size:
            raise self._gone()
        return found

    def _gone(self) -> SourceChangedError:
        return SourceChangedError(
            f"{self._path} was retired or replaced while it was copied", path=self._path
        )

    def _torn(self, at: int, end: int, what: str) -> DataCorruptionError:
        return DataCorruptionError(
            f"{what}; it is not copied. Restore the file from a copy",
            path=self._path,
            position=at,
            first=end,
            end=self._job.segment.end,
        )


def producers_at(fs: FileSystem, directory: str, end: int, *, log_start: int) -> bytes:
    """Return the producers' snapshot at offset `end`, where a segment begins.

    The roll wrote it, for plain topics too. Where it is gone or damaged, the state is made again
    as recovery does: from an older one and the log.
    """
    path = joined(directory, snapshot_name(end))
    with suppress(FileNotFoundError, DataCorruptionError):
        raw = read_bytes(fs, path)
        parse_snapshot(raw, path)
        return raw
    state = load_producers(
        fs, directory, end, log_start=log_start, now=0, expiration_ms=_NEVER_EXPIRES
    )
    return format_snapshot(state.entries())
