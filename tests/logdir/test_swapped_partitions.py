"""Partitions whose directories were swapped go offline, and come back with their own."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.service import Service, verify
from sparklog.service.health import examine
from tests.logdir.test_opening import abandon


def rows(partition: int, count: int = 3) -> pa.Table:
    return pa.table({"value": [f"{partition}-{n}" for n in range(count)]})


def make(path: Path, *, crash: bool = False) -> None:
    log = sparklog.open(path, "rw")
    log.create_topic("t", partitions=3)
    for _ in range(4):
        for partition in range(3):
            log.append("t", rows(partition), partition=partition)
    if crash:
        abandon(log)
    log.close()


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def values(log: sparklog.Log, partition: int) -> list[str]:
    found = log.read("t", [partition], columns=["value"]).read_all().column(0).to_pylist()
    return [value.decode() for value in found]


@pytest.fixture(params=[False, True], ids=["closed", "crashed"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make(tmp_path / "log", crash=request.param)
    return tmp_path / "log"


def test_swapped_directories_are_offline_for_readers_writers_and_the_service(path: Path) -> None:
    swap(path / "t-0", path / "t-1")
    with sparklog.open(path) as log:
        for partition, other in ((0, 1), (1, 0)):
            with pytest.raises(sparklog.PartitionOfflineError) as raised:
                values(log, partition)
            assert raised.value.path == str(path / f"t-{partition}")
            assert f"the directory of t-{other}" in str(raised.value)
            assert "rename them back" in str(raised.value)
            assert "leader-election" not in str(raised.value)  # it would give both up
        assert sorted(log.offline()) == [("t", 0), ("t", 1)]
        assert len(values(log, 2)) == 12
    health = examine(path)
    assert health.level.value == "red", health
    report = verify(path)
    assert not report.ok
    assert {f.partition for f in report.findings if f.severity == "damage"} == {0, 1}
    with sparklog.open(path, "rw") as log:
        with pytest.raises(sparklog.PartitionOfflineError, match="the directory of t-1"):
            log.append("t", rows(0), partition=0)
        log.append("t", rows(2), partition=2)
    with Service(path) as service:
        service.run_once()
    with sparklog.open(path) as log:
        assert sorted(log.offline()) == [("t", 0), ("t", 1)]
    swap(path / "t-0", path / "t-1")
    with sparklog.open(path, "rw") as log:
        assert not log.offline()
        assert len(values(log, 0)) == 12
    assert verify(path).ok


def test_a_partition_that_is_another_ones_copy_is_restored(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path / "t-1", tmp_path / "backup")
    shutil.rmtree(path / "t-1")
    shutil.copytree(path / "t-0", path / "t-1")
    expected = pytest.raises(sparklog.PartitionOfflineError, match="else restore this one from")
    with sparklog.open(path) as log, expected:
        values(log, 1)
    shutil.rmtree(path / "t-1")
    shutil.copytree(tmp_path / "backup", path / "t-1")
    with sparklog.open(path, "rw") as log:
        assert not log.offline()
        assert values(log, 1)[0] == "1-0"
    assert verify(path).ok


def test_a_repair_leaves_swapped_directories_alone(path: Path) -> None:
    swap(path / "t-0", path / "t-1")
    assert not verify(path, repair=True).ok
    swap(path / "t-0", path / "t-1")
    assert verify(path, repair=True).ok
    with sparklog.open(path) as log:
        assert [values(log, p)[0] for p in range(3)] == ["0-0", "1-0", "2-0"]


def test_what_the_message_advises_brings_them_back(path: Path) -> None:
    """`sparklog verify` says to stop what uses the log, and to rename the directories."""
    swap(path / "t-0", path / "t-1")
    assert "stop what uses the log and rename them back" in str(verify(path))
    sparklog.open(path, "rw").close()
    swap(path / "t-0", path / "t-1")
    with sparklog.open(path, "rw") as log:
        assert not log.offline()
        log.append("t", rows(0), partition=0)
        assert values(log, 0) == ["0-0", "0-1", "0-2"] * 5
    assert verify(path).ok


def test_swapped_metadata_files_alone_are_repaired(path: Path) -> None:
    """The directories are in their places, as the ledger's checksums tell: nothing is renamed."""
    files = [path / f"t-{p}" / "partition.metadata" for p in (0, 1)]
    texts = [file.read_bytes() for file in files]
    for file, text in zip(files, reversed(texts), strict=True):
        file.write_bytes(text)
    log = sparklog.open(path)
    with log, pytest.raises(sparklog.PartitionOfflineError, match="sparklog verify"):
        values(log, 0)
    report = verify(path)
    assert not report.ok
    assert "the batches are t-0's by the ledger's checksums" in str(report)
    assert verify(path, repair=True).ok
    assert [file.read_bytes() for file in files] == texts
    with sparklog.open(path, "rw") as log:
        assert not log.offline()
        assert [values(log, p)[0] for p in range(3)] == ["0-0", "1-0", "2-0"]
    assert verify(path).ok


def test_a_writer_notices_a_swap_under_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    with sparklog.open(path, "rw") as log:
        log.append("t", rows(0), partition=0)
        swap(path / "t-0", path / "t-1")
        with pytest.raises(sparklog.PartitionOfflineError, match="the directory of t-1"):
            log.append("t", rows(0), partition=0)
        with pytest.raises(sparklog.PartitionOfflineError, match="the directory of t-1"):
            values(log, 0)
        assert len(values(log, 2)) == 12


def test_a_reader_notices_a_swap_under_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    with sparklog.open(path) as log:
        assert len(values(log, 0)) == 12
        swap(path / "t-0", path / "t-1")
        with pytest.raises(sparklog.PartitionOfflineError, match="the directory of t-1"):
            values(log, 0)


def test_what_an_election_gives_up_of_a_swapped_partition_is_kept_beside_it(path: Path) -> None:
    swap(path / "t-0", path / "t-1")
    with sparklog.open(path, "rw") as log:
        given_up = log.give_up("t", [0])
        assert [(one.first, one.end) for one in given_up] == [(0, 12)]
        log.append("t", rows(0), partition=0)
        assert values(log, 0) == ["0-0", "0-1", "0-2"]
    assert any(name.startswith("t-0.") and name.endswith("-stray") for name in os.listdir(path))


def test_directories_of_an_older_sparklog_name_no_partition(path: Path) -> None:
    """They are read, written and verified as before."""
    for partition in range(3):
        metadata = path / f"t-{partition}" / "partition.metadata"
        version, topic_id, _ = metadata.read_text().splitlines()
        metadata.write_text(f"{version}\n{topic_id}")
    assert verify(path).ok
    with sparklog.open(path, "rw") as log:
        log.append("t", rows(0), partition=0)
        assert len(values(log, 0)) == 15
