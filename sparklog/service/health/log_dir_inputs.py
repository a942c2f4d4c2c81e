"""Collects the health inputs of log dirs: observed metrics, locks, disks, dirty partitions."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.format.names import log_name
from sparklog.fs import FileSystem, Volume, read_bytes
from sparklog.log.dirty_ratio import CompactedLog, find_dirt
from sparklog.log.due_segments import LocalSegment, largest_timestamps
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir import lease
from sparklog.logdir.detection import has_lost_ledger
from sparklog.logdir.erasures_file import LOCK_NAME as ERASING_NAME
from sparklog.logdir.erasures_file import unfinished_erasures
from sparklog.logdir.free_space import SPARE_BYTES
from sparklog.logdir.ledger import has_ledger
from sparklog.logdir.lock import LOCK_NAME, State, peek
from sparklog.logdir.offset_checkpoints import CLEANER, read_offsets
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.logdir.segment_files import joined
from sparklog.service.health.disk_forecast import Ages, DiskForecast, forecast
from sparklog.service.health.formatting import duration_text
from sparklog.service.health.inputs import Dirty, HealthInputs, Leader, leader_of
from sparklog.service.health.limits import Limits
from sparklog.service.metrics.observed import DirectoryMetrics, LogMetrics
from sparklog.service.metrics.offline_directories import offline_reason
from sparklog.storage.round_report import Dirt

_AGES_MAX: Final = 2000  # look up record timestamps of so many segments; then use file times


def log_dir_inputs(
    path: str,
    directories: Sequence[str],
    found: LogMetrics,
    limits: Limits,
    fs: FileSystem,
    *,
    faults: tuple[str | None, list[str]],
) -> HealthInputs:
    """Collect the health inputs of a log dir.

    Args:
        found: the metrics of the log.
        faults: why the commit ledger cannot be opened (None: it can), and why reads fail.

    Cost: a few stats, and two per compacted partition.
    """
    inputs = HealthInputs(
        path=path,
        kind="log" if _is_ours(fs, directories[0]) else "broker",
        limits=limits,
        found=found,
    )
    inputs.unwritable = list(_unwritable(fs, directories[0], found.directories))
    inputs.ledger_fault, inputs.unreadable = faults
    if inputs.ledger_fault is not None:
        inputs.unwritable.append(inputs.ledger_fault)
    held = _held_lock(fs, directories[0], found.time_ms - limits.lock_ms)
    if held is not None and not inputs.unwritable:
        silent = duration_text(found.time_ms - held[1])
        inputs.unwritable = [f"process {held[0]} has held the write lock for {silent}"]
        inputs.lock_holder = held[0]
    if inputs.kind == "log" and not inputs.is_known and not inputs.unwritable:
        inputs.unwritable = [f"its state can't be read: {found.errors[0]}"]
    inputs.read_only = _read_only(fs, directories)
    inputs.leader = _leader(fs, directories[0])
    topics = {one.topic for one in found.partitions}
    # Without read permission, other checks fail and report it.
    with contextlib.suppress(SparklogError, OSError):
        unfinished = unfinished_erasures(fs, directories[0])
        inputs.erasures = [erasure for erasure in unfinished if erasure.topic in topics]
    inputs.is_erasing = bool(inputs.erasures) and fs.is_locked(
        joined(directories[0], ERASING_NAME), 0, 1
    )
    inputs.disks = list(_disks(fs, found))
    places = found.detail.places
    compacted = {key: place for key, place in places.items() if place.config.compact}
    inputs.compacted = sum(key.topic not in INTERNAL for key in compacted)
    inputs.dirty = list(_dirty(fs, compacted, found)) if inputs.kind == "log" else []
    return inputs


def _is_ours(fs: FileSystem, home: str) -> bool:
    return has_ledger(fs, home) or has_lost_ledger(fs, home)


def _unwritable(
    fs: FileSystem, home: str, directories: Sequence[DirectoryMetrics]
) -> Iterator[str]:
    """Yield reasons why commits fail or will fail."""
    for directory in directories:
        reason = offline_reason(home, directory)
        volume = _volume(fs, directory.directory)
        if reason:
            yield f"log dir {directory.directory} is offline: {reason}"
        elif directory.free_bytes is not None and directory.free_bytes < SPARE_BYTES:
            yield f"{directory.directory} has {directory.free_bytes} bytes free"
        elif volume is not None and volume.is_read_only:
            yield f"{directory.directory} is mounted read-only"


def _read_only(fs: FileSystem, directories: Sequence[str]) -> str | None:
    """Return the first path that a commit writes to and this user has no permission to write."""
    lock = os.path.join(directories[0], LOCK_NAME)
    places = [*directories, *([lock] if fs.exists(lock) else [])]
    return next((place for place in places if not fs.may_write(place)), None)


def _held_lock(fs: FileSystem, home: str, before_ms: int) -> tuple[int, int] | None:
    """Return (pid, since when) of a writer that has been in a commit since before `before_ms`.

    A writer in recovery is not returned: a recovery may take that long, and the lock file marks it.
    """
    path = os.path.join(home, LOCK_NAME)
    try:
        page = peek(fs, home)
        if page is None or page.state is not State.BUSY or not fs.is_locked(path, 0, 1):
            return None
        since_ms = fs.mtime_ms(path)
    except (SparklogError, OSError):
        return None
    return (page.pid, since_ms) if since_ms < before_ms else None


def _volume(fs: FileSystem, directory: str) -> Volume | None:
    try:
        return fs.volume(directory)
    except (SparklogError, OSError):
        return None


def _leader(fs: FileSystem, home: str) -> Leader | None:
    path = joined(home, lease.NAME)
    try:
        alive = fs.is_locked(path, 0, 1)
        said = json.loads(read_bytes(fs, path) or b"{}")
    except (OSError, ValueError, SparklogError):
        return None
    return leader_of(said, alive) if isinstance(said, dict) and said else None


# --- disks ---------------------------------------------------------------------------------------


def _disks(fs: FileSystem, found: LogMetrics) -> Iterator[DiskForecast]:
    """Yield a forecast for each disk, with the log dirs on that volume."""
    disks: dict[int, list[DirectoryMetrics]] = {}
    for one in found.directories:
        if one.free_bytes is not None:
            try:
                disks.setdefault(fs.identity(one.directory)[0], []).append(one)
            except (SparklogError, OSError):
                continue
    ages = _ages(fs)
    for mine in disks.values():
        names = [one.directory for one in mine]
        places = {
            key: place
            for key, place in found.detail.places.items()
            if os.path.dirname(place.directory) in names
        }
        volume = _volume(fs, names[0])
        yield forecast(
            names, min(one.free_bytes or 0 for one in mine),
            None if volume is None else volume.total_bytes, places, found.detail.held,
            found.detail.trail, ages=ages, now_ms=found.time_ms,
        )  # fmt: skip


def _ages(fs: FileSystem) -> Ages:
    left = _AGES_MAX

    def age(place: PartitionRetention, base: int) -> int:
        nonlocal left
        left -= 1
        try:
            if left >= 0:
                return largest_timestamps(LogDirSegments(fs, place.directory), place.end)(base)
            return fs.mtime_ms(joined(place.directory, log_name(base)))
        except (SparklogError, OSError):
            return 2**63 - 1  # unreadable: assume that retention does not delete the segment

    return age


# --- the cleaner ---------------------------------------------------------------------------------


def _dirty(
    fs: FileSystem, compacted: Mapping[TopicPartition, PartitionRetention], found: LogMetrics
) -> Iterator[Dirty]:
    """Yield the partitions that the cleaner would clean now, by Kafka's rule."""
    checkpoints: dict[str, dict[TopicPartition, int]] = {}
    for key, place in compacted.items():
        segments = found.detail.held.get(key)
        if not segments:
            continue
        home = os.path.dirname(place.directory)
        try:
            if home not in checkpoints:
                checkpoints[home] = read_offsets(fs, home, CLEANER)
            dirt = _dirt(fs, place, segments, checkpoints[home].get(key), found.time_ms)
            if dirt.wants_cleaning(place.config):
                waits_ms = max(dirt.overdue_ms, _waits_ms(fs, place, segments, dirt, found))
                yield Dirty(key, dirt.ratio, dirt.cleanable_bytes, waits_ms)
        except (SparklogError, OSError):
            continue  # damaged or just changing; other checks report lasting damage


def _dirt(
    fs: FileSystem,
    place: PartitionRetention,
    segments: Sequence[LocalSegment],
    checkpoint: int | None,
    now_ms: int,
) -> Dirt:
    """Return how dirty a partition is. Uses file times where the cleaner uses record timestamps."""

    def changed(base: int) -> int:
        return fs.mtime_ms(joined(place.directory, log_name(base)))

    log = CompactedLog(
        config=place.config, segments=segments, checkpoint=checkpoint,
        log_start=place.log_start, end=place.end, stable=place.end,
    )  # fmt: skip
    return find_dirt(log, now_ms=now_ms, largest=changed, earliest=changed)


def _waits_ms(
    fs: FileSystem,
    place: PartitionRetention,
    segments: Sequence[LocalSegment],
    dirt: Dirt,
    found: LogMetrics,
) -> int:
    """Return how long ago the last cleanable segment was closed, in ms."""
    closed = [s.base for s in segments if s.base < dirt.first_uncleanable]
    if not closed:
        return 0
    return max(0, found.time_ms - fs.mtime_ms(joined(place.directory, log_name(closed[-1]))))
