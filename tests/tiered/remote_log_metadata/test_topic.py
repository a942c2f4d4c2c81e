"""`__remote_log_metadata`: what is published is folded; hidden, compacted, made again."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError, InvalidRequestError, UnknownTopicError
from sparklog.fs import LOCAL
from sparklog.log.admin import drop_topic
from sparklog.log.log import view_of
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.logdir.retention.segment_deletion import roll
from sparklog.service import verify
from sparklog.tiered.remote_log_metadata import topic
from sparklog.tiered.remote_log_metadata.records import PartitionDeleteRecord, PartitionDeleteState
from sparklog.tiered.remote_log_metadata.topic import (
    METADATA,
    RemoteLogMetadataConsumer,
    ensure_topic,
    publish,
    publish_deleted_partitions,
)
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tiered.settings import RemoteSettings, write_settings
from tests.tiered.copies import T0, TOPIC_ID, copy

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED
KEY = TOPIC_ID, 0


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Any:
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as opened:
        write_settings(LOCAL, commits_of(opened).home, RemoteSettings("memory://bucket"))
        ensure_topic(commits_of(opened))
        yield opened


def told(log: sparklog.Log, *segments: RemoteSegment, found: bool = False) -> None:
    publish(commits_of(log), commits_of(log).clock, segments, found=found)


def seen(log: sparklog.Log) -> list[RemoteSegment]:
    """What somebody who comes now reads."""
    return RemoteLogMetadataConsumer(view_of(log), commits_of(log).clock).catch_up().all(KEY)


def test_a_copys_life(log: sparklog.Log, clock: ManualClock) -> None:
    follower = RemoteLogMetadataConsumer(view_of(log), clock)
    one = copy(0, 10, state=STARTED, has_txn_index=True, epochs=((0, 0), (2, 5)))
    for state in SegmentState:
        one = one if state is STARTED else one.become(state, T0 + state)
        told(log, one)
        expected = [] if state is DELETED else [one]
        assert follower.catch_up().all(KEY) == seen(log) == expected


def test_a_copy_that_nobody_told_of(log: sparklog.Log) -> None:
    told(log, copy(0, 10), copy(10, 20), found=True)
    assert seen(log) == [copy(0, 10), copy(10, 20)]


def test_users_neither_see_nor_touch_it(log: sparklog.Log, tmp_path: Path) -> None:
    assert log.topics() == {}
    for act in (
        lambda: log.create_topic(REMOTE_METADATA),
        lambda: log.alter_topic(REMOTE_METADATA, config={"retention.ms": 1}),
        lambda: log.delete_topic(REMOTE_METADATA),
        lambda: log.delete_records(REMOTE_METADATA, {0: -1}),
        lambda: log.append(REMOTE_METADATA, pa.table({"value": [b"x"]})),
    ):
        with pytest.raises(InvalidRequestError, match=r"is internal to sparklog|reserved"):
            act()
    with pytest.raises(UnknownTopicError, match="its topics: none"):
        log.topic("t")
    assert not ensure_topic(commits_of(log))


def test_it_is_there_again_after_a_close(
    log: sparklog.Log, tmp_path: Path, clock: ManualClock
) -> None:
    told(log, copy(0, 10, state=STARTED))
    told(log, copy(0, 10))
    before = log.commits().num_rows
    log.close()
    assert verify(tmp_path / "log").ok
    with sparklog.open(tmp_path / "log") as reader:
        assert seen_by(reader, clock) == [copy(0, 10)]
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as again:
        assert commits_of(again).state.epoch == 0  # nothing was adopted
        assert again.commits().num_rows == before
        assert seen(again) == [copy(0, 10)]
        assert again.topics() == {}


def seen_by(log: sparklog.Log, clock: ManualClock) -> list[RemoteSegment]:
    return RemoteLogMetadataConsumer(view_of(log), clock).catch_up().all(KEY)


def test_only_news_are_read(log: sparklog.Log, clock: ManualClock, monkeypatch: Any) -> None:
    follower = RemoteLogMetadataConsumer(view_of(log), clock)
    parsed: list[object] = []
    parse = topic.parse
    monkeypatch.setattr(topic, "parse", lambda *a, **k: parsed.append(a) or parse(*a, **k))
    told(log, *(copy(n, n + 1) for n in range(50)), found=True)
    first = follower.catch_up()
    assert len(parsed) == 100
    told(log, copy(0, 1).become(DELETING, T0))
    assert follower.catch_up() is first
    assert len(parsed) == 101
    follower.catch_up()
    assert len(parsed) == 101
    clock.advance(topic.TOMBSTONES_KEPT_MS)  # tombstones may have gone unseen
    assert follower.catch_up().all(KEY) == first.all(KEY)
    assert len(parsed) == 202


def test_what_can_not_follow_is_dropped(log: sparklog.Log, caplog: Any) -> None:
    """RemoteLogMetadataCacheTest.testDropEventOnInvalidStateTransition."""
    told(log, copy(0, 10, state=STARTED), copy(5, 6))  # the second was never begun
    told(log, copy(0, 10, state=DELETING), copy(0, 10, state=FINISHED))
    assert seen(log) == [copy(0, 10, state=DELETING)]
    assert "is dropped" in caplog.text


def test_a_damaged_topic_says_what_to_do(log: sparklog.Log, tmp_path: Path) -> None:
    told(log, copy(0, 10), found=True)
    path = next((tmp_path / "log" / f"{REMOTE_METADATA}-0").glob("*.log"))
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataCorruptionError, match="`sparklog tier rebuild PATH`"):
        seen(log)


def test_the_dead_stay_known(log: sparklog.Log, clock: ManualClock) -> None:
    dead = PartitionDeleteRecord(
        topic="t",
        topic_id=TOPIC_ID,
        partition=3,
        state=PartitionDeleteState.FINISHED,
        time_ms=T0,
    )
    publish_deleted_partitions(commits_of(log), clock, [dead])
    follower = RemoteLogMetadataConsumer(view_of(log), clock)
    assert follower.catch_up().deleted_partitions == {(TOPIC_ID, 3): ("t", T0)}
    assert follower.cache.keys() == []


def test_dropped_and_made_again(log: sparklog.Log, clock: ManualClock, tmp_path: Path) -> None:
    follower = RemoteLogMetadataConsumer(view_of(log), clock)
    told(log, copy(0, 10), copy(10, 20), found=True)
    assert len(follower.catch_up().all(KEY)) == 2
    drop_topic(commits_of(log), REMOTE_METADATA)
    assert follower.catch_up().all(KEY) == []
    with pytest.raises(UnknownTopicError):
        told(log, copy(0, 10))
    assert ensure_topic(commits_of(log))
    told(log, copy(0, 10), found=True)
    assert follower.catch_up().all(KEY) == [copy(0, 10)]
    log.close()
    assert verify(tmp_path / "log").ok


def test_a_creation_that_was_cut_leaves_nothing_in_the_way(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw", clock=clock) as log:
        left = path / f"{REMOTE_METADATA}-0"
        left.mkdir()
        (left / f"{0:020d}.log").touch()
        assert ensure_topic(commits_of(log))
        told(log, copy(0, 10), found=True)
        assert seen(log) == [copy(0, 10)]


def test_a_brokers_own_stays(tmp_path: Path, clock: ManualClock) -> None:
    """A log dir with 50 partitions of Kafka's own topic: they are left as they are."""
    path = tmp_path / "log"
    for p in (0, 7):
        (path / f"{REMOTE_METADATA}-{p}").mkdir(parents=True)
        (path / f"{REMOTE_METADATA}-{p}" / f"{0:020d}.log").write_bytes(b"x")
    with sparklog.open(path, "rw", clock=clock) as log:
        assert log.topics() == {}
        with pytest.raises(InvalidRequestError, match="move the directory away"):
            ensure_topic(commits_of(log))
        drop = log.create_topic("t")
        assert drop.name == "t"
    assert (path / f"{REMOTE_METADATA}-7" / f"{0:020d}.log").read_bytes() == b"x"


@pytest.mark.parametrize("seed", range(3))
def test_compaction_changes_nothing(
    log: sparklog.Log, clock: ManualClock, seed: int, monkeypatch: Any
) -> None:
    """Any history, cleaned at any time: who reads it all knows what who followed knows."""
    rng = random.Random(seed)
    follower = RemoteLogMetadataConsumer(view_of(log), clock)
    live: dict[int, RemoteSegment] = {}
    for n in range(120):
        if live and rng.random() < 0.6:
            at = rng.choice(list(live))
            after = [s for s in SegmentState if live[at].state.may_become(s)][1:]
            live[at] = live[at].become(rng.choice(after), T0 + n)
            told(log, live[at])
            if live[at].state is DELETED:
                del live[at]
        else:
            live[n] = copy(n, n + 1, state=STARTED, time_ms=T0 + n)
            told(log, live[n])
        if rng.random() < 0.1:
            with commits_of(log).exclusive():
                roll(commits_of(log), [METADATA])
            clock.advance(rng.choice([1000, 30 * topic.TOMBSTONES_KEPT_MS]))
            clean_partition(commits_of(log), *METADATA, now_ms=clock())
        if rng.random() < 0.3:
            assert follower.catch_up().all(KEY) == seen(log) == list(live.values())
    assert follower.catch_up().all(KEY) == seen(log) == list(live.values())


@pytest.mark.kafka
def test_kafka_folds_the_topic_to_the_same(log: sparklog.Log, oracle: Any) -> None:
    for n in range(4):
        told(log, copy(n, n + 1, state=STARTED))
    told(log, copy(1, 2), copy(2, 3))
    told(log, copy(2, 3, state=DELETING), copy(3, 4, state=DELETING))
    told(log, copy(3, 4, state=DELETED))
    values = log.read(REMOTE_METADATA).read_all().column("value").to_pylist()
    told_kafka = [base64.b64encode(v).decode() for v in values if v is not None]
    listed = oracle.call("metadata", values=told_kafka)["listed"]
    assert {row["id"]: row["state"] for row in listed} == {s.id: s.state for s in seen(log)}
