"""Tiering status per partition: local, remote, pending, lag. Reads only."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import PartitionOfflineError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.due_segments import LocalSegment, largest_timestamps
from sparklog.log.partition_reader import reader_of
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.paths import split_path
from sparklog.logdir.retention.partition_retention import segments_of
from sparklog.logdir.view import LogDirView
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import TopicInfo
from sparklog.tiered.archive.opening import Path
from sparklog.tiered.copying.plan import segments_to_copy, valid_copies
from sparklog.tiered.encryption.policy import key_id_of
from sparklog.tiered.layout.manifest import directory_of
from sparklog.tiered.object_store.object_store import PART_BYTES
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_log_metadata.rebuild import find
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tiered.settings import read_settings, settings_missing
from sparklog.tiered.target import open_store

_SMALL_REQUESTS: Final = 2  # a PUT each for log and manifest
_MULTIPART_REQUESTS: Final = 3  # start, complete, and the manifest's PUT


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTier:
    """The local and remote segments of a partition.

    Sizes are the sizes of `.log` files in bytes. Each end is the offset after the last record.

    Attributes:
        topic: The topic.
        partition: The partition's number.
        enabled: Whether the topic is tiered.
        log_start: The log start offset.
        local_start: The first offset, from the log start on, in a local segment; the end of the
            log without local segments.
        end: The end of the log.
        local_segments: The number of local segments.
        local_bytes: The size of the local segments.
        remote_start: The first offset, from the log start on, with a copy; None without copies.
        remote_end: The end of the copies; None without copies.
        remote_segments: The number of copies that end above the log start.
        remote_bytes: The size of these copies.
        pending_segments: The number of closed segments that wait to be copied.
        pending_bytes: The size of these segments.
        lag_ms: The age of the latest record in the oldest of these segments; 0 without them.
        unfinished: The number of copies and deletions in progress.
        puts: The number of requests that copying the remote segments takes, from their sizes.
    """

    topic: str
    partition: int
    enabled: bool
    log_start: int
    local_start: int
    end: int
    local_segments: int
    local_bytes: int
    remote_start: int | None
    remote_end: int | None
    remote_segments: int
    remote_bytes: int
    pending_segments: int
    pending_bytes: int
    lag_ms: int
    unfinished: int
    puts: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TierStatus:
    """The state of a log's remote storage.

    Attributes:
        url: The URL of the bucket; None if the log has no remote storage.
        partitions: The segments of each partition.
        key_id: The id of the key that encrypts new copies. "" if new copies are not encrypted, None
            if no service has determined it yet.
        keys: {topic: {key id: number of copies}}, where "" stands for copies that are not
            encrypted; None if not requested.
    """

    url: str | None
    partitions: list[PartitionTier]
    key_id: str | None = None
    keys: dict[str, dict[str, int]] | None = None


def status(path: Path, *, fs: FileSystem = LOCAL, clock: Clock = system_clock) -> TierStatus:
    """Return local, remote, pending and lagging segments, without requests to the object store.

    Topics without remote storage are left out unless they have remote segments. Cost: a listing of
    each partition's directory, and reading the metadata topic.

    Raises:
        InvalidRequestError: There is no log at the path.
        DataCorruptionError: The settings or the metadata are damaged, or the settings are missing.
    """
    directories = split_path(path)
    settings = read_settings(fs, directories[0])
    view = LogDirView(fs, directories)
    cache = RemoteLogMetadataConsumer(LogDirView(fs, directories), clock).catch_up()
    partitions = []
    for info in view.topics().values():
        for partition in sorted(info.dirs):
            key = TopicIdPartition(info.id, partition)
            known = cache.all(key)
            if known or info.config.remote_storage_enable:
                readable = cache.readable(key)
                partitions.append(_partition(fs, view, clock, info, partition, known, readable))
    if settings is None:
        if any(row.remote_segments for row in partitions):
            raise settings_missing(directories[0])
        return TierStatus(None, partitions)
    return TierStatus(settings.url, partitions, settings.key_id)


def keys_of(
    path: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> dict[str, dict[str, int]]:
    """Return {topic: {key id: number of copies}} of a log's copies in the store.

    The id of plain copies is "". Cost: a listing of each partition's prefix, and a GET per copy.

    Raises:
        StorageUnavailableError: The store can't be read.
    """
    directories = split_path(path)
    settings = read_settings(fs, directories[0])
    if settings is None:
        return {}
    store = store or open_store(settings.url, storage_options)
    cache = RemoteLogMetadataConsumer(LogDirView(fs, directories), clock).catch_up()
    known = [cache.all(key)[0] for key in cache.keys()]  # noqa: SIM118
    where = {directory_of(copy) for copy in known}
    counts: dict[str, Counter[str]] = {}
    for manifest in find(store, sorted(where, key=str)).manifests:
        counts.setdefault(manifest.segment.topic, Counter())[key_id_of(manifest)] += 1
    return {topic: dict(sorted(found.items())) for topic, found in sorted(counts.items())}


def _partition(
    fs: FileSystem,
    view: LogDirView,
    clock: Clock,
    info: TopicInfo,
    partition: int,
    known: list[RemoteSegment],
    readable: list[RemoteSegment],
) -> PartitionTier:
    key = TopicPartition(info.name, partition)
    log_start, end = view.spans([key])[key]
    path = info.dirs[partition]
    try:
        local = segments_of(fs, path)
    except FileNotFoundError:  # offline: the remote segments are known anyway
        local = []
    epochs = read_epochs(fs, path)
    copies = valid_copies(readable, epochs, end=end) if epochs else readable
    live = [copy for copy in copies if copy.end > log_start]
    begun = [s for s in known if s.state is SegmentState.COPY_STARTED]
    stable = end
    with contextlib.suppress(StaleReadError, PartitionOfflineError):
        stable = reader_of(view, *key).last_stable_offset(end)
    waiting = segments_to_copy(local, copies, info.config, log_start=log_start, stable=stable)
    return PartitionTier(
        topic=info.name,
        partition=partition,
        enabled=info.config.remote_storage_enable,
        log_start=log_start,
        local_start=max(log_start, local[0].base) if local else end,
        end=end,
        local_segments=len(local),
        local_bytes=sum(held.size for held in local),
        remote_start=max(log_start, live[0].base) if live else None,
        remote_end=live[-1].end if live else None,
        remote_segments=len(live),
        remote_bytes=sum(copy.size for copy in live),
        pending_segments=len(waiting),
        pending_bytes=sum(segment.size for segment in waiting),
        lag_ms=_lag(fs, clock, path, local, waiting[0].base if waiting else None, end),
        unfinished=len(begun) + sum(s.state is SegmentState.DELETE_STARTED for s in known),
        puts=sum(_puts(copy.size) for copy in live),
    )


def _lag(
    fs: FileSystem, clock: Clock, path: str, local: list[LocalSegment], base: int | None, end: int
) -> int:
    """Return the age (ms) of the last record in the oldest segment that waits to be copied.

    Returns 0 if no segment waits.

    Args:
        fs: The file system.
        clock: The clock.
        path: The partition's directory.
        local: The local segments.
        base: The base offset of the oldest waiting segment, if any.
        end: The end of the log.
    """
    if base is None or not any(held.base == base for held in local):
        return 0
    return max(0, clock() - largest_timestamps(LogDirSegments(fs, path), end)(base))


def _puts(size: int) -> int:
    parts = -(-size // PART_BYTES)
    return _SMALL_REQUESTS if parts <= 1 else parts + _MULTIPART_REQUESTS


def by_topic(rows: list[PartitionTier]) -> Iterator[Mapping[str, Any]]:
    """Yield a dict per topic: the sums of its partitions' sizes and counts, and the largest lag."""
    names = sorted({row.topic for row in rows})
    sums = (
        "local_segments", "local_bytes", "remote_segments", "remote_bytes",
        "pending_segments", "pending_bytes", "unfinished", "puts",
    )  # fmt: skip
    for name in names:
        mine = [row for row in rows if row.topic == name]
        yield {
            "topic": name,
            "enabled": mine[0].enabled,
            "partitions": len(mine),
            **{field: sum(getattr(row, field) for row in mine) for field in sums},
            "lag_ms": max(row.lag_ms for row in mine),
        }
