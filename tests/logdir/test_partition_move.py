"""A partition that moves to another log dir: what it refuses, what may fail, who goes on beside."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.clock import ManualClock
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    PartitionOfflineError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.log.log import home_of
from sparklog.logdir import partition_move
from sparklog.logdir.home import commits_of
from sparklog.logdir.offset_checkpoints import CLEANER, read_offsets
from sparklog.service import Service, verify
from sparklog.storage.moves import MoveRequest
from tests.waiting import until

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


def test_to_a_log_dir_that_others_were_not_given(
    dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Writers that were there before stop, and say why; nothing is written, nothing lost."""
    with sparklog.open(dirs[0], "rw") as before, sparklog.open(dirs[0]) as reader:
        before.create_topic("t", 2)
        fill(before)
        with sparklog.open(",".join(dirs[:2]), "rw") as log:
            log.move_partition("t", 0, dirs[1])
            named = rf"t-0 should lie in log dir number 2 \({dirs[1]}\): give all log dirs"
            for partition in (0, 1, 1):
                with pytest.raises(InvalidRequestError, match=named):
                    before.append("t", pa.table({"value": ["x"]}), partition)
            with pytest.raises(InvalidRequestError, match=named):
                before.delete_topic("t")
            with pytest.raises(PartitionOfflineError, match="which the path doesn't name"):
                rows(reader)
            fill(log)
        assert home_of(before).commits.lock.is_last()
    assert "not closed: t-0 should lie" in caplog.text
    with sparklog.open(",".join(dirs[:2]), "rw") as log:
        assert [offset for offset, _ in rows(log)] == list(range(20))
    assert verify(",".join(dirs[:2])).ok


def test_what_is_refused(log: Log, dirs: list[str], tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(InvalidRequestError, match=r"lies in .*/one already"):
        log.move_partition("t", 0, f"{dirs[0]}/")
    with pytest.raises(InvalidRequestError, match=r"/other is no log dir .* name it behind them"):
        log.move_partition("t", 0, str(tmp_path / "other"))
    with pytest.raises(UnknownTopicError):
        log.move_partition("nope", 0, dirs[1])
    with pytest.raises(UnknownTopicError):
        log.move_partition("t", 7, dirs[1])
    with pytest.raises(InvalidRequestError, match="sparklog's own"):
        log.move_partition("__sparklog_commits", 0, dirs[1])
    with sparklog.open(tmp_path / "single", "rw", clock=clock) as single:
        single.create_topic("t")
        with pytest.raises(InvalidRequestError, match="To add one, name it behind"):
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
    with pytest.raises(DataCorruptionError, match="stays where it is") as caught:
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
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self, path: 4 << 20)
    with pytest.raises(StorageUnavailableError, match="nothing was moved"):
        log.move_partition("t", 0, dirs[1])
    assert futures(dirs) == []


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` once, when a move has copied what there was."""
    real, todo = partition_move._Move.follow, [act]

    def follow(self: Any) -> int:
        copied = real(self)
        if todo:
            todo.pop()()
        return copied

    monkeypatch.setattr(partition_move._Move, "follow", follow)


def test_one_at_a_time(log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = sparklog.open(",".join(dirs), "rw")

    def second() -> None:
        for each in (log, other):
            with pytest.raises(LogLockedError, match="one at a time"):
                each.move_partition("t", 1, dirs[2])

    meanwhile(monkeypatch, second)
    log.move_partition("t", 0, dirs[1])
    other.move_partition("t", 1, dirs[2])
    other.close()


@pytest.mark.parametrize("delay", [0, 60_000])
def test_its_topic_is_deleted_meanwhile(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch, delay: int
) -> None:
    log.alter_topic("t", config={"file.delete.delay.ms": delay})
    meanwhile(monkeypatch, lambda: log.delete_topic("t"))
    with pytest.raises((UnknownTopicError, StorageUnavailableError)):
        log.move_partition("t", 0, dirs[1])
    assert futures(dirs) == []
    if delay:
        log.undelete_topic("t")
        assert len(rows(log)) == 10


def test_a_cleaner_at_work_meanwhile(
    log: Log, dirs: list[str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.alter_topic("t", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    for number in range(12):
        keyed = {"key": [b"%d" % (number % 3)], "value": [b"%d" % number * 60]}
        log.append("t", pa.table(keyed), 1)
    source = log.topic("t").dirs[1]

    def clean() -> None:
        report = Service(",".join(dirs), clock=clock).run_once()
        assert any(one.partition == 1 for one in report.cleaned), report

    meanwhile(monkeypatch, clean)
    log.move_partition("t", 1, dirs[2])
    assert os.path.dirname(source) == dirs[1]
    table = log.read("t", [1], columns=["key"]).read_all()
    assert table.num_rows < 12
    assert set(table["key"].to_pylist()) == {b"0", b"1", b"2"}
    assert read_offsets(LOCAL, dirs[2], CLEANER)[("t", 1)] > 0  # type: ignore[index]
    log.close()
    assert verify(",".join(dirs)).ok


def test_writers_and_a_tailing_reader_go_on(log: Log, dirs: list[str]) -> None:
    """Another process's writer, and a reader that follows; nothing is lost, nothing comes twice."""
    path, stop, done, wrote = ",".join(dirs), threading.Event(), threading.Event(), [10]
    other = sparklog.open(path, "rw")

    def write() -> None:
        while not stop.is_set():
            other.append("t", pa.table({"value": [b"%d" % wrote[0]]}), 0)
            wrote[0] += 1

    got: list[int] = []

    def read() -> None:
        for batch in sparklog.open(path).read("t", [0], columns=["offset"], follow=True):
            got.extend(batch["offset"].to_pylist())
            if done.is_set() and len(got) >= wrote[0]:
                return

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    try:
        for to in (1, 2, 0, 1):
            moved = log.move_partition("t", 0, dirs[to])
            assert moved.locked_ms < 120_000
    finally:
        stop.set()
        threads[0].join()
        wrote[0] += 1  # before the last one comes, with which the reader ends
        done.set()
        other.append("t", pa.table({"value": [b"last"]}), 0)
        threads[1].join(240)
        other.close()
    assert got == list(range(wrote[0]))


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


def test_nobody_waits_for_the_rate(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is copied under the lock isn't held back: all writers would be."""
    monkeypatch.setattr(partition_move._Move, "follow", lambda self: 0)
    moved = log.move_partition("t", 0, dirs[1], bytes_per_second=1)
    assert moved.bytes > 500
    assert moved.took_ms < 240_000  # at that rate: longer


class OneInode(LocalFileSystem):
    """Every segment has the same number, as a file may have that takes another's place."""

    def identity(self, path: str) -> tuple[int, int]:
        return (1, 1) if path.endswith(".log") else super().identity(path)


def test_a_segment_that_is_swapped_for_one_of_the_same_number(
    dirs: list[str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sparklog.open(",".join(dirs), "rw", clock=clock, fs=OneInode()) as log:
        log.create_topic("t", 2, CONFIG)
        for partition, letter in enumerate([b"a", b"b"]):
            for _ in range(10):
                log.append("t", pa.table({"value": [letter * 60]}), partition)
        name = "00000000000000000000.log"
        beside = Path(log.topic("t").dirs[0], "beside")

        def swap() -> None:
            beside.write_bytes(Path(log.topic("t").dirs[1], name).read_bytes())
            beside.replace(beside.with_name(name))

        meanwhile(monkeypatch, swap)
        log.move_partition("t", 0, dirs[2])
        values = log.read("t", [0], columns=["value"]).read_all()["value"].to_pylist()
        assert values[0] == b"b" * 60
        assert values[-1] == b"a" * 60


def test_writers_that_are_faster_than_its_rate(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It follows them until they pause, and never copies more than so much under the lock."""
    real, left = partition_move._Move.follow, [partition_move.ROUNDS_MAX + 20]

    def follow(self: Any) -> int:
        real(self)
        left[0] -= 1
        return partition_move.LOCKED_BYTES_MAX + 1 if left[0] else 0

    monkeypatch.setattr(partition_move._Move, "follow", follow)
    log.move_partition("t", 0, dirs[1])
    assert left == [0]
    assert "goes on until they pause" in caplog.text
    assert len(rows(log)) == 10


def test_a_move_that_waits_ends_when_it_is_cancelled(log: Log, dirs: list[str]) -> None:
    """At a rate at which it would take an hour, from another handle."""
    other = sparklog.open(",".join(dirs), "rw")
    caught: list[Exception] = []

    def move() -> None:
        try:
            log.move_partition("t", 0, dirs[1], bytes_per_second=100)
        except InvalidRequestError as error:
            caught.append(error)

    thread = threading.Thread(target=move)
    thread.start()
    until(lambda: [move.state for move in other.moves()] == ["moving"], state=other.moves)
    assert other.moves()[0].limit == 100
    assert other.cancel_moves("t", 0) == 1
    thread.join(240)
    assert "was cancelled" in str(caught[0])
    assert futures(dirs) == []
    other.close()


def test_what_nobody_has_begun_leaves_nothing_once_it_is_cancelled(
    log: Log, dirs: list[str]
) -> None:
    home_of(log).moves.ask([MoveRequest("t", 0, dirs[1]), MoveRequest("t", 1, dirs[2])])
    assert len(futures(dirs)) == 2
    assert log.cancel_moves("t", 0) == 1
    assert len(futures(dirs)) == 1
    assert log.cancel_moves() == 1
    assert futures(dirs) == []


def test_a_copy_of_a_deleted_topic_goes_though_who_deleted_it_died(
    log: Log, dirs: list[str], clock: ManualClock
) -> None:
    home_of(log).moves.ask([MoveRequest("t", 0, dirs[1])])
    (copy,) = futures(dirs)
    log.delete_topic("t")
    assert futures(dirs) == []
    Path(dirs[1], copy).mkdir()  # as if it had died before it removed it
    sparklog.open(",".join(dirs), "rw", clock=clock).close()
    assert futures(dirs) == []
    assert log.undelete_topic("t").dirs[0] == f"{dirs[0]}/t-0"
    assert len(rows(log)) == 10


@pytest.mark.parametrize("later_ms", [60_000, -3_600_000], ids=["later", "the clock goes back"])
def test_what_cannot_be_moved_is_tried_again(
    dirs: list[str], clock: ManualClock, later_ms: int
) -> None:
    fs = FullDisk()
    with sparklog.open(",".join(dirs), "rw", clock=clock, fs=fs) as log:
        log.create_topic("t", 1, CONFIG)
        fill(log)
        moves = home_of(log).moves
        moves.ask([MoveRequest("t", 0, dirs[1])])
        fs.full = dirs[1]
        moves.carry_out()
        (failed,) = log.moves()
        assert failed.state == "failed" and "No space left" in str(failed.error)
        assert not moves.is_due()
        fs.full = ""
        moves.carry_out()  # not yet
        assert len(log.moves()) == 1
        clock.advance(later_ms)
        assert moves.is_due()
        moves.carry_out()
        assert log.moves() == []
        assert log.topic("t").dirs[0] == f"{dirs[1]}/t-0"


def test_a_move_that_is_interrupted_at_its_end(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done; who writes next meets the old place, and no longer at the second try."""
    session = commits_of(log)
    fill(log, 1)
    forget, left = session.forget_writers, [True]

    def interrupted() -> None:
        if left and session.state.topics["t"].dirs[0] == 1:
            left.clear()
            raise KeyboardInterrupt
        forget()

    monkeypatch.setattr(session, "forget_writers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.move_partition("t", 0, dirs[1])
    assert log.topic("t").dirs[0] == f"{dirs[1]}/t-0"
    with contextlib.suppress(DataCorruptionError):
        fill(log, 1)
    fill(log, 1)
    assert len(rows(log)) in (12, 13)


def test_what_is_damaged_waits_for_whoever_mends_it(
    log: Log, dirs: list[str], clock: ManualClock
) -> None:
    segments = sorted(Path(dirs[0], "t-0").glob("*.log"))
    raw = bytearray(segments[1].read_bytes())
    raw[-3] ^= 1
    segments[1].write_bytes(raw)
    moves = home_of(log).moves
    moves.ask([MoveRequest("t", 0, dirs[1])])
    moves.carry_out()
    clock.advance(3_600_000)
    assert not moves.is_due()
    assert log.moves()[0].state == "failed"
    raw[-3] ^= 1
    segments[1].write_bytes(raw)
    moves.ask([MoveRequest("t", 0, dirs[1])])  # asked again
    moves.carry_out()
    assert log.moves() == []


def test_a_file_that_says_nothing(log: Log, dirs: list[str]) -> None:
    home_of(log).moves.ask([MoveRequest("t", 0, dirs[1])])
    Path(dirs[0], "sparklog.moves").write_text("{}")
    assert log.moves() == []
    assert not home_of(log).moves.is_due()
    log.move_partition("t", 0, dirs[1])
    assert len(rows(log)) == 10


def test_moves_to_one_disk_have_to_fit_together(
    log: Log, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("big", 3)
    for partition in (1, 2):
        log.append("big", pa.table({"value": [b"x" * 300_000]}), partition)
    size = 300_000
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda *_: (4 << 20) + size + size // 2)
    home_of(log).moves.ask([MoveRequest("big", 1, dirs[0])])
    with pytest.raises(StorageUnavailableError, match="what moves there takes"):
        home_of(log).moves.ask([MoveRequest("big", 2, dirs[0])])
    assert len(log.moves()) == 1
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda *_: 1 << 30)  # there is room again
    home_of(log).moves.ask([MoveRequest("big", 2, dirs[0])])
    assert len(log.moves()) == 2
