"""The aborted transactions that the cleaner must know of, from the indexes of the segments.

Source: LocalLog.collectAbortedTransactions (Kafka 4.1).
"""

from collections.abc import Sequence

from sparklog.format.names import TXNINDEX
from sparklog.fs import FileSystem
from sparklog.logdir.partition.indexes import txn_entries

NO_LIMIT = 2**63 - 1


class AbortedEntries:
    """The aborted transactions of a partition, by segment; listed once."""

    def __init__(
        self, fs: FileSystem, directory: str, bases: Sequence[int], *, log_start: int
    ) -> None:
        self._fs, self._directory, self._bases = fs, directory, bases
        self._log_start = log_start
        self._any = any(name.endswith(TXNINDEX) for name in fs.listdir(directory))

    def __bool__(self) -> bool:
        return self._any

    def touching(self, base: int, end: int) -> list[tuple[int, int, int, int]]:
        """Those that begin below `end`, of segment `base` and what follows it."""
        found: list[tuple[int, int, int, int]] = []
        if not self._any:
            return found
        for following in self._bases:
            if following < base:
                continue
            for _, *entry in txn_entries(
                self._fs, self._directory, following, end=NO_LIMIT
            ).tolist():
                _, first, last, stable = entry
                if last >= self._log_start and first < end:
                    found.append((entry[0], first, last, stable))
                if stable >= end:
                    return found
        return found
