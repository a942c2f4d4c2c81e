"""Checks leader-epoch-checkpoint against the epochs in the batches, which no CRC covers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import EPOCH_CHECKPOINT
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import Window
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import joined
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import ExpectedPartition, Situation

Table = NDArray[Any]


@dataclass(slots=True)
class Run:
    """Batches one after the other with one epoch: offsets [first, end), and where they begin."""

    epoch: int
    first: int
    end: int
    path: str
    position: int
    before: int  # the end of the batch before


class EpochCheck:
    """A `Consumer` over all segments of a partition."""

    def __init__(self, part: ExpectedPartition) -> None:
        self._part = part
        self._path = ""
        self._runs: list[Run] = []

    def begin(self, path: str) -> None:
        """Turn to the segment with this log."""
        self._path = path

    def take(self, window: Window, table: Table) -> None:
        """Note where the epoch changes."""
        table = table[(table["magic"] >= 2) & (table["leader_epoch"] >= 0)]
        if not len(table):
            return
        epochs = table["leader_epoch"]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(epochs)) + 1))
        stops = np.concatenate((starts[1:], [len(table)]))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            row, end = table[start], int(table["last_offset"][stop - 1]) + 1
            runs = self._runs
            if runs and runs[-1].epoch == int(row["leader_epoch"]):
                runs[-1].end = end
                continue
            before = runs[-1].end if runs else -1
            first, position = int(row["base_offset"]), int(row["position"])
            runs.append(Run(int(row["leader_epoch"]), first, end, self._path, position, before))

    def finish(self, fs: FileSystem, out: Findings, end: int) -> None:
        """Compare with the checkpoint of a log that ends at `end`."""
        path = joined(self._part.path, EPOCH_CHECKPOINT)
        runs = self.rising(out)
        try:
            entries = read_epochs(fs, self._part.path)
        except DataCorruptionError as error:
            out.add(Severity.DIFFERENCE, path, error.reason, fix=FixKind.EPOCHS)
            return
        if self._part.situation.is_ours and self._part.situation is not Situation.CLOSED:
            entries = [entry for entry in entries if entry[1] < max(end, 1)]
        fault = _fault(entries, runs, self._part.start, end)
        if fault is not None:
            out.add(Severity.DIFFERENCE, path, fault, fix=FixKind.EPOCHS)

    def rising(self, out: Findings) -> list[Run]:
        """Report the batches whose epoch can't be, and return the others."""
        kept: list[Run] = []
        most = self._part.epoch
        for at, run in enumerate(self._runs):
            after = self._runs[at + 1] if at + 1 < len(self._runs) else None
            low = bool(kept) and run.epoch < kept[-1].epoch
            high = after is not None and run.epoch > after.epoch and not self._is_dip(at)
            if low or high or (most is not None and run.epoch > most):
                out.add(
                    Severity.DAMAGE,
                    run.path,
                    f"leader epoch {run.epoch} does not fit its neighbours; records can be read, "
                    "but copies can't be compared by epoch",
                    position=run.position,
                    first=run.first,
                    end=run.end,
                )
            elif kept and kept[-1].epoch == run.epoch:
                kept[-1].end = run.end
            else:
                kept.append(run)
        return kept

    def _is_dip(self, at: int) -> bool:
        """Tell whether the run behind is the odd one: its epoch is below those on both sides."""
        runs = self._runs
        return at + 2 < len(runs) and runs[at + 2].epoch >= runs[at].epoch


def _fault(entries: Epochs, runs: list[Run], start: int, end: int) -> str | None:
    """What is wrong with a checkpoint; None if nothing."""
    starts = np.array([offset for _, offset in entries], np.int64)
    firsts = {run.epoch: run for run in runs}
    for run in runs:
        if run.end <= start:
            continue
        at = int(np.searchsorted(starts, max(run.first, start), side="right")) - 1
        known = entries[at][0] if at >= 0 else None
        if known != run.epoch:
            return f"offset {max(run.first, start)} has epoch {run.epoch}, the file says {known}"
    for at, (epoch, offset) in enumerate(entries):
        if offset > end:
            return f"epoch {epoch} begins at {offset}, past the end {end}"
        own = firsts.get(epoch)
        following = entries[at + 1][1] if at + 1 < len(entries) else end
        if own is not None and own.first < offset and own.end > start and offset > start:
            return f"epoch {epoch} begins at {own.first}, the file says {offset}"
        if own is not None and not own.before <= offset and own.first > offset:
            return f"epoch {epoch} begins at {own.first}, the file says {offset}"
        if own is None and any(
            run.first < following and run.end > max(offset, start) for run in runs
        ):
            return f"no batch has epoch {epoch}, which the file has for [{offset}, {following})"
    return None
