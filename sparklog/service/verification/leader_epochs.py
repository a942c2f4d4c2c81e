"""Checks leader-epoch-checkpoint against the epochs of batches, which no CRC covers."""

from typing import Any

from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import EPOCH_CHECKPOINT
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import Window
from sparklog.logdir.partition.batch_epochs import BatchEpochs, EpochRun, checkpoint_fault
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import joined
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import ExpectedPartition, Situation

Table = NDArray[Any]


class EpochCheck:
    """A `Consumer` that compares leader-epoch-checkpoint with the batches of a partition.

    The check takes all segments of the partition in order.
    """

    def __init__(self, part: ExpectedPartition) -> None:
        self._part = part
        self._path = ""
        self._batches = BatchEpochs()

    def begin(self, path: str) -> None:
        """Begin a segment; `path` is its log file."""
        self._path = path

    def take(self, window: Window, table: Table) -> None:
        """Record where the epoch changes in the next batches."""
        self._batches.take(self._path, table)

    def finish(self, fs: FileSystem, out: Findings, end: int) -> None:
        """Compare the batches with the checkpoint of a log that ends at `end`."""
        path = joined(self._part.path, EPOCH_CHECKPOINT)
        try:
            entries = read_epochs(fs, self._part.path)
        except DataCorruptionError as error:
            self.credible(None, out, end)
            out.add(Severity.DIFFERENCE, path, error.reason, fix=FixKind.EPOCHS)
            return
        if self._part.situation.is_ours and self._part.situation is not Situation.CLOSED:
            entries = [entry for entry in entries if entry[1] < max(end, 1)]
        fault = checkpoint_fault(entries, self.credible(entries, out, end), self._part.start, end)
        if fault is not None:
            out.add(Severity.DIFFERENCE, path, fault, fix=FixKind.EPOCHS)

    def credible(self, entries: Epochs | None, out: Findings, end: int) -> list[EpochRun]:
        """Return the runs with credible epochs; report batches with impossible epochs.

        A run consists of consecutive batches with the same leader epoch.

        Args:
            entries: The entries of leader-epoch-checkpoint, if the file can be read.
            out: Receives the findings.
            end: The log end offset.
        """
        part = self._part
        found = self._batches.credible(entries, newest=part.epoch, start=part.start, end=end)
        for run, what in found.doubtful:
            _report(out, run, what)
        return found.runs


def _report(out: Findings, run: EpochRun, what: str) -> None:
    out.add(
        Severity.DAMAGE,
        run.path,
        f"{what}. Records can be read, but copies can't be compared by epoch; restore the file "
        "from a copy",
        position=run.position,
        first=run.first,
        end=run.end,
    )
