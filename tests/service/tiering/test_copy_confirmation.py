"""No local segment goes unless its copy is in this very store now."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.topic_owners import PREFIX
from tests.service.tiering.test_remote_log_manager import HOUR, bases, check, once, service, stepped
from tests.tiered.archives import copies_of as copies
from tests.tiered.logs import filled, grow


def shrink(log: sparklog.Log) -> None:
    """Have all local segments with a copy become due."""
    log.alter_topic("t", config={"local.retention.bytes": 0})


def emptied(bucket: Bucket, _: list[str]) -> None:
    bucket.objects.clear()


def emptied_but_for_owners(bucket: Bucket, _: list[str]) -> None:
    bucket.objects = {n: o for n, o in bucket.objects.items() if n.startswith(PREFIX)}


def one_log_gone(bucket: Bucket, names: list[str]) -> None:
    del bucket.objects[names[1]]


def one_manifest_gone(bucket: Bucket, names: list[str]) -> None:
    del bucket.objects[names[0]]


def one_log_cut(bucket: Bucket, names: list[str]) -> None:
    data, when = bucket.objects[names[1]]
    bucket.objects[names[1]] = data[:-1], when


@pytest.mark.parametrize(
    "spoil", [emptied, emptied_but_for_owners, one_log_gone, one_manifest_gone, one_log_cut]
)
def test_what_is_not_there_is_not_relied_on(
    path: str,
    clock: ManualClock,
    store: FaultStore,
    spoil: Callable[[Bucket, list[str]], None],
) -> None:
    """The round that finds it out deletes nothing; later ones what was copied anew."""
    with filled(path, clock, 20) as log, stepped(service(path, clock, store)) as running:
        running.run_once()
        before = bases(path)
        oldest = min(copies(log, clock), key=lambda s: s.base)
        spoil(store.bucket, [manifest_object(oldest), log_object(oldest)])
        shrink(log)
        report = running.run_once()
        assert bases(path) == before
        assert not report.deleted
        assert any("stay" in e and "right store" in e for e in report.errors)


def test_what_was_made_anew_is_relied_on(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 20) as log:
        once(path, clock, store)
        before = bases(path)
        oldest = min(copies(log, clock), key=lambda s: s.base)
        del store.bucket.objects[log_object(oldest)]
        shrink(log)
        for _ in range(3):
            once(path, clock, store)
        assert bases(path)[0] >= before[-1]
        check(path, log, clock, store)


def test_another_store_under_a_running_service(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """Its first look copies nothing there, and nothing goes here."""
    with filled(path, clock, 20) as log:
        running = service(path, clock, store)
        running._open()
        running.run_once()
        whole, before = dict(store.bucket.objects), bases(path)
        store.bucket.objects.clear()
        shrink(log)
        clock.advance(HOUR)
        for _ in range(2):
            report = running.run_once()
            assert any("another store" in e for e in report.errors)
            assert (bases(path), store.bucket.names()) == (before, [])
        store.bucket.objects.update(whole)  # the right one again
        report = running.run_once()
        assert not report.errors
        assert report.deleted
        running.close()
        check(path, log, clock, store)


def test_a_copy_that_came_to_a_wrong_place(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """Copied between two looks, to an empty directory where a disk was mounted, say."""
    with filled(path, clock, 20, partitions=2) as log, stepped(service(path, clock, store)) as it:
        it.run_once()
        whole = dict(store.bucket.objects)
        store.bucket.objects.clear()
        grow(log, clock, 9)
        assert it.run_once().uploaded
        before = bases(path)
        shrink(log)
        report = it.run_once()
        assert (report.deleted, bases(path)) == ([], before)
        assert any("no longer contains this log's owner object" in e for e in report.errors)
        clock.advance(HOUR)
        assert any("another store" in e for e in it.run_once().errors)
        assert bases(path) == before
        store.bucket.objects.update(whole)
        clock.advance(HOUR)
        it.run_once()
        assert it.run_once().deleted
        check(path, log, clock, store)


def test_a_store_that_does_not_answer(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 20, partitions=3) as log:
        once(path, clock, store)
        shrink(log)
        running = service(path, clock, store)
        running._open()
        store.down(10**9)
        report = running.run_once()
        assert not report.deleted
        assert len([e for e in report.errors if "local segments stay" in e]) == 1
        store.requests.windows.clear()
        assert running.run_once().deleted
        running.close()


class TwoFailTogether(FaultStore):
    """Once armed, each of two requests waits until the other one is under way; then both fail."""

    meeting: threading.Barrier | None = None

    def get(self, name: str, start: int = 0, end: int | None = None, **given: int) -> bytes:
        if self.meeting is None or not name.endswith(".log"):
            return super().get(name, start, end, **given)
        self.meeting.wait(240)
        raise StorageUnavailableError("the store is away")


def test_a_store_that_fails_several_threads_is_told_once(path: str, clock: ManualClock) -> None:
    store = TwoFailTogether(clock=clock)
    with filled(path, clock, 20, partitions=3) as log:
        once(path, clock, store)
        shrink(log)
        store.meeting = threading.Barrier(2)
        threads = {"remote.log.manager.copier.thread.pool.size": "2"}
        report = once(path, clock, store, options=threads)
    assert not report.deleted
    assert [e for e in report.errors if "local segments stay" in e] == [
        "local segments stay: the store is away"
    ]


def test_a_dry_round_says_the_same(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 20) as log:
        once(path, clock, store)
        shrink(log)
        plan = once(path, clock, store, dry_run=True)
        assert plan.deleted
        emptied_but_for_owners(store.bucket, [])
        plan = once(path, clock, store, dry_run=True)
        assert not plan.deleted


def test_a_dry_round_heeds_sizes(path: str, clock: ManualClock, store: FaultStore) -> None:
    """It reads no copies; what a listing shows it takes into account."""
    with filled(path, clock, 20) as log:
        once(path, clock, store)
        shrink(log)
        whole = once(path, clock, store, dry_run=True).deleted
        oldest = min(copies(log, clock), key=lambda s: s.base)
        one_log_cut(store.bucket, [manifest_object(oldest), log_object(oldest)])
        assert whole and not once(path, clock, store, dry_run=True).deleted


def test_only_what_is_due_is_listed(path: str, clock: ManualClock, store: FaultStore) -> None:
    running = service(path, clock, store)
    with filled(path, clock, 12, partitions=2) as log, stepped(running):
        running.run_once()
        before = store.counts.lists
        running.run_once()
        assert store.counts.lists == before
        shrink(log)
        assert running.run_once().deleted
        assert store.counts.lists == before + 2
