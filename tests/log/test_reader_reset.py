"""`Log.reset_reader`: where a group goes on, in either home; the same as Kafka's tool has it."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog import InvalidRequestError, Log, PartitionOfflineError, UnknownTopicError
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import GroupNotEmptyError
from sparklog.log.log import home_of
from sparklog.log.reader_reset import ResetPlan
from sparklog.logdir.ledger import LEDGER_DIR
from sparklog.storage.group_members import GroupAtWork, Member, groups_from_json, groups_to_json
from sparklog.storage.groups import Reader
from tests.log.homes import IN_LOG_DIR

START_MS = 1_000_000


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[Log]:
    """t-0 holds [2, 10), one record a second from START_MS on; t-1 is empty; g is at t-0, 5."""
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        log.create_topic("u")
        times = pa.array([START_MS + 1000 * n for n in range(10)], pa.timestamp("ms", "UTC"))
        rows = pa.table({"value": [f"{n}" for n in range(10)], "timestamp": times})
        log.append("t", rows, partition=0)
        log.delete_records("t", {0: 2})
        log.commit_offsets("g", {"t": {0: 5}})
        clock.advance(60_000)
        yield log


def offsets(plan: ResetPlan) -> dict[tuple[str, int], int]:
    return {(each.topic, each.partition): each.offset for each in plan.offsets}


def committed(log: Log, group: str = "g") -> dict[tuple[str, int], int]:
    return {tuple(k): at.offset for k, at in home_of(log).groups.positions(group).items()}


def test_every_place(log: Log, clock: ManualClock) -> None:
    t = {"t": [0]}
    for to, wanted in (
        ("earliest", 2), ("latest", 10), ("current", 5), (7, 7),
        (datetime.fromtimestamp(START_MS / 1000 + 6, UTC), 6),
        (timedelta(milliseconds=clock() - START_MS - 8000), 8),
    ):  # fmt: skip
        plan = log.reset_reader("g", to, t)
        assert (offsets(plan), plan.warnings) == ({("t", 0): wanted}, []), to
        assert plan.offsets[0].before == 5
    assert offsets(log.reset_reader("g", topics=t, shift_by=-2)) == {("t", 0): 3}
    assert offsets(log.reset_reader("g", offsets={"t": {0: 4, 1: 0}})) == {
        ("t", 0): 4, ("t", 1): 0,
    }  # fmt: skip
    assert committed(log) == {("t", 0): 5}  # nothing was changed


def test_a_plan_is_carried_out_whole(log: Log, clock: ManualClock) -> None:
    log.commit_offsets("g", {"u": {0: 0}})
    log.reset_reader("g", "earliest", "t").execute()
    assert committed(log) == {("t", 0): 2, ("t", 1): 0, ("u", 0): 0}
    at = home_of(log).groups.positions("g")[TopicPartition("t", 0)]
    assert at.time_ms == clock()
    assert log.read("t", [0], group="g").read_next_batch()["offset"][0].as_py() == 2


def test_a_group_that_nobody_knows_begins_there(log: Log) -> None:
    plan = log.reset_reader("new", "latest", ["t", "u"])
    assert [each.before for each in plan.offsets] == [None] * 3
    plan.execute()
    assert committed(log, "new") == {("t", 0): 10, ("t", 1): 0, ("u", 0): 0}
    assert log.reset_reader("nobody", "earliest").offsets == ()
    at = home_of(log).groups.positions("new")[TopicPartition("t", 0)]
    assert at.origin is not None  # what tells whether it is still true once the log was restored
    log.reset_reader("nobody", "earliest").execute()
    assert committed(log, "nobody") == {}


def test_what_lies_outside_becomes_an_end(log: Log) -> None:
    for plan, wanted, why in (
        (log.reset_reader("g", shift_by=100), 10, "higher than latest"),
        (log.reset_reader("g", shift_by=-100), 2, "lower than earliest"),
        (log.reset_reader("g", 11), 10, "New offset (11) is higher"),
        (log.reset_reader("g", offsets={"t": {0: -1}}), 2, "New offset (-1) is lower"),
        (log.reset_reader("g", timedelta(0)), 10, "t-0 has no record at or after this time"),
    ):
        assert offsets(plan) == {("t", 0): wanted}
        assert [why in warning for warning in plan.warnings] == [True]


def test_an_offset_that_is_gone_stays_by_to_current(log: Log) -> None:
    log.delete_records("t", {0: 8})
    plan = log.reset_reader("g", "current", "t")
    assert offsets(plan) == {("t", 0): 5, ("t", 1): 0}
    warning = "t-0 begins at 8 now, and offset 5 was deleted: its reader will get an error"
    assert plan.warnings == [warning]


def test_a_shift_wants_a_place_to_begin_at(log: Log) -> None:
    with pytest.raises(InvalidRequestError, match="Cannot shift offset for partition t-1 since"):
        log.reset_reader("g", topics="t", shift_by=1)


def test_a_topic_that_was_deleted_is_left_out(log: Log) -> None:
    log.commit_offsets("g", {"u": {0: 0}})
    plan = log.reset_reader("g", "latest")
    log.delete_topic("u")
    with pytest.raises(UnknownTopicError, match="topic u is not in"):
        plan.execute()
    later = log.reset_reader("g", "latest")
    assert offsets(later) == {("t", 0): 10}
    assert "u-0 was deleted: the group's committed offset stays" in later.warnings


def test_a_plan_that_was_overtaken_changes_nothing(log: Log) -> None:
    plan = log.reset_reader("g", "earliest", "t")
    log.commit_offsets("g", {"t": {0: 6}})
    with pytest.raises(GroupNotEmptyError, match="has committed t-0 since the plan was made"):
        plan.execute()
    assert committed(log) == {("t", 0): 6}
    log.reset_reader("g", "earliest", {"t": [0]}).execute()  # planned again
    assert committed(log) == {("t", 0): 2}


def test_who_committed_just_now_may_be_at_work(log: Log, clock: ManualClock) -> None:
    log.commit_offsets("g", {"t": {0: 6}})
    clock.advance(2000)
    (warning,) = log.reset_reader("g", "earliest", {"t": [0]}).warnings
    assert warning.startswith("group g committed 2.0 s ago: if a Python reader of it")
    clock.advance(3000)
    assert log.reset_reader("g", "earliest", {"t": [0]}).warnings == []


def test_a_streaming_querys_place_is_its_checkpoint(log: Log) -> None:
    query = Reader("q", "query", "host1", "local-1")
    home_of(log).groups.commit_query(query, {TopicPartition("t", 0): 3}, now_ms=1)
    with pytest.raises(InvalidRequestError, match="sparklog checkpoint reset CHECKPOINT"):
        log.reset_reader("q", "earliest", "t")
    plan = log.reset_reader("later", "earliest", "t")
    reader = Reader("later", "query")
    home_of(log).groups.commit_query(reader, {TopicPartition("t", 1): 0}, now_ms=1)
    with pytest.raises(InvalidRequestError, match="is a streaming query"):
        plan.execute()


def test_members_at_work_keep_their_offsets(log: Log) -> None:
    lease = home_of(log).endpoint_lease({"endpoint": "h:9092", "node_id": 1})
    member = Member(member_id="c-1", client_id="c", host="/h", assigned={"t": [0]})
    group = GroupAtWork(
        group="g", kind="Classic", state="Stable", assignor="range", members=(member,),
        topics=frozenset({"t"}),
    )  # fmt: skip
    assert lease.acquire()
    before = log.reset_reader("g", "earliest", "t")
    lease.publish({"groups": groups_to_json([group])})
    assert log.groups_at_work() == {"g": group}
    says = "group 'g' is inactive, but the current state is Stable: end its 1 member"
    for call in (before.execute, lambda: log.reset_reader("g", "earliest", "t")):
        with pytest.raises(GroupNotEmptyError, match=says):
            call()
    with pytest.raises(GroupNotEmptyError, match="members of group g read t"):
        log.delete_reader("g", {"t": [0]})
    lease.publish({"groups": []})
    before.execute()
    log.reset_reader("g", "latest", "t").execute()
    assert log.delete_reader("g", {"t": [0]})
    lease.release()
    assert ("t", 0) not in committed(log)
    assert log.groups_at_work() == {}


def test_offsets_of_some_partitions_are_forgotten(log: Log) -> None:
    log.commit_offsets("g", {"t": {1: 0}, "u": {0: 0}})
    assert log.delete_reader("g", {"t": [1], "u": [0]})
    assert committed(log) == {("t", 0): 5}
    assert not log.delete_reader("g", {"u": [0]})
    assert log.delete_reader("g", {"t": [0]})
    assert not log.delete_reader("g")  # it was the last


def test_what_an_endpoint_tells_may_be_anything() -> None:
    for told in (None, [], {}, "x", 7, [{}], [{"group": "g", "members": 3}], [[1]]):
        assert groups_from_json(told) == {}


@IN_LOG_DIR
def test_another_history(log: Log, log_path: str, clock: ManualClock, tmp_path: Path) -> None:
    """A log that was restored to an earlier state: offsets count from where that one parts."""
    log.close()
    copy = str(tmp_path / "copy")
    shutil.copytree(log_path, copy)
    with sparklog.open(log_path, "rw", clock=clock) as first:
        first.append("t", pa.table({"value": ["a"] * 5}), partition=0)
        first.commit_offsets("g", {"t": {0: 14}})
        known = home_of(first).groups.reader("g")
    with sparklog.open(copy, "rw", clock=clock) as second:
        second.append("t", pa.table({"value": ["b"] * 9}), partition=0)
        assert known is not None
        home_of(second).groups.change("g", lambda _: known)
        clock.advance(60_000)
        current = second.reset_reader("g", "current", {"t": [0]})
        assert offsets(current) == {("t", 0): 10}
        assert current.warnings == [
            "offsets [10, 14) of t-0 were read in another history: the log was restored since, so "
            "the position counts as 10"
        ]
        back = second.reset_reader("g", topics={"t": [0]}, shift_by=-3)
        assert offsets(back) == {("t", 0): 7} and len(back.warnings) == 1
        back.execute()
        assert second.read("t", [0], group="g").read_next_batch()["offset"][0].as_py() == 7


def test_a_brokers_directory_keeps_no_readers(tmp_path: Path, clock: ManualClock) -> None:
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t")
    shutil.rmtree(tmp_path / "log" / LEDGER_DIR)
    (tmp_path / "log" / "sparklog.topics").unlink()
    before = sorted(os.listdir(tmp_path / "log"))
    with sparklog.open(tmp_path / "log", clock=clock) as log:
        for attempt in (
            lambda: log.reset_reader("g", "earliest", "t"),
            lambda: log.delete_reader("g", {"t": [0]}),
            lambda: log.commit_offsets("g", {"t": {0: 0}}),
            lambda: log.read("t", group="g"),
            lambda: log.read("t", group="g", follow=True),
        ):
            with pytest.raises(InvalidRequestError, match="readers: in a broker's directory"):
                attempt()
        assert not log.delete_reader("g")
    assert sorted(os.listdir(tmp_path / "log")) == before


@IN_LOG_DIR
def test_an_offline_partition(log: Log, log_path: str) -> None:
    """Its ends are known without its files, a time in it is not; the reset says so."""
    log.close()
    shutil.rmtree(f"{log_path}/t-0")
    with sparklog.open(log_path) as reading:
        for to, wanted in (("earliest", 2), ("latest", 10), ("current", 5)):
            plan = reading.reset_reader("g", to, {"t": [0]})  # type: ignore[arg-type]
            assert offsets(plan) == {("t", 0): wanted}
        with pytest.raises(PartitionOfflineError, match="its directory is gone"):
            reading.reset_reader("g", timedelta(hours=1), {"t": [0]})
        reading.reset_reader("g", "latest", {"t": [0]}).execute()
        assert committed(reading) == {("t", 0): 10}
