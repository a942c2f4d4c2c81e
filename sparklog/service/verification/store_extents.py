"""Checks the extents of a log in a bucket: objects, batches, offsets, manifests."""

from dataclasses import dataclass
from functools import partial
from typing import Final

import crc32c
import numpy as np

from sparklog.common import TopicPartition
from sparklog.diskless.extents import Extent, Extents
from sparklog.diskless.merge_source import SourceReader
from sparklog.diskless.segment_healing import segment_of
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import OFFSET_MAX
from sparklog.format.index import OFFSET_ENTRY, TIME_ENTRY
from sparklog.format.names import INDEX, TIMEINDEX
from sparklog.format.scan import Table, misplaced_rows
from sparklog.log.batch_figures import BatchTally
from sparklog.log.batch_windows import walk
from sparklog.service.verification.batches import BatchCheck
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.indexes import IndexFile, OffsetIndexCheck, TimeIndexCheck
from sparklog.service.verification.segment import Walked
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.copying.content_check import manifest_parts
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import Manifest, manifest_object, parse
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.store_retry import StoreRetry

_COPY: Final = "restore the object from a copy of the bucket"


@dataclass(slots=True)
class _StagedExtent:
    """An extent's bytes as they were staged: a `SegmentLog`. Every read is a request."""

    path: str
    extent: Extent
    readers: tuple[SourceReader, ...]
    retry: StoreRetry

    def size(self) -> int:
        """Return the size in bytes according to the state."""
        return self.extent.size

    def pread(self, size: int, at: int) -> bytes:
        """Return bytes of the extent.

        Raises:
            SourceChangedError: The object is missing or truncated.
        """
        end = min(at + size, self.extent.size)
        try:  # one request for several partitions, which may fail because of another partition
            return self.retry.call(partial(self.readers[0].read, self.extent, at, end))
        except SourceChangedError:
            return self.retry.call(partial(self.readers[1].read, self.extent, at, end))


class ExtentCheck:
    """Checks the extents of a state. Thread-safe.

    `batches` has (topic, batch counts) for each extent that was read.
    """

    def __init__(
        self, store: Store, state: DisklessState, keys: Keyring | None, retry: StoreRetry
    ) -> None:
        self._store, self._state, self._keys, self._retry = store, state, keys, retry
        self._readers = tuple(SourceReader(store, state.keys, keys) for _ in range(2))
        self.batches: list[tuple[str, BatchTally]] = []

    def plan(self, extents: Extents) -> None:
        """Announce the extents to read, so that partitions of an object share a request."""
        reader = self._readers[0]
        reader.objects.plan(
            reader.stored(e) for e in extents if e.size and not (e.segment or e.pieces)
            and self.can_read(e)
        )  # fmt: skip

    def can_read(self, extent: Extent) -> bool:
        """Return True unless a keyring is needed and missing."""
        return self._keys is not None or extent.object not in self._state.keys

    def check_coverage(self, key: TopicPartition, where: str, out: Findings) -> None:
        """Check that extents cover all offsets from the log start to the end."""
        state = self._state
        start, end = state.log.starts.get(key, 0), state.log.ends[key]
        if start > end:
            what = f"the log start {start} is past the end {end}; restore the ledger"
            out.add(Severity.DAMAGE, where, what, first=end, end=start)
        at = start
        for number, extent in enumerate(state.extents.get(key, ())):
            if extent.base > at or (number and extent.base < at) or extent.end <= at:
                what = f"the extent [{extent.base}, {extent.end}) comes behind offset {at}"
                out.add(Severity.DAMAGE, where, what, first=min(at, extent.base), end=extent.base)
            at = extent.end
        if at != end and start < end:
            what = f"no extent has these offsets, and the log ends at {end}"
            out.add(Severity.DAMAGE, where, what, first=at, end=end)

    def check(self, key: TopicPartition, extent: Extent, out: Findings) -> None:
        """Check all bytes of an extent, and the manifest of a closed segment."""
        opened = self._manifest(key, extent, out) if extent.segment else None
        if not self.can_read(extent):
            return
        path = f"{self._store.url}/{extent.object}"
        try:
            pieces = self._retry.call(partial(self._readers[1].pieces, extent))
        except SourceChangedError:
            self._damage(out, extent, path, f"the object is missing or truncated; {_COPY}")
        except DataCorruptionError as error:
            self._damage(out, extent, path, error.reason, error.position)
        except InvalidRequestError as error:  # the key ring lacks its key
            self._damage(out, extent, path, str(error))
        else:
            for piece in pieces:
                self._read(key, piece, opened, out)

    # --- batches --------------------------------------------------------------------------------

    def _read(
        self,
        key: TopicPartition,
        extent: Extent,
        opened: tuple[Manifest, dict[str, bytes]] | None,
        out: Findings,
    ) -> None:
        path = f"{self._store.url}/{extent.object}"
        log = _StagedExtent(path, extent, self._readers, self._retry)
        indexes = {} if opened is None else _index_checks(extent, opened[1])
        walked, batches = _Walk(extent, key in self._state.gaps), BatchCheck()
        self.batches.append((key.topic, batches.tally))
        crc = 0
        try:
            for window in walk(log):
                table = window.batches.table
                walked.take(table)
                batches.take(window, table)
                if len(table):
                    for check in indexes.values():
                        check.take(window, table)
                crc = crc32c.crc32c(window.data[: window.batches.end - window.position], crc)
                if window.batches.error is not None:
                    raise window.batches.error
        except SourceChangedError as error:
            found = error.reason if isinstance(error, DataCorruptionError) else str(error)
            what = "the object is truncated" if "ends at" in found else "the object is missing"
            self._damage(out, extent, path, f"{what}; {_COPY}", first=walked.next)
            return
        except DataCorruptionError as error:
            at = error.position or 0
            self._damage(out, extent, path, error.reason, extent.start + at, walked.next)
            return
        except InvalidRequestError as error:
            self._damage(out, extent, path, str(error))
            return
        fault = walked.fault()
        if fault is None and extent.crc not in (-1, crc):
            fault = (
                f"its bytes have the CRC-32C {crc}, the ledger recorded {extent.crc}: they are not "
                f"those that were committed; {_COPY}",
                0,
            )
            walked.next = extent.base
        if fault is not None:
            what, at = fault
            self._damage(out, extent, path, what, extent.start + at, walked.next)
            return
        self._derived(extent, walked, path, out)
        if opened is None:
            return
        self._compare(key, extent, opened[0], crc, out)
        whole = Walked(extent.base, extent.end, walked.size, walked.size, walked.largest)
        for name, check in indexes.items():
            check.finish(whole)
            if check.file.fault is not None:
                what, _ = check.file.fault
                self._manifest_fault(out, extent, opened[0].name, f"{name}: {what}")

    def _derived(self, extent: Extent, walked: "_Walk", path: str, out: Findings) -> None:
        if extent.stamp_ms < 0 and walked.latest != extent.max_timestamp and extent.size:
            what = (
                f"its largest timestamp is {walked.latest}, the ledger says "
                f"{extent.max_timestamp}: look-ups by time use the latter"
            )
            out.add(Severity.DIFFERENCE, path, what, position=extent.start, first=extent.base,
                    end=extent.end)  # fmt: skip

    def _damage(
        self,
        out: Findings,
        extent: Extent,
        path: str,
        what: str,
        position: int | None = None,
        first: int | None = None,
    ) -> None:
        first = extent.base if first is None else first
        fix = FixKind.SEGMENT if extent.segment else None
        out.add(
            Severity.DAMAGE, path, what, position=position, first=first, end=extent.end, fix=fix,
            offset=extent.base,
        )  # fmt: skip

    # --- manifests ------------------------------------------------------------------------------

    def _manifest(
        self, key: TopicPartition, extent: Extent, out: Findings
    ) -> tuple[Manifest, dict[str, bytes]] | None:
        """Return the manifest and its small files, unless it is missing or damaged."""
        name = manifest_object(segment_of(self._state, key, extent))
        try:
            raw = self._retry.call(partial(self._store.get, name))
            manifest, body = parse(raw, path=f"{self._store.url}/{name}")
            parts = manifest_parts(manifest, body, self._keys, segment_id=extent.segment, path=name)
        except FileNotFoundError:
            self._manifest_fault(out, extent, name, "it is missing")
        except DataCorruptionError as error:  # the advice in it is for manifests of a tier
            self._manifest_fault(out, extent, name, error.reason.partition(";")[0])
        except InvalidRequestError as error:  # the key ring lacks its key
            self._manifest_fault(out, extent, name, str(error))
        else:
            return None if parts is None else (manifest, parts)
        return None

    def _compare(
        self, key: TopicPartition, extent: Extent, manifest: Manifest, crc: int, out: Findings
    ) -> None:
        wanted, found, is_own = segment_of(self._state, key, extent), manifest.segment, True
        for field in ("topic", "topic_id", "partition", "id", "base", "end", "max_timestamp",
                      "size"):  # fmt: skip
            ours, theirs = getattr(wanted, field), getattr(found, field)
            if ours != theirs:
                what = f"its {field} is {theirs!r}, the ledger says {ours!r}"
                self._manifest_fault(out, extent, manifest_object(wanted), what)
                is_own = False
        if is_own and manifest.crc32c != crc:
            what = (
                f"its CRC-32C is {crc}, its manifest says {manifest.crc32c}: these are not the "
                f"bytes that were merged; {_COPY}"
            )
            self._damage(out, extent, f"{self._store.url}/{extent.object}", what)

    def _manifest_fault(self, out: Findings, extent: Extent, name: str, what: str) -> None:
        out.add(
            Severity.DIFFERENCE, f"{self._store.url}/{name}", what,
            first=extent.base, end=extent.end, fix=FixKind.MANIFEST, offset=extent.base,
        )  # fmt: skip


class _Walk:
    """The results of a pass over an extent's batches.

    `next` is the offset after the last good batch.
    """

    def __init__(self, extent: Extent, gaps: bool) -> None:
        self._extent, self._gaps = extent, gaps and bool(extent.segment)
        self._shift = 0 if extent.segment else extent.base
        self.next, self.size, self.latest, self.largest = extent.base, 0, -1, 0
        self._fault: tuple[str, int] | None = None

    def take(self, table: Table) -> None:
        """Check the next batches."""
        if not len(table) or self._fault is not None:
            return
        bases, last = table["base_offset"] + self._shift, table["last_offset"] + self._shift
        wrong = misplaced_rows(table, self.next - self._shift, OFFSET_MAX if self._gaps else 0)
        if not self._gaps:
            wrong |= table["count"] != last - bases + 1
        wrong |= last >= self._extent.end
        hits = np.flatnonzero(wrong)
        if len(hits):
            row = int(hits[0])
            self.next = int(last[row - 1]) + 1 if row else self.next
            self._fault = (
                f"a batch of {table['count'][row]} records at [{bases[row]}, {last[row] + 1}) "
                f"is stored where offset {self.next} of [{self._extent.base}, {self._extent.end}) "
                f"is due; {_COPY}",
                int(table["position"][row]),
            )
            return
        self.next = int(last[-1]) + 1
        self.size = int(table["position"][-1] + table["size"][-1])
        self.latest = max(self.latest, int(table["max_timestamp"].max()))
        self.largest = max(self.largest, int(table["size"].max()))

    def fault(self) -> tuple[str, int] | None:
        """Return (fault, byte position in the extent) after the pass, or None."""
        if self._fault is None and self.size != self._extent.size:
            return f"the extent ends within a batch; {_COPY}", self.size
        if self._fault is None and self.next != self._extent.end and not self._gaps:
            return f"its records end at {self.next}, not at {self._extent.end}; {_COPY}", self.size
        return self._fault


def _index_checks(
    extent: Extent, parts: dict[str, bytes]
) -> dict[str, OffsetIndexCheck | TimeIndexCheck]:
    """Return the checks of a closed segment's indexes in `parts`, the files of its manifest."""
    index = IndexFile(extent.base, OFFSET_ENTRY, parts.get(INDEX))
    times = IndexFile(extent.base, TIME_ENTRY, parts.get(TIMEINDEX))
    return {
        INDEX: OffsetIndexCheck(index, exact=False),
        TIMEINDEX: TimeIndexCheck(times, exact=False, final=True),
    }
