"""Deleted topics: what can be given back, until when, and what goes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog import InvalidRequestError, Log, UnknownTopicError
from sparklog.clock import ManualClock
from sparklog.errors import TopicReplacedError
from sparklog.log.log import home_of
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LedgerWriter
from sparklog.service import Service, verify
from sparklog.storage.ledger_records import SnapshotRecord
from tests.log.forks import fork

HOUR_MS = 3_600_000
CONFIG = {"file.delete.delay.ms": HOUR_MS, "internal.segment.bytes": 300}
Open = Callable[[], Log]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path / 'one'},{tmp_path / 'two'}"


@pytest.fixture
def open_rw(path: str, clock: ManualClock) -> Open:
    return lambda: sparklog.open(path, "rw", clock=clock)


@pytest.fixture
def log(open_rw: Open) -> Iterator[Log]:
    """A topic t of two partitions, each in a log dir of its own, of several segments."""
    with open_rw() as log:
        log.create_topic("t", 2, CONFIG)
        for number in range(8):
            log.append("t", pa.table({"value": [b"%d" % number * 40]}), number % 2)
        log.append("t", pa.table({"value": [b"p"]}), 0, producer=(7, 0, 0))
        log.delete_records("t", {1: 1})
        yield log


def rows(log: Log, topic: str = "t") -> list[tuple[int, int, bytes]]:
    table = log.read(topic, columns=["partition", "offset", "value"]).read_all()
    return list(zip(*table.to_pydict().values(), strict=True))


def directories(log: Log) -> list[str]:
    found = [name for path in commits_of(log).directories for name in os.listdir(path)]
    return sorted(name for name in found if name.startswith(("t-", "u-")))


def test_its_directories_are_renamed(log: Log, path: str, clock: ManualClock) -> None:
    before, info = rows(log), log.topic("t")
    log.delete_topic("t")
    mark = commits_of(log).state.deleted[info.id]
    names = [name.partition(".") for name in directories(log)]
    assert [name for name, _, _ in names] == ["t-0", "t-1"]
    assert all(len(tail) == 32 + len("-delete") and tail.endswith("-delete") for *_, tail in names)
    assert sparklog.open(path, clock=clock).deleted_topics() == [mark.info()]
    assert log.undelete_topic("t").dirs == info.dirs
    assert rows(log) == before


def test_the_ledger_knows_it_after_a_new_segment(
    log: Log, open_rw: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot carries it, and a process that opens the log anew finds it there."""
    before = rows(log)
    log.delete_topic("t")
    monkeypatch.setattr(LedgerWriter, "segment_bytes", 1)
    log.create_topic("other")
    with open_rw() as other:
        records = [r for _, r in home_of(other).commits.records(0, home_of(other).commits.position)]
        assert isinstance(records[-2], SnapshotRecord) and records[-2].deleted
        assert commits_of(other).state.deleted == commits_of(log).state.deleted
        other.undelete_topic("t")
        assert rows(other) == before


def test_after_a_close_and_a_later_open(log: Log, open_rw: Open, path: str) -> None:
    before = rows(log)
    log.delete_topic("t")
    log.close()
    assert verify(path).ok
    assert not [each for each in verify(path).findings if each.file.endswith("-delete")]
    with open_rw() as again:
        again.undelete_topic("t")
        assert rows(again) == before


def test_who_opens_it_next_removes_it_when_its_delay_is_over(
    log: Log, open_rw: Open, clock: ManualClock
) -> None:
    log.delete_topic("t")
    clock.advance(HOUR_MS - 1)
    with open_rw():
        assert len(directories(log)) == 2
    clock.advance(1)
    with open_rw() as other:
        assert directories(other) == []
        assert other.deleted_topics() == []
    with pytest.raises(UnknownTopicError, match="none was deleted, or its"):
        log.undelete_topic("t")


def test_the_service_removes_it(log: Log, path: str, clock: ManualClock) -> None:
    log.delete_topic("t")
    service = Service(path, clock=clock)
    assert service.run_once().purged_bytes == 0
    clock.advance(HOUR_MS)
    told = service.run_once(dry_run=True)
    assert told.purged_bytes > 300
    assert len(directories(log)) == len(told.purged) == 2
    done = service.run_once()
    assert (done.purged, done.purged_bytes) == (told.purged, told.purged_bytes)
    assert "topic t" in "\n".join(done.notes)
    assert (directories(log), log.deleted_topics()) == ([], [])


def test_a_delay_of_nought(log: Log) -> None:
    log.alter_topic("t", config={"file.delete.delay.ms": 0})
    assert log.delete_topic("t") == 0
    assert (directories(log), log.deleted_topics()) == ([], [])


def test_under_another_name_beside_a_topic_that_was_made_since(log: Log) -> None:
    before, first = rows(log), log.topic("t").id
    log.delete_topic("t")
    log.create_topic("t", 2, CONFIG)
    with pytest.raises(InvalidRequestError, match=f"--topic-id {first} --as NEW-NAME"):
        log.undelete_topic("t")
    log.append("t", pa.table({"value": ["second"]}), 0)
    log.delete_topic("t")
    assert log.undelete_topic("t", topic_id=first, new_name="u").id == first
    assert rows(log, "u") == before
    log.undelete_topic("t")
    assert rows(log) == [(0, 5, b"second")]
    log.append("u", pa.table({"value": ["on"]}), 0)
    assert log.offsets("u")[0] == (0, 6)


def test_names_that_nobody_can_have(log: Log) -> None:
    log.create_topic("other")
    log.append("other", pa.table({"value": ["x"]}))
    log.create_topic("was")
    log.append("was", pa.table({"value": ["x"]}))
    log.delete_topic("was")
    log.delete_topic("t")
    for name, why in (
        ("other", "topic other exists"), ("was", "a topic was was deleted, and its offsets"),
        ("a/b", "a/b"), ("__sparklog_x", "reserved"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError, match=why):
            log.undelete_topic("t", new_name=name)
    log.undelete_topic("t")


def test_made_and_deleted_many_times(log: Log, clock: ManualClock) -> None:
    for number in range(5):
        clock.advance(1000)
        log.delete_topic("t")
        log.create_topic("t", 2, CONFIG)
        log.append("t", pa.table({"value": [b"%d" % number]}), 0)
    assert len(log.deleted_topics()) == 5
    assert len(directories(log)) == 12
    clock.advance(HOUR_MS - 4000)
    Service(",".join(commits_of(log).directories), clock=clock).run_once()
    assert len(log.deleted_topics()) == 4
    assert len(directories(log)) == 10
    log.delete_topic("t", now=True)
    assert (directories(log), log.deleted_topics()) == ([], [])


def test_a_partition_whose_directory_is_away(log: Log, open_rw: Open, path: str) -> None:
    """Nothing is given back by halves."""
    before = rows(log)
    log.delete_topic("t")
    (gone,) = [name for name in directories(log) if name.startswith("t-1.")]
    away = os.path.join(path.split(",")[1], gone)
    os.rename(away, f"{away}.aside")
    with pytest.raises(InvalidRequestError, match=r"restored completely: t-1: .* is missing"):
        log.undelete_topic("t")
    assert log.topics() == {}
    log.close()
    assert [each.what for each in verify(path).findings if each.file == away] == [
        "topic t was deleted, and can't be undeleted: this directory is missing"
    ]
    os.rename(f"{away}.aside", away)
    log = open_rw()
    log.undelete_topic("t")
    assert rows(log) == before
    log.close()


def test_what_took_its_place(log: Log, path: str) -> None:
    log.delete_topic("t")
    place = os.path.join(path.split(",")[0], "t-0")
    os.mkdir(place)
    with pytest.raises(InvalidRequestError, match="exists, but belongs to no topic"):
        log.undelete_topic("t")
    os.rmdir(place)
    log.undelete_topic("t")


def test_a_reader_at_work(log: Log, path: str, clock: ManualClock) -> None:
    """It is told as of today that the topic is gone; who begins anew finds it again."""
    reader = sparklog.open(path, clock=clock)
    found = iter(reader.read("t", [0]))
    log.delete_topic("t")
    with pytest.raises((TopicReplacedError, UnknownTopicError)):
        list(found)
    log.undelete_topic("t")
    assert rows(reader) == rows(log)


def test_a_fork_has_none_of_it(log: Log, path: str, tmp_path: Path, clock: ManualClock) -> None:
    log.create_topic("other")
    log.delete_topic("t")
    forked = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    fork(path, forked, time_ms=clock(), clock=clock)
    with sparklog.open(forked, "rw", clock=clock) as new:
        assert new.deleted_topics() == []
        with pytest.raises(UnknownTopicError):
            new.undelete_topic("t")
    log.undelete_topic("t")
