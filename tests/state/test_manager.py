"""The checkpoint manager: Spark's contract for it, the layout on disk, and what breaks."""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import sparklog
from sparklog import checkpoint
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.fs import LOCAL
from tests.state.manager import Manager
from tests.waiting import until

pytestmark = pytest.mark.spark

Managers = Callable[..., Manager]


def test_the_contract(manager: Manager) -> None:
    """What Spark's CheckpointFileManagerTests ask of each manager, in its order."""
    assert not manager.exists("dir/subdir")
    manager.mkdirs("dir/subdir")
    manager.mkdirs("dir/subdir")
    assert manager.exists("dir/subdir")
    assert manager.list("") == {"dir": -1}
    assert not manager.exists("dir/subdir/file")
    manager.begin("dir/subdir/file").cancel()
    assert not manager.exists("dir/subdir/file")
    manager.write("dir/subdir/file", b"two")
    assert manager.exists("dir/subdir/file")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        manager.write("dir/subdir/file", b"three")
    assert manager.read("dir/subdir/file") == b"two"
    manager.write("dir/subdir/file", b"four", overwrite=True)
    assert manager.read("dir/subdir/file") == b"four"
    assert manager.list("dir/subdir") == {"file": 4}
    manager.delete("dir/subdir/file")
    assert not manager.exists("dir/subdir/file")
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        manager.read("dir/subdir/file")
    manager.delete("dir/subdir/file")
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        manager.list("nowhere")


PLACES = {
    "metadata": ("metadata-0", "metadata"),
    "offsets/12": ("offsets-0", "12"),
    "commits/12": ("commits-0", "12"),
    "sources/0/3": ("metadata-0", "sources/0/3"),
    "state/0/_metadata/metadata": ("metadata-0", "state/0/_metadata/metadata"),
    "state/1/0/_metadata/schema": ("metadata-0", "state/1/0/_metadata/schema"),
    "state/1/7/3.delta": ("state.1.default-7", "3.delta"),
    "state/1/7/left-keyToNumValues/3.changelog": ("state.1.left-keyToNumValues-7", "3.changelog"),
}


def test_the_layout(manager: Manager) -> None:
    """Each file is one record of a partition that `sparklog.open` reads; two files a partition."""
    for path in PLACES:
        manager.write(path, path.encode())
    logs = manager.root / "sparklog"
    partitions = {p.name for p in logs.iterdir() if p.is_dir()}
    assert partitions == {partition for partition, _ in PLACES.values()}
    for partition in partitions:
        names = {p.name for p in (logs / partition).iterdir()}
        assert names == {"00000000000000000000.log", "leader-epoch-checkpoint"}
    found = {}
    with sparklog.open(logs) as log:
        for topic in log.topics():
            for row in log.read(topic).read_all().to_pylist():
                found[f"{row['topic']}-{row['partition']}", row["key"].decode()] = row["value"]
    assert found == {place: path.encode() for path, place in PLACES.items()}
    assert manager.list("") == {"metadata": len("metadata")}
    assert manager.list("state/1/7") == {"3.delta": len("state/1/7/3.delta")}


@pytest.mark.parametrize("path", ["state/0/0/3.zip", "state/0/0/SSTs/1-a.sst", "big"])
def test_some_files_stay_files(manager: Manager, path: str) -> None:
    """Spark reads those past the manager, and what is large isn't kept in memory."""
    content = bytes(33 << 20) if path == "big" else b"x"
    manager.mkdirs(os.path.dirname(path))
    manager.write(path, content)
    assert (manager.root / path).stat().st_size == len(content)
    assert manager.exists(path)
    assert manager.list(os.path.dirname(path))[os.path.basename(path)] == len(content)
    manager.delete(path)
    assert not manager.exists(path)


@pytest.mark.parametrize("flush", ["commit", "none"])
def test_snapshots_are_synced(managers: Managers, tmp_path: Path, flush: str) -> None:
    """Spark syncs neither zip nor what it copies beside it, and the query's commit needs them."""
    if shutil.which("strace") is None:
        pytest.skip("strace isn't installed: `scripts/program strace` installs it")
    manager = managers("ckpt", flush=flush)
    manager.mkdirs("state/0/0/SSTs")

    def write(number: int) -> set[str]:
        (manager.root / f"state/0/0/SSTs/{number}-a.sst").write_bytes(b"sst")
        said = tmp_path / f"strace-{number}"
        pid = manager._jvm.java.lang.ProcessHandle.current().pid()
        command = ["strace", "-f", "-y", "-o", str(said), "-e", "trace=fsync,fdatasync", "-p", pid]
        with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE) as tracer:
            assert tracer.stderr is not None
            if b"attached" not in tracer.stderr.readline():
                pytest.skip("no tracing here")
            manager.write(f"state/0/0/{number}.zip", b"zip")
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=240)
        return set(re.findall(rf"<{re.escape(str(manager.root))}/([^>]*)>", said.read_text()))

    first, second = write(1), write(2)
    if flush == "none":
        assert not first | second
    else:
        assert {"state/0/0/1.zip", "state/0/0/.1.zip.crc", "state/0/0"} <= first
        assert {"state/0/0/SSTs/1-a.sst", "state/0/0/SSTs"} <= first
        assert {"state/0/0/2.zip", "state/0/0/SSTs/2-a.sst", "state/0/0/SSTs"} <= second
        assert "state/0/0/SSTs/1-a.sst" not in second


def test_a_file_checkpoint_is_continued(managers: Managers, tmp_path: Path) -> None:
    """Files of Spark's own manager are read, replaced and deleted where they lie."""
    offsets = tmp_path / "ckpt" / "offsets"
    offsets.mkdir(parents=True)
    for n in range(3):
        (offsets / str(n)).write_bytes(b"file%d" % n)
    manager = managers("ckpt")
    manager.write("offsets/3", b"record3")
    manager.write("offsets/1", b"newer", overwrite=True)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        manager.write("offsets/0", b"other")
    manager.delete("offsets/2")
    found = {name: manager.read(f"offsets/{name}") for name in sorted(manager.list("offsets"))}
    assert found == {"0": b"file0", "1": b"newer", "3": b"record3"}


def test_outside_of_checkpoints_files_are_files(spark: SparkSession, tmp_path: Path) -> None:
    """A file sink's `_spark_metadata` is read by others, who look for files."""
    (tmp_path / "out/_spark_metadata").mkdir(parents=True)
    outside = Manager(spark, tmp_path / "out/_spark_metadata")
    outside.write("0", b"v1")
    assert (tmp_path / "out/_spark_metadata/0").read_bytes() == b"v1"


def test_a_log_of_that_name_is_no_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """`/data/sparklog` may be anybody's log: what lies beside it in `/data` isn't in it."""
    with sparklog.open(tmp_path / "sparklog", mode="rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [b"x"] * 9}))
        before = {str(p): p.stat().st_size for p in (tmp_path / "sparklog").rglob("*")}
        manager = Manager(spark, tmp_path / "out")
        manager.mkdirs("_spark_metadata")
        manager.write("_spark_metadata/0", b"v1")
        assert (tmp_path / "out/_spark_metadata/0").read_bytes() == b"v1"
        assert manager.list("_spark_metadata") == {"0": 2}
        with pytest.raises(Py4JJavaError, match="/sparklog contains a log, but"):
            Manager(spark, tmp_path).create()
        assert {str(p): p.stat().st_size for p in (tmp_path / "sparklog").rglob("*")} == before
    with pytest.raises(sparklog.InvalidRequestError, match="is not the checkpoint"):
        checkpoint.verify(tmp_path)


def test_every_cut(managers: Managers, tmp_path: Path) -> None:
    """A write that is cut off at any byte never was; what was acknowledged before it is there."""
    manager = managers("ckpt")
    manager.write("offsets/0", b"first")
    whole = manager.segment("offsets-0").stat().st_size
    manager.write("offsets/1", b"second", overwrite=True)
    written = manager.segment("offsets-0").read_bytes()
    for cut in range(whole, len(written) + 1):
        shutil.copytree(manager.root, tmp_path / f"cut{cut}")
        os.truncate(tmp_path / f"cut{cut}/sparklog/offsets-0/{0:020d}.log", cut)
        again = managers(f"cut{cut}")
        expected = {"0": 5, "1": 6} if cut == len(written) else {"0": 5}
        assert again.list("offsets") == expected
        again.write("offsets/2", b"third")
        assert again.list("offsets") == {**expected, "2": 5}
        assert again.read("offsets/0") == b"first"
        with sparklog.open(again.root / "sparklog") as log:
            rows = log.read("offsets").read_all()
        assert rows["offset"].to_pylist() == list(range(len(expected) + 1))


def test_a_first_write_that_was_killed(manager: Manager) -> None:
    """Its segment was made, and no more: the next write is no less durable than others."""
    directory = manager.partition("offsets-0")
    directory.mkdir()
    (directory / f"{0:020d}.log").touch()
    manager.write("offsets/0", b"first")
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert manager.list("offsets") == {"0": 5}


@pytest.mark.parametrize("keep_boot", [True, False], ids=["same boot", "power cut"])
def test_a_wrong_last_batch(managers: Managers, tmp_path: Path, keep_boot: bool) -> None:
    """All bytes there but wrong ones: only a power cut leaves that behind without damage."""
    manager = managers("ckpt")
    manager.write("offsets/0", b"first")
    manager.write("offsets/1", b"second")
    shutil.copytree(manager.root, tmp_path / "copy")
    flip(tmp_path / "copy/sparklog/offsets-0", -3)
    if not keep_boot:
        (tmp_path / "copy/sparklog/sparklog.lock").write_text("another boot\nflush=commit\n")
        assert managers("copy").list("offsets") == {"0": 5}
    else:
        with pytest.raises(Py4JJavaError, match="is damaged at position 7"):
            managers("copy").list("offsets")


@pytest.mark.parametrize("loose", [True, False])
def test_damage_in_the_middle(managers: Managers, tmp_path: Path, loose: bool) -> None:
    """Whole batches after it: an error with its position, unless writes weren't synced."""
    manager = managers("ckpt", flush="none" if loose else "commit")
    for n in range(3):
        manager.write(f"offsets/{n}", b"offsets")
    shutil.copytree(manager.root, tmp_path / "copy")
    third = manager.segment("offsets-0").stat().st_size // 3
    at = flip(tmp_path / "copy/sparklog/offsets-0", third + 8)
    said = (tmp_path / "copy/sparklog/sparklog.lock").read_text().splitlines()
    (tmp_path / "copy/sparklog/sparklog.lock").write_text(f"another boot\n{said[1]}\n")
    if loose:
        assert managers("copy").list("offsets") == {"0": 7}
    else:
        with pytest.raises(Py4JJavaError, match="is damaged at position 7"):
            managers("copy").list("offsets")
        assert (tmp_path / "copy/sparklog/offsets-0" / f"{0:020d}.log").stat().st_size > at


def flip(partition: Path, at: int) -> int:
    (segment,) = partition.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[at] ^= 0x55
    segment.write_bytes(content)
    return at


@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000])
def test_it_is_cleaned(managers: Managers, segment_bytes: int) -> None:
    """However much is written and deleted, disk stays within twice what lives, and a margin."""
    manager = managers("ckpt", segment_bytes=segment_bytes)
    manager.write("state/0/0/_metadata/schema", b"kept")
    for n in range(300):
        manager.write(f"state/0/0/{n}.delta", bytes(2_000))
        if n >= 10:
            manager.delete(f"state/0/0/{n - 10}.delta")
        size = sum(p.stat().st_size for p in manager.partition("state.0.default-0").glob("*"))
        assert size < 2 * 11 * 2_100 + (70 << 10)
    live = {f"{n}.delta": 2_000 for n in range(290, 300)}
    assert {k: v for k, v in manager.list("state/0/0").items() if v >= 0} == live
    with sparklog.open(manager.root / "sparklog") as log:
        rows = log.read("state.0.default").read_all()
    offsets = rows["offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 300 + 290 - 1  # none was given twice


@pytest.mark.deep
def test_others_see_what_is_written(managers: Managers, tmp_path: Path) -> None:
    """Another process' manager, before and after cleaning, rolling and replacement."""
    ours = managers("ckpt", segment_bytes=30_000)
    theirs = Other(tmp_path / "ckpt")
    ours.mkdirs("state/0/0")
    rng = random.Random(7)
    expected: dict[str, int] = {}
    for step in range(400):
        name, size = f"{rng.randrange(30)}.delta", rng.randrange(4_000)
        writer = ours if step % 2 else theirs
        if rng.random() < 0.3:
            writer.delete(f"state/0/0/{name}")
            expected.pop(name, None)
        else:
            writer.write(f"state/0/0/{name}", bytes(size), overwrite=True)
            expected[name] = size
        if step % 20 == 0:
            assert ours.list("state/0/0") == expected
            assert theirs.list("state/0/0") == expected
    theirs.close()
    assert ours.list("state/0/0") == expected


@pytest.mark.deep
def test_others_fill_a_segment_and_go_on(managers: Managers, tmp_path: Path) -> None:
    """Who looks only then, after several writes, sees all of them, and writes behind them."""
    ours = managers("ckpt", segment_bytes=5_000)
    theirs = Other(tmp_path / "ckpt", segment_bytes=5_000)
    ours.mkdirs("state/0/0")
    expected: dict[str, int] = {}
    for turn in range(4):
        for n in range(9):
            theirs.write(f"state/0/0/{turn}{n}.delta", bytes(1_000))
            expected[f"{turn}{n}.delta"] = 1_000
        if turn % 2:
            assert ours.list("state/0/0") == expected
        ours.write(f"state/0/0/{turn}9.delta", bytes(10))
        expected[f"{turn}9.delta"] = 10
        assert theirs.list("state/0/0") == expected
    theirs.close()
    with sparklog.open(tmp_path / "ckpt/sparklog") as log:
        offsets = log.read("state.0.default").read_all()["offset"].to_pylist()
    assert offsets == list(range(40))


@pytest.mark.parametrize("flush", ["interval", "none"])
def test_other_ways_to_flush(managers: Managers, flush: str) -> None:
    """They only promise less after a power cut, which the lock file says."""
    manager = managers("ckpt", flush=flush, flush_ms=5)
    manager.write("offsets/0", b"x")
    assert manager.read("offsets/0") == b"x"
    assert "flush=loose" in (manager.root / "sparklog/sparklog.lock").read_text()


def test_an_unknown_way_to_flush(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(IllegalArgumentException, match="must be commit"):
        Manager(spark, tmp_path, flush="often")


@contextmanager
def as_driver(spark: SparkSession, run: str) -> Iterator[None]:
    """Let the JVM's thread be the one that Spark runs a query of that run in."""
    thread = spark._jvm.java.lang.Thread.currentThread()  # type: ignore[attr-defined]
    name = thread.getName()
    thread.setName(f"stream execution thread for [q] [id = {QUERY}, runId = {run}]")
    try:
        yield
    finally:
        thread.setName(name)


QUERY = "0000000a-aaaa-bbbb-cccc-000000000000"
RUNS = [f"0000000{n}-aaaa-bbbb-cccc-000000000000" for n in range(3)]


def test_runs_take_over_from_one_another(spark: SparkSession, manager: Manager) -> None:
    """What an older run still writes, late, is refused; the user's job group says nothing."""
    context = spark.sparkContext
    for batch, run in enumerate(RUNS[1:]):
        with as_driver(spark, run):
            manager.write(f"offsets/{batch}", b"planned")
            manager.write(f"state/0/0/{batch}.delta", b"state")
    for group in (None, RUNS[2], "mine"):
        context.setLocalProperty("spark.jobGroup.id", group)
        try:
            with (
                as_driver(spark, RUNS[1]),
                pytest.raises(Py4JJavaError, match=f"run {RUNS[2]} has taken over"),
            ):
                manager.write("state/0/0/1.delta", b"late", overwrite=True)
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
    assert manager.read("state/0/0/1.delta") == b"state"
    context.setLocalProperty("spark.jobGroup.id", RUNS[1])
    try:
        with as_driver(spark, RUNS[2]):
            manager.write("state/0/0/2.delta", b"by the newest run, whatever the group")
        manager.write("state/0/0/3.delta", b"by nobody's run")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_by_whatever_path(managers: Managers, tmp_path: Path) -> None:
    """A link to a checkpoint leads to the same one: one lock file, one channel, one view."""
    manager = managers("ckpt")
    (tmp_path / "link").symlink_to(tmp_path / "ckpt")
    linked = managers("link")
    for n in range(40):
        (manager, linked)[n % 2].write(f"offsets/{n}", b"x" * n)
    assert manager.list("offsets") == linked.list("offsets") == {str(n): n for n in range(40)}
    linked.delete("offsets/0")
    assert not manager.exists("offsets/0")
    assert linked.list("") == manager.list("")
    shutil.copytree(manager.root, tmp_path / "other")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(Py4JJavaError, match=r"link was replaced"):
        linked.write("offsets/41", b"to the other one")


def open_files(manager: Manager, below: Path) -> list[str]:
    """The files below a directory that the JVM has open."""
    fds = Path("/proc") / str(manager._jvm.java.lang.ProcessHandle.current().pid()) / "fd"
    found = []
    for fd in fds.iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(fd))
    return [name for name in found if name.startswith(f"{below}/")]


@pytest.mark.deep
def test_open_files_are_bounded(managers: Managers, tmp_path: Path) -> None:
    """However many partitions: those that rest are read, and written, as if they never had."""
    manager, theirs = managers("ckpt", open_files=20), Other(tmp_path / "ckpt")
    for part in range(40):
        manager.write(f"state/0/{part}/1.delta", b"%d" % part)
    assert len(open_files(manager, tmp_path)) <= 20 + 1
    for part in range(0, 40, 10):  # cleaned while it rests, twice, so that its inode comes again
        for n in range(4):
            theirs.write(f"state/0/{part}/big", bytes(70_000 + n), overwrite=True)
    theirs.close()
    for part in range(40):
        assert manager.read(f"state/0/{part}/1.delta") == b"%d" % part
        if part % 10 == 0:
            assert len(manager.read(f"state/0/{part}/big")) == 70_003
            manager.write(f"state/0/{part}/2.delta", b"more")
            assert manager.read(f"state/0/{part}/2.delta") == b"more"
    assert len(open_files(manager, tmp_path)) <= 20 + 1


@pytest.mark.deep
def test_files_of_what_is_gone_are_closed(managers: Managers, tmp_path: Path) -> None:
    """Temporary checkpoints go without a word to their manager."""
    manager = managers("ckpt")
    manager.write("offsets/0", b"x")
    assert open_files(manager, tmp_path)
    shutil.rmtree(tmp_path / "ckpt")
    until(lambda: not open_files(manager, tmp_path), pause_s=0.2)


def test_a_replaced_checkpoint_is_another(managers: Managers, tmp_path: Path) -> None:
    """A reset puts another directory there: an old run's last maintenance must not write to it."""
    old = managers("ckpt")
    old.write("state/0/0/1.delta", b"state")
    shutil.copytree(old.root, tmp_path / "reset")
    (tmp_path / "ckpt").rename(tmp_path / "before")
    (tmp_path / "reset").rename(tmp_path / "ckpt")
    for path in ("state/0/0/2.delta", "state/0/0/2.zip"):
        with pytest.raises(Py4JJavaError, match=r"was replaced \(reset or restored\)"):
            old.write(path, b"stale")
    new = managers("ckpt")
    new.write("state/0/0/2.delta", b"new")
    assert new.list("state/0/0") == {"1.delta": 5, "2.delta": 3}


def test_a_lock_held_for_long(managers: Managers) -> None:
    """Somebody who stands still holds a task up for a while, not for ever."""
    manager = managers("ckpt", lock_timeout_ms=200)
    manager.write("offsets/0", b"x")
    with CheckpointLock(LOCAL, str(manager.root / "sparklog")) as lock, lock.partition("offsets-0"):
        with pytest.raises(Py4JJavaError, match="another process has held the lock"):
            manager.write("offsets/1", b"y")
        assert manager.read("offsets/0") == b"x"
    manager.write("offsets/1", b"y")


class Other(Manager):
    """A manager in a JVM of its own."""

    def __init__(self, root: Path, **conf: object) -> None:
        import pyspark
        from py4j.java_gateway import JavaGateway

        from sparklog.jvm.jar import jar

        jars = os.path.join(os.path.dirname(pyspark.__file__), "jars", "*")
        java = os.path.join(os.environ["JAVA_HOME"], "bin", "java")
        gateway = JavaGateway.launch_gateway(
            classpath=f"{jar()}:{jars}",
            die_on_exit=True,
            java_path=java,
            jarpath=next(Path(os.path.dirname(jars)).glob("py4j-*.jar")).as_posix(),
        )
        self._gateway = gateway
        super().__init__(_Session(gateway.jvm), root, **conf)  # type: ignore[arg-type]

    def close(self) -> None:
        self._gateway.shutdown()


class _Session:
    def __init__(self, jvm: object) -> None:
        self._jvm = jvm


def test_threads_take_turns(managers: Managers) -> None:
    """Writers of one partition, and an interrupt between them, leave each file once and whole."""
    manager = managers("ckpt")

    def write(first: int) -> None:
        for n in range(first, first + 50):
            manager.write(f"offsets/{n}", b"x" * n)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 200, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manager.list("offsets") == {str(n): n for n in range(200)}


def test_an_interrupt_closes_nothing(spark: SparkSession, manager: Manager) -> None:
    """Spark interrupts what it stops; the JVM then closes channels that the thread waits on."""
    thread = spark._jvm.java.lang.Thread  # type: ignore[attr-defined]
    thread.currentThread().interrupt()
    manager.write("offsets/0", b"whole")
    assert thread.interrupted()  # it is told, later
    assert manager.read("offsets/0") == b"whole"
    manager.write("offsets/1", b"still locked and open")
    assert manager.list("offsets") == {"0": 5, "1": 21}


def test_a_deleted_checkpoint_is_new(manager: Manager) -> None:
    """What is kept open and in memory belongs to the directory that was there."""
    manager.write("offsets/0", b"old")
    shutil.rmtree(manager.root)
    manager.create()
    assert manager.list("") == {}
    manager.write("offsets/5", b"new")
    assert manager.list("offsets") == {"5": 3}
    manager.delete("")
    assert not manager.root.exists()


def test_an_unwritten_record(manager: Manager) -> None:
    """Where the disk refuses, the error says what wasn't written, and the log is as it was."""
    manager.write("offsets/0", b"first")
    segment = manager.segment("offsets-0")
    before = segment.read_bytes()
    epochs = manager.partition("offsets-0") / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n3 1\n")  # as a fork leaves it
    limited(manager, "offsets/1", bytes(1 << 20))
    assert segment.read_bytes() == before
    manager.write("offsets/1", b"second")
    assert manager.list("offsets") == {"0": 5, "1": 6}


def limited(manager: Manager, path: str, content: bytes) -> None:
    """Write with the process' file size limited, as a full disk would."""
    pid = int(manager._jvm.java.lang.ProcessHandle.current().pid())
    old = resource.prlimit(pid, resource.RLIMIT_FSIZE, (64 << 10, resource.RLIM_INFINITY))
    try:
        with pytest.raises(Py4JJavaError, match=r"offsets-0/.* was not written"):
            manager.write(path, content)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, old)
