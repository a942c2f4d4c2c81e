"""Offsets of commits without a surviving ledger record, and the time at which they were found.

A repair of the commit ledger finds offsets that no surviving record accounts for. A writer
without a later commit may have written them: see `sparklog.log.commit`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.storage.offset_ranges import OffsetRange

COMMITTED_BEFORE: Final = "*"
"""The fingerprint of a micro-batch that its owner declared to be in the log: any replay fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCommits:
    """Offsets of lost commits, by partition; `time_ms`: when the ledger was repaired."""

    time_ms: int
    offsets: Mapping[TopicPartition, Sequence[OffsetRange]]

    def above(self, starts: Mapping[TopicPartition, int]) -> "LostCommits | None":
        """Return the lost commits above the log starts, or None."""
        kept = {
            key: spans
            for key, spans in self.offsets.items()
            if spans[-1].end > starts.get(key, 0)
        }
        return LostCommits(time_ms=self.time_ms, offsets=kept) if kept else None
