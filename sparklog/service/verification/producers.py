"""Replays a partition's producers, to check aborted transactions and producer snapshots.

If the log starts after offset 0, earlier facts are known from the first snapshot, or not at all.
After compaction only a producer's last batch certainly exists. Then less is compared.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError
from sparklog.format.index import TXN_ENTRY, check_txn_entries, parse_entries
from sparklog.format.names import snapshot_name, txnindex_name
from sparklog.format.producer_snapshot import ProducerEntry, parse_snapshot
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.batch_windows import Window, marker_reader
from sparklog.log.producer_state import ProducerState, has_producers
from sparklog.logdir.segment_files import joined
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import NO_LIMIT, ExpectedPartition

Table = NDArray[Any]
_PLACE: Final = ("producer_epoch", "last_sequence", "last_offset")
_ALL: Final = (
    *_PLACE, "offset_delta", "timestamp", "coordinator_epoch", "current_txn_first_offset"
)  # fmt: skip
_KNOWN: Final = (*_PLACE, "offset_delta")  # known of a producer from before the log start


class ProducerReplay:
    """Replays the producers of a partition: a `Consumer` of all segments, from the first on."""

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        out: Findings,
        base: int,
        *,
        expiration_ms: int,
    ) -> None:
        self._fs, self._part, self._out = fs, part, out
        self._expiration_ms = expiration_ms
        self._first = base
        self._complete = base == 0
        self._broken = False
        self._path = ""
        self._aborted = bytearray()
        entries: list[ProducerEntry] = []
        path = joined(part.path, snapshot_name(base))
        try:
            entries = parse_snapshot(read_bytes(fs, path), path)
            self._complete = True
        except FileNotFoundError:
            pass
        except DataCorruptionError as error:  # earlier facts are unknown
            out.add(
                Severity.DIFFERENCE, path, error.reason, position=error.position,
                fix=FixKind.ASIDE,
            )  # fmt: skip
        self.state = ProducerState(base, entries, expiration_ms=NO_LIMIT)

    def begin(self, path: str) -> None:
        """Begin a segment; `path` is its log file."""
        self._path = path
        self._aborted = bytearray()

    def break_off(self) -> None:
        """Stop comparing, because batches are missing."""
        self._broken = True

    def take(self, window: Window, table: Table) -> None:
        """Replay the batches of a window."""
        if self._broken or not has_producers(table):
            return
        try:
            self._aborted += self.state.apply(table, marker_reader(window, self._path))
        except DataCorruptionError as error:
            self._broken = True
            self._out.add(
                Severity.DAMAGE, error.path, error.reason, position=error.position,
                first=int(table["base_offset"][0]), end=int(table["last_offset"][-1]) + 1,
            )  # fmt: skip

    # -- .txnindex

    def check_aborted(self, base: int, *, severity: Severity, fix: FixKind | None) -> None:
        """Compare the segment's index of aborted transactions with the replay."""
        path = joined(self._part.path, txnindex_name(base))
        try:
            entries = parse_entries(read_bytes(self._fs, path), TXN_ENTRY, path=path)
            check_txn_entries(entries, base, path=path)
        except FileNotFoundError:
            entries = np.empty(0, TXN_ENTRY)
        except DataCorruptionError as error:
            self._out.add(
                severity, path, error.reason, position=error.position, fix=fix, offset=base
            )
            return
        if self._part.situation.is_ours:
            entries = entries[entries["last_offset"] < self._part.end]
        if self._broken:
            return
        fault = self._aborted_fault(entries, np.frombuffer(bytes(self._aborted), TXN_ENTRY))
        if fault is not None:
            self._out.add(severity, path, fault, fix=fix, offset=base)

    def _aborted_fault(self, entries: Any, wanted: Any) -> str | None:
        if self._complete and not self._part.gaps_below:
            if entries.tobytes() == wanted.tobytes():
                return None
            return f"it lists {len(entries)} aborted transactions, the log has {len(wanted)} others"
        have = set(entries[["producer_id", "last_offset"]].tolist())
        want = set(wanted[["producer_id", "last_offset"]].tolist())
        if want - have:
            return f"it lacks aborted transactions (producer, marker): {sorted(want - have)}"
        early = entries["first_offset"] < max(self._first, self._part.gaps_below)
        foreign = {(p, m) for p, m in entries[~early][["producer_id", "last_offset"]].tolist()}
        if foreign - want:
            return f"the log has no such aborts (producer, marker): {sorted(foreign - want)}"
        return None

    # -- .snapshot

    def check_snapshot(self, offset: int, *, newest: bool) -> None:
        """Compare a snapshot file with the replay, which must be at `offset`."""
        path = joined(self._part.path, snapshot_name(offset))
        try:
            found = parse_snapshot(read_bytes(self._fs, path), path)
        except FileNotFoundError:
            return
        except DataCorruptionError as error:
            self._out.add(
                Severity.DIFFERENCE, path, error.reason, position=error.position,
                fix=FixKind.SNAPSHOT, offset=offset,
            )  # fmt: skip
            return
        if self._broken or (self._part.gaps_below and not newest):
            return
        fault = self._snapshot_fault(found, self._fs.mtime_ms(path))
        if fault is not None:
            self._out.add(Severity.DIFFERENCE, path, fault, fix=FixKind.SNAPSHOT, offset=offset)

    def _snapshot_fault(self, found: list[ProducerEntry], written_ms: int) -> str | None:
        whole = self._complete and not self._part.gaps_below
        wanted = {entry.producer_id: entry for entry in self.state.entries()}
        for entry in found:
            known = wanted.pop(entry.producer_id, None)
            if known is None:
                if whole or entry.last_offset >= self._first:
                    return f"the log has no batch of its producer {entry.producer_id}"
                continue
            fields = _ALL if whole else _PLACE if self._part.gaps_below else _KNOWN
            if known.last_offset < 0 and not whole:
                continue  # only its transaction marker remains
            for name in fields:
                if name == "timestamp" and entry.timestamp > known.timestamp:
                    continue  # an erasure removed the batch's latest record
                if getattr(entry, name) != getattr(known, name):
                    return (
                        f"producer {entry.producer_id} has {name} {getattr(entry, name)}, "
                        f"the log says {getattr(known, name)}"
                    )
        for producer_id, known in wanted.items():
            may_have_expired = (
                known.current_txn_first_offset < 0
                and written_ms - known.timestamp >= self._expiration_ms
            )
            if whole and not may_have_expired:
                return f"it lacks producer {producer_id}"
        return None
