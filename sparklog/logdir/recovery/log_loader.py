"""Load a partition directory that a broker wrote to, by Kafka's own rules.

After a clean stop no batch is checked. After an unclean stop every batch from the recovery point on
is checked; at the first bad batch the log is cut and all later segments are deleted, because a
broker does the same and its acknowledged data end there. Logs that sparklog wrote are not loaded
this way. Differences from Kafka: segments with overflowing offsets are rejected, not split; without
any snapshot the producer state is replayed from the log, also after a clean stop (a broker then
starts with an empty state and forgets open transactions). Source: LogLoader, UnifiedLog (4.1).
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from sparklog.clock import Clock
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.names import (
    SNAPSHOT,
    index_name,
    log_name,
    parse_base,
    snapshot_name,
    timeindex_name,
)
from sparklog.format.producer_snapshot import ProducerEntry
from sparklog.fs import FileSystem, write_durably
from sparklog.log.producer_state import EXPIRATION_MS, ProducerState
from sparklog.logdir.partition.indexes import txn_entries
from sparklog.logdir.partition.leader_epochs import LeaderEpochFileCache
from sparklog.logdir.partition.producer_snapshots import (
    load_producers,
    snapshot_offsets,
    stray_offsets,
    write_snapshot,
)
from sparklog.logdir.partition.repairs import remove
from sparklog.logdir.partition.segment import Segment
from sparklog.logdir.recovery.leftover_files import finish_swaps, remove_orphans, remove_segment
from sparklog.logdir.recovery.segment_rebuild import (
    NO_LIMIT,
    RebuiltSegment,
    cut_log,
    scan_segment,
    write_indexes,
)
from sparklog.logdir.segment_files import bases_of, joined, segment_bases

_LOGGER: Final = logging.getLogger(__name__)
_TXN_ITEM: Final = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The state of a broker's partition after it was loaded.

    Attributes:
        start: The log start offset.
        local_start: The start of the local segments. Earlier segments are remote.
        end: The log end offset.
        epoch: The newest leader epoch, or -1.
        lso: The last stable offset: all transactions below it are committed or aborted.
        producers: The producer state's entries at the end.
        open_transactions: {producer id: first offset}.
        removed: Descriptions of data that were cut or deleted.
    """

    start: int
    local_start: int
    end: int
    epoch: int
    lso: int
    producers: list[ProducerEntry]
    open_transactions: dict[int, int]
    removed: list[str] = field(default_factory=list)


class _Loader:
    """Loads a partition directory; the methods are in the order of Kafka's LogLoader.load."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        config: TopicConfig,
        clock: Clock,
        log_start: int,
        local_start: int,
    ) -> None:
        self.local_start = local_start
        self.fs, self.path, self.config, self.clock = fs, path, config, clock
        self.log_start = log_start
        self.removed: list[str] = []
        self.epochs = LeaderEpochFileCache(fs, path)

    def producers_at(self, offset: int) -> ProducerState:
        return load_producers(
            self.fs,
            self.path,
            offset,
            log_start=self.log_start,
            now=self.clock(),
            expiration_ms=EXPIRATION_MS,
        )

    def load_files(self) -> None:
        """Remove indexes without a log, and rebuild segments that lack an index.

        Source: loadSegmentFiles.
        """
        remove_orphans(self.fs, self.path)
        for base in segment_bases(self.fs, self.path):
            if not self.fs.exists(joined(self.path, index_name(base))) or self._bad_txns(base):
                self.recover_segment(base)
            elif not self.fs.exists(joined(self.path, timeindex_name(base))):
                write_durably(self.fs, joined(self.path, timeindex_name(base)), b"", sync_dir=False)

    def _bad_txns(self, base: int) -> bool:
        path = joined(self.path, f"{base:020d}.txnindex")
        if not self.fs.exists(path):
            return False
        entries = txn_entries(self.fs, self.path, base, end=NO_LIMIT)
        return len(entries) * _TXN_ITEM != self.fs.size(path)

    def recover_segment(self, base: int) -> bool:
        """Rebuild a segment, cut at the first bad batch. Return True if the segment was cut."""
        before = self.producers_at(base)
        for offset in snapshot_offsets(self.fs.listdir(self.path)):
            if offset > base:  # their state may include batches that are cut now
                remove(self.fs, joined(self.path, snapshot_name(offset)), "to be rebuilt")
        if base > self.log_start and base != segment_bases(self.fs, self.path)[0]:
            self._snapshot(before)
        try:
            found = scan_segment(
                self.fs,
                self.path,
                base,
                producers=before,
                interval_bytes=self.config.index_interval_bytes,
            )
        except InvalidRequestError as error:
            raise DataCorruptionError(
                f"{error}. Let a broker split this segment first",
                path=joined(self.path, log_name(base)),
            ) from error
        self._check_span(found)
        credible = found.epochs.credible(
            self.epochs.entries or None, newest=None, start=max(self.log_start, base), end=found.end
        )
        for run in credible.runs:
            if run.epoch > self.epochs.latest:
                self.epochs.assign(run.epoch, run.first)
        lost = cut_log(self.fs, found, found.error.reason if found.error else "torn")
        write_indexes(self.fs, self.path, found)
        self._snapshot(before)
        if lost:
            self.removed.append(lost)
        return bool(lost)

    def _check_span(self, found: RebuiltSegment) -> None:
        if found.end - found.base > 2**31:
            raise DataCorruptionError(
                "offsets overflow the index. Let a broker split this segment first",
                path=found.path,
                first=found.base,
                end=found.end,
            )

    def _snapshot(self, state: ProducerState) -> None:
        known = snapshot_offsets(self.fs.listdir(self.path))
        if state.end > max(self.log_start, *(o for o in known if o <= state.end), 0):
            with write_snapshot(self.fs, self.path, state) as file:
                file.sync()

    def recover_log(self, recovery_point: int) -> None:
        """Check and rebuild the segments from the recovery point on. Source: recoverLog.

        If a segment is cut at a bad batch, all later segments are deleted.
        """
        bases = segment_bases(self.fs, self.path)
        first = max((base for base in bases if base <= recovery_point), default=0)
        unflushed = [base for base in bases if base >= first]
        for at, base in enumerate(unflushed):
            if self.recover_segment(base):
                self._delete(unflushed[at + 1 :])
                return

    def _delete(self, bases: list[int]) -> None:
        # The highest first, so that a crash leaves no hole.
        for base in reversed(bases):
            remove_segment(self.fs, self.path, base, "it follows the cut")
            self.removed.append(log_name(base))

    def find_end(self) -> int:
        """Return the log end offset. Without any segment, an empty segment is created."""
        bases = segment_bases(self.fs, self.path)
        if bases:
            end = self._open(bases[-1])
            if end >= self.log_start:
                return end
            _LOGGER.warning(
                "%s: ends at %d, below its start %d: starting empty", self.path, end, self.log_start
            )
            self._delete(bases)
            self.epochs.truncate_from_end(0)
            for name in self.fs.listdir(self.path):
                if name.endswith(SNAPSHOT) and parse_base(name) is not None:
                    remove(self.fs, joined(self.path, name), "the log starts empty")
        interval = self.config.index_interval_bytes
        Segment.create(
            self.fs, self.path, self.log_start, interval_bytes=interval, now=self.clock()
        ).close()
        return self.log_start

    def _open(self, base: int) -> int:
        """Open the active segment as a writer does, trim preallocated space, and return its end."""
        segment = Segment.load(
            self.fs,
            self.path,
            base,
            NO_LIMIT,
            interval_bytes=self.config.index_interval_bytes,
            now=self.clock(),
        )
        segment.finish()
        segment.sync(indexes=True)
        segment.close()
        return segment.end

    def finish(self, end: int) -> LoadReport:
        self.epochs.truncate_from_end(end)
        if self.log_start:
            self.epochs.truncate_from_start(self.log_start)
        names = self.fs.listdir(self.path)
        bases = bases_of(names)
        if bases[0] > max(self.log_start, self.local_start):
            self.log_start = bases[0]  # a broker's retention deleted segments without copies
        newest = max((o for o in snapshot_offsets(names) if o <= end), default=end)
        for offset in stray_offsets(names, [*bases, newest], end=end, start=self.log_start):
            remove(self.fs, joined(self.path, snapshot_name(offset)), "no segment begins there")
        producers = self.producers_at(end)
        self._snapshot(producers)
        self.fs.sync_dir(self.path)
        return LoadReport(
            start=self.log_start,
            local_start=bases[0],
            end=end,
            epoch=self.epochs.latest,
            lso=producers.last_stable_offset(),
            producers=producers.entries(),
            open_transactions={pid: first for first, pid in sorted(producers.open_txns.items())},
            removed=self.removed,
        )


def load(
    fs: FileSystem,
    path: str,
    config: TopicConfig,
    clock: Clock,
    *,
    clean: bool,
    recovery_point: int,
    log_start: int,
    local_start: int = 0,
) -> LoadReport:
    """Load a broker's partition directory, with the same changes as at a broker's start.

    Args:
        fs: The file system.
        path: The partition's directory.
        config: The topic's config.
        clock: The clock.
        clean: Whether the broker stopped cleanly.
        recovery_point: The recovery point in the broker's checkpoint file; 0 without an entry.
        log_start: The log start in the broker's checkpoint file; 0 without an entry.
        local_start: Segments below this offset may be missing, because they are in remote storage.

    Raises:
        DataCorruptionError: The epoch checkpoint can't be read, or offsets overflow the index.
    """
    loader = _Loader(fs, path, config, clock, log_start, local_start)
    loader.removed += finish_swaps(fs, path)
    loader.load_files()
    if not clean:
        loader.recover_log(recovery_point)
    return loader.finish(loader.find_end())
