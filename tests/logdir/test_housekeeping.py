"""What an open log sheds: ledger segments, producers, snapshots, staged files; and its floor."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import BatchConflictError, Log, StorageUnavailableError
from sparklog.clock import ManualClock
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.fs.files import LocalFile
from sparklog.logdir import ledger
from sparklog.logdir.chunk_files import CHUNK_PREFIX
from sparklog.logdir.free_space import SPARE_BYTES, below_floor
from sparklog.logdir.home import commits_of
from sparklog.logdir.housekeeping import (
    expire_ledger,
    expire_producers,
    prune_snapshots,
    sweep,
)
from sparklog.logdir.ledger import LEDGER_DIR, ledger_bases
from sparklog.logdir.partition.producer_snapshots import snapshot_offsets
from sparklog.storage.staging import Framing, chunk_label
from tests.micro_batches import commit_batch
from tests.oracle import Oracle

DAY_MS = 24 * 3_600_000
ONE = pa.table({"value": ["x"]})


@pytest.fixture
def small_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.LedgerWriter, "segment_bytes", 600)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock, small_ledger: None) -> Iterator[Log]:
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t")
        yield log


def commit(log: Log, batch: int, fingerprint: str = "", writer: str = "w") -> Any:
    return commit_batch(log, writer, batch, ONE, fingerprint=fingerprint or f"f{batch}")


def daily(log: Log, clock: ManualClock, days: int) -> None:
    """One commit of writer w a day; the ledger rolls every few."""
    for batch in range(days):
        clock.advance(DAY_MS)
        commit(log, batch)


class TestLedger:
    def test_old_segments_go_and_replays_are_still_known(
        self, log: Log, clock: ManualClock
    ) -> None:
        commit(log, 3, writer="gone long ago")
        daily(log, clock, 30)
        commits = commits_of(log)
        before = ledger_bases(LOCAL, log.path)
        assert len(before) > 5
        ask = {"retention_ms": 10 * DAY_MS, "now_ms": clock()}
        plan = expire_ledger(commits, **ask, dry_run=True)
        assert ledger_bases(LOCAL, log.path) == before
        gone = expire_ledger(commits, **ask)
        assert gone == plan
        kept = ledger_bases(LOCAL, log.path)
        assert [s.base for s in gone] + kept == before
        assert all(clock() - s.newest_ms > 10 * DAY_MS for s in gone)
        assert sum(s.size_bytes for s in gone) > 600
        times = log.commits()["time"].cast(pa.int64()).to_pylist()
        assert min(times) <= clock() - 10 * DAY_MS  # nothing younger went
        assert len(os.listdir(Path(log.path, LEDGER_DIR))) == 2 + 4 * len(kept)
        for again in (log, sparklog.open(log.path, "rw", clock=clock)):
            assert commit(again, 29).replayed
            assert commit(again, 3, writer="gone long ago").replayed
            with pytest.raises(BatchConflictError, match="another plan"):
                commit(again, 29, "other")
            with pytest.raises(BatchConflictError, match=r"no longer in the ledger.*rewound"):
                commit(again, 1)
            assert again.offsets("t") == {0: (0, 31)}
        again.close()
        assert not commit(log, 30).replayed

    def test_two_segments_stay_whatever_their_age(self, log: Log, clock: ManualClock) -> None:
        daily(log, clock, 30)
        clock.advance(1000 * DAY_MS)
        expire_ledger(commits_of(log), retention_ms=0, now_ms=clock())
        assert len(ledger_bases(LOCAL, log.path)) == 2
        assert expire_ledger(commits_of(log), retention_ms=0, now_ms=clock()) == []

    def test_an_old_batch_that_is_still_recorded_is_a_replay(
        self, log: Log, clock: ManualClock
    ) -> None:
        daily(log, clock, 30)
        expire_ledger(commits_of(log), retention_ms=10 * DAY_MS, now_ms=clock())
        assert commit(log, 25).replayed

    def test_after_a_reset_an_expired_batch_is_no_replay(
        self, log: Log, clock: ManualClock
    ) -> None:
        """What came after the reset batch is new; what came before it can't be told."""
        daily(log, clock, 10)
        log.reset("w", 3)
        for n in range(20):
            clock.advance(DAY_MS)
            commit(log, n, writer="v")
        expire_ledger(commits_of(log), retention_ms=DAY_MS, now_ms=clock())
        with pytest.raises(BatchConflictError):
            commit(log, 2)
        assert commit(log, 3).replayed  # the reset has it, as long as it is the last
        assert not commit(log, 4).replayed

    def test_a_table_of_commits_begins_later(self, log: Log, clock: ManualClock) -> None:
        daily(log, clock, 30)
        with sparklog.open(log.path) as reader:
            assert reader.commits().num_rows == 30
            expire_ledger(commits_of(log), retention_ms=0, now_ms=clock())
            left = reader.commits()
            assert 0 < left.num_rows < 30
            assert left["batch"].to_pylist()[-1] == 29
        with sparklog.open(log.path) as reader:
            assert reader.commits().equals(left)

    @pytest.mark.parametrize("after", range(1, 14, 3))
    def test_a_table_of_commits_that_expire_on_the_way(
        self, log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        daily(log, clock, 30)
        opens = 0

        def count(fs: LocalFileSystem, path: str, **how: bool) -> LocalFile:
            nonlocal opens
            if LEDGER_DIR in path and path.endswith(".log"):
                opens += 1
                if opens == after:  # of its segments, each of which is looked at once
                    expire_ledger(commits_of(log), retention_ms=0, now_ms=clock())
            return opened(fs, path, **how)

        opened = LocalFileSystem.open
        with sparklog.open(log.path) as reader:
            monkeypatch.setattr(LocalFileSystem, "open", count)
            found = reader.commits()["batch"].to_pylist()
        assert sorted(set(found)) == found
        assert found[-1] == 29
        assert opens > after

    def test_kafka_loads_what_is_left_without_a_change(
        self, tmp_path: Path, clock: ManualClock, small_ledger: None, oracle: Oracle
    ) -> None:
        with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
            log.create_topic("t")
            daily(log, clock, 30)
            expire_ledger(commits_of(log), retention_ms=5 * DAY_MS, now_ms=clock())
            first = ledger_bases(LOCAL, log.path)[0]
        opened = oracle.open(tmp_path / "log" / LEDGER_DIR, clean=True)
        assert opened.untouched, (opened.changed, opened.created, opened.removed)
        assert opened.start == first
        with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
            assert commit(log, 29).replayed

    def test_damage_behind_a_segment_keeps_it(self, log: Log, clock: ManualClock) -> None:
        daily(log, clock, 30)
        before = ledger_bases(LOCAL, log.path)
        path = Path(log.path, LEDGER_DIR, f"{before[1]:020d}.log")
        raw = bytearray(path.read_bytes())
        raw[70] ^= 1
        path.write_bytes(raw)
        assert expire_ledger(commits_of(log), retention_ms=0, now_ms=clock()) == []


class TestProducers:
    def test_idle_ones_are_forgotten_while_the_log_is_open(
        self, log: Log, clock: ManualClock
    ) -> None:
        rows = pa.table({"value": ["x"]}), 0
        log.append("t", *rows, producer=(7, 0, 0))
        clock.advance(DAY_MS // 2)
        log.append("t", *rows, producer=(8, 0, 0))
        commits = commits_of(log)
        assert len(commits.partition_log("t", 0).producers) == 2
        assert expire_producers(commits, now_ms=clock()) == 0
        clock.advance(DAY_MS // 2)
        assert expire_producers(commits, now_ms=clock()) == 1
        assert commits.partition_log("t", 0).producers.get(8) is not None
        assert commits.partition_log("t", 0).producers.get(7) is None
        # Unknown again, it may begin anywhere, as with a broker; the other is still known.
        log.append("t", *rows, producer=(7, 0, 5))
        assert log.append("t", *rows, producer=(8, 0, 0)) == {"t": {0: (1, 2)}}


class TestSnapshots:
    def snapshots(self, log: Log) -> list[int]:
        return snapshot_offsets(os.listdir(Path(log.path, "t-0")))

    def open(self, tmp_path: Path) -> Log:
        return sparklog.open(tmp_path / "l", "rw")

    def test_those_of_earlier_closes_go_once_the_log_grew(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as log:
            log.create_topic("t", config={"internal.segment.bytes": 200})
            log.append("t", ONE)
        with self.open(tmp_path) as log:
            assert self.snapshots(log) == [1]  # a clean close's, in the midst of a segment
            assert prune_snapshots(commits_of(log)) == []  # the newest: it saves a replay
            for _ in range(5):
                log.append("t", ONE)
            before = self.snapshots(log)
            assert before[0] == 1
            bases = [b for b in before if b != 1]
            plan = prune_snapshots(commits_of(log), dry_run=True)
            assert plan == [os.path.join(log.path, "t-0", f"{1:020d}.snapshot")]
            assert self.snapshots(log) == before
            assert prune_snapshots(commits_of(log)) == plan
            assert self.snapshots(log) == bases
            assert prune_snapshots(commits_of(log)) == []
        with self.open(tmp_path) as log:
            assert self.snapshots(log) == [*bases, 6]
            assert prune_snapshots(commits_of(log)) == []

    def test_those_below_the_log_start_go(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as log:
            log.create_topic("t", config={"internal.segment.bytes": 200})
            for _ in range(8):
                log.append("t", ONE)
            before = self.snapshots(log)
            log.delete_records("t", {0: before[1]})
            gone = prune_snapshots(commits_of(log))
            assert len(gone) == 2
            assert self.snapshots(log) == before[2:]
            log.append("t", ONE)
        assert sparklog.open(tmp_path / "l").read("t").read_all().num_rows == 9 - before[1]


class TestSweep:
    def put(self, log: Log, name: str, clock: ManualClock, age_ms: int) -> str:
        path = os.path.join(log.path, CHUNK_PREFIX + name)
        Path(path).write_bytes(b"x" * 10)
        when = (clock() - age_ms) / 1000
        os.utime(path, (when, when))
        return path

    def test_what_nobody_will_commit_goes(self, log: Log, clock: ManualClock) -> None:
        hour = 3_600_000
        commit(log, 4, writer="v")
        commit(log, 7)
        dead = [
            self.put(log, f"{chunk_label('w', 7)}-a", clock, hour),
            self.put(log, f"{chunk_label('w', 2)}-b", clock, hour),
            self.put(log, f"{chunk_label('v', 4)}-c", clock, hour),
            self.put(log, f"{chunk_label('unknown', 0)}-d", clock, 8 * DAY_MS),
            self.put(log, "w0123456789abcdef-e", clock, 8 * DAY_MS),
        ]
        alive = [
            self.put(log, f"{chunk_label('w', 8)}-f", clock, hour),  # its next one
            self.put(log, f"{chunk_label('v', 5)}-g", clock, hour),
            self.put(log, f"{chunk_label('w', 7)}-h", clock, 60_000),  # still being written, maybe
            self.put(log, f"{chunk_label('unknown', 0)}-i", clock, hour),
            self.put(log, "w0123456789abcdef-j", clock, hour),  # df.write's
        ]
        commits = commits_of(log)
        plan = sweep(commits, now_ms=clock(), dry_run=True)
        assert sorted(s.path for s in plan) == sorted(dead)
        assert all(os.path.exists(path) for path in dead + alive)
        assert sweep(commits, now_ms=clock()) == plan
        assert sum(s.size_bytes for s in plan) == 50
        assert [os.path.exists(path) for path in dead + alive] == [False] * 5 + [True] * 5
        log.reset("w", 6)
        self.put(log, f"{chunk_label('w', 7)}-k", clock, hour)
        assert sweep(commits, now_ms=clock()) == []  # it may come again


class TestFloor:
    def open(self, tmp_path: Path, floor: int) -> Log:
        return sparklog.open(tmp_path / "log", "rw", options={"log.min.free.bytes": floor})

    def free(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        monkeypatch.setattr(type(LOCAL), "free_bytes", lambda *_: size)

    def test_below_it_commits_are_refused_and_all_else_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        floor = 1 << 30
        with self.open(tmp_path, floor) as log:
            self.free(monkeypatch, 10 << 30)
            log.create_topic("t")
            log.append("t", ONE)
            assert below_floor(commits_of(log).manager) == []
            self.free(monkeypatch, floor - 1)
            words = (
                rf"log has {floor - 1} bytes free, but this commit needs \d+, and "
                rf"log\.min\.free\.bytes reserves {floor}\. .*Free space .*retention\.ms"
            )
            with pytest.raises(StorageUnavailableError, match=words):
                log.append("t", ONE)
            with pytest.raises(StorageUnavailableError, match="bytes free, but this commit needs"):
                commit(log, 0)
            (short,) = below_floor(commits_of(log).manager)
            assert short == (log.path, floor - 1, floor)
            assert log.read("t").read_all().num_rows == 1
            log.delete_records("t", {0: 1})  # what makes room is never refused
            log.create_topic("u")
            log.delete_topic("u")
            log.commit_offsets("g", {"t": {0: 1}})
            self.free(monkeypatch, floor + SPARE_BYTES + (1 << 20))
            assert below_floor(commits_of(log).manager) == []
            assert log.append("t", ONE) == {"t": {0: (1, 2)}}

    def test_by_default_there_is_room_for_the_commit_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.open(tmp_path, 0) as log:
            log.create_topic("t")
            self.free(monkeypatch, SPARE_BYTES + 200)
            log.append("t", ONE)
            self.free(monkeypatch, SPARE_BYTES - 1)
            with pytest.raises(StorageUnavailableError, match=r"needs \d+\. .*Free space"):
                log.append("t", ONE)
            assert [s.floor_bytes for s in below_floor(commits_of(log).manager)] == [SPARE_BYTES]

    def test_dirs_on_one_disk_share_its_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = f"{tmp_path}/a,{tmp_path}/b"
        rows = pa.table({"value": [b"x" * 1000, b"y" * 1000], "partition": [0, 1]})
        with sparklog.open(path, "rw") as log:
            log.create_topic("t", 2)
            log.append("t", rows)
            self.free(monkeypatch, SPARE_BYTES + 2500)  # enough for either alone
            with pytest.raises(StorageUnavailableError):
                log.append("t", rows)
            monkeypatch.setattr(type(LOCAL), "identity", lambda _, path: (len(path.split("/b")), 1))
            log.append("t", rows)

    def test_a_staged_file_that_becomes_a_segment_needs_no_room_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.open(tmp_path, 0) as log:
            log.create_topic("t", config={"segment.bytes": 4 << 20})
            stager = log.stager(Framing(), label="x")
            stager.add(log.topic("t"), pa.record_batch({"value": [os.urandom(1000)] * 2000}))
            (chunk,) = stager.finish()
            assert chunk.synced_boot_id is not None
            self.free(monkeypatch, SPARE_BYTES + 100)
            log.commit([chunk])
            assert log.offsets("t") == {0: (0, 2000)}
