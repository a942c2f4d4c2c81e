"""The service with remote storage: copies, both retentions, what fails, who takes over."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.log.admin import drop_topic
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.home import commits_of
from sparklog.logdir.partition.segment_swap import retire
from sparklog.service import Service, verify
from sparklog.service.announcement_file import NAME
from sparklog.storage.round_report import Report
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.object_names import parse_log_start
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_log_metadata.rebuild import rebuild
from sparklog.tiered.remote_segment import SegmentState
from sparklog.tiered.settings import read_settings
from tests.tiered.archives import copied_names, readable
from tests.tiered.archives import copies_of as copies
from tests.tiered.buckets import archive_log
from tests.tiered.logs import filled, grow, manifests
from tests.waiting import until

URL = "memory://bucket"
HOUR = 3_600_000


def service(path: str, clock: ManualClock, store: FaultStore, **given: Any) -> Service:
    options = {"remote.log.manager.copier.thread.pool.size": "1"} | given.pop("options", {})
    return Service(
        path, remote=given.pop("remote", URL), options=options, clock=clock,
        opening=lambda url, options: store, **given,
    )  # fmt: skip


def once(path: str, clock: ManualClock, store: FaultStore, **given: Any) -> Report:
    dry_run = given.pop("dry_run", False)
    return service(path, clock, store, **given).run_once(dry_run=dry_run)


def local_starts(log: sparklog.Log) -> dict[tuple[str, int], int]:
    with commits_of(log).exclusive():
        return dict(commits_of(log).state.local_starts)


def bases(path: str) -> list[int]:
    return sorted(int(p.stem) for p in Path(path, "t-0").glob("*.log"))


def check(path: str, log: sparklog.Log, clock: ManualClock, store: FaultStore) -> None:
    """Every offset from the log start on can be read; the bucket is what the metadata says."""
    readable(log, clock, store)
    expected = {name for s in copies(log, clock) for name in (manifest_object(s), log_object(s))}
    held = {name for name in copied_names(store.bucket) if not name.endswith(".log-start")}
    assert held == expected
    assert verify(path).ok


def test_closed_segments_are_copied(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock) as log:
        closed = bases(path)[:-1]
        report = once(path, clock, store)
        assert not report.errors
        assert [u.base for u in report.uploaded] == closed
        assert {s.state for s in copies(log, clock)} == {SegmentState.COPY_FINISHED}
        assert bases(path)[:-1] == closed
        assert read_settings(LOCAL, path).url == URL  # type: ignore[union-attr]
        assert "copied to remote storage" in str(report)
        json.dumps(report.to_dict())
        again = once(path, clock, store, remote=None)  # the log says where
        assert not again.worked
        check(path, log, clock, store)
    assert verify(path).ok


def test_a_dry_run_says_what_would_go(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, local_retention_bytes="500", retention_bytes="2000") as log:
        plan = once(path, clock, store, dry_run=True)
        assert plan.uploaded
        assert plan.remote_lag_bytes == sum(u.bytes for u in plan.uploaded)
        assert not store.effects
        assert read_settings(LOCAL, path) is None
        assert not Path(path, f"{REMOTE_METADATA}-0").exists()
        assert "would be copied" in str(plan)
        done = once(path, clock, store)
        assert [u.base for u in done.uploaded] == [u.base for u in plan.uploaded]
        grow(log, clock, 20)
        once(path, clock, store)
        effects = len(store.effects)
        plan = once(path, clock, store, dry_run=True)
        assert len(store.effects) == effects
        check(path, log, clock, store)


def test_a_dry_round_counts_what_it_would_have_copied(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """All that the round then does: copies, what goes here for them, what goes there at once."""
    config = {"local_retention_bytes": "500", "retention_bytes": "2000"}
    with filled(path, clock, 30, **config) as log:
        for _ in range(3):
            plan = once(path, clock, store, dry_run=True)
            assert plan.uploaded and plan.deleted and plan.removed
            words = str(plan)
            assert words.index("would be copied") < words.index("would be deleted here")
            done = once(path, clock, store)
            for name in ("deleted", "removed", "uploaded", "rolled", "notes", "errors"):
                assert getattr(plan, name) == [
                    replace(each, stored_bytes=0) if name == "uploaded" else each
                    for each in getattr(done, name)
                ], name
            check(path, log, clock, store)
            grow(log, clock, 20)


def test_a_dry_round_leaves_a_running_service_as_it_was(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """What it foresaw is no reason to delete a segment that has no copy."""
    with filled(path, clock, 30, local_retention_bytes="500") as log:
        running = service(path, clock, store)
        with running:
            assert running.run_once(dry_run=True).deleted
            held = bases(path)
            upkeep = running._leadership.upkeep
            assert upkeep is not None
            report = Report(path=path, time_ms=clock())
            upkeep.work("retain", report)
            assert not report.deleted
            assert bases(path) == held
        check(path, log, clock, store)


def test_retention_alone_copies_nothing(path: str, clock: ManualClock, store: FaultStore) -> None:
    """It takes local segments that have a copy, and copies that are due; dry or not the same."""
    config = {"local_retention_bytes": "500", "retention_bytes": "3000"}
    with filled(path, clock, 30, **config) as log:
        assert not service(path, clock, store).retain().deleted  # nothing has a copy
        assert not copied_names(store.bucket)
        once(path, clock, store)
        clock.advance(HOUR)
        log.alter_topic("t", config={"retention.bytes": "1500", "local.retention.bytes": "0"})
        plan = service(path, clock, store, remote=None).retain(dry_run=True)
        done = service(path, clock, store, remote=None).retain()
        assert plan.removed and plan.removed == done.removed
        assert plan.deleted == done.deleted
        assert not (done.uploaded or done.errors)
        check(path, log, clock, store)


def test_what_goes_for_good_is_announced(
    path: str, clock: ManualClock, store: FaultStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, a round before the first copies go, and in a preview; local ones are no loss."""
    config = {"local_retention_ms": "20000", "retention_ms": "60000"}
    with filled(path, clock, 30, **config) as log:
        Path(path, NAME).unlink()
        once(path, clock, store)
        assert "deleted" not in caplog.text
        clock.advance(45_000)
        with caplog.at_level(logging.INFO, "sparklog.service"):
            once(path, clock, store, dry_run=True)
        assert "would be deleted" in caplog.text
        assert log.offsets("t")[0] == (0, 30)
        assert not once(path, clock, store).removed
        assert log.offsets("t")[0] == (0, 30)
        assert once(path, clock, store).removed
        (said,) = [r.getMessage() for r in caplog.records if "are due" in r.getMessage()]
        assert said.startswith(f"t-0: offsets [0, {log.offsets('t')[0][0]}) are due")
        assert "copies" in said
        assert "set retention.ms=-1" in said


def test_local_retention_then_the_whole(path: str, clock: ManualClock, store: FaultStore) -> None:
    """Local segments go first; the log start moves only when copies expire."""
    config = {"local_retention_ms": "20000", "retention_ms": "60000"}
    with filled(path, clock, 30, **config) as log:
        report = once(path, clock, store)
        assert all(d.local for d in report.deleted)
        assert bases(path)[0] > 0
        assert local_starts(log) == {("t", 0): bases(path)[0]}
        assert log.offsets("t")[0] == (0, 30)
        check(path, log, clock, store)
        clock.advance(45_000)
        report = once(path, clock, store)
        start = log.offsets("t")[0][0]
        assert 0 < start < 30
        assert {r.rule for r in report.removed} == {"retention.ms"}
        assert start == max(r.end for r in report.removed)
        check(path, log, clock, store)
        clock.advance(HOUR)
        for _ in range(4):  # the active one is rolled, copied, and then expires like the others
            once(path, clock, store)
        assert log.offsets("t")[0] == (30, 30)
        assert not copied_names(store.bucket)
        check(path, log, clock, store)
        grow(log, clock, 5)
        check(path, log, clock, store)


def test_size_of_both_tiers(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 40, local_retention_bytes="800", retention_bytes="3000") as log:
        once(path, clock, store)
        once(path, clock, store)
        local = sum(p.stat().st_size for p in Path(path, "t-0").glob("*.log"))
        remote = [s for s in copies(log, clock) if s.base < bases(path)[0]]
        whole = local + sum(s.size for s in remote)
        assert 3000 <= whole < 3000 + 400
        assert 800 <= local < 800 + 400
        check(path, log, clock, store)


def test_it_is_there_after_a_close(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 30, local_retention_bytes="0") as log:
        once(path, clock, store)
        local_start = bases(path)[0]
        assert local_start > 0
    assert verify(path).ok
    with sparklog.open(path, "rw", clock=clock) as log:
        assert commits_of(log).state.epoch == 0
        assert local_starts(log) == {("t", 0): local_start}
        assert log.offsets("t")[0] == (0, 30)
        grow(log, clock, 10)
        once(path, clock, store)
        check(path, log, clock, store)


def test_a_missing_local_segment_is_still_damage(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30, local_retention_bytes="1000"):
        once(path, clock, store)
    first = bases(path)[0]
    assert first > 0
    Path(path, "t-0", f"{first:020d}.log").unlink()
    found = verify(path)
    assert not found.ok
    assert any("missing" in f.what for f in found.findings if f.first == first)


def test_only_one_commit_tells_of_a_batch(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 60) as log:
        before = log.commits().num_rows
        report = once(path, clock, store)
        assert len(report.uploaded) > 10
        assert log.commits().num_rows - before < len(report.uploaded)


def test_the_store_down_for_an_hour(path: str, clock: ManualClock, store: FaultStore) -> None:
    """Writing goes on; the rest waits, with growing pauses, then catches up."""
    with (
        filled(path, clock, 30, local_retention_bytes="1500") as log,
        stepped(service(path, clock, store)) as running,
    ):
        running.tick()  # what it copied goes by size in the next one
        running.tick()
        kept, copied = bases(path), copies(log, clock)
        assert kept[0] > 0
        store.down(HOUR)
        rounds: list[int] = []
        stayed: list[str] = []
        until = clock() + HOUR
        while clock() < until:
            grow(log, clock, 1)
            before = running.last_report
            running.tick()
            report = running.last_report
            stayed += report.errors
            if report is not before and any("remote storage" in e for e in report.errors):
                rounds.append(report.time_ms)
            clock.advance(9_000)
        assert copies(log, clock) and {s.id for s in copied} <= {s.id for s in copies(log, clock)}
        # Nobody could tell that the copies were still there.
        assert bases(path)[0] == kept[0]
        assert any("local segments stay: can't" in e for e in stayed)
        gaps = [b - a for a, b in itertools.pairwise(rounds)]
        assert max(gaps) >= 30_000
        for _ in range(40):
            clock.advance(31_000)
            running.tick()
        assert not running.last_report.errors
        check(path, log, clock, store)
        local = sum(p.stat().st_size for p in Path(path, "t-0").glob("*.log"))
        assert local < 1500 + 400 + 10 * 400


class stepped:
    """A service without threads: the test calls `tick`."""

    def __init__(self, running: Service) -> None:
        self.running = running

    def __enter__(self) -> Service:
        self.running._open()
        return self.running

    def __exit__(self, *exc: object) -> None:
        self.running.close()


def test_a_deleted_topics_copies_go(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 20, partitions=2) as log:
        once(path, clock, store)
        prefix = log.topic("t").id
        stray = f"t-0-{prefix}/{0:020d}-{'A' * 22}.log"
        store.put(stray, b"of an upload that nobody knows")
        log.delete_topic("t")
        report = once(path, clock, store)
        assert {r.rule for r in report.removed} == {"topic"}
        assert not copied_names(store.bucket)
        assert not copies(log, clock)
        store.put(stray, b"of a service that slept")
        clock.advance(7 * HOUR)
        once(path, clock, store)
        assert not copied_names(store.bucket)
        log.create_topic("t", 2, config={"remote.storage.enable": True})
        check(path, log, clock, store)


def test_a_deleted_topic_comes_back_with_its_copies(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """No round takes a copy before the topic is given up; then all of them go."""
    config = {"local_retention_bytes": "0", "file_delete_delay_ms": str(HOUR)}
    with filled(path, clock, 20, partitions=2, **config) as log:
        for _ in range(2):
            once(path, clock, store)
        before, names = readable(log, clock, store), copied_names(store.bucket)
        assert commits_of(log).state.local_starts
        log.delete_topic("t")
        clock.advance(HOUR - 1)
        often = {"service.remote.sweep.interval.ms": "0"}
        assert not once(path, clock, store, options=often).removed
        assert copied_names(store.bucket) == names
        log.undelete_topic("t")
        assert readable(log, clock, store) == before
        check(path, log, clock, store)
        with pytest.raises(InvalidRequestError, match="has remote copies"):
            log.delete_topic("t")
            log.undelete_topic("t", new_name="u")
        clock.advance(HOUR)
        for _ in range(2):
            once(path, clock, store)
        assert not copied_names(store.bucket)


def test_records_deleted_by_hand_go_there_too(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30, local_retention_bytes="0") as log:
        once(path, clock, store)
        log.delete_records("t", {0: 14})
        report = once(path, clock, store)
        assert report.removed
        assert all(r.end <= 14 for r in report.removed)
        assert min(s.end for s in copies(log, clock)) > 14
        check(path, log, clock, store)


def test_a_log_start_within_a_copy_shows_in_the_bucket(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30, local_retention_bytes="0") as log:
        once(path, clock, store)
        for _ in range(2):  # the second takes the place of the first
            segment = [s for s in copies(log, clock) if s.end - s.base > 1][2]
            start = segment.base + 1
            log.delete_records("t", {0: start})
            once(path, clock, store)
            starts = [name for name in store.bucket.names() if name.endswith(".log-start")]
            assert [parse_log_start(name.rpartition("/")[2]) for name in starts] == [start]
            with archive_log(URL, RemoteObjects(lambda: store, BlockCache(0))) as archive:
                assert archive.offsets("t")[0][0] == start
                assert archive.read("t").read_all()["offset"][0].as_py() == start
        check(path, log, clock, store)


def test_turned_off(path: str, clock: ManualClock, store: FaultStore) -> None:
    """As Kafka: tiering can be turned off only by giving up what is remote."""
    with filled(path, clock, 30, local_retention_bytes="500") as log:
        once(path, clock, store)
        local_start = bases(path)[0]
        with pytest.raises(InvalidRequestError, match=r"remote\.log\.delete\.on\.disable"):
            log.alter_topic("t", config={"remote.storage.enable": False})
        off = {"remote.storage.enable": False, "remote.log.delete.on.disable": True}
        log.alter_topic("t", config=off)
        once(path, clock, store)
        assert log.offsets("t")[0] == (local_start, 30)
        assert not copied_names(store.bucket)
        check(path, log, clock, store)


def test_copying_stopped(path: str, clock: ManualClock, store: FaultStore) -> None:
    """remote.log.copy.disable: what is remote stays and expires, then local ones do (KIP-950)."""
    with filled(path, clock, 30, local_retention_ms="10000", retention_ms="100000") as log:
        once(path, clock, store)
        stopped = {"remote.log.copy.disable": True, "local.retention.ms": -2}
        log.alter_topic("t", config=stopped)
        grow(log, clock, 10)
        kept = bases(path)
        report = once(path, clock, store)
        assert not report.uploaded
        assert bases(path) == kept  # local retention is that of the whole again
        check(path, log, clock, store)
        clock.advance(HOUR)
        for _ in range(3):
            once(path, clock, store)
        assert log.offsets("t")[0] == (40, 40)
        assert not copied_names(store.bucket)
        check(path, log, clock, store)


def test_registered_readers_hold_the_whole_not_the_local_segments(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    config = {"local_retention_bytes": "0", "retention_ms": "1000"}
    with filled(path, clock, 30, **config, retention_respect_readers="true") as log:
        log.commit_offsets("g", {"t": {0: 10}})
        clock.advance(HOUR)
        once(path, clock, store)
        once(path, clock, store)
        start = log.offsets("t")[0][0]
        assert 0 < start <= 10
        assert bases(path)[0] > 10
        check(path, log, clock, store)


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_damaged_segment_stays_here(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 30, local_retention_bytes="0") as log:
        second = bases(path)[1]
        file = Path(path, "t-0", f"{second:020d}.log")
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        file.write_bytes(raw)
        report = once(path, clock, store)
        assert any("crc" in e for e in report.errors)
        assert second not in [s.base for s in copies(log, clock)]
        assert bases(path)[0] == second  # what is behind it stays, too
        assert not [n for n in store.bucket.names() if f"/{second:020d}" in n]


def test_a_damaged_partition_is_skipped_until_its_topic_is_replaced(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30) as log:
        file = Path(path, "t-0", f"{bases(path)[1]:020d}.log")
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        file.write_bytes(raw)
        running = service(path, clock, store)
        running._leadership.open()  # as if it was started, but for its threads
        assert any("crc" in error for error in running.run_once().errors)
        assert not running.run_once().errors  # skipped
        config = log.topic("t").config.to_dict()
        log.delete_topic("t", now=True)
        log.create_topic("t", config=config)
        grow(log, clock, 30)
        report = running.run_once()
        assert not report.errors
        assert report.uploaded
        running.close()


def test_a_segment_that_goes_while_it_is_copied_leaves_no_copy(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12) as log:
        put, directory = store.put_stream, f"{path}/t-0"
        first = bases(path)[0]

        def gone(name: str, pieces: Any, size: int) -> None:
            put(name, pieces, size)
            if f"{first:020d}" in name:
                log.delete_records("t", {0: bases(path)[1]})
                retire(LOCAL, directory, first)

        store.put_stream = gone  # type: ignore[method-assign]
        report = once(path, clock, store)
        assert not report.errors
        assert first not in [s.base for s in copies(log, clock)]
        assert not [n for n in store.bucket.names() if f"/{first:020d}" in n]
        check(path, log, clock, store)


def test_what_was_never_synced_is_made_durable_before_it_is_copied(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """flush=none: a power cut takes commits back, and other records may get their offsets."""
    with (
        filled(path, clock, 2),
        sparklog.open(path, "rw", clock=clock, options={"flush": "none"}) as log,
    ):
        grow(log, clock, 12)
        with commits_of(log).exclusive():
            assert commits_of(log).state.unsynced
        put, looked = store.put_stream, []

        def look(name: str, pieces: Any, size: int) -> None:
            with commits_of(log).exclusive():
                looked.append(set(commits_of(log).state.unsynced))
            put(name, pieces, size)

        store.put_stream = look  # type: ignore[method-assign]
        assert once(path, clock, store).uploaded
        assert looked == [set()] * len(looked)
        check(path, log, clock, store)


def test_leftovers_go_once_they_are_old(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12) as log:
        once(path, clock, store)
        prefix = f"t-0-{log.topic('t').id}/"
        others = [f"t-0-{'B' * 22}/{0:020d}-{'A' * 22}.log", f"{prefix}notes.txt", "readme"]
        mine = f"{prefix}{0:020d}-{'A' * 22}.log"
        for name in (*others, mine):
            store.put(name, b"x")
        assert not once(path, clock, store).orphans
        clock.advance(HOUR)
        plan = once(path, clock, store, dry_run=True)
        assert plan.orphans == [mine]
        assert mine in store.bucket.objects
        assert once(path, clock, store).orphans == [mine]
        assert set(others) <= set(store.bucket.names())
        assert mine not in store.bucket.names()
        store.delete(others)
        check(path, log, clock, store)


def test_lost_objects_are_copied_again_while_they_can_be(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30, local_retention_bytes="1000") as log:
        once(path, clock, store)
        local = [s for s in copies(log, clock) if s.base >= bases(path)[0]]
        far = [s for s in copies(log, clock) if s.end < bases(path)[0]]
        store.delete([log_object(local[0])])
        report = once(path, clock, store)
        assert [u.base for u in report.uploaded] == [local[0].base]
        check(path, log, clock, store)
        raw = store.get(manifest_object(far[0]))
        store.delete([manifest_object(far[0])])
        report = once(path, clock, store)
        assert any("restore both" in e for e in report.errors)
        assert far[0].id in [s.id for s in copies(log, clock)]
        store.put(manifest_object(far[0]), raw)
        assert not once(path, clock, store).errors
        check(path, log, clock, store)


def test_lost_metadata_comes_back_from_the_bucket(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """However it was lost: nothing is copied twice, and nothing that is the only copy is swept."""
    with filled(path, clock, 30, local_retention_bytes="500") as log:
        once(path, clock, store)
        before = sorted((s.base, s.id) for s in copies(log, clock))
        drop_topic(commits_of(log), REMOTE_METADATA)
        clock.advance(7 * HOUR)
        report = once(path, clock, store)
        assert not report.uploaded
        assert sorted((s.base, s.id) for s in copies(log, clock)) == before
        check(path, log, clock, store)


def test_rebuild(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 30, local_retention_bytes="500") as log:
        once(path, clock, store)
        before = sorted((s.base, s.id) for s in copies(log, clock))
    file = next(Path(path, f"{REMOTE_METADATA}-0").glob("*.log"))
    raw = bytearray(file.read_bytes())
    raw[70] ^= 1
    file.write_bytes(raw)
    report = once(path, clock, store)
    assert any("tier rebuild PATH" in e for e in report.errors)
    found = rebuild(path, store=store, clock=clock)
    assert len(found.manifests) == len(before)
    with sparklog.open(path, "rw", clock=clock) as log:
        assert sorted((s.base, s.id) for s in copies(log, clock)) == before
        assert not once(path, clock, store).errors
        check(path, log, clock, store)
    with pytest.raises(InvalidRequestError, match="no remote storage"):
        rebuild(Path(path).parent / "other", clock=clock)


def test_another_url_needs_the_copies(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 30):
        once(path, clock, store)
        other = FaultStore(clock=clock)
        moved = "memory://other"
        report = once(path, clock, other, remote=moved)
        assert any(URL in e and "copy its objects there first" in e for e in report.errors)
        other.bucket.objects.update(store.bucket.objects)
        assert not once(path, clock, other, remote=moved).errors
        assert read_settings(LOCAL, path).url == moved  # type: ignore[union-attr]


def test_damaged_settings(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12) as log:
        once(path, clock, store)
        for name in ("sparklog.remote", "sparklog.remote-copy"):
            Path(path, name).write_text("{}")
        with pytest.raises(DataCorruptionError, match="name the URL again"):
            once(path, clock, store, remote=None)
        assert any("take over" in e for e in once(path, clock, store).errors)  # nobody knows it
        assert not once(path, clock, store, take_over=True).errors
        assert read_settings(LOCAL, path).url == URL  # type: ignore[union-attr]
        check(path, log, clock, store)


def test_a_bad_url_or_package_is_told_at_once(path: str, clock: ManualClock) -> None:
    with pytest.raises(InvalidRequestError, match="credentials"):
        Service(path, remote="s3://key:secret@bucket/x")
    with filled(path, clock, 1), pytest.raises(InvalidRequestError, match="pip install"):
        Service(path, remote="abfs://container/x", clock=clock).run_once()
    assert read_settings(LOCAL, path) is None


def test_encrypted(path: str, clock: ManualClock, store: FaultStore) -> None:
    ring = Keyring({"k": bytes(range(32))}, "k")
    with filled(path, clock, 12):
        report = once(path, clock, store, keyring=ring)
        assert not report.errors
        assert all(m.encryption.key_id == "k" for m, _ in manifests(store))
        assert all(u.stored_bytes > u.bytes for u in report.uploaded)


def test_what_a_restored_log_does_not_know_stays_in_the_bucket(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """The log dir came back from an older backup: copies past its end may be all that is left."""
    with filled(path, clock, 12):
        once(path, clock, store)
    backup = f"{path}-backup"
    shutil.copytree(path, backup)
    with sparklog.open(path, "rw", clock=clock) as log:
        grow(log, clock, 12)
        once(path, clock, store)
        every = copied_names(store.bucket)
        clock.advance(7 * HOUR)
    with sparklog.open(backup, "rw", clock=clock) as log:
        assert any("restored from a backup" in e for e in once(backup, clock, store).errors)
        report = once(backup, clock, store, take_over=True)
        (note,) = [note for note in report.notes if "past the log end 12" in note]
        assert "the only copies of records that it lost" in note
        assert "delete them only if no log needs them" in note
        assert copied_names(store.bucket) == every
        readable(log, clock, store)
    with sparklog.open(path, "rw", clock=clock) as log:  # the later state needs them
        assert not once(path, clock, store, take_over=True).errors
        readable(log, clock, store)
    with sparklog.open(backup, "rw", clock=clock) as log:
        clock.advance(7 * HOUR)
        once(backup, clock, store, take_over=True)
        known = {log_object(copy) for copy in copies(log, clock)}
        known |= {manifest_object(copy) for copy in copies(log, clock)}
        names = [name for name in store.bucket.names() if name.startswith("t-0-")]
        store.delete([name for name in names if name not in known])
        clock.advance(7 * HOUR)
        report = once(backup, clock, store)
        assert not [note for note in report.notes if "past the log's end" in note]
        readable(log, clock, store)


def test_a_damaged_manifest_that_nobody_knows_stays(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30, local_retention_bytes="500") as log:
        once(path, clock, store)
        far = copies(log, clock)[0]
        store.put(manifest_object(far), b"{}")
        drop_topic(commits_of(log), REMOTE_METADATA)
        clock.advance(7 * HOUR)
        report = once(path, clock, store)
        assert any(manifest_object(far) in e for e in report.errors)
        assert {manifest_object(far), log_object(far)} <= set(store.bucket.names())


def test_an_offline_partition_keeps_its_copies(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 30, local_retention_bytes="500") as log:
        once(path, clock, store)
        before = copied_names(store.bucket)
        with commits_of(log).exclusive():
            commits_of(log).offline["t", 0] = DataCorruptionError("gone", path=path)
            commits_of(log).manager.idle()
        drop_topic(commits_of(log), REMOTE_METADATA)
        clock.advance(7 * HOUR)
        once(path, clock, store)
        assert copied_names(store.bucket) == before


def test_requests(path: str, clock: ManualClock, store: FaultStore) -> None:
    """Two writes a segment, a list a partition and sweep, two bulk deletions; none when idle.

    And whose the topic is: for it and for the log a write, and a look every five minutes.
    """
    config = {"local_retention_bytes": "400", "retention_bytes": "2000"}
    with (
        filled(path, clock, 40, partitions=2, **config),
        stepped(service(path, clock, store)) as running,
    ):
        report = running.run_once()
        counts = store.counts.as_dict()
        assert counts["puts"] == 2 * len(report.uploaded) + 2
        # Whether copies are encrypted, what is due here; uploads that never ended, and owners.
        assert counts["lists"] == 2 + 2 + 2 + 2
        assert counts["deletes"] == 2 * (len(report.removed) > 0)
        # Whether this is still the store, before something goes; and each copy is read once before
        # its local segment is deleted: its manifest, and its log of less than 8 MiB.
        rules = [segment.rule for one in report.deleted for segment in one.segments]
        assert counts["gets"] == 2 + 2 * rules.count("local.retention.bytes")
        clock.advance(60_000)
        running.run_once()
        before = store.counts.as_dict()
        for _ in range(5):
            clock.advance(31_000)
            running.tick()
        after = store.counts.as_dict()
        assert after.pop("gets") - before.pop("gets") == 0
        after.pop("bytes_in"), before.pop("bytes_in")
        assert after == before
        clock.advance(300_000)
        running.tick()
        assert store.counts.gets == counts["gets"] + 2


# --- who takes over -----------------------------------------------------------------------------


def killed_at_the_first_copy(path: str, clock: ManualClock, store: FaultStore) -> FaultStore:
    store.crash_at(3, after=False)  # behind the two that say whose the topic is
    with pytest.raises(SimulatedKill):
        once(path, clock, store)
    return store.reopen()


def test_begun_copies_go_on_under_their_names(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12) as log:
        store = killed_at_the_first_copy(path, clock, store)
        begun = {s.id: s.state for s in copies(log, clock)}
        assert set(begun.values()) == {SegmentState.COPY_STARTED}
        clock.advance(HOUR)
        report = once(path, clock, store)
        assert set(begun) <= {s.id for s in copies(log, clock)}
        assert len(report.uploaded) == len(bases(path)) - 1
        check(path, log, clock, store)


def test_begun_copies_of_what_is_gone_are_removed(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12) as log:
        store = killed_at_the_first_copy(path, clock, store)
        assert copies(log, clock)
        clock.advance(HOUR)
        log.delete_records("t", {0: -1})
        once(path, clock, store)
        assert not copies(log, clock)
        check(path, log, clock, store)


class Usurped:
    """A lease that breaks at its `number`th look; from then on nothing may be done any more."""

    def __init__(self, running: Service, home: str, store: FaultStore, number: int) -> None:
        assert running._leadership.leading() is not None
        assert running._leadership.lease is not None
        self.looks, self._number, self._home, self._store = 0, number, home, store
        self._real = running._leadership.lease.check
        self._log = running._leadership.upkeep.log
        self.before: object = None
        running._leadership.lease.check = self.check  # type: ignore[method-assign]

    def done(self) -> object:
        assert self._log is not None
        return list(self._store.effects), self._log.commits().num_rows

    def check(self) -> None:
        self.looks += 1
        if self.looks == self._number:  # where locks break, another writes itself into the file
            Path(self._home, "sparklog.service").write_text('{"token": "other"}')
            self.before = self.done()
        self._real()


def test_a_service_that_lost_its_lease_touches_nothing(path: str, clock: ManualClock) -> None:
    """At any look at the lease: whatever it had in hand stays as it is."""
    for number in range(1, 100, 5):
        home, bucket = f"{path}-{number}", FaultStore(clock=clock)
        with filled(home, clock, 9, local_retention_bytes="0", retention_ms="5000") as log:
            once(home, clock, bucket)
            grow(log, clock, 4)
            with stepped(service(home, clock, bucket)) as running:
                lease = Usurped(running, home, bucket, number)
                report = running.run_once()
                if lease.looks < number:
                    assert not report.errors
                    assert number > 10
                    return
                assert "taken over" in report.standing_by
                assert lease.done() == lease.before
    raise AssertionError("a round looked at the lease more than 100 times")


def test_it_runs_in_its_own_thread(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12, local_retention_bytes="0") as log:
        closed = len(bases(path)) - 1
        options = {"log.initial.task.delay.ms": "0"}
        with service(path, clock, store, options=options):

            def done() -> int:
                found = [s for s in copies(log, clock) if s.state is SegmentState.COPY_FINISHED]
                return len(found)

            until(lambda: done() == closed, state=done)
        check(path, log, clock, store)
