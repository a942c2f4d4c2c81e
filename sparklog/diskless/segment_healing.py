"""Rewrites a damaged segment from the extents that were merged into it.

The objects of these extents are deleted some time after the merge. Until then they are a good copy.
The ledger entry of the merge contains the extents' names, and the ledger before that entry their
sizes. A new ledger entry replaces the damaged segment by the rewritten segment, as in every merge.
"""

from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import MergeRecord
from sparklog.diskless.extents import Extent, Extents, find
from sparklog.diskless.ledger import WINDOW
from sparklog.diskless.merge_plan import Merge
from sparklog.diskless.merge_source import Slice, SourceLog, SourceReader
from sparklog.diskless.merging import Merged, Merger
from sparklog.diskless.names import level_of, parse_state, state_name, state_prefix
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import STATE_BYTES_MAX, decode_state
from sparklog.errors import DataCorruptionError, InvalidRequestError, SparklogError
from sparklog.log.batch_windows import walk
from sparklog.storage.round_report import Report
from sparklog.storage.segment_store import SourceChangedError
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, manifest_object, parse
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_COPY: Final = "restore the object from a copy of the bucket"


class SegmentHealer:
    """Rewrites damaged segments of a log from the sources of their merge. Not thread-safe.

    The ledger entries of the repair have the log's present term, so a service that takes over makes
    them void.
    """

    def __init__(self, log: ServiceLog, keyring: Keyring | None) -> None:
        self._log, self._keyring = log, keyring
        self._merger = Merger(log, term=lambda: log.state.term, keyring=keyring)

    def heal(self, key: TopicPartition, extent: Extent) -> Merged:
        """Replace a damaged segment, or all segments of the same merge.

        Cost: a GET per ledger entry since the last state object before the merge; the segment is
            read and written once.

        Raises:
            DataCorruptionError: No good copy is left.
            ConflictError: The extents were replaced in the meantime.
            LeaseLostError: A service began a new term.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        state = self._log.follow()
        if extent not in state.extents.get(key, ()):
            raise ConflictError(
                f"{key}: another process has replaced offsets [{extent.base}, {extent.end})"
            )
        record = self._merge_of(key, extent)
        before = self._state_before(extent.born)
        known = before.extents.get(key, ())
        at = find(known, record.sources)
        if at < 0:
            raise self._lost(extent, "the ledger does not contain the sources of its merge")
        originals = known[at : at + len(record.sources)]
        damaged, sources = self._same_span(state.extents.get(key, ()), extent, originals)
        topic = state.log.topics[key.topic]
        level = level_of(extent.segment, term=state.term)
        merge = Merge(key, topic.id, topic.parsed(), damaged, level, "a damaged segment")
        # The present state has dropped the data keys of the sources that the merge replaced.
        keys = {**state.keys, **before.keys}
        try:
            return self._merger.replace(
                merge, sources, state, SourceReader(self._log.store, keys, self._keyring),
                crc=self._checksum(key, extent, state) if damaged == (extent,) else None,
            )  # fmt: skip
        except SourceChangedError as error:
            why = f"an object that the segment was merged from was deleted ({error})"
            raise self._lost(extent, why) from error
        except DataCorruptionError as error:
            why = f"the objects that the segment was merged from are damaged as well ({error})"
            raise self._lost(extent, why) from error

    def tried(self, key: TopicPartition, extent: Extent, report: Report) -> bool:
        """Heal a segment in a service's round and report the result; return False on failure."""
        try:
            merged = self.heal(key, extent)
        except ConflictError:
            return False
        except (DataCorruptionError, InvalidRequestError) as error:
            report.errors.append(f"{key}: {error}")
            return False
        report.notes.append(
            f"{key}: the damaged segment of offsets [{extent.base}, {extent.end}) was written "
            f"again from the objects that it was merged from (entry {merged.number})"
        )
        return True

    def is_damaged(self, extent: Extent) -> bool:
        """Read an entire segment; return True if a part can't be read.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            InvalidRequestError: The key ring lacks the segment's key.
        """
        reader = SourceReader(self._log.store, self._log.state.keys, self._keyring)
        log = SourceLog(extent.object, [Slice.of(extent)], reader)
        try:
            size = 0
            for window in walk(log):
                if window.batches.error is not None:
                    return True
                size = window.batches.end
        except (SourceChangedError, DataCorruptionError):
            return True
        return size != extent.size

    def make_manifest(self, key: TopicPartition, extent: Extent) -> RemoteSegment:
        """Write the manifest of a segment again, after reading the segment's log.

        Cost and errors are those of `Merger.make_manifest`.
        """
        return self._merger.make_manifest(key, extent, self._log.follow())

    def _merge_of(self, key: TopicPartition, extent: Extent) -> MergeRecord:
        entry = self._log.commits.head.entries.find(extent.born)
        record = None if entry is None else entry.record
        if not isinstance(record, MergeRecord) or record.topic_partition != key:
            raise self._lost(extent, "no merge of this log wrote the segment")
        if record.gaps:  # healing must not restore records that the cleaner or an erasure removed
            raise self._lost(
                extent,
                "the cleaner or an erasure removed records from the segment, so the objects that "
                "it was merged from can't replace it",
            )
        return record

    def _state_before(self, number: int) -> DisklessState:
        """Return the state of the log just before ledger entry `number`."""
        state = self._stored_state(number) or DisklessState(self._log.log_id)
        entries = self._log.commits.head.entries
        while state.next_number < number:
            first = state.next_number
            for entry in entries.known(range(first, min(first + WINDOW, number))):
                state.apply(entry, path=entries.path(state.next_number))
        return state

    def _stored_state(self, number: int) -> DisklessState | None:
        store, log_id = self._log.store, self._log.log_id
        listed = (parse_state(log_id, stored.name) for stored in store.list(state_prefix(log_id)))
        for entry_number in sorted(
            (n for n in listed if n is not None and n < number), reverse=True
        ):
            name = state_name(log_id, entry_number)
            try:
                raw = store.get(name, limit=STATE_BYTES_MAX)
                state = decode_state(raw, path=f"{store.url}/{name}")
            except (SparklogError, FileNotFoundError):
                continue
            if (state.log_id, state.number) == (log_id, entry_number):
                return state
        return None

    def _same_span(
        self, now: Extents, extent: Extent, originals: Extents
    ) -> tuple[Extents, Extents]:
        """Return the segments to replace, and the original extents with exactly the same offsets.

        The segment alone is replaced if some of the originals have its offsets; otherwise all
        segments of its merge.

        Args:
            now: The present extents of the partition.
            extent: The damaged segment.
            originals: The extents that were merged.

        Raises:
            DataCorruptionError: No originals have the offsets of the segments.
        """
        together = tuple(each for each in now if each.born == extent.born and each.segment)
        for damaged in ((extent,), together):
            first, end = damaged[0].base, damaged[-1].end
            same = tuple(each for each in originals if first <= each.base and each.end <= end)
            if same and (same[0].base, same[-1].end) == (first, end) and extent in damaged:
                return damaged, same
        raise self._lost(extent, "its sources have other offsets")

    def _checksum(self, key: TopicPartition, extent: Extent, state: DisklessState) -> int | None:
        """Return the CRC-32C of a segment's log from the ledger or the manifest, or None."""
        if extent.crc >= 0:
            return extent.crc
        name = manifest_object(segment_of(state, key, extent))
        try:
            raw = self._log.store.get(name, limit=MANIFEST_BYTES_MAX)
            manifest = parse(raw, path=f"{self._log.store.url}/{name}")[0]
        except (DataCorruptionError, FileNotFoundError):
            return None
        return manifest.crc32c if manifest.segment.id == extent.segment else None

    def _lost(self, extent: Extent, why: str) -> DataCorruptionError:
        return DataCorruptionError(
            f"the damaged segment can't be written again: {why}; {_COPY}",
            path=f"{self._log.store.url}/{extent.object}", first=extent.base, end=extent.end,
        )  # fmt: skip


def segment_of(state: DisklessState, key: TopicPartition, extent: Extent) -> RemoteSegment:
    """Return the description of a closed segment (topic, offsets, epochs) from the log's state."""
    return RemoteSegment(
        topic=key.topic, topic_id=state.log.topics[key.topic].id,
        partition=key.partition, id=extent.segment, base=extent.base, end=extent.end,
        max_timestamp=extent.max_timestamp, size=extent.size,
        epochs=state.epochs.get(key, ()), state=SegmentState.COPY_FINISHED, time_ms=0,
    )  # fmt: skip
