"""Repairs the commit ledger: corrects it, truncates its damaged history, or rebuilds its state.

All former files are moved to quarantine. The repair writes a new ledger segment, which starts with
a snapshot of the rebuilt state, beside the ledger, and renames it last. Before the rename the
damaged ledger is unchanged; after the rename the ledger opens. An interrupted repair can be
repeated.
"""

import contextlib
import os
from typing import Final

from sparklog.clock import Clock
from sparklog.errors import DataCorruptionError
from sparklog.format.names import LOG, log_name, parse_base, retired_dir
from sparklog.fs import FileSystem, write_durably
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.high_watermarks import published
from sparklog.logdir.ledger import (
    LEDGER,
    LedgerWriter,
    has_ledger,
    ledger_config,
    ledger_path,
)
from sparklog.logdir.offline_partitions import stored_topic_id
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.quarantined_files import QuarantinedFiles
from sparklog.logdir.segment_files import joined
from sparklog.pluralize import pluralize
from sparklog.service.repair.ledger_salvage import SurvivingLedger, surviving_ledger
from sparklog.service.repair.ledger_state import RebuiltState, published_floor, rebuilt_state
from sparklog.service.verification.log_dir_state import LogDirState
from sparklog.storage.ledger_records import SnapshotRecord

_HISTORY: Final = "which commits were made before, as `Log.commits` lists them"
_MARK: Final = "0" * 31 + "1"  # of the directory where the new segment is made


class LedgerRepair:
    """A repair of a ledger. The caller has acquired the log's locks, and has no open session."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        log_dir_state: LogDirState,
        *,
        was_crash: bool,
        done: list[str],
    ) -> None:
        self._fs, self._clock, self._dirs, self._done = fs, clock, log_dir_state, done
        self._was_crash = was_crash
        self._home = log_dir_state.home
        self._path = ledger_path(self._home)
        self._quarantine = QuarantinedFiles(fs, clock(), done)

    def run(self) -> None:
        """Repair the ledger without changing the end offset.

        Raises:
            UnsupportedVersionError: A newer sparklog wrote the ledger.
        """
        plan = self._plan()
        if isinstance(plan, RebuiltState):
            self._rebuild(plan)
        elif isinstance(plan, int):
            self._cut_history(plan)
        else:
            self._correct(plan)

    def losses(self) -> list[str]:
        """Return the facts that `run` would lose, and make no changes.

        Raises:
            UnsupportedVersionError: A newer sparklog wrote the ledger.
        """
        plan = self._plan()
        if isinstance(plan, RebuiltState):
            return plan.losses
        return [_HISTORY] if isinstance(plan, int) else []

    def _plan(self) -> SurvivingLedger | int | RebuiltState:
        """Return a corrected ledger, the first base offset to keep, or a rebuilt state."""
        ledger = surviving_ledger(self._fs, self._home)
        floor = published_floor(published(self._fs, self._home))
        if ledger.damaged and ledger.end >= floor:
            if ledger.damaged == ledger.corrected.keys():
                return ledger
            behind = [base for base in ledger.bases if base > max(ledger.damaged)]
            if behind and isinstance(ledger.records.get(behind[0]), SnapshotRecord):
                return behind[0]
        return rebuilt_state(
            self._fs, self._dirs, ledger, now_ms=self._clock(), was_crash=self._was_crash
        )

    def _correct(self, ledger: SurvivingLedger) -> None:
        for base, data in sorted(ledger.corrected.items()):
            path = joined(self._path, log_name(base))
            self._quarantine.keep(path, self._home)
            write_durably(self._fs, path, data)
            self._done.append(f"corrected flipped bits of {path} by its checksums: nothing is lost")

    def _cut_history(self, base: int) -> None:
        """Move the segments below `base` to quarantine; opening the log does not need them."""
        names = sorted(
            name for name in self._fs.listdir(self._path)
            if (offset := parse_base(name)) is not None and offset < base
        )  # fmt: skip
        for name in sorted(names, key=lambda name: not name.endswith(LOG)):
            path = joined(self._path, name)
            if name.endswith(LOG):
                self._quarantine.keep(path, self._home)
            self._fs.unlink(path)
        self._fs.sync_dir(self._path)
        self._done.append(
            f"the commit ledger begins at offset {base} now: its older segments are history, and "
            f"the snapshot there holds the state. Lost: {_HISTORY}"
        )

    # -- a new segment

    def _rebuild(self, rebuilt: RebuiltState) -> None:
        """Put a segment in place with a snapshot as its only record, the last of the ledger."""
        base = max(rebuilt.end - 1, 0)
        if not has_ledger(self._fs, self._home):
            self._fs.mkdir(self._path)
            self._fs.sync_dir(self._home)
        made = self._made_segment(rebuilt, base)
        for name in self._fs.listdir(self._path):
            if name.endswith(LOG) and self._fs.size(joined(self._path, name)):
                self._quarantine.keep(joined(self._path, name), self._home)
        names = self._fs.listdir(made)
        for name in names:
            self._fs.rename(joined(made, name), joined(self._path, name))
        self._fs.sync_dir(self._path)
        self._done.append(
            f"rebuilt the commit ledger from offset {base} on: "
            f"{pluralize(len(rebuilt.losses), 'loss', 'losses')}"
        )
        self._done.extend(f"source: {source}" for source in rebuilt.sources)
        self._done.extend(f"lost: {loss}" for loss in rebuilt.losses)
        self._remove_others({*names})
        remove_tree(self._fs, made)

    def _remove_others(self, names: set[str]) -> None:
        """Remove all files of the former segments; their logs are linked in quarantine."""
        others = sorted(
            name for name in self._fs.listdir(self._path)
            if parse_base(name) is not None and name not in names
        )  # fmt: skip
        for name in sorted(others, key=lambda name: not name.endswith(LOG)):
            self._fs.unlink(joined(self._path, name))
        self._fs.sync_dir(self._path)

    def _made_segment(self, rebuilt: RebuiltState, base: int) -> str:
        """Write the new segment durably in a separate directory; return the segment's path."""
        path = os.path.join(self._home, retired_dir(*LEDGER, _MARK, "future"))
        if self._fs.is_dir(path):  # left by an interrupted repair
            remove_tree(self._fs, path)
        topic_id = None
        with contextlib.suppress(DataCorruptionError):
            topic_id = stored_topic_id(self._fs, self._path)
        log = PartitionLog.create(
            self._fs, path, topic_id=topic_id or new_topic_id(), config=ledger_config(),
            clock=self._clock, start_offset=base,
        )  # fmt: skip
        log.sync()
        state = rebuilt.state
        LedgerWriter(log).append(
            state.snapshot(), epoch=state.epoch, time_ms=state.time_ms, sync=True
        )
        log.close()
        self._fs.sync_dir(path)
        return path
