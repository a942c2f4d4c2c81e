"""A partition that moves to another log dir: what is refused, what may fail, readers beside it."""

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    PartitionOfflineError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.format.checkpoint_files import topic_id_bytes
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.log.log import home_of
from sparklog.logdir.home import commits_of
from sparklog.logdir.offset_checkpoints import CLEANER, read_offsets
from sparklog.service import Service, verify
from tests import paths

CONFIG = {"internal.segment.bytes": 400}


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two", "three")]


@pytest.fixture
def log(dirs: list[str], clock: ManualClock) -> Iterator[Log]:
    with sparklog.open(",".join(dirs), "rw", clock=clock) as log:
        log.create_topic("t", 3, CONFIG)
        fill(log)
        yield log


def fill(log: Log, count: int = 10, size: int = 60) -> None:
    for number in range(count):
        log.append("t", pa.table({"value": [b"%d" % number * size]}), 0)


def rows(log: Log) -> list[tuple[int, bytes]]:
    table = log.read("t", [0], columns=["offset", "value"]).read_all()
    return list(zip(*table.to_pydict().values(), strict=True))


def futures(dirs: list[str]) -> list[str]:
    return [name for path in dirs for name in os.listdir(path) if name.endswith("-future")]


def test_there_and_back(log: Log, dirs: list[str]) -> None:
    before, info = rows(log), log.topic("t")
    told: list[tuple[int, int]] = []
    moved = log.move_partition("t", 0, dirs[1], progress=lambda *now: told.append(now))
    assert (moved.source, moved.target) == (dirs[0], dirs[1])
    assert told[-1] == (moved.bytes, moved.bytes)
    assert (log.topic("t").id, log.topic("t").dirs[0]) == (info.id, f"{dirs[1]}/t-0")
    assert rows(log) == before
    fill(log, 3)
    log.move_partition("t", 0, dirs[2])
    log.move_partition("t", 0, dirs[0])
    log.alter_topic("t", config={"retention.ms": -1})
    log.alter_topic("t", partitions=4)
    assert log.topic("t").dirs[0] == f"{dirs[0]}/t-0"
    assert len(rows(log)) == 13
    assert sorted(n for path in dirs for n in os.listdir(path) if n.startswith("t-0")) == ["t-0"]
    log.close()
    assert verify(",".join(dirs)).ok
    with sparklog.open(",".join(dirs), "rw") as again:
        assert len(rows(again)) == 13


def test_a_partition_in_a_log_dir_that_others_were_not_given(
    dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Writers that were there before stop, and say why; nothing is written, nothing lost."""
    with sparklog.open(dirs[0], "rw") as before, sparklog.open(dirs[0]) as reader:
        before.create_topic("t", 2)
        fill(before)
        with sparklog.open(",".join(dirs[:2]), "rw") as log:
            log.alter_topic("t", partitions=3)
            assert log.topic("t").dirs[2] == f"{dirs[1]}/t-2"
            log.append("t", pa.table({"value": ["there"]}), 2)
            named = rf"t-2 should be in log dir number 2 \({dirs[1]}\): name all log dirs"
            for partition in (0, 1, 1):
                with pytest.raises(InvalidRequestError, match=named):
                    before.append("t", pa.table({"value": ["x"]}), partition)
            with pytest.raises(InvalidRequestError, match=named):
                before.delete_topic("t")
            with pytest.raises(PartitionOfflineError, match="which the path doesn't name"):
                reader.read("t").read_all()
            fill(log)
        assert home_of(before).commits.lock.is_last()
    assert "not closed: t-2 should be" in caplog.text
    with sparklog.open(",".join(dirs[:2]), "rw") as log:
        assert [offset for offset, _ in rows(log)] == list(range(20))
    assert verify(",".join(dirs[:2])).ok


def test_what_is_refused(log: Log, dirs: list[str], tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(InvalidRequestError, match=r"t-0 is in .*/one already"):
        log.move_partition("t", 0, f"{dirs[0]}/")
    with pytest.raises(InvalidRequestError, match=r"/other is no log dir .* name it after them"):
        log.move_partition("t", 0, str(tmp_path / "other"))
    with pytest.raises(UnknownTopicError):
        log.move_partition("nope", 0, dirs[1])
    with pytest.raises(UnknownTopicError):
        log.move_partition("t", 7, dirs[1])
    with pytest.raises(InvalidRequestError, match="internal to sparklog"):
        log.move_partition("__sparklog_commits", 0, dirs[1])
    with sparklog.open(tmp_path / "single", "rw", clock=clock) as single:
        single.create_topic("t")
        with pytest.raises(InvalidRequestError, match="To add it, name it after"):
            single.move_partition("t", 0, str(tmp_path / "single2"))
    both = f"{tmp_path / 'single'},{tmp_path / 'single2'}"
    with sparklog.open(both, "rw", clock=clock) as two:  # as it was told
        two.append("t", pa.table({"value": ["x"]}))
        two.move_partition("t", 0, str(tmp_path / "single2"))
        assert two.read("t").read_all().num_rows == 1
    assert futures(dirs) == []


def test_damage_stops_it(log: Log, dirs: list[str], clock: ManualClock) -> None:
    segments = sorted(Path(dirs[0], "t-0").glob("*.log"))
    raw = bytearray(segments[1].read_bytes())
    raw[-3] ^= 1
    segments[1].write_bytes(raw)
    with pytest.raises(DataCorruptionError, match="was not moved") as caught:
        log.move_partition("t", 0, dirs[1])
    assert caught.value.path == str(segments[1])
    first, following = int(segments[1].stem), int(segments[2].stem)
    assert caught.value.first is not None and first <= caught.value.first
    assert caught.value.end == following
    assert futures(dirs) == []
    raw[-3] ^= 1
    segments[1].write_bytes(raw)
    log.move_partition("t", 0, dirs[1])
    assert len(rows(log)) == 10


class FullDisk(LocalFileSystem):
    """Nothing can be written below `full`."""

    full = ""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> Any:
        if self.full and path.startswith(self.full) and "-future" in path and write:
            raise StorageUnavailableError(f"can't write {path}: No space left on device")
        return super().open(path, create=create, write=write)

    def free_bytes(self, path: str) -> int:
        return 5 << 20 if path == self.full == "small" else super().free_bytes(path)


def test_a_destination_that_fills_up(dirs: list[str], clock: ManualClock) -> None:
    fs = FullDisk()
    with sparklog.open(",".join(dirs), "rw", clock=clock, fs=fs) as log:
        log.create_topic("t", 1, CONFIG)
        fill(log)
        fs.full = dirs[1]
        with pytest.raises(StorageUnavailableError, match="No space left"):
            log.move_partition("t", 0, dirs[1])
        fs.full = ""
        assert futures(dirs) == []
        assert len(rows(log)) == 10
        log.move_partition("t", 0, dirs[1])


def test_no_room_is_seen_before(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = dict.fromkeys(dirs[:2], 4 << 20)
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self, path: free.get(path, 1 << 30))
    with pytest.raises(StorageUnavailableError, match="free space there, or move the partition"):
        log.move_partition("t", 0, dirs[1])
    assert futures(dirs) == []
    log.move_partition("t", 0, dirs[2])
    free.clear()
    log.move_partition("t", 0, dirs[1])
    assert len(rows(log)) == 10


def test_something_else_has_its_name(log: Log, dirs: list[str], tmp_path: Path) -> None:
    strange = Path(dirs[1], "t-0")
    strange.mkdir()
    strange.joinpath("notes").write_text("mine")
    with pytest.raises(StorageUnavailableError, match="exists; move this directory away, then"):
        log.move_partition("t", 0, dirs[1])
    assert len(rows(log)) == 10
    strange.rename(tmp_path / "notes")
    log.move_partition("t", 0, dirs[1])
    assert len(rows(log)) == 10


def test_a_given_up_partition_that_comes_back_is_no_old_place(
    log: Log, dirs: list[str], clock: ManualClock
) -> None:
    """What was given up may still be wanted: it stays as a stray, though a move left that dir."""
    log.move_partition("t", 0, dirs[1])
    place = f"{dirs[1]}/t-0"
    log.close()
    os.rename(place, f"{place}.aside")
    path = ",".join(dirs)
    with sparklog.open(path, "rw", clock=clock) as again:
        assert again.offline()
        again.give_up("t", [0])
        fill(again, 1)
        again.move_partition("t", 0, dirs[2])  # it leaves the very directory
        os.rename(f"{place}.aside", place)
    with sparklog.open(path, "rw", clock=clock) as again:
        again.create_topic("other")
        again.delete_topic("other")
        assert len(rows(again)) == 1
    (stray,) = [name for name in os.listdir(dirs[1]) if name.startswith("t-0")]
    assert stray.endswith("-stray")
    assert sum(one.stat().st_size for one in Path(dirs[1], stray).glob("*.log")) > 600


def test_a_move_that_is_interrupted_at_its_end(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done; who writes next meets the old place, and no longer at the second try."""
    commits = commits_of(log)
    fill(log, 1)
    forget, left = commits.manager.forget_writers, [True]

    def interrupted() -> None:
        if left and commits.state.topics["t"].dirs[0] == 1:
            left.clear()
            raise KeyboardInterrupt
        forget()

    monkeypatch.setattr(commits.manager, "forget_writers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.move_partition("t", 0, dirs[1])
    assert log.topic("t").dirs[0] == f"{dirs[1]}/t-0"
    with contextlib.suppress(DataCorruptionError):
        fill(log, 1)
    fill(log, 1)
    assert len(rows(log)) in (12, 13)


@pytest.mark.parametrize("who", ["a writer", "this process", "a service"])
def test_it_is_refused_while_another_session_has_the_log_open(
    log: Log, dirs: list[str], clock: ManualClock, who: str
) -> None:
    path = ",".join(dirs)
    with contextlib.ExitStack() as stack:
        if who == "a writer":
            code = f"import sparklog; log = sparklog.open({path!r}, 'rw'); print(1); input()"
            other = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-uc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            assert other.stdout is not None and other.stdout.readline() == b"1\n"
            stack.callback(other.communicate, b"\n")
        elif who == "this process":
            stack.enter_context(sparklog.open(path, "rw", clock=clock))
        else:
            service = stack.enter_context(Service(path))
            service.start()
        with pytest.raises(LogLockedError, match="Stop the service and close the other writers"):
            log.move_partition("t", 0, dirs[1])
        assert futures(dirs) == []
        assert len(rows(log)) == 10
    log.move_partition("t", 0, dirs[1])
    assert len(rows(log)) == 10


def test_writers_wait_until_it_is_moved(log: Log, dirs: list[str]) -> None:
    """A session that another process begins meanwhile finds the partition in its new place."""
    opened: list[sparklog.Log] = []
    threads: list[threading.Thread] = []

    def begin(*_: int) -> None:
        if not threads:
            other = threading.Thread(
                target=lambda: opened.append(sparklog.open(",".join(dirs), "rw"))
            )
            other.start()
            threads.append(other)
            other.join(0.2)
            assert not opened

    log.move_partition("t", 0, dirs[1], progress=begin)
    threads[0].join(240)
    with opened[0] as other:
        assert other.topic("t").dirs[0] == f"{dirs[1]}/t-0"
        fill(other, 1)
    assert len(rows(log)) == 11


def test_what_a_cleaner_has_done_is_kept(log: Log, dirs: list[str], clock: ManualClock) -> None:
    log.alter_topic("t", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    for number in range(12):
        keyed = {"key": [b"%d" % (number % 3)], "value": [b"%d" % number * 60]}
        log.append("t", pa.table(keyed), 1)
    report = Service(",".join(dirs), clock=clock).run_once()
    assert any(one.partition == 1 for one in report.cleaned), report
    cleaned = read_offsets(LOCAL, dirs[1], CLEANER)[TopicPartition("t", 1)]
    log.move_partition("t", 1, dirs[2])
    assert read_offsets(LOCAL, dirs[2], CLEANER)[TopicPartition("t", 1)] == cleaned > 0
    assert 3 <= log.read("t", [1]).read_all().num_rows < 12


def test_a_tailing_reader_goes_on(log: Log, dirs: list[str]) -> None:
    """A reader of another process that follows the partition gets each record once."""
    got: list[int] = []

    def read() -> None:
        for batch in sparklog.open(",".join(dirs)).read("t", [0], columns=["offset"], follow=True):
            got.extend(batch["offset"].to_pylist())
            if len(got) >= 50:
                return

    reader = threading.Thread(target=read)
    reader.start()
    for to in (1, 2, 0, 1):
        fill(log)
        log.move_partition("t", 0, dirs[to])
    reader.join(240)
    assert got == list(range(50))


def test_a_copy_of_a_deleted_topic_goes(log: Log, dirs: list[str], clock: ManualClock) -> None:
    """An earlier version that moved the partition beside writers died in the middle."""
    mark = topic_id_bytes(log.topic("t").id).hex()
    copy = Path(dirs[1], f"t-0.{mark}-future")
    copy.mkdir()
    log.delete_topic("t")
    assert futures(dirs) == []
    copy.mkdir()
    sparklog.open(",".join(dirs), "rw", clock=clock).close()
    assert futures(dirs) == []
    assert log.undelete_topic("t").dirs[0] == f"{dirs[0]}/t-0"
    assert len(rows(log)) == 10


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """Logs on which a version that moved partitions beside writers was killed, see the README."""
    with tarfile.open(paths.GOLDEN / "online-moves.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


def values(path: str) -> list[bytes]:
    with sparklog.open(path) as log:
        found: list[bytes] = log.read("t", columns=["value"]).read_all()["value"].to_pylist()
    return found


@pytest.mark.parametrize(("how", "to"), [("copying", "one"), ("committed", "two")])
def test_a_move_that_an_earlier_version_began(unfinished: Path, how: str, to: str) -> None:
    """It is cancelled before its record was written, and completed after it."""
    one, two = unfinished / how / "one", unfinished / how / "two"
    path, wanted = f"{one},{two}", [b"%03d" % number * 40 for number in range(60)]
    assert len(futures([str(two)])) == 1
    assert values(path) == wanted
    with sparklog.open(path, "rw") as log:
        assert log.topic("t").dirs[0] == str(unfinished / how / to / "t-0")
        assert futures([str(one), str(two)]) == []
        log.append("t", pa.table({"value": [b"more"]}))
        log.move_partition("t", 0, str(one if to == "two" else two))
    assert values(path) == [*wanted, b"more"]
    assert not [*one.glob("sparklog.mov*")]
    assert verify(path).ok


def test_a_move_that_an_earlier_version_began_in_a_log_that_is_closed(unfinished: Path) -> None:
    """A request outlived its process, and the log was closed well since."""
    one, two = unfinished / "copying" / "one", unfinished / "copying" / "two"
    path = f"{one},{two}"
    kept = unfinished / "kept"
    (copy,) = two.glob("*-future")
    shutil.copytree(copy, kept)
    requests = (one / "sparklog.moves").read_bytes()
    sparklog.open(path, "rw").close()
    shutil.copytree(kept, copy)
    (one / "sparklog.moves").write_bytes(requests)
    with sparklog.open(path, "rw") as log:
        assert futures([str(two)]) == []
        assert log.topic("t").dirs[0] == str(one / "t-0")
    assert not [*one.glob("sparklog.mov*")]
    shutil.copytree(kept, copy)  # a service opens it next
    Service(path).run_once()
    assert futures([str(two)]) == []
    assert len(values(path)) == 60
    assert verify(path).ok


def test_a_brokers_future_directory_stays(log: Log, dirs: list[str], clock: ManualClock) -> None:
    theirs = Path(dirs[1], f"t-0.{'0123456789abcdef' * 2}-future")
    theirs.mkdir()
    log.move_partition("t", 0, dirs[1])
    log.close()
    sparklog.open(",".join(dirs), "rw", clock=clock).close()
    assert theirs.is_dir()
