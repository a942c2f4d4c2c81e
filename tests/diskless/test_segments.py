"""A partition's extents, read."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.diskless.numbered_batches import NumberedBatches
from sparklog.diskless.segments import DisklessSegments
from sparklog.errors import DataCorruptionError
from sparklog.format.scan import rebase, scan
from sparklog.log.batch_windows import walk
from sparklog.storage.segments import PartitionSegments
from sparklog.storage.view import View
from sparklog.testing.segments_contract import SegmentsContract
from sparklog.testing.view_contract import ViewContract
from sparklog.tiered.reading.remote_segment_log import BytesLog
from tests.diskless.bucket_log import (
    RING,
    START_MS,
    T0,
    T1,
    BucketLog,
    Part,
    chunk,
    expected,
    read_all,
)


def several(log: BucketLog) -> BucketLog:
    """Merged segments, with and without a manifest, then extents of all kinds."""
    for how in ("inline", "staged", "inline", "staged"):
        log.commit([Part(T0, 40), Part(T1, 3), Part(T0, 7)], how=how)
    log.merge(T0, 0, 3)
    log.merge(T0, 1, 2, manifest=False)
    for how in ("inline", "staged", "table"):
        log.commit([Part(T0, 30), Part(T1, 2), Part(T0, 5)], how=how)
    return log


def segments_of(log: BucketLog, **given: int) -> DisklessSegments:
    found = log.view(**given).of_partition("t", 0, lambda segments: segments)
    assert isinstance(found, DisklessSegments)
    return found


class TestSegments(SegmentsContract):
    @pytest.fixture(params=["memory", "file"])
    def segments(
        self, request: pytest.FixtureRequest, store_url: str, tmp_path: Path
    ) -> PartitionSegments:
        url = store_url if request.param == "memory" else f"file://{tmp_path}"
        return segments_of(several(BucketLog(url)))


class TestSealedSegments(SegmentsContract):
    @pytest.fixture
    def segments(self, store_url: str) -> PartitionSegments:
        log = BucketLog(store_url, keyring=RING)
        for how in ("inline", "staged", "inline"):
            log.commit([Part(T0, 40), Part(T1, 3), Part(T0, 7)], how=how)
        log.merge(T0, 0, 2)
        return segments_of(log)


class TestView(ViewContract):
    @pytest.fixture(params=["memory", "file"])
    def view(self, request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> View:
        url = store_url if request.param == "memory" else f"file://{tmp_path}"
        log = several(BucketLog(url))
        log.start(T1, 2)
        return log.view()


# -- numbered batches


@pytest.mark.parametrize("check", [False, True])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_numbered_batches_are_the_same_however_they_are_read(
    check: bool, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 60))
    raw = chunk(0, count, batch_size=data.draw(st.sampled_from([100, 400, 10_000])))
    whole = bytearray(raw)
    assert rebase(whole, 1000, 7) == 1000 + count
    log = NumberedBatches(
        BytesLog("p", raw), len(raw), base=1000, count=count, epoch=7, check=check
    )
    for _ in range(10):
        at, size = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, len(raw)))
        assert log.pread(size, at) == bytes(whole)[at : at + size]
    assert log.size() == len(raw)


def test_a_stamp_is_put_on_checked_batches() -> None:
    raw = chunk(0, 50)
    log = NumberedBatches(
        BytesLog("p", raw), len(raw), base=5, count=50, epoch=1, stamp_ms=START_MS + 9
    )
    found = scan(log.pread(len(raw), 0), path="p")
    assert found.error is None and found.end == len(raw)
    assert set(found.table["max_timestamp"]) == {START_MS + 9}
    at = len(raw) // 2
    assert log.pread(100, at) == log.pread(len(raw), 0)[at : at + 100]
    bad = bytearray(raw)
    bad[-3] ^= 1
    log = NumberedBatches(
        BytesLog("p", bytes(bad)), len(bad), base=5, count=50, epoch=1, stamp_ms=START_MS + 9
    )
    good = log.pread(len(raw), 0)
    assert 0 < len(good) < len(raw)
    with pytest.raises(DataCorruptionError, match="crc"):
        log.pread(10, len(good))


@pytest.mark.parametrize(
    ("count", "size", "why"),
    [(51, 0, "51 records"), (49, 0, "49 records"), (50, -5, "beyond the end")],
)
def test_a_chunk_that_is_not_what_the_ledger_says(count: int, size: int, why: str) -> None:
    raw = chunk(0, 50)[: size or None]
    log = NumberedBatches(BytesLog("p", raw), len(raw), base=5, count=count, epoch=1)
    with pytest.raises(DataCorruptionError, match=why):
        for window in walk(log):
            log.pread(len(raw), window.batches.end)
            log.pread(1, len(raw) - 1)


def test_batches_that_do_not_count_on_are_damage() -> None:
    raw = chunk(0, 10) + chunk(0, 10)
    log = NumberedBatches(BytesLog("s3://b/o", raw), len(raw), base=5, count=20, epoch=1)
    with pytest.raises(DataCorruptionError, match=r"s3://b/o at byte \d+.*is 0, expected 10"):
        log.pread(len(raw), 0)


# -- whole logs


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_what_was_written_is_read_whatever_the_extents(data: st.DataObject) -> None:
    import fsspec

    fsspec.filesystem("memory").store.clear()
    log = BucketLog("memory://any", keyring=data.draw(st.sampled_from([None, RING])))
    view, start = log.view(threads=data.draw(st.sampled_from([0, 4]))), 0
    for _ in range(data.draw(st.integers(1, 12))):
        extents = log.state.extents.get(T0, ())
        step = data.draw(st.sampled_from(["commit", "commit", "merge", "start", "read"]))
        if step == "commit":
            counts = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
            ways = ["inline", "staged"] if log.keyring else ["inline", "staged", "table"]
            parts = [Part(T0, n, stamp_ms=data.draw(st.sampled_from([-1, 5]))) for n in counts]
            mixed = [p for part in parts for p in (part, Part(T1, 2))]
            how = data.draw(st.sampled_from(ways))
            stamp = {p.stamp_ms for p in parts}
            if how == "table" and len(stamp) > 1:
                continue
            log.commit(mixed, how=how, gap=data.draw(st.sampled_from([0, 9])))
        elif step == "merge" and extents:
            first = data.draw(st.integers(0, len(extents) - 1))
            last = data.draw(st.integers(first, len(extents) - 1))
            log.merge(T0, first, last, manifest=data.draw(st.booleans()))
        elif step == "start" and log.end() > start:
            start = data.draw(st.integers(start, log.end()))
            log.start(T0, start)
        assert read_all(view) == expected(start, log.end())
        if start < log.end():
            at = data.draw(st.integers(start, log.end()))
            end = data.draw(st.integers(at, log.end()))
            assert read_all(view, start=at, end=end) == expected(at, end)
    assert read_all(log.view()) == expected(start, log.end())
