"""Opening, closing, and what must never happen to files on the way."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.compression import Codec
from sparklog.fs import LOCAL
from sparklog.log.commit import Identity
from sparklog.logdir import ledger
from sparklog.logdir.chunk_appends import WINDOW_BYTES
from sparklog.logdir.home import commits_of
from sparklog.storage.staging import Framing
from tests.micro_batches import commit_batch

DAY_MS = 24 * 3_600_000
ONE = pa.table({"value": ["x"]})


def values(log: sparklog.Log, topic: str = "t") -> list[bytes]:
    return log.read(topic, columns=["value"]).read_all().column(0).to_pylist()


def abandon(log: sparklog.Log) -> None:
    """Leave a log as a killed process does: locks gone, guard up, nothing closed."""
    commits_of(log).give_up("killed")


def test_a_log_whose_parent_isnt_there(tmp_path: Path) -> None:
    with pytest.raises(sparklog.InvalidRequestError, match="create that directory first"):
        sparklog.open(tmp_path / "missing" / "log", "rw")
    assert list(tmp_path.iterdir()) == []


def test_what_only_has_a_partitions_name_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A JDK, the checkpoint of a query that runs: not a topic to be read, taken over or moved."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    (path / "checkpoint-1" / "offsets").mkdir(parents=True)
    (path / "checkpoint-1" / "metadata").write_text("{}")
    with sparklog.open(path) as log:
        assert list(log.topics()) == ["t"]
    with sparklog.open(path, "rw") as log:
        assert list(log.topics()) == ["t"]
        log.append("t", ONE)
        log.create_topic("dropped")
        log.delete_topic("dropped")
        abandon(log)
    with sparklog.open(path, "rw") as log:
        assert list(log.topics()) == ["t"]
    assert not [r for r in caplog.records if "adopted" in r.getMessage()]
    assert sorted(os.listdir(path / "checkpoint-1")) == ["metadata", "offsets"]
    (path / "theirs-2").mkdir()  # but what a broker left is
    shutil.copy(path / "t-0" / f"{0:020}.log", path / "theirs-2")
    with sparklog.open(path, "rw") as log:
        assert log.offsets("theirs") == {2: (0, 1)}


def test_the_ledger_never_rolls_without_a_snapshot(tmp_path: Path) -> None:
    clock = ManualClock()
    with sparklog.open(tmp_path / "l", "rw", clock=clock) as log:
        log.create_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
        for _ in range(3):
            clock.advance(8 * DAY_MS)
            log.append("t", ONE)
    with sparklog.open(tmp_path / "l", "rw", clock=clock) as log:
        assert len(values(log)) == 3


def test_the_ledger_rolls_by_size_and_old_batches_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger.LedgerWriter, "segment_bytes", 600)
    with sparklog.open(tmp_path / "l", "rw") as log:
        log.create_topic("t")
        for n in range(12):
            assert not commit_batch(log, "w", n, ONE, fingerprint=f"f{n}").replayed
        bases = ledger.ledger_bases(LOCAL, str(tmp_path / "l"))
        assert len(bases) > 2
        for n in (0, 5, 11):
            found = log.committed(Identity(writer="w", batch=n, fingerprint=f"f{n}"))
            assert found is not None
            assert found.ends == {"t": {0: (n, n + 1)}}
        with pytest.raises(sparklog.BatchConflictError, match="another plan"):
            log.committed(Identity(writer="w", batch=5, fingerprint="other"))
    with sparklog.open(tmp_path / "l", "rw") as log:
        assert len(values(log)) == 12


def test_a_chunk_file_larger_than_a_window_is_copied_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    size = WINDOW_BYTES + WINDOW_BYTES // 2
    blob = rng.bytes(size // 1000 * 1000)
    rows = pa.table({"value": [blob[at : at + 1000] for at in range(0, len(blob), 1000)]})
    with sparklog.open(tmp_path / "l", "rw") as log:
        log.create_topic("t")
        stager = log.stager(Framing(codec=Codec.NONE), label="w-0")
        for batch in rows.to_batches(max_chunksize=2000):
            stager.add(log.topic("t"), batch)
        (chunk,) = stager.finish()
        assert chunk.path is not None
        assert chunk.synced_boot_id is None
        log.commit([chunk])
        assert b"".join(values(log)) == blob
        assert not os.path.exists(chunk.path)


def test_a_large_chunk_file_becomes_a_segment_by_rename(tmp_path: Path) -> None:
    rows = pa.table({"value": [b"v" * 1000] * 9000})
    with sparklog.open(tmp_path / "l", "rw") as log:
        info = log.create_topic("t", config={"segment.bytes": 64 << 20})
        log.append("t", ONE)
        stager = log.stager(Framing(), label="w-0")
        stager.add(info, rows.to_batches()[0])
        (chunk,) = stager.finish()
        assert chunk.path is not None
        inode = os.stat(chunk.path).st_ino
        assert log.commit([chunk]).ends == {"t": {0: (1, 9001)}}
        assert os.stat(tmp_path / "l" / "t-0" / f"{1:020d}.log").st_ino == inode
        assert len(values(log)) == 9001


class TestNobodysFilesAreDeleted:
    def test_a_foreign_partition_directory_stays(self, tmp_path: Path) -> None:
        with sparklog.open(tmp_path / "l", "rw") as log:
            (tmp_path / "l" / "t-0").mkdir()
            (tmp_path / "l" / "t-0" / "precious").write_text("data")
            with pytest.raises(sparklog.InvalidRequestError, match="move the directory away"):
                log.create_topic("t")
            log.create_topic("u")
            log.delete_topic("u")
        strays = list((tmp_path / "l").glob("t-0*"))
        assert [(p / "precious").read_text() for p in strays] == ["data"]

    def test_a_directory_that_only_ends_in_delete_stays(self, tmp_path: Path) -> None:
        with sparklog.open(tmp_path / "l", "rw") as log:
            (tmp_path / "l" / "what-to-delete").mkdir()
            log.create_topic("u")
            log.delete_topic("u")
        assert (tmp_path / "l" / "what-to-delete").is_dir()

    def test_a_dropped_topic_with_a_strange_file_doesnt_block_the_log(self, tmp_path: Path) -> None:
        with sparklog.open(tmp_path / "l", "rw") as log:
            log.create_topic("t")
            (tmp_path / "l" / "t-0" / "sub").mkdir()
            log.delete_topic("t")
            log.create_topic("t")
            log.append("t", ONE)
            assert len(values(log)) == 1


class TestSeveralDirs:
    def test_another_order_is_refused(self, tmp_path: Path) -> None:
        a, b = tmp_path / "a", tmp_path / "b"
        with sparklog.open(f"{a},{b}", "rw") as log:
            log.create_topic("t", partitions=2)
            log.append("t", ONE, partition=1)
            with pytest.raises(sparklog.SparklogError):
                sparklog.open(f"{b},{a}", "rw")
            with pytest.raises(sparklog.InvalidRequestError, match="all log dirs"):
                sparklog.open(a, "rw")
        with pytest.raises(sparklog.InvalidRequestError, match="is log dir number 2 of a log"):
            sparklog.open(f"{b},{a}", "rw")
        with sparklog.open(f"{a},{b}", "rw") as log:
            assert len(values(log)) == 1

    def test_a_partition_moved_to_the_other_dir_is_found(self, tmp_path: Path) -> None:
        a, b = tmp_path / "a", tmp_path / "b"
        with sparklog.open(f"{a},{b}", "rw") as log:
            log.create_topic("t", partitions=2)
            log.append("t", ONE, partition=0)
        shutil.move(a / "t-0", b / "t-0")
        with sparklog.open(f"{a},{b}", "rw") as log:
            assert len(values(log)) == 1
            assert log.append("t", ONE, partition=0) == {"t": {0: (1, 2)}}


class TestDamagedLedger:
    def make(self, path: Path) -> Path:
        log = sparklog.open(path, "rw")
        log.create_topic("t")
        for _ in range(4):
            log.append("t", ONE)
        abandon(log)
        (path / "sparklog.lock").unlink()  # so that recovery is from the files alone
        return path / "__sparklog_commits-0" / f"{0:020d}.log"

    def test_a_lost_tail_is_refused_and_nothing_is_cut(self, tmp_path: Path) -> None:
        file = self.make(tmp_path / "l")
        before = (tmp_path / "l" / "t-0" / f"{0:020d}.log").read_bytes()
        os.truncate(file, file.stat().st_size - 200)
        with pytest.raises(sparklog.DataCorruptionError, match="were durable"):
            sparklog.open(tmp_path / "l", "rw")
        assert (tmp_path / "l" / "t-0" / f"{0:020d}.log").read_bytes() == before

    def test_an_empty_one_is_refused(self, tmp_path: Path) -> None:
        os.truncate(self.make(tmp_path / "l"), 0)
        with pytest.raises(sparklog.DataCorruptionError, match="ledger"):
            sparklog.open(tmp_path / "l", "rw")
        assert (tmp_path / "l" / "t-0").is_dir()

    def test_a_missing_one_is_refused_while_the_guard_stands(self, tmp_path: Path) -> None:
        shutil.rmtree(self.make(tmp_path / "l").parent)
        with pytest.raises(sparklog.DataCorruptionError, match="`sparklog verify PATH --repair`"):
            sparklog.open(tmp_path / "l", "rw")

    def test_an_offline_partition_is_so_for_every_session(self, tmp_path: Path) -> None:
        path = tmp_path / "l"
        self.make(path)
        data = path / "t-0" / f"{0:020d}.log"
        raw = bytearray(data.read_bytes())
        raw[30] ^= 1
        data.write_bytes(raw)
        with sparklog.open(path, "rw") as first:
            first.create_topic("whole")
            for log in (first, sparklog.open(path, "rw")):
                with pytest.raises(sparklog.DataCorruptionError, match="t-0"):
                    log.append("t", ONE)
                log.append("whole", ONE)
            log.close()
        assert (path / "sparklog_open").is_dir()  # never called clean
        raw[30] ^= 1
        data.write_bytes(raw)
        (path / "sparklog.lock").unlink()
        with sparklog.open(path, "rw") as log:
            assert len(values(log)) == 4


def test_a_forked_child_gets_an_error_not_a_hang(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "l", "rw") as log:
        log.create_topic("t")
        child = os.fork()
        if child == 0:
            try:
                log.append("t", ONE)
            except sparklog.SparklogError as error:
                os._exit(0 if "fork" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        log.append("t", ONE)


def test_flush_none_then_commit_and_drop(tmp_path: Path) -> None:
    loose = {"flush": "none"}
    with sparklog.open(tmp_path / "l", "rw", options=loose) as log:
        log.create_topic("t")
        log.create_topic("gone")
        log.append("t", ONE)
        log.append("gone", ONE)
        log.delete_topic("gone")
        with sparklog.open(tmp_path / "l", "rw") as strict:
            strict.append("t", ONE)
        log.append("t", ONE)
    with sparklog.open(tmp_path / "l", "rw") as log:
        assert len(values(log)) == 3


def test_a_snapshot_that_a_kill_left_torn_is_made_anew_at_the_next_close(tmp_path: Path) -> None:
    """A close that is killed leaves the snapshot at the log's end empty; nothing comes after it."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [b"a", b"b"]}))
    snapshot = tmp_path / "log" / "t-0" / f"{2:020d}.snapshot"
    whole = snapshot.read_bytes()
    with sparklog.open(tmp_path / "log", "rw"):
        snapshot.write_bytes(b"")
    assert snapshot.read_bytes() == whole
