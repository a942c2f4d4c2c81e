"""Follows the ledger (the log of commits) without a lock: the log's state, counts of commits."""

from collections import deque
from typing import Final

from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.fs import FileSystem
from sparklog.logdir.ledger import last_base, ledger_bases, ledger_path, replay
from sparklog.logdir.repair_advice import REBUILDS_LEDGER
from sparklog.metrics import Distribution, Histogram
from sparklog.service.metrics.commit_trail import CommitTrail
from sparklog.service.metrics.names import COMMIT_BYTES, COMMIT_SECONDS
from sparklog.service.metrics.observed import CommitMetrics
from sparklog.storage.ledger_records import AppendRecord, SnapshotRecord
from sparklog.storage.log_state import LogState

_TRAIL_MIN: Final = 1000  # records; with fewer in the newest segment, read another segment


class LedgerTail:
    """Follows the end of the ledger: each call applies the new records to the log's state.

    Not thread-safe. With `history`, the commits that the ledger contains at the first call are
    counted. Without it only later commits are counted, so that a restarted process counts no commit
    twice.
    """

    def __init__(self, fs: FileSystem, home: str, *, history: bool) -> None:
        self._fs, self._home, self._history = fs, home, history
        self._state: LogState | None = None
        self.at = 0  # the ledger offset up to which records were folded
        self._identity = (0, 0)
        self._counts = CommitCounts()
        self.trail = CommitTrail()
        """The commits that were folded, including those before the first call."""
        self._damaged: tuple[int, int] | None = None  # older records that could not be read

    def catch_up(self, end: int) -> LogState:
        """Return the state as of ledger offset `end`.

        Raises:
            DataCorruptionError: The ledger is damaged.
            FileNotFoundError: The log was deleted.

        Cost:
            The first call reads the ledger's last segment (16 MiB at most; also the previous
            segment if it has few records), later calls only new records.
        """
        identity = self._fs.identity(ledger_path(self._home))
        try:
            if self._state is not None and identity == self._identity and end >= self.at:
                self._fold(self._state, self.at, end, counted=True)
                return self._state
        except (SparklogError, FileNotFoundError):
            self._state = None  # the ledger has expired, was truncated or replaced
        last = first = last_base(self._fs, self._home, end)
        if self._history:
            first = ledger_bases(self._fs, self._home)[0]
        elif end - first < _TRAIL_MIN:
            first = max((b for b in ledger_bases(self._fs, self._home) if b < first), default=first)
        self._damaged = None
        try:
            state = self._folded(first, end)
        except (DataCorruptionError, FileNotFoundError):
            if first == last:
                raise
            state = self._folded(last, end)  # sufficient for writers
            self._damaged = first, last
        self._state, self._identity, self._history = state, identity, False
        return state

    def history_fault(self) -> DataCorruptionError | None:
        """Return why older commits can't be read, if damage is known.

        Cost: only with damage: reads the damaged segments again.
        """
        if self._damaged is None:
            return None
        first, last = self._damaged
        fault: DataCorruptionError | None = None
        if first in ledger_bases(self._fs, self._home):  # else repaired or expired
            try:
                deque(replay(self._fs, self._home, first, last + 1), maxlen=0)
            except DataCorruptionError as error:
                fault = error
        if fault is None:
            self._damaged = None
            return None
        return DataCorruptionError(
            "older records of the commit ledger are damaged. Reads and appends work, but the "
            f"commits before ledger offset {last} can't all be listed; {REBUILDS_LEDGER}",
            path=fault.path,
            position=fault.position,
            first=fault.first,
            end=last,
        )

    def _folded(self, first: int, end: int) -> LogState:
        state, self.trail = LogState(), CommitTrail()
        self._fold(state, first, end, counted=self._history)
        return state

    def _fold(self, state: LogState, first: int, end: int, *, counted: bool) -> None:
        self.at = first
        for offset, record in replay(self._fs, self._home, first, end):
            if not state.time_ms and not isinstance(record, SnapshotRecord):
                raise DataCorruptionError(
                    "this ledger segment does not begin with a snapshot",
                    path=ledger_path(self._home),
                    first=offset,
                )
            state.apply(record)
            self.at = offset + 1
            self.trail.add(record)
            if counted and isinstance(record, AppendRecord):
                self._counts.count(record)

    @property
    def commits(self) -> CommitMetrics:
        """The commits that were counted so far."""
        return self._counts.commits


class CommitCounts:
    """Counts the commits of a ledger. Not thread-safe."""

    def __init__(self) -> None:
        self._commits: dict[str, int] = {}
        self._records: dict[str, int] = {}
        self._sizes, self._times = Histogram(COMMIT_BYTES), Histogram(COMMIT_SECONDS)

    def count(self, record: AppendRecord) -> None:
        """Count a commit."""
        self._commits[record.kind] = self._commits.get(record.kind, 0) + 1
        for key, (first, last) in record.ends.items():
            self._records[key.topic] = self._records.get(key.topic, 0) + last - first
        if record.size_bytes is not None and record.duration_ms is not None:
            self._sizes.observe(record.size_bytes)
            self._times.observe(record.duration_ms / 1000)

    @property
    def commits(self) -> CommitMetrics:
        """The commits that were counted so far."""
        return CommitMetrics(
            {"append": 0, "commit": 0} | self._commits,
            dict(self._records),
            _only(self._sizes),
            _only(self._times),
        )


def _only(histogram: Histogram) -> Distribution:
    (sample,) = histogram.samples()
    assert isinstance(sample.value, Distribution)
    return sample.value
