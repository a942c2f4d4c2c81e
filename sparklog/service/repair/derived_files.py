"""Rebuilds indexes, snapshots and checkpoints from a partition's log, and renames them into place.

The caller has acquired the log's write lock: the log must not grow during the repair, and other
writers must reopen their files, which a new generation of the lock's page makes them do.
"""

import contextlib
import itertools
import os
from typing import Final

from sparklog.clock import Clock
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs, format_partition_metadata
from sparklog.format.names import (
    TXNINDEX,
    index_name,
    log_name,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.fs import FileSystem
from sparklog.log.producer_state import ProducerState
from sparklog.logdir.partition.leader_epochs import read_epochs, repair_epochs
from sparklog.logdir.partition.producer_snapshots import load_producers
from sparklog.logdir.partition.repairs import replace
from sparklog.logdir.quarantined_files import QuarantinedFiles
from sparklog.logdir.recovery.segment_rebuild import RebuiltSegment, scan_segment
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.service.verification.findings import Findings, Fix, FixKind
from sparklog.service.verification.leader_epochs import EpochCheck
from sparklog.service.verification.log_dir_state import NO_LIMIT, ExpectedPartition
from sparklog.service.verification.segment import SegmentWalk
from sparklog.storage.leader_epochs import assigned, clipped

_DEFAULT_INTERVAL: Final = 4096


class DerivedFiles:
    """Rebuilds files of a partition from its log; appends a message to `done` for each file."""

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        log_dir: str,
        quarantine: QuarantinedFiles,
        done: list[str],
        *,
        clock: Clock,
        expiration_ms: int,
    ) -> None:
        self._fs, self._part, self._log_dir = fs, part, log_dir
        self._quarantine, self._done = quarantine, done
        self._clock, self._expiration_ms = clock, expiration_ms
        self._scanned: dict[int, RebuiltSegment] = {}

    def apply_fix(self, fix: Fix, topic_id: str | None) -> None:
        """Carry out a fix, as far as the files still exist."""
        match fix.kind:
            case FixKind.INDEXES:
                self._indexes(fix.path, fix.offset)
            case FixKind.SNAPSHOT:
                self._snapshot(fix.path, fix.offset)
            case FixKind.EPOCHS:
                repair_epochs(self._fs, self._part.path, self._epochs())
                self._done.append(f"rebuilt {fix.path}")
            case FixKind.METADATA if topic_id is not None:
                self._quarantine.move(fix.path, self._log_dir)
                metadata = format_partition_metadata(topic_id, self._part.partition)
                self._replace(fix.path, metadata)
            case FixKind.ASIDE:
                self._quarantine.move(fix.path, self._log_dir)
            case FixKind.TAIL:
                self._quarantine.move_tail(fix.path, self._log_dir, fix.offset)
            case FixKind.SEGMENT_ASIDE:
                self._set_aside_up_to(fix.offset)

    def _replace(self, path: str, data: bytes | bytearray) -> None:
        replace(self._fs, path, data, sync_dir=True)
        self._done.append(f"rebuilt {path}")

    # -- indexes

    def _indexes(self, path: str, base: int) -> None:
        if not self._fs.exists(joined(self._part.path, log_name(base))):
            return  # deleted by retention or compaction
        found, limit = self._scan(base)
        if found.error is not None and found.end < limit:
            return  # the log is damaged, so the old index has more entries
        contents = found.index_files[os.path.basename(path)]
        if contents or not path.endswith(TXNINDEX):
            self._replace(path, contents)
        else:
            self._quarantine.move(path, self._log_dir)  # Kafka has no empty transaction index

    def _scan(self, base: int) -> tuple[RebuiltSegment, int]:
        """Return the content of a segment, and the offset at which it must end."""
        part = self._part
        bases = segment_bases(self._fs, part.path)
        limit = min([part.end, *(b for b in bases if b > base)])
        interval = part.interval_bytes
        if base not in self._scanned:
            self._scanned[base] = scan_segment(
                self._fs,
                part.path,
                base,
                producers=self._producers(base, bases[0]),
                interval_bytes=_DEFAULT_INTERVAL if interval is None else interval,
                limit=limit,
                gaps=part.gaps_below > 0,
            )
        return self._scanned[base], limit

    def _producers(self, offset: int, first: int, *, expire: bool = False) -> ProducerState:
        return load_producers(
            self._fs,
            self._part.path,
            offset,
            log_start=first - 1,  # the first segment's snapshot counts as well
            now=self._clock() if expire else 0,
            expiration_ms=self._expiration_ms if expire else NO_LIMIT,
        )

    # -- snapshots, epochs

    def _snapshot(self, path: str, offset: int) -> None:
        self._quarantine.move(path, self._log_dir)
        bases = segment_bases(self._fs, self._part.path)
        if not bases or offset <= bases[0]:
            return  # the records before the first segment are unknown
        state = self._producers(offset, bases[0], expire=True)
        self._replace(
            joined(self._part.path, snapshot_name(offset)), format_snapshot(state.entries())
        )

    def _epochs(self) -> Epochs:
        """Return the leader epochs of the log's batches, ignoring damaged batches."""
        part, check, nobody = self._part, EpochCheck(self._part), Findings()
        bases = [base for base in segment_bases(self._fs, part.path) if base <= part.end]
        expected = bases[0] if bases else 0
        for at, base in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            check.begin(joined(part.path, log_name(base)))
            walk = SegmentWalk(self._fs, part, base, nobody, following=following, expected=expected)
            expected = max(walk.run([check]).end, following or 0)
        entries: Epochs = []
        if bases and bases[0] > part.start:  # keep the epochs of batches that are only remote
            with contextlib.suppress(DataCorruptionError):
                entries = clipped(read_epochs(self._fs, part.path), end=bases[0])
        for run in check.credible(self._known_epochs(), nobody, part.end):
            entries = assigned(entries, run.epoch, run.first)
        with contextlib.suppress(DataCorruptionError):  # keep an epoch without a batch yet
            for epoch, start in read_epochs(self._fs, part.path):
                if start == part.end and (not entries or epoch > entries[-1][0]):
                    entries = assigned(entries, epoch, start)
        return clipped(entries, start=part.start)

    def _known_epochs(self) -> Epochs | None:
        try:
            return read_epochs(self._fs, self._part.path)
        except DataCorruptionError:
            return None

    # -- segments below the log start

    def _set_aside_up_to(self, last: int) -> None:
        """Move the segments up to `last`, all of them below the log start."""
        bases = segment_bases(self._fs, self._part.path)
        for base, following in itertools.pairwise(bases):
            if base > last or following > self._part.start:
                return
            for name in (
                txnindex_name(base), timeindex_name(base), index_name(base), log_name(base)
            ):  # fmt: skip
                self._quarantine.move(joined(self._part.path, name), self._log_dir)
