"""The leader epochs in a partition's batches, and which epochs are valid.

The CRC does not cover the epoch in a batch's header, so a flipped bit can be there or in the
partition's leader-epoch-checkpoint ("the file" in this module). Epochs never decrease along a log,
and the majority of the batches decides. If only a single batch contradicts the file, both are
doubtful. `verify`, its repairs, recovery and the loading of a broker's log use these rules.

The batches are handled as runs: a run is a sequence of consecutive batches with the same epoch.
"""

import bisect
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import EPOCH_CHECKPOINT

Table = NDArray[Any]


@dataclass(slots=True)
class EpochRun:
    """A run: consecutive batches of a partition with the same leader epoch.

    Attributes:
        epoch: The leader epoch.
        first: The offset of the first record.
        end: The offset after the last record.
        path: The segment file that contains the first batch.
        position: The position of the first batch in that file.
        before: The offset after the batch before the run; -1 if there is none.
        count: The number of batches.
        first_end: The offset after the first batch.
        last: The file, the position and the first offset of the last batch.
    """

    epoch: int
    first: int
    end: int
    path: str
    position: int
    before: int  # the end of the batch before
    count: int
    first_end: int  # of the first batch
    last: tuple[str, int, int]  # path, position and first offset of the last batch


@dataclass(frozen=True, slots=True)
class CredibleEpochs:
    """The runs (consecutive batches with the same epoch) of a partition, by whether they are valid.

    Attributes:
        runs: The runs with a valid epoch.
        doubtful: The other runs, each with the reason.
    """

    runs: list[EpochRun]
    doubtful: list[tuple[EpochRun, str]]


class BatchEpochs:
    """Collects the runs of a partition: consecutive batches with the same leader epoch.

    Batches must be added in offset order.
    """

    def __init__(self, runs: Iterable[EpochRun] = ()) -> None:
        self.runs: list[EpochRun] = []
        for run in runs:
            self._add(run)

    def take(self, path: str, table: Table) -> None:
        """Add batches of the segment file `path`: the rows of a scan's `table`.

        Batches without an epoch (older formats, or written without a broker) are ignored.
        """
        # Batches of older formats, and batches that clients wrote without a broker, have no epoch.
        table = table[(table["magic"] >= 2) & (table["leader_epoch"] >= 0)]
        if not len(table):
            return
        epochs = table["leader_epoch"]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(epochs)) + 1))
        stops = np.concatenate((starts[1:], [len(table)]))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            row, final = table[start], table[stop - 1]
            last = path, int(final["position"]), int(final["base_offset"])
            first, position = int(row["base_offset"]), int(row["position"])
            epoch, end = int(row["leader_epoch"]), int(final["last_offset"]) + 1
            first_end = int(row["last_offset"]) + 1
            self._add(
                EpochRun(epoch, first, end, path, position, -1, stop - start, first_end, last)
            )

    def _add(self, run: EpochRun) -> None:
        runs = self.runs
        if runs and runs[-1].epoch == run.epoch:
            before = runs[-1]
            runs[-1] = replace(before, end=run.end, count=before.count + run.count, last=run.last)
        else:
            runs.append(replace(run, before=runs[-1].end if runs else -1))

    def credible(
        self, entries: Epochs | None, *, newest: int | None, start: int, end: int
    ) -> CredibleEpochs:
        """Separate the runs with valid epochs from the doubtful runs.

        The largest set of batches with non-decreasing epochs is valid. A batch that alone
        contradicts the checkpoint file is doubtful.

        Args:
            entries: The entries of leader-epoch-checkpoint, or None if the file can't be read.
            newest: The highest possible epoch, if known.
            start: The log start offset.
            end: The log end offset.
        """
        starts = [offset for _, offset in entries or ()]
        runs = [run for run in self.runs if newest is None or run.epoch <= newest]
        # If two epochs have equally many batches, the file decides.
        agrees = [run.epoch == _epoch_at(entries or [], starts, run.first) for run in runs]
        kept = _rising(runs, [2 * run.count + same for run, same in zip(runs, agrees, strict=True)])
        valid = {(run.path, run.position) for run in kept}
        doubtful = [
            (run, f"leader epoch {run.epoch} does not fit those of the other batches")
            for run in self.runs
            if (run.path, run.position) not in valid
        ]
        if entries is None:
            return CredibleEpochs(_joined(kept), doubtful)
        kept = [part for run in kept for part in _parts(run, entries, starts)]
        lonely = [run for run in kept if _is_lonely(run, entries, starts, newest, start)]
        others = _joined([run for run in kept if run not in lonely])
        if not lonely or checkpoint_fault(entries, others, start, end) is not None:
            return CredibleEpochs(_joined(kept), doubtful)
        for run in lonely:
            known = _epoch_at(entries, starts, run.first)
            reason = (
                f"leader epoch {run.epoch} is that of this batch alone, and {EPOCH_CHECKPOINT} "
                f"says {known}: one of them is damaged, and neither is changed"
            )
            doubtful.append((run, reason))
        return CredibleEpochs(others, doubtful)


def _is_lonely(
    run: EpochRun, entries: Epochs, starts: list[int], newest: int | None, start: int
) -> bool:
    """Return True if a run is a single batch that contradicts the checkpoint file's `entries`.

    Returns False if the batch has the newest epoch (`newest`, from the ledger) and the file lacks
    that epoch, because the file may be older. `starts` has the offsets of the entries.
    """
    is_newest = run.epoch == newest and all(epoch != newest for epoch, _ in entries)
    if run.count > 1 or is_newest or run.end <= start:
        return False
    return _epoch_at(entries, starts, max(run.first, start)) != run.epoch


def _rising(runs: list[EpochRun], weights: list[int]) -> list[EpochRun]:
    """Return the runs with non-decreasing epochs that have the largest total weight.

    `weights` has a weight for each run.
    """
    if all(run.epoch <= other.epoch for run, other in itertools.pairwise(runs)):
        return runs
    # The best chains so far, by their last epoch: epochs and weights increase along the lists.
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


def _parts(run: EpochRun, entries: Epochs, starts: list[int]) -> Iterator[EpochRun]:
    """Yield a run, with its first or last batch split off if the file contradicts only that batch.

    The batch next to it must agree with the file. `entries` are the entries of
    leader-epoch-checkpoint, and `starts` their offsets.
    """

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


def _joined(runs: list[EpochRun]) -> list[EpochRun]:
    """Join adjacent runs with the same epoch, and set `before` of each run."""
    merged: list[EpochRun] = []
    for run in runs:
        if merged and merged[-1].epoch == run.epoch:
            merged[-1] = replace(merged[-1], end=run.end, count=merged[-1].count + run.count)
        else:
            merged.append(replace(run, before=merged[-1].end if merged else -1))
    return merged


def _epoch_at(entries: Epochs, starts: list[int], offset: int) -> int | None:
    at = bisect.bisect_right(starts, offset) - 1
    return entries[at][0] if at >= 0 else None


def checkpoint_fault(entries: Epochs, runs: list[EpochRun], start: int, end: int) -> str | None:
    """Return how the entries of leader-epoch-checkpoint contradict the batches; None if they agree.

    Args:
        entries: The (epoch, start offset) entries of the file.
        runs: The runs of consecutive batches with the same, valid epoch.
        start: The log start offset. Batches below it are ignored.
        end: The log end offset.
    """
    starts = [offset for _, offset in entries]
    firsts = {run.epoch: run for run in runs}
    for run in runs:
        # Records below the log start may lack an entry: Kafka removes epochs below it.
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
