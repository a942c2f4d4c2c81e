"""Sessions without the manager, drivers that follow one another, checkpoints that are read."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sparklog.checkpoint import archive, export, history, verify
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.checkpoint.log_backed.metadata_marker import MARKER
from sparklog.errors import DataCorruptionError
from sparklog.fs import LOCAL
from sparklog.session.setup import MANAGER
from tests.checkpoint.views import tree
from tests.state.operators import Output, run, session, source, start

pytestmark = pytest.mark.spark


def go(spark: SparkSession, path: Path, batches: int) -> list[int]:
    """A stateless query for so many micro-batches; returns their numbers."""
    done: list[int] = []
    query = (
        source(spark)
        .writeStream.foreachBatch(lambda _, batch: done.append(batch))
        .option("checkpointLocation", str(path))
        .start()
    )
    try:
        while len(done) < batches:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            time.sleep(0.01)
    finally:
        query.stop()
    return done[:batches]


def test_without_the_manager_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """By a sentence that says what to do, without a change; also one that older versions left."""
    ours, plain = session(spark, "hdfs", MANAGER), session(spark, "hdfs", None)
    path = tmp_path / "c"
    assert go(ours, path, 2) == [0, 1]
    assert (path / "metadata").read_bytes() == MARKER
    before = tree(path)
    with pytest.raises(Exception, match="sparklog keeps this checkpoint as a log"):
        go(plain, path, 1)
    assert tree(path) == before
    (path / "metadata").unlink()  # as older versions left it
    last = history(path).batches[-1].batch
    assert go(ours, path, 1)[0] >= last
    assert (path / "metadata").read_bytes() == MARKER
    (path / "metadata").unlink()
    assert go(plain, path, 1) == [0]  # and so it went
    assert not verify(path).ok
    with pytest.raises(StreamingQueryException, match="two histories"):
        go(ours, path, 1)
    for name in ("offsets", "commits"):
        shutil.rmtree(path / name)
    (path / "metadata").unlink()
    (path / ".metadata.crc").unlink()
    assert go(ours, path, 1)[0] > last
    assert verify(path).ok
    shutil.rmtree(path / "sparklog")
    advice = "or start the query with a new checkpoint directory"
    with pytest.raises(DataCorruptionError, match=advice):
        history(path)
    assert go(ours, tmp_path / "new", 1) == [0]
    assert verify(tmp_path / "new").ok


def test_an_ordinary_checkpoint_that_goes_on_as_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """The query keeps its id, and Spark's own manager is told until it is exported."""
    ours, plain = session(spark, "hdfs", MANAGER), session(spark, "hdfs", None)
    path = tmp_path / "c"
    go(plain, path, 2)
    known = history(path).query_id
    go(ours, path, 2)
    assert (path / "metadata").read_bytes() == MARKER
    assert history(path).query_id == known
    assert verify(path).ok
    with pytest.raises(Exception, match="sparklog checkpoint export"):
        go(plain, path, 1)
    export(path)
    last = history(path).batches[-1].batch
    assert go(plain, path, 1)[0] >= last
    assert history(path).query_id == known


@pytest.mark.parametrize(
    "group",
    ["my group", pytest.param("0000000a-aaaa-bbbb-cccc-00000000000b", marks=pytest.mark.deep)],
)
def test_the_job_group_is_the_users(spark: SparkSession, tmp_path: Path, group: str) -> None:
    """Within foreachBatch, too: a run is what Spark says to the query's thread and its stores."""
    ours, path = session(spark, "hdfs", MANAGER), tmp_path / "c"

    def take(rows: DataFrame, batch: int) -> None:
        rows.sparkSession.sparkContext.setJobGroup(group, "mine")
        rows.collect()
        done.append(batch)

    for _ in range(3):
        done: list[int] = []
        counted = source(ours).groupBy("k").count()
        query = (
            counted.writeStream.foreachBatch(take).outputMode("update")
            .option("checkpointLocation", str(path)).start()
        )  # fmt: skip
        try:
            while len(done) < 2:
                assert query.exception() is None
                time.sleep(0.01)
            (runs,) = (
                row["value"].decode().splitlines()
                for row in _records(path, "metadata") if row["key"] == b"sparklog.runs"
            )  # fmt: skip
            assert runs[0] == query.runId
            assert group not in runs
        finally:
            query.stop()


def test_tasks_of_an_old_run_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever the job group says: their store knows the run."""
    ours, path = session(spark, "hdfs", MANAGER), tmp_path / "c"
    jvm = spark._jvm  # type: ignore[attr-defined]

    def take(rows: DataFrame, batch: int) -> None:
        if batch == 1:  # another driver took over while this one stood still
            manager = jvm.sparklog.checkpoint.LogCheckpointFileManager(
                jvm.org.apache.hadoop.fs.Path(str(path)), jvm.org.apache.hadoop.conf.Configuration()
            )
            place = jvm.org.apache.hadoop.fs.Path(str(path / "sparklog.runs"))
            stream = manager.createAtomic(place, True)
            text = f"0000000a-aaaa-bbbb-cccc-00000000000b\n{query.runId}".encode()
            stream.write(bytearray(text), 0, len(text))
            stream.close()
        rows.sparkSession.sparkContext.setJobGroup("mine", "mine")
        rows.collect()

    counted = source(ours).groupBy("k").count()
    query = (
        counted.writeStream.foreachBatch(take).outputMode("update")
        .option("checkpointLocation", str(path)).start()
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match="has taken over"):
        query.awaitTermination(240)
    names = {row["key"] for row in _records(path, "state.0.default")}
    assert b"1.delta" in names
    assert b"2.delta" not in names


def _records(path: Path, topic: str) -> list[dict[str, bytes]]:
    import sparklog

    with sparklog.open(path / "sparklog") as log:
        rows: list[dict[str, bytes]] = log.read(topic).read_all().to_pylist()
    newest = {row["key"]: row for row in rows}
    return list(newest.values())


def test_a_clean_hand_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock goes with the query; who starts waits a little for it."""
    monkeypatch.setattr("sparklog.checkpoint.log_backed.lock.RELEASE_MS", 10_000)
    ours, path = session(spark, "hdfs", MANAGER), tmp_path / "c"
    for _ in range(5):
        go(ours, path, 1)
        with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
            lock.take_running("try")
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        lock.take_running("hold it")
        timer = threading.Timer(0.7, lock.close)
        timer.start()
        assert go(ours, path, 1)
        timer.join()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A directory, and a mount of it that can't be written."""
    behind, at = tmp_path / "behind", tmp_path / "mount"
    behind.mkdir()
    at.mkdir()
    for command in (["--bind", behind, at], ["-o", "remount,ro,bind", at]):
        done = subprocess.run(["mount", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no mounts here: {done.stderr.strip()}")
    yield behind, at
    subprocess.run(["umount", "-l", at], check=True)


@pytest.mark.deep
def test_a_read_only_mount(
    spark: SparkSession, tmp_path: Path, read_only: tuple[Path, Path]
) -> None:
    """Spark's own reader of state takes it, and so do archives."""
    behind, at = read_only
    ours = session(spark, "hdfs", MANAGER)
    output: Output = {}
    run(ours, "aggregation", behind / "c", output, 3)
    rows = ours.read.format("statestore").load(str(behind / "c")).orderBy("key").collect()
    assert rows
    assert ours.read.format("statestore").load(str(at / "c")).orderBy("key").collect() == rows
    with pytest.raises(Exception, match="is not writable"):
        start(ours, "aggregation", at / "c", output).awaitTermination(240)
    assert archive(at / "c", (tmp_path / "points").as_uri()).batch is not None
    assert not [name for name in os.listdir(tmp_path) if "archive" in name]
