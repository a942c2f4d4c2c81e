"""Appends that the ledger recorded for the segments that a round copies.

The ledger is read once per round, from the newest snapshot that precedes the records of all these
segments. A round without copies does not read the ledger. Records that have expired, and damaged
segments of the ledger, are unknown: appends that they recorded are not compared (`verify` reports
the damage).
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import ledger_bases, replay
from sparklog.logdir.offset_checkpoints import CLEANER, Offsets, read_offsets
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.storage.committed_appends import (
    AppendedBatches,
    Appends,
    AppendsById,
    CommittedAppends,
    note_appends,
)
from sparklog.storage.ledger_records import AppendRecord, SnapshotRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import StaleReadError

_LOGGER: Final = logging.getLogger("sparklog.service")
_NO_LIMIT: Final = 2**63 - 1
_UNREADABLE: Final = (DataCorruptionError, StaleReadError, FileNotFoundError)


class LedgerAppends:
    """The appends to partitions that the ledger recorded. Reads the ledger on demand."""

    def __init__(self, commits: LogDirCommits) -> None:
        self._commits = commits
        self._lows: dict[TopicPartition, int] = {}
        self._appends: dict[TopicPartition, Appends] = {}
        self._cleaned: dict[str, Offsets] = {}

    def load(self, wanted: Iterable[tuple[TopicPartition, int]]) -> None:
        """Read the ledger from the appends at these offsets on, unless they were read before.

        Cost: a pass over the ledger's segments with these appends, 16 MiB each at most.
        """
        lows = dict(self._lows)
        for key, base in wanted:
            lows[key] = min(lows.get(key, base), base)
        if lows == self._lows:
            return
        commits = self._commits
        with commits.exclusive():
            end = commits.position
            ids = {name: topic.id for name, topic in commits.state.topics.items()}
        known = _read(commits, lows, end)
        self._lows = lows
        self._appends = {
            TopicPartition(name, p): appends
            for name, topic_id in ids.items()
            for (by_id, p), appends in known.items()
            if by_id == topic_id
        }

    def committed(self, key: TopicPartition, place: PartitionRetention) -> CommittedAppends:
        """Return the comparison with the appends that `load` has read."""

        def read(first: int, end: int) -> AppendedBatches | None:
            return _batches(self._commits, place.directory, first, end)

        log_dir = os.path.dirname(place.directory)
        gaps_below = _NO_LIMIT if place.config.compact else self._cleaned_below(key, log_dir)
        return CommittedAppends(key=key, appends=self._appends, gaps_below=gaps_below, read=read)

    def _cleaned_below(self, key: TopicPartition, log_dir: str) -> int:
        if log_dir not in self._cleaned:
            try:
                self._cleaned[log_dir] = read_offsets(self._commits.fs, log_dir, CLEANER)
            except DataCorruptionError:  # `verify` reports it
                return _NO_LIMIT
        return self._cleaned[log_dir].get(key, 0)


def _read(commits: LogDirCommits, lows: Mapping[TopicPartition, int], end: int) -> AppendsById:
    """Return the appends that the ledger recorded before `end`, from the offsets `lows` on."""
    known: AppendsById = {}
    bases = _needed(commits, lows, end)
    for base, stop in zip(bases, [*bases[1:], end], strict=True):
        state: LogState | None = None
        try:
            for _, record in replay(commits.fs, commits.home, base, stop):
                if state is None:
                    if not isinstance(record, SnapshotRecord):
                        break  # the ledger segment is damaged
                    state = LogState()
                state.apply(record)
                if isinstance(record, AppendRecord):
                    note_appends(known, state, record)
        except (*_UNREADABLE, KeyError) as error:
            _LOGGER.info("appends recorded in [%d, %d) are not compared: %s", base, stop, error)
    return known


def _needed(commits: LogDirCommits, lows: Mapping[TopicPartition, int], end: int) -> list[int]:
    """Return the base offsets of the ledger's segments with appends from `lows` on."""
    fs, home, needed = commits.fs, commits.home, list[int]()
    for base in reversed([base for base in ledger_bases(fs, home) if base < end]):
        needed.insert(0, base)
        with contextlib.suppress(*_UNREADABLE):
            for _, record in replay(fs, home, base, base + 1):
                ends = record.ends if isinstance(record, SnapshotRecord) else {}
                if ends and all(ends.get(key, 0) <= low for key, low in lows.items()):
                    return needed
    return needed


def _batches(
    commits: LogDirCommits, directory: str, first: int, end: int
) -> AppendedBatches | None:
    """Return the batches of local segments in [first, end), if they can be read."""
    batches = AppendedBatches()
    try:
        for found in PartitionReader(LogDirSegments(commits.fs, directory)).touching(first, end):
            window = found.window
            batches.add(window.data, window.batches.table, window.position)
    except (SparklogError, FileNotFoundError):
        return None
    batches.settle()
    return batches
