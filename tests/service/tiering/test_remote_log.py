"""The order in which copies go."""

from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.logdir.home import commits_of
from sparklog.service.tiering.remote_log import delete_copies
from sparklog.storage.lease import LeaseLostError
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.copying.remote_storage_manager import RemoteStorageManager
from sparklog.tiered.layout.manifest import log_object
from sparklog.tiered.remote_log_metadata.topic import ensure_topic, publish
from sparklog.tiered.remote_segment import SegmentState
from tests.tiered.archives import copies_of
from tests.tiered.logs import filled, puts_of


def test_it_is_recorded_before_anything_goes(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    """Whoever reads must not look for a copy of which an object is gone."""
    with filled(tmp_path / "log", clock) as log:
        ensure_topic(commits_of(log))
        segment_store = RemoteStorageManager(store, clock)
        copied = [segment_store.copy(put).segment for put in puts_of(log, clock)]
        publish(commits_of(log), clock, copied, found=True)
        names = {one.name for one in store.list()}
        store.down(10**6)
        with pytest.raises(StorageUnavailableError):
            list(delete_copies(commits_of(log), clock, segment_store, copied))
        states = {copy.state for copy in copies_of(log, clock)}
        assert states == {SegmentState.DELETE_STARTED}
        clock.advance(10**6)
        assert {one.name for one in store.list()} == names
        done = list(delete_copies(commits_of(log), clock, segment_store, copies_of(log, clock)))
        assert {copy.state for copy in done} == {SegmentState.DELETE_FINISHED}
        assert not copies_of(log, clock)
        assert not store.list()


def test_each_request_needs_the_lease(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    """Once it is lost, another service may be at work: the logs stay, though the manifests went."""
    calls = iter([None, None, LeaseLostError("lost")])

    def check() -> None:
        error = next(calls)
        if error is not None:
            raise error

    with filled(tmp_path / "log", clock) as log:
        ensure_topic(commits_of(log))
        segment_store = RemoteStorageManager(store, clock)
        copied = [segment_store.copy(put).segment for put in puts_of(log, clock)]
        publish(commits_of(log), clock, copied, found=True)
        with pytest.raises(LeaseLostError):
            list(delete_copies(commits_of(log), clock, segment_store, copied, check=check))
        assert {one.name for one in store.list()} == {log_object(copy) for copy in copied}
