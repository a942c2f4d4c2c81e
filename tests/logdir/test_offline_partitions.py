"""What is missing is offline, for readers and writers, until it is back: disks, dirs, segments."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.logdir.home import commits_of
from sparklog.logdir.log_dirs import DIRS_NAME
from sparklog.service import verify
from tests.logdir.test_opening import abandon

ONE = pa.table({"value": ["x"]})
KEYED = pa.table({"key": [f"k{n}" for n in range(20)], "value": ["x"] * 20})
Dirs = tuple[Path, Path]


def make(tmp_path: Path, *, crash: bool = False) -> Dirs:
    """A log over two dirs; t-1 and u-0, the second's, hold records, as t-0 does."""
    a, b = tmp_path / "a", tmp_path / "b"
    log = sparklog.open(f"{a},{b}", "rw")
    log.create_topic("t", partitions=2, config={"internal.segment.bytes": 200})
    log.create_topic("u", partitions=2)
    for _ in range(3):
        log.append("t", KEYED)
    log.append("u", ONE, partition=0)
    log.append("u", ONE, partition=1)
    if crash:
        abandon(log)
    log.close()
    return a, b


def path_of(dirs: Dirs) -> str:
    return ",".join(map(str, dirs))


def unmount(path: Path) -> Path:
    """Put an empty directory in a disk's place; return where the disk's contents are."""
    kept = path.with_name(f"{path.name}-kept")
    path.rename(kept)
    path.mkdir()
    return kept


def mount(path: Path, kept: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    kept.rename(path)


def counts(dirs: Dirs) -> dict[int, int]:
    with sparklog.open(path_of(dirs)) as log:
        rows = log.read("t", columns=["partition"]).read_all().column(0).to_pylist()
    return {p: rows.count(p) for p in (0, 1)}


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("reboot", [False, True], ids=["same boot", "rebooted"])
def test_an_unmounted_disk(tmp_path: Path, crash: bool, reboot: bool) -> None:
    a, b = dirs = make(tmp_path, crash=crash)
    before = counts(dirs)
    with sparklog.open(path_of(dirs)) as log:
        spans = log.offsets("t")
    if reboot:
        (a / "sparklog.lock").unlink()
    kept = unmount(b)
    report = verify(path_of(dirs))
    assert [(f.file, f.first, f.end) for f in report.findings if f.severity == "damage"] == [
        (str(b / "t-1"), 0, spans[1][1]), (str(b / "u-1"), 0, 1),
    ]  # fmt: skip
    for _ in range(2):  # before a writer came, and after it
        with sparklog.open(path_of(dirs)) as log:
            assert log.offsets("t") == spans
            assert log.topic("t").partitions == 2
            assert log.offline().keys() == {("t", 1), ("u", 1)}
            with pytest.raises(sparklog.PartitionOfflineError, match="is its disk mounted") as info:
                log.read("t").read_all()
            error = info.value
            assert (error.path, error.first, error.end) == (str(b / "t-1"), 0, spans[1][1])
            assert log.read("t", partitions=[0]).read_all().num_rows == before[0]
        with sparklog.open(path_of(dirs), "rw") as log:
            with pytest.raises(sparklog.PartitionOfflineError, match=str(b / "t-1")):
                log.append("t", KEYED)
            with pytest.raises(sparklog.PartitionOfflineError):
                log.delete_records("t", {1: 1})
            log.append("t", ONE, partition=0)
            before[0] += 1
            spans[0] = (0, before[0])
            log.append("u", ONE)  # no key: one that is there takes it
            log.alter_topic("u", config={"retention.ms": -1})
        assert os.listdir(b) == []
    mount(b, kept)
    assert counts(dirs) == before
    with sparklog.open(path_of(dirs), "rw") as log:
        assert log.offline() == {}
        log.append("t", KEYED)
    assert sum(counts(dirs).values()) == sum(before.values()) + 20
    assert not (a / "sparklog_open").exists()
    assert verify(path_of(dirs)).ok


def test_it_comes_back_under_an_open_session(tmp_path: Path) -> None:
    _a, b = dirs = make(tmp_path)
    kept = unmount(b)
    path = path_of(dirs)
    with sparklog.open(path, "rw") as log, sparklog.open(path, "rw") as other:
        reader = sparklog.open(path)
        with pytest.raises(sparklog.PartitionOfflineError):
            log.append("t", ONE, partition=1)
        mount(b, kept)
        first = reader.offsets("t")[1][1]
        assert log.append("t", ONE, partition=1) == {"t": {1: (first, first + 1)}}
        assert (b / "sparklog_open").is_dir()
        assert other.append("t", ONE, partition=1) == {"t": {1: (first + 1, first + 2)}}
        assert reader.read("t", partitions=[1]).read_all().num_rows == first + 2
    assert verify(path_of(dirs)).ok


def test_it_goes_under_an_open_session(tmp_path: Path) -> None:
    _a, b = dirs = make(tmp_path)
    with sparklog.open(path_of(dirs), "rw") as log, sparklog.open(path_of(dirs), "rw") as other:
        end = log.offsets("t")[1][1]
        log.append("t", ONE, partition=1)  # its files are open now
        kept = unmount(b)
        for one in (log, other):
            with pytest.raises(sparklog.PartitionOfflineError, match="disk mounted"):
                one.append("t", ONE, partition=1)
            one.append("t", ONE, partition=0)
        mount(b, kept)
        assert log.append("t", ONE, partition=1) == {"t": {1: (end + 1, end + 2)}}
    assert verify(path_of(dirs)).ok


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("what", ["directory", "oldest", "all segments"])
@pytest.mark.usefixtures("impatient")
def test_a_partition_that_was_taken_away(tmp_path: Path, crash: bool, what: str) -> None:
    _a, b = dirs = make(tmp_path, crash=crash)
    with sparklog.open(path_of(dirs)) as log:
        spans = log.offsets("t")
    part, kept = b / "t-1", tmp_path / "kept"
    shutil.copytree(part, kept)
    if what == "directory":
        shutil.rmtree(part)
    else:
        logs = sorted(part.glob("*.log"))
        assert len(logs) > 2
        for file in logs[: 1 if what == "oldest" else None]:
            file.unlink()
    assert not verify(path_of(dirs)).ok
    with sparklog.open(path_of(dirs)) as log:
        assert log.offsets("t") == spans
        with pytest.raises(sparklog.DataCorruptionError, match="t-1"):
            log.read("t").read_all()
    with sparklog.open(path_of(dirs), "rw") as log:
        assert log.offsets("t") == spans
        with pytest.raises(sparklog.PartitionOfflineError, match="gone") as info:
            log.append("t", ONE, partition=1)
        assert (info.value.first, info.value.path) == (0, str(part))
        log.append("t", ONE, partition=0)
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(kept, part)
        log.append("t", ONE, partition=1)
    assert verify(path_of(dirs)).ok
    assert counts(dirs) == {p: end + 1 for p, (_, end) in spans.items()}


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_the_active_segment_alone(tmp_path: Path, crash: bool) -> None:
    a, b = dirs = make(tmp_path, crash=crash)
    active = max((b / "t-1").glob("*.log"))
    raw = active.read_bytes()
    active.unlink()
    if crash:
        (a / "sparklog.lock").unlink()
    assert not verify(path_of(dirs)).ok
    with sparklog.open(path_of(dirs), "rw") as log:
        assert log.offline().keys() == {("t", 1)}
        expected = "file ends too early" if crash else "records are missing at the end"
        with pytest.raises(sparklog.DataCorruptionError, match=expected):
            log.append("t", ONE, partition=1)
    active.write_bytes(raw)
    with sparklog.open(path_of(dirs), "rw") as log:
        log.append("t", ONE, partition=1)
    assert verify(path_of(dirs)).ok


def test_it_comes_back_older(tmp_path: Path) -> None:
    _a, b = dirs = make(tmp_path)
    old = tmp_path / "old"
    shutil.copytree(b, old)
    with sparklog.open(path_of(dirs), "rw") as log:
        end = log.offsets("t")[1][1]
        log.append("t", ONE, partition=1)
    shutil.rmtree(b)
    with sparklog.open(path_of(dirs), "rw") as log:
        assert log.offline().keys() == {("t", 1), ("u", 1)}
    shutil.copytree(old, b)
    for _ in range(2):
        with sparklog.open(path_of(dirs), "rw") as log:
            with pytest.raises(sparklog.DataCorruptionError) as info:
                log.append("t", ONE, partition=1)
            assert (info.value.first, info.value.end) == (end, end + 1)
            log.append("u", ONE, partition=1)


def test_another_logs_directory(tmp_path: Path) -> None:
    dirs = make(tmp_path)
    (tmp_path / "other").mkdir()
    other = make(tmp_path / "other")
    kept = unmount(dirs[1])
    shutil.rmtree(dirs[1])
    shutil.copytree(other[1], dirs[1])
    for mode in ("r", "rw"):
        with pytest.raises(sparklog.InvalidRequestError, match="belongs to another log"):
            sparklog.open(path_of(dirs), mode)
    (dirs[1] / DIRS_NAME).unlink()  # then the partitions' topic ids tell
    for mode in ("r", "rw"):
        with (
            sparklog.open(path_of(dirs), mode) as log,
            pytest.raises(sparklog.PartitionOfflineError, match="another topic"),
        ):
            log.read("t").read_all() if mode == "r" else log.append("t", KEYED)
    mount(dirs[1], kept)
    with sparklog.open(path_of(dirs), "rw") as log:
        log.append("t", KEYED)


def test_one_dir_of_two(tmp_path: Path) -> None:
    a, b = make(tmp_path)
    for crash in (False, True):
        for mode in ("r", "rw"):
            with pytest.raises(sparklog.InvalidRequestError, match=f"log dirs were {a},{b}"):
                sparklog.open(b, mode)
        with pytest.raises(sparklog.InvalidRequestError, match="name all log dirs"):
            sparklog.open(a, "rw")
        assert not verify(a).ok
        with sparklog.open(a) as log:
            assert log.topic("t").offline.keys() == {1}
            with pytest.raises(sparklog.PartitionOfflineError, match="name all log dirs"):
                log.read("t").read_all()
            assert log.read("u", partitions=[0]).read_all().num_rows == 1
        with sparklog.open(f"{a},{b}", "rw") as log:
            log.append("t", KEYED)
            if not crash:
                abandon(log)
    assert verify(f"{a},{b}").ok


def test_the_first_dir_is_away(tmp_path: Path) -> None:
    a, _b = dirs = make(tmp_path)
    kept = unmount(a)
    for mode in ("r", "rw"):
        with pytest.raises(sparklog.InvalidRequestError, match="is its disk mounted"):
            sparklog.open(path_of(dirs), mode)
    assert os.listdir(a) == []
    mount(a, kept)
    assert sum(counts(dirs).values()) == 60


def test_the_ledger_is_gone_from_a_closed_log(tmp_path: Path) -> None:
    a, _b = dirs = make(tmp_path)
    shutil.rmtree(a / "__sparklog_commits-0")
    with pytest.raises(sparklog.DataCorruptionError, match="ledger is missing"):
        sparklog.open(path_of(dirs), "rw")


def test_a_log_of_an_older_sparklog(tmp_path: Path) -> None:
    """It said nowhere which its dirs are; the topics file tells what should lie there."""
    _a, b = dirs = make(tmp_path)
    for directory in dirs:
        (directory / DIRS_NAME).unlink()
    kept = unmount(b)
    log = sparklog.open(path_of(dirs), "rw")
    with log, pytest.raises(sparklog.PartitionOfflineError):
        log.append("t", KEYED)
    mount(b, kept)
    with sparklog.open(path_of(dirs), "rw") as log:
        log.append("t", KEYED)
    assert (b / DIRS_NAME).exists()
    assert verify(path_of(dirs)).ok


def test_a_dir_takes_the_id_that_a_broker_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    (path / "meta.properties").write_text("version=1\ndirectory.id=JFWGWUVlTqmRqPIvHlIP9Q\n")
    sparklog.open(path, "rw").close()
    assert '"directory": "JFWGWUVlTqmRqPIvHlIP9Q"' in (path / DIRS_NAME).read_text()


def test_a_broker_deleted_a_topic(tmp_path: Path) -> None:
    """Its clean mark tells: what is missing in a dir that is there went with its topic."""
    _a, _b = dirs = make(tmp_path)
    for directory in dirs:
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
        shutil.rmtree(next(directory.glob("u-*")))
    with sparklog.open(path_of(dirs), "rw") as log:
        assert list(log.topics()) == ["t"]
        assert log.offline() == {}
        log.create_topic("u", partitions=2)
        assert log.append("u", ONE, partition=0) == {"u": {0: (1, 2)}}  # never offset 0 again


def test_a_dropped_topic_whose_partition_was_away(tmp_path: Path) -> None:
    a, b = dirs = make(tmp_path)
    kept = unmount(b)
    with sparklog.open(path_of(dirs), "rw") as log:
        log.delete_topic("t")
        log.create_topic("t", partitions=2)
        assert log.topic("t").dirs == {0: str(a / "t-0"), 1: str(a / "t-1")}
    mount(b, kept)
    with sparklog.open(path_of(dirs), "rw") as log:
        assert log.append("t", ONE, partition=1)["t"][1][0] > 0
        assert list(log.offline()) == []
    assert counts(dirs) == {0: 0, 1: 1}


def test_partition_numbers_are_the_ledgers(tmp_path: Path) -> None:
    a, b = dirs = make(tmp_path)
    kept = unmount(b)
    with sparklog.open(path_of(dirs), "rw") as log:
        assert sorted(log.alter_topic("t", partitions=3).dirs) == [0, 1, 2]
        assert log.topic("t").dirs[2] == str(a / "t-2")
    mount(b, kept)
    with sparklog.open(path_of(dirs), "rw") as log:
        log.append("t", KEYED)
    assert verify(path_of(dirs)).ok


def test_a_gap_in_the_numbers_stays_one(tmp_path: Path) -> None:
    """A broker's directory may hold some of a topic's partitions only, as one of a cluster's."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=3)
        log.append("t", ONE, partition=1)
        log.append("t", ONE, partition=2)
    shutil.rmtree(path / "t-1")
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    with sparklog.open(path, "rw") as log:
        assert sorted(log.alter_topic("t", partitions=4).dirs) == [0, 2, 3]
        assert log.append("t", ONE, partition=2) == {"t": {2: (1, 2)}}
        log.delete_topic("t")
        log.create_topic("t", partitions=3)
        assert log.append("t", ONE, partition=1) == {"t": {1: (1, 2)}}  # never offset 0 again


def test_old_brokers_wrote_no_metadata(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2)
        log.append("t", ONE, partition=1)
    for name in ("t-0", "t-1"):
        (path / name / "partition.metadata").unlink()
    for name in os.listdir(path):
        if name.startswith("sparklog") or name.startswith("__"):
            shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()
    (path / ".kafka_cleanshutdown").unlink()
    with sparklog.open(path, "rw") as log:
        log.alter_topic("t", config={"retention.ms": 5_000_000})
        info, epoch = log.topic("t"), commits_of(log).state.epoch
    assert f"topic_id: {info.id}" in (path / "t-0" / "partition.metadata").read_text()
    for _ in range(2):
        with sparklog.open(path, "rw") as log:
            assert log.topic("t") == info
            assert commits_of(log).state.epoch == epoch
    (path / "t-1" / "partition.metadata").unlink()  # lost later on: still the same topic
    with sparklog.open(path, "rw") as log:
        assert log.topic("t") == info
        assert log.append("t", ONE, partition=1) == {"t": {1: (1, 2)}}
