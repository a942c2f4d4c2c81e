"""Checks leader-epoch-checkpoint against the epochs in the batches, which no CRC covers.

A flipped bit can be in either. Epochs never decrease along a log, and the majority of the batches
decides. Where a single batch contradicts the file, and nothing else does, neither is believed.
"""

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    """`count` batches in a row with one epoch: offsets [first, end), and where they begin."""

    epoch: int
    first: int
    end: int
    path: str
    position: int
    before: int  # the end of the batch before
    count: int
    first_end: int  # of its first batch
    last: tuple[str, int, int]  # where its last batch is, and its first offset


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
            final = table[stop - 1]
            last = self._path, int(final["position"]), int(final["base_offset"])
            runs = self._runs
            if runs and runs[-1].epoch == int(row["leader_epoch"]):
                runs[-1].end = end
                runs[-1].count += stop - start
                runs[-1].last = last
                continue
            before = runs[-1].end if runs else -1
            first, position = int(row["base_offset"]), int(row["position"])
            epoch, count = int(row["leader_epoch"]), stop - start
            first_end = int(row["last_offset"]) + 1
            runs.append(
                Run(epoch, first, end, self._path, position, before, count, first_end, last)
            )

    def finish(self, fs: FileSystem, out: Findings, end: int) -> None:
        """Compare with the checkpoint of a log that ends at `end`."""
        path = joined(self._part.path, EPOCH_CHECKPOINT)
        try:
            entries = read_epochs(fs, self._part.path)
        except DataCorruptionError as error:
            self.credible(None, out, end)
            out.add(Severity.DIFFERENCE, path, error.reason, fix=FixKind.EPOCHS)
            return
        if self._part.situation.is_ours and self._part.situation is not Situation.CLOSED:
            entries = [entry for entry in entries if entry[1] < max(end, 1)]
        fault = _fault(entries, self.credible(entries, out, end), self._part.start, end)
        if fault is not None:
            out.add(Severity.DIFFERENCE, path, fault, fix=FixKind.EPOCHS)

    def credible(self, entries: Epochs | None, out: Findings, end: int) -> list[Run]:
        """Return the runs whose epochs count, and report the batches whose epoch can't be.

        Args: entries: those of the file; None if it can't be read. end: of the log.
        """
        most, starts = self._part.epoch, [offset for _, offset in entries or ()]
        runs = [run for run in self._runs if most is None or run.epoch <= most]
        # Where as many batches say one thing as the other, the file decides.
        agrees = [run.epoch == _epoch_at(entries or [], starts, run.first) for run in runs]
        kept = _rising(runs, [2 * run.count + same for run, same in zip(runs, agrees, strict=True)])
        there = {(run.path, run.position) for run in kept}
        for run in self._runs:
            if (run.path, run.position) not in there:
                what = f"leader epoch {run.epoch} does not fit those of the other batches"
                _report(out, run, what)
        if entries is None:
            return _joined(kept)
        kept = [part for run in kept for part in _parts(run, entries, starts)]
        lonely = [run for run in kept if self._is_lonely(run, entries, starts)]
        others = _joined([run for run in kept if run not in lonely])
        if not lonely or _fault(entries, others, self._part.start, end) is not None:
            return _joined(kept)
        for run in lonely:
            known = _epoch_at(entries, starts, run.first)
            what = (
                f"leader epoch {run.epoch} is that of this batch alone, and {EPOCH_CHECKPOINT} "
                f"says {known}: one of them is damaged, and neither is changed"
            )
            _report(out, run, what)
        return others

    def _is_lonely(self, run: Run, entries: Epochs, starts: list[int]) -> bool:
        """Tell whether one batch alone contradicts the file.

        Not if it has the ledger's epoch, and the file is older than that.
        """
        newest = self._part.epoch
        is_newest = run.epoch == newest and all(epoch != newest for epoch, _ in entries)
        if run.count > 1 or is_newest or run.end <= self._part.start:
            return False
        return _epoch_at(entries, starts, max(run.first, self._part.start)) != run.epoch


def _rising(runs: list[Run], weights: list[int]) -> list[Run]:
    """Return those runs of rising epochs that weigh the most together."""
    if all(one.epoch <= other.epoch for one, other in itertools.pairwise(runs)):
        return runs
    # The best chains so far, by their last epoch: both epochs and weights rise along the lists.
    epochs: list[int] = []
    totals: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, run in enumerate(runs):
        at = bisect.bisect_right(epochs, run.epoch)
        before.append(ends[at - 1] if at else -1)
        total = weights[number] + (totals[at - 1] if at else 0)
        first = bisect.bisect_left(epochs, run.epoch)
        last = max(first, bisect.bisect_right(totals, total))
        epochs[first:last], totals[first:last], ends[first:last] = [run.epoch], [total], [number]
    kept, number = [], ends[-1]
    while number >= 0:
        kept.append(runs[number])
        number = before[number]
    return kept[::-1]


def _parts(run: Run, entries: Epochs, starts: list[int]) -> Iterator[Run]:
    """Split off a run's first or last batch if the file agrees with all others."""

    def agrees(offset: int) -> bool:
        return _epoch_at(entries, starts, offset) == run.epoch

    path, position, last = run.last
    if run.count > 1 and not agrees(run.first) and agrees(run.first_end):
        yield replace(run, end=run.first_end, count=1)
        run = replace(run, first=run.first_end, count=run.count - 1)
    if run.count > 1 and not agrees(last) and agrees(last - 1):
        yield replace(run, end=last, count=run.count - 1)
        run = replace(run, first=last, path=path, position=position, count=1)
    yield run


def _joined(runs: list[Run]) -> list[Run]:
    """Return runs with those of one epoch made one, each behind the one that is left before it."""
    merged: list[Run] = []
    for run in runs:
        if merged and merged[-1].epoch == run.epoch:
            merged[-1] = replace(merged[-1], end=run.end, count=merged[-1].count + run.count)
        else:
            merged.append(replace(run, before=merged[-1].end if merged else -1))
    return merged


def _epoch_at(entries: Epochs, starts: list[int], offset: int) -> int | None:
    at = bisect.bisect_right(starts, offset) - 1
    return entries[at][0] if at >= 0 else None


def _report(out: Findings, run: Run, what: str) -> None:
    out.add(
        Severity.DAMAGE,
        run.path,
        f"{what}. Records can be read, but copies can't be compared by epoch; restore the file "
        "from a copy",
        position=run.position,
        first=run.first,
        end=run.end,
    )


def _fault(entries: Epochs, runs: list[Run], start: int, end: int) -> str | None:
    """What is wrong with a checkpoint; None if nothing."""
    starts = [offset for _, offset in entries]
    firsts = {run.epoch: run for run in runs}
    for run in runs:
        if run.end <= start:
            continue
        known = _epoch_at(entries, starts, max(run.first, start))
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
