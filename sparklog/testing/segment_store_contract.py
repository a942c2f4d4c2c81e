"""Contract tests of `sparklog.storage.segment_store.SegmentStore`. Each home has a subclass.

    class TestMine(SegmentStoreContract[MySegment]):
        @pytest.fixture
        def home(self) -> SegmentStoreHome[MySegment]: ...
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol

import pytest

from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import INDEX, TIMEINDEX
from sparklog.log.index_entries import is_batch_at, offset_entries
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.segment_store import (
    LogSegmentData,
    SegmentPut,
    SegmentStore,
    SegmentT,
    SourceChangedError,
    source_changed,
)
from sparklog.storage.segments import PartitionSegments, SegmentLog
from sparklog.testing.faults import SimulatedKill

_FAR: Final = 2**62


class SegmentStoreHome(Protocol[SegmentT]):
    """An empty home, segments to put there, and the faults of the home's store."""

    puts: Sequence[SegmentPut[SegmentT]]
    """Three closed segments or more of one partition, from the oldest on, without gaps between.

    With an entry or more in their offset indexes.
    """

    def store(self) -> SegmentStore[SegmentT]:
        """Return the home's store, opened like by another process."""

    def crashing(self, effect: int) -> SegmentStore[SegmentT]:
        """Return a store. Its process is killed (SimulatedKill) before its nth effect, from 1."""

    def down(self) -> SegmentStore[SegmentT]:
        """Return a store that does not answer (StorageUnavailableError)."""

    def reader(self) -> PartitionSegments:
        """Return the partition for a reader that knows only the store, listed now."""

    def successor(self, put: SegmentPut[SegmentT], old: SegmentT) -> SegmentPut[SegmentT]:
        """Return a put of the same data with another id, which replaces the earlier segment."""

    def objects(self) -> dict[str, bytes]:
        """Return all stored objects by name, without unfinished uploads."""


class _Other:
    """The same as `data`, except for a subclass's changes."""

    def __init__(self, data: LogSegmentData) -> None:
        self.data = data

    @property
    def where(self) -> str:
        return self.data.where

    def version(self) -> object:
        return self.data.version()

    def log(self) -> contextlib.AbstractContextManager[SegmentLog]:
        return self.data.log()

    def transaction_index(self) -> bytes:
        return self.data.transaction_index()

    def producer_snapshot(self) -> bytes:
        return self.data.producer_snapshot()

    def leader_epochs(self) -> Epochs:
        return self.data.leader_epochs()


class _Retired(_Other):
    def version(self) -> object:
        raise source_changed(self.where)


class _Replaced(_Other):
    def version(self) -> object:
        return object()  # not equal to any other


class _Gone(_Other):
    def log(self) -> contextlib.AbstractContextManager[SegmentLog]:
        raise FileNotFoundError(self.where)


class _Damaged(_Other):
    @contextlib.contextmanager
    def log(self) -> Iterator[SegmentLog]:
        with self.data.log() as log:
            yield _Flipped(log)


class _Read(_Other):
    """Knows when everything but the log was read."""

    def __init__(self, data: LogSegmentData) -> None:
        super().__init__(data)
        self._asked: set[str] = set()

    @property
    def done(self) -> bool:
        return len(self._asked) == 2

    def producer_snapshot(self) -> bytes:
        self._asked.add("snapshot")
        return super().producer_snapshot()

    def leader_epochs(self) -> Epochs:
        self._asked.add("epochs")
        return super().leader_epochs()


class _Flipped:
    """A log with a flipped last bit."""

    def __init__(self, log: SegmentLog) -> None:
        self._log, self.path = log, log.path

    def size(self) -> int:
        return self._log.size()

    def pread(self, size: int, at: int) -> bytes:
        data = bytearray(self._log.pread(size, at))
        if data and at + len(data) == self.size():
            data[-1] ^= 1
        return bytes(data)


def _fine() -> None:
    pass


class SegmentStoreContract(Generic[SegmentT]):
    """Requirements of copying, merging, cleaning and expiration on a segment store."""

    def test_what_was_put_is_read(self, home: SegmentStoreHome[SegmentT]) -> None:
        results = list(home.store().put(home.puts, check=_fine))
        assert {r.put.data.where for r in results} == {p.data.where for p in home.puts}
        assert all(r.segment is not None and r.error is None for r in results)
        assert all(r.stored_bytes > 0 for r in results)
        segments = home.reader()
        listed = segments.metadata()
        assert len(listed) == len(home.puts)
        for put, found in zip(home.puts, listed, strict=True):
            base, end = found.base, found.end
            assert end is not None
            with put.data.log() as log:
                raw = log.pread(log.size(), 0)
            kept = segments.log(base)
            assert kept.pread(kept.size(), 0) == raw
            assert found.size == len(raw)
            assert segments.producer_snapshot(end) == put.data.producer_snapshot()
            for kind in (INDEX, TIMEINDEX):
                assert segments.closed_index(base, kind) is not None
            entries = offset_entries(segments, base, size=len(raw), end=_FAR)
            assert len(entries)
            for entry in entries:
                last = base + int(entry["relative_offset"])
                assert is_batch_at(kept, int(entry["position"]), len(raw), last)
        assert segments.leader_epochs() == home.puts[-1].data.leader_epochs()

    def test_put_again_it_is_the_same(self, home: SegmentStoreHome[SegmentT]) -> None:
        (first,) = home.store().put(home.puts[:1], check=_fine)
        stored = home.objects()
        (again,) = home.store().put(home.puts[:1], check=_fine)
        assert again.segment == first.segment
        assert home.objects() == stored
        (resumed,) = home.store().put([_resumed(home.puts[0])], check=_fine)
        assert resumed.segment == first.segment
        assert home.objects() == stored

    @pytest.mark.parametrize("resumed", [False, True])
    def test_a_put_is_cut_anywhere(self, home: SegmentStoreHome[SegmentT], resumed: bool) -> None:
        """The segment is complete or missing.

        After a repeated put it is complete, and no other object remains.
        """
        put = home.puts[0]
        list(home.store().put([put], check=_fine))
        whole, shown = home.objects(), _shown(home)
        segment = put.segment
        for cut in _cuts():
            home.store().delete([segment], check=_fine)
            with contextlib.suppress(SimulatedKill):
                list(home.crashing(cut).put([put], check=_fine))
                break
            assert _shown(home) in ({}, shown)
            (result,) = home.store().put([_resumed(put) if resumed else put], check=_fine)
            assert result.segment is not None
            assert _shown(home) == shown
            assert home.objects() == whole
        assert cut > 2, "a put has more than one effect to be cut"

    def test_what_a_cut_put_left_is_deleted(self, home: SegmentStoreHome[SegmentT]) -> None:
        for cut in _cuts():
            with contextlib.suppress(SimulatedKill):
                list(home.crashing(cut).put(home.puts[:1], check=_fine))
                break
            home.store().delete([home.puts[0].segment], check=_fine)
            assert _shown(home) == {}

    @pytest.mark.parametrize("wrong", [_Retired, _Replaced, _Gone, _Damaged])
    def test_a_source_that_is_not_right_gets_no_segment(
        self, home: SegmentStoreHome[SegmentT], wrong: Callable[[LogSegmentData], LogSegmentData]
    ) -> None:
        """Only the faulty segment fails. After its deletion no object of it remains."""
        bad = dataclasses.replace(home.puts[0], data=wrong(home.puts[0].data))
        results = list(home.store().put([bad, *home.puts[1:]], check=_fine))
        (failed,) = [r for r in results if r.error is not None]
        assert failed.put == bad
        assert failed.segment is None
        expected = DataCorruptionError if wrong is _Damaged else SourceChangedError
        assert isinstance(failed.error, expected)
        others = _shown(home)
        assert len(others) == len(home.puts) - 1
        home.store().delete([bad.segment], check=_fine)
        assert _shown(home) == others

    def test_a_store_that_is_down_is_the_error_of_all(
        self, home: SegmentStoreHome[SegmentT]
    ) -> None:
        for result in home.down().put(home.puts, check=_fine):
            assert isinstance(result.error, StorageUnavailableError)
            assert result.error.retriable
        with pytest.raises(StorageUnavailableError):
            home.down().delete([p.segment for p in home.puts], check=_fine)

    def test_a_lost_lease_ends_a_put(self, home: SegmentStoreHome[SegmentT]) -> None:
        """Whenever the lease is lost.

        Visible segments are complete, and the caller gets an error.
        """
        for allowed in range(100):
            results = list(home.store().put(home.puts[:1], check=_lost_after(allowed)))
            if results[0].error is None:
                break
            assert isinstance(results[0].error, LeaseLostError)
            assert _shown(home) == {}
        assert allowed > 2, "looked at before, while and after the segment is read"
        assert len(_shown(home)) == 1

    def test_a_lease_that_is_lost_at_the_end_of_reading_ends_a_put(
        self, home: SegmentStoreHome[SegmentT]
    ) -> None:
        """Another service may have taken over, so no segment becomes visible."""
        data = _Read(home.puts[0].data)

        def check() -> None:
            if data.done:
                raise LeaseLostError("lost")

        put = dataclasses.replace(home.puts[0], data=data)
        (result,) = home.store().put([put], check=check)
        assert data.done
        assert isinstance(result.error, LeaseLostError)
        assert _shown(home) == {}

    def test_deleted_they_are_gone_and_others_stay(self, home: SegmentStoreHome[SegmentT]) -> None:
        store = home.store()
        made = [r.segment for r in store.put(home.puts[:2], check=_fine) if r.segment is not None]
        kept = home.objects()
        (last,) = store.put(home.puts[2:3], check=_fine)
        assert last.segment is not None
        store.delete([last.segment], check=_fine)
        assert home.objects() == kept
        store.delete(made[:1], check=_fine)
        assert len(_shown(home)) == 1
        store.delete(made, check=_fine)  # the first is deleted already
        store.delete([p.segment for p in home.puts], check=_fine)  # the second never existed
        assert _shown(home) == {}
        assert home.objects() == {}

    def test_a_deletion_is_cut_anywhere(self, home: SegmentStoreHome[SegmentT]) -> None:
        """Each segment is complete or missing. Repeated, all are deleted."""
        for cut in _cuts():
            results = list(home.store().put(home.puts, check=_fine))
            made = [r.segment for r in results if r.segment is not None]
            whole = _shown(home)
            with contextlib.suppress(SimulatedKill):
                home.crashing(cut).delete(made, check=_fine)
                break
            assert _shown(home).items() <= whole.items()
            home.store().delete(made, check=_fine)
            assert home.objects() == {}
        assert cut > len(home.puts)

    def test_a_lost_lease_ends_a_deletion(self, home: SegmentStoreHome[SegmentT]) -> None:
        results = list(home.store().put(home.puts, check=_fine))
        made = [r.segment for r in results if r.segment is not None]
        whole, stored = _shown(home), home.objects()
        with pytest.raises(LeaseLostError):
            home.store().delete(made, check=_lost_after(0))
        assert home.objects() == stored
        for allowed in range(1, 100):
            with contextlib.suppress(LeaseLostError):
                home.store().delete(made, check=_lost_after(allowed))
                break
            assert _shown(home).items() <= whole.items()
        assert home.objects() == {}

    def test_a_successor_takes_the_place(self, home: SegmentStoreHome[SegmentT]) -> None:
        """Readers always see the older or the newer segment; the older is deleted later."""
        store, (first, *_) = home.store(), home.puts
        (old,) = store.put([first], check=_fine)
        assert old.segment is not None
        shown, stored = _shown(home), home.objects()
        put = home.successor(first, old.segment)
        for cut in _cuts():
            with contextlib.suppress(SimulatedKill):
                list(home.crashing(cut).put([put], check=_fine))
                break
            assert _shown(home) == shown
        assert stored.items() <= home.objects().items()
        store.delete([old.segment], check=_fine)
        assert _shown(home) == shown
        assert not stored.keys() & home.objects().keys()


def _resumed(put: SegmentPut[SegmentT]) -> SegmentPut[SegmentT]:
    return dataclasses.replace(put, resumed=True)


def _cuts() -> range:
    return range(1, 100)


def _lost_after(allowed: int) -> Callable[[], None]:
    left = iter(range(allowed))

    def check() -> None:
        if next(left, None) is None:
            raise LeaseLostError("lost")

    return check


def _shown(home: SegmentStoreHome[SegmentT]) -> dict[int, bytes]:
    """Return {base: log} of the segments that a reader of the store finds, each read completely."""
    segments = home.reader()
    try:
        bases = segments.bases()
    except FileNotFoundError:
        return {}
    found = {}
    for base in bases:
        log = segments.log(base)
        found[base] = log.pread(log.size(), 0)
        assert segments.closed_index(base, INDEX) is not None
    return found
