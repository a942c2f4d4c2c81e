"""FULL recovery of a partition: after a power cut, or if the state is unknown otherwise.

The ledger defines the committed end. Below that end every CRC and every offset must be valid; if
not, the partition is damaged: an error names the file and the range, and no file is changed
(Kafka's own recovery would cut there and drop all later data). All data from the end on are
removed. Then indexes, epochs and snapshots are rebuilt. The recovery is idempotent and can be
interrupted at any point. Source: PROTOCOL, "FULL recovery".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from sparklog.clock import Clock, stopwatch
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.index import OFFSET_ENTRY
from sparklog.format.names import (
    SNAPSHOT,
    index_name,
    log_name,
    parse_base,
    snapshot_name,
)
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import walk
from sparklog.log.index_entries import plausible_offsets
from sparklog.log.producer_state import EXPIRATION_MS, ProducerState
from sparklog.logdir.partition.batch_epochs import BatchEpochs, checkpoint_fault
from sparklog.logdir.partition.indexes import hint, read_entries
from sparklog.logdir.partition.leader_epochs import read_epochs, repair_epochs
from sparklog.logdir.partition.partition_log import FOREIGN
from sparklog.logdir.partition.producer_snapshots import (
    floor_of,
    load_producers,
    snapshot_offsets,
    stray_offsets,
)
from sparklog.logdir.partition.repairs import remove, replace
from sparklog.logdir.partition.segment import Segment
from sparklog.logdir.recovery.leftover_files import finish_swaps, remove_orphans, remove_segment
from sparklog.logdir.recovery.segment_rebuild import (
    RebuiltSegment,
    cut_log,
    scan_segment,
    write_indexes,
)
from sparklog.logdir.segment_files import bases_of, joined, segment_bases
from sparklog.storage.leader_epochs import assigned, clipped

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedState:
    """The committed state of a partition, according to the ledger.

    Attributes:
        end: The log end offset.
        start: The log start offset.
        local_start: Segments below this offset need not be local, if it is above `start`.
        recovery_point: Data below this offset were synced.
        epoch: The log's leader epoch, which no batch exceeds, if known.
        tail_crc: The CRC field of the last batch; -1 if unknown.
    """

    end: int
    start: int = 0
    local_start: int = 0
    recovery_point: int = 0
    epoch: int | None = None
    tail_crc: int = -1

    @property
    def needed(self) -> int:
        """The first offset that local segments must contain.

        That is the local log start, or the log start if that is higher.
        """
        return max(self.start, self.local_start)

    def missing_segments(self, path: str, bases: list[int]) -> DataCorruptionError | None:
        """Return an error if no segment in `bases` contains the first needed offset, else None."""
        first = bases[0] if bases else self.end
        if bases and first <= self.needed:
            return None
        return DataCorruptionError(
            "the segments of these offsets are missing; restore them from a copy",
            path=path,
            first=self.needed,
            end=first,
        )


@dataclass(slots=True)
class RecoveryReport:
    """The result of a partition's recovery.

    Attributes:
        start: The log start offset.
        end: The log end offset.
        scanned_bytes: The number of bytes that were read and checked.
        removed: Descriptions of data that were cut or deleted.
        rebuilt: The base offsets of segments with rebuilt indexes.
        took_ms: The duration of the recovery.
    """

    start: int
    end: int
    scanned_bytes: int = 0
    removed: list[str] = field(default_factory=list)
    rebuilt: list[int] = field(default_factory=list)
    took_ms: int = 0

    def note(self, what: str) -> None:
        """Add a description of removed data to `removed`, unless it is empty."""
        if what:
            self.removed.append(what)

    def log(self, path: str, took_ms: int) -> None:
        """Set the duration of the recovery, and log the report."""
        self.took_ms = took_ms
        _LOGGER.info(
            "%s: recovered [%d, %d) in %d ms, %d bytes read, segments %s rebuilt",
            path, self.start, self.end, took_ms, self.scanned_bytes, self.rebuilt,
        )  # fmt: skip


@dataclass(slots=True)
class _Plan:
    """The files to write once all data were checked.

    Attributes:
        scanned: The segments that were read, with their new indexes.
        snapshots: {offset: contents} of the producer snapshots.
    """

    scanned: list[RebuiltSegment] = field(default_factory=list)
    snapshots: dict[int, bytes] = field(default_factory=dict)


def recover(
    fs: FileSystem,
    path: str,
    config: TopicConfig,
    clock: Clock,
    expected: CommittedState,
    *,
    remaining: Callable[[int], None] = lambda _: None,
    check_only: bool = False,
) -> RecoveryReport:
    """Recover a partition: check the committed data, remove all other data, rebuild the rest.

    Segments are checked from the one that contains the recovery point. The indexes, leader epochs
    and producer snapshots are rebuilt.

    Args:
        fs: The file system.
        path: The partition's directory.
        config: The topic's config.
        clock: The clock.
        expected: The committed state, which the partition has after the recovery.
        remaining: Called with the number of segments that are still to be read.
        check_only: Raise the errors of a recovery, and change no file.

    Cost: a CRC pass from the recovery point, and over segments without a valid index.

    Raises:
        DataCorruptionError: Committed data are damaged or missing; no file was cut.
    """
    watch, log_start, end = stopwatch(), expected.start, expected.end
    report = RecoveryReport(log_start, end)
    live = _listed(fs, path, expected, check_only=check_only)
    first = max(log_start, live[0]) if live else log_start
    epochs = _known_epochs(fs, path)
    point = expected.recovery_point if epochs is not None else -1
    # The base of the recovery point's segment, or of the first segment. If the epochs can't be
    # read, the point is -1: all segments are read, because the batches contain the epochs.
    from_base = max((b for b in live if b <= point), default=live[0] if live else end)
    plan = _Plan()
    producers: ProducerState | None = None
    loaded = partial(load_producers, fs, path, now=clock(), expiration_ms=EXPIRATION_MS)
    unsure = {b for b in live if b >= from_base or not _has_index(fs, path, b, config)}
    for at, base in enumerate(live):
        if base not in unsure:
            producers = None
            continue
        remaining(len(unsure) - len(plan.scanned))
        limit = live[at + 1] if at + 1 < len(live) else end
        if producers is None:
            producers = loaded(base, log_start=floor_of(log_start, live))
        if base > first:
            plan.snapshots[base] = format_snapshot(producers.entries())
        plan.scanned.append(_checked(fs, path, base, limit, producers, config, last=limit == end))
    remaining(0)
    _check_tail(plan, end, expected.tail_crc)
    # From here on files change. All errors were raised before, so that damage never leads to a cut.
    if check_only:
        return report
    if not live and expected.needed > log_start:  # all segments are remote, producers still count
        producers = loaded(end, log_start=log_start)
    if producers is not None and (not live or end > first):
        plan.snapshots[end] = format_snapshot(producers.entries())
    report.start = end if producers is None and not live else log_start
    _remove_retired(fs, path, live[0] if live else end)
    _remove_past(fs, path, end, report)
    _write(fs, path, plan, report)
    _write_epochs(fs, path, epochs or [], plan, expected, from_base)
    _ensure_active(fs, path, config, clock, end=end)
    _write_snapshots(fs, path, plan, report)
    fs.sync_dir(path)
    report.log(path, watch())
    return report


def _listed(
    fs: FileSystem, path: str, expected: CommittedState, *, check_only: bool
) -> list[int]:
    """Return the base offsets of the needed segments, after completing interrupted swaps.

    With `check_only` swaps are not completed: segments of an interrupted swap count as missing.

    Raises:
        DataCorruptionError: Needed segments are missing.
    """
    if not check_only:
        finish_swaps(fs, path)
    live = _wanted(segment_bases(fs, path), expected.needed, expected.end)
    error = expected.missing_segments(path, [*live, expected.end])  # no record, no segment
    if error is not None:
        raise error
    return live


def _wanted(bases: list[int], needed: int, end: int) -> list[int]:
    """Return the bases of the segments that contain offsets of [needed, end).

    Retention may have deleted lower segments before a power cut, in any order.
    """
    live = [base for base in bases if base < end]
    limits = [*live[1:], end]
    return [base for base, limit in zip(live, limits, strict=False) if limit > needed]


def _known_epochs(fs: FileSystem, path: str) -> Epochs | None:
    try:
        return read_epochs(fs, path)
    except DataCorruptionError as error:
        _LOGGER.warning("%s; rebuilding it from the log", error)
        return None


def _has_index(fs: FileSystem, path: str, base: int, config: TopicConfig) -> bool:
    """Return True if a segment's offset index is plausible, so that it need not be rebuilt.

    Used for segments below the recovery point, whose data are durable.
    """
    name = joined(path, index_name(base))
    if not fs.exists(name) or fs.size(name) % OFFSET_ENTRY.itemsize:
        return False
    size = fs.size(joined(path, log_name(base)))
    entries = read_entries(fs, name, OFFSET_ENTRY)
    if not len(entries):
        # A small segment has no entry yet; the empty index of a large segment lost its entries.
        return size <= 2 * (config.index_interval_bytes + config.max_message_bytes)
    return plausible_offsets(entries, size=size, span=2**31) == len(entries)


def _checked(
    fs: FileSystem,
    path: str,
    base: int,
    limit: int,
    producers: ProducerState,
    config: TopicConfig,
    *,
    last: bool,
) -> RebuiltSegment:
    """Scan a segment, and raise DataCorruptionError unless it is intact up to offset `limit`.

    Args:
        fs: The file system.
        path: The partition's directory.
        base: The base offset of the segment.
        limit: The base offset of the next segment, or the log end offset.
        producers: The producer state at `base`, which is advanced to `limit`.
        config: The topic's config. Offsets may be missing in a compacted topic.
        last: Whether this is the last segment with records.
    """
    found = scan_segment(
        fs,
        path,
        base,
        producers=producers,
        interval_bytes=config.index_interval_bytes,
        limit=limit,
        gaps=config.compact,
    )
    short = found.end < limit and (found.error is not None or not config.compact or last)
    if config.compact and last and found.error is None and found.size == found.disk_bytes:
        # The cleaner may have removed the last batches of a log with an empty active segment.
        short = short and not fs.exists(joined(path, log_name(limit)))
    if short:
        reason = found.error.reason if found.error else "the file ends too early"
        at = found.error.position if found.error else found.size
        raise DataCorruptionError(
            f"{reason}; committed records are damaged. Restore the file from a copy",
            path=found.path,
            position=at,
            first=found.end,
            end=limit,
        )
    producers.end = limit
    return found


def _check_tail(plan: _Plan, end: int, tail_crc: int) -> None:
    """Raise DataCorruptionError if the last batch differs from the committed batch."""
    last = plan.scanned[-1] if plan.scanned else None
    # Valid batches up to the right offset are no proof: a restored copy of the directory may have
    # a different history. The ledger has the CRC of the last batch that was committed.
    if last is None or last.end != end or -1 in (last.tail_crc, tail_crc):
        return
    if last.tail_crc != tail_crc:
        raise DataCorruptionError(FOREIGN, path=last.path, first=last.base, end=end)


def _remove_retired(fs: FileSystem, path: str, first: int) -> None:
    """Remove the segments below `first`, the base of the first needed segment.

    Retention has deleted them. But a power cut may have preserved only some of its renames to
    `.deleted`, so that logs without indexes and holes between segments remain.
    """
    for base in segment_bases(fs, path):
        if base < first:
            remove_segment(fs, path, base, "it is below the log start")


def _remove_past(fs: FileSystem, path: str, end: int, report: RecoveryReport) -> None:
    """Remove all segments with a base after `end`, the highest first; empty a segment at `end`.

    The removed data are noted in the report.
    """
    doomed = []
    for name in fs.listdir(path):
        base = parse_base(name)
        if base is not None and not name.endswith(SNAPSHOT) and base > end:
            doomed.append((base, name))
    why = f"past the committed end {end}"
    for _, name in sorted(doomed, reverse=True):
        report.note(remove(fs, joined(path, name), why))
    if end in segment_bases(fs, path):
        # The segment was rolled at the committed end: the file stays, as the active segment.
        empty = RebuiltSegment(joined(path, log_name(end)), end)
        report.note(cut_log(fs, empty, why))
        write_indexes(fs, path, empty)
    remove_orphans(fs, path)


def _write(fs: FileSystem, path: str, plan: _Plan, report: RecoveryReport) -> None:
    for found in plan.scanned:
        report.note(cut_log(fs, found, "past the committed end"))
        write_indexes(fs, path, found)
        report.scanned_bytes += found.size
        report.rebuilt.append(found.base)


def _write_epochs(
    fs: FileSystem,
    path: str,
    known: Epochs,
    plan: _Plan,
    expected: CommittedState,
    from_base: int,
) -> None:
    end = expected.end
    start, known = max(expected.start, from_base), clipped(known, end=end)
    rebuilt = [found for found in plan.scanned if found.base >= from_base]
    scanned = [run for found in rebuilt for run in found.epochs.runs]
    credible = BatchEpochs(scanned).credible(
        known or None, newest=expected.epoch, start=start, end=end
    )
    for run, reason in credible.doubtful:
        _LOGGER.warning("%s at byte %d: %s; it is ignored", run.path, run.position, reason)
    entries = known
    if not known or checkpoint_fault(known, credible.runs, start, end) is not None:
        entries = clipped(known, end=from_base)
        for run in credible.runs:
            if not entries or run.epoch > entries[-1][0]:
                entries = assigned(entries, run.epoch, run.first)
    repair_epochs(fs, path, clipped(entries, start=expected.start, end=end))


def _ensure_active(
    fs: FileSystem, path: str, config: TopicConfig, clock: Clock, *, end: int
) -> None:
    """Create an empty segment at the log's end if the partition has no segment."""
    bases = segment_bases(fs, path)
    if not bases:
        Segment.create(
            fs, path, end, interval_bytes=config.index_interval_bytes, now=clock()
        ).close()


def _write_snapshots(fs: FileSystem, path: str, plan: _Plan, report: RecoveryReport) -> None:
    names = fs.listdir(path)
    stray = stray_offsets(names, bases_of(names), end=report.end, start=report.start)
    known = snapshot_offsets(names)
    for offset in reversed(known):
        if offset in stray:
            remove(fs, joined(path, snapshot_name(offset)), "no segment starts there")
    for offset, data in sorted(plan.snapshots.items()):
        replace(fs, joined(path, snapshot_name(offset)), data)


def valid_end(fs: FileSystem, path: str, first: int) -> int:
    """Return the offset up to which complete, valid, gapless batches follow `first`.

    Returns `first` if there is no such batch. Cost: a CRC pass from `first` on.
    """
    at = first
    for base in segment_bases(fs, path):
        if base > at:
            break
        with fs.open(joined(path, log_name(base))) as file:
            start = hint(fs, path, base, file, at) if at > base else 0
            for window in walk(file, start=start):
                table = window.batches.table
                table = table[table["last_offset"] >= at]
                follows = table["base_offset"][1:] == table["last_offset"][:-1] + 1
                if not len(table) or int(table["base_offset"][0]) > at:
                    continue
                whole = len(table) if follows.all() else int(np.argmin(follows)) + 1
                at = int(table["last_offset"][whole - 1]) + 1
    return at
