"""Contract tests of `sparklog.storage.segments.PartitionSegments`. Each home has a subclass.

    class TestMine(SegmentsContract):
        @pytest.fixture
        def segments(self) -> PartitionSegments: ...  # three or more segments of plain records
"""

import itertools
from typing import Final

import pytest

from sparklog.format.names import INDEX, TIMEINDEX, TXNINDEX
from sparklog.log.batch_windows import walk
from sparklog.log.index_entries import is_batch_at, offset_entries
from sparklog.log.partition_reader import PartitionReader
from sparklog.storage.segments import IndexKind, PartitionSegments, SegmentMetadata

KINDS: Final[tuple[IndexKind, ...]] = (INDEX, TIMEINDEX, TXNINDEX)
_NOWHERE: Final = 2**62  # an offset at which no segment starts


class SegmentsContract:
    """Requirements of reading on segments, while no process writes."""

    def test_metadata_says_what_the_listing_says(self, segments: PartitionSegments) -> None:
        bases = segments.bases()
        assert len(bases) >= 3
        assert bases == sorted(set(bases))
        found = segments.metadata()
        assert [each.base for each in found] == bases
        for one, following in itertools.pairwise(found):
            assert one.end == following.base, "no segment is missing in between"
        assert all(each.size > 0 for each in found[:-1])
        assert all(each.where for each in found)

    def test_a_log_is_read_by_ranges(self, segments: PartitionSegments) -> None:
        for base in segments.bases():
            log = segments.log(base)
            size = log.size()
            whole = log.pread(size, 0)
            assert len(whole) == size
            assert b"".join(log.pread(7, at) for at in range(0, size, 7)) == whole
            assert log.pread(10, size) == b""
            assert log.pread(10, max(size - 3, 0)) == whole[-3:]
            assert log.path

    def test_a_segment_holds_its_offsets_and_no_other(self, segments: PartitionSegments) -> None:
        for each in segments.metadata():
            at = each.base
            for window in walk(segments.log(each.base)):
                assert window.batches.error is None
                for row in window.batches.table:
                    assert row["base_offset"] == at or segments.gaps
                    at = int(row["last_offset"]) + 1
            if each.end is not None and not segments.gaps:
                assert at == each.end

    def test_a_largest_timestamp_that_is_told_is_true(self, segments: PartitionSegments) -> None:
        for each in segments.metadata():
            told = segments.max_timestamp(each.base)
            assert told == each.max_timestamp
            assert told is not None or each.local, "a remote one is told without a request"
            if told is not None:
                windows = walk(segments.log(each.base))
                held = [int(w.batches.table["max_timestamp"].max()) for w in windows]
                assert told == max(held)

    def test_offset_indexes_lead_to_batches(self, segments: PartitionSegments) -> None:
        for base in segments.bases():
            log = segments.log(base)
            for entry in offset_entries(segments, base, size=log.size(), end=_NOWHERE):
                last = base + int(entry["relative_offset"])
                assert is_batch_at(log, int(entry["position"]), log.size(), last)

    def test_an_index_is_the_same_opened_and_whole(self, segments: PartitionSegments) -> None:
        for each in segments.metadata()[:-1]:
            for kind in KINDS:
                opened, whole = (
                    segments.index(each.base, kind),
                    segments.closed_index(each.base, kind),
                )
                assert (opened is None) == (whole is None)
                if opened is not None and whole is not None:
                    assert opened.pread(opened.size(), 0) == bytes(whole.data)

    def test_what_is_not_there(self, segments: PartitionSegments) -> None:
        segments.bases()
        with pytest.raises(FileNotFoundError):
            segments.log(_NOWHERE).pread(1, 0)
        for kind in KINDS:
            assert segments.index(_NOWHERE, kind) is None
            assert segments.closed_index(_NOWHERE, kind) is None
        assert segments.max_timestamp(_NOWHERE) is None
        with pytest.raises(FileNotFoundError):
            segments.producer_snapshot(_NOWHERE)

    def test_producer_snapshots(self, segments: PartitionSegments) -> None:
        offsets = segments.producer_snapshots()
        assert offsets == sorted(set(offsets))
        for offset in offsets:
            assert segments.producer_snapshot(offset)

    def test_leader_epochs_rise(self, segments: PartitionSegments) -> None:
        entries = segments.leader_epochs()
        assert entries == sorted(set(entries))
        assert [start for _, start in entries] == sorted({start for _, start in entries})

    def test_what_is_local_lies_behind_what_is_remote(self, segments: PartitionSegments) -> None:
        found = segments.metadata()
        local = [each.base for each in found if each.local]
        assert segments.first_local_base() == (local[0] if local else None)
        assert local == [each.base for each in found][len(found) - len(local) :]
        remote_end = segments.remote_end()
        if len(local) < len(found):
            assert remote_end is not None
            assert remote_end >= max(_end(each) for each in found if not each.local)

    def test_times_of_writing(self, segments: PartitionSegments) -> None:
        assert all(segments.modified_ms(base) > 0 for base in segments.bases())

    def test_a_reader_gets_every_record(self, segments: PartitionSegments) -> None:
        found = segments.metadata()
        start, end = found[0].base, found[-1].base
        reader = PartitionReader(segments)
        offsets = [o for rows in reader.read(start, end) for o in rows["offset"].to_pylist()]
        assert offsets == list(range(start, end)) or segments.gaps
        for at in range(start, end, 5):
            assert next(reader.read(at, end))["offset"][0].as_py() >= at


def _end(segment: SegmentMetadata) -> int:
    return segment.base if segment.end is None else segment.end
