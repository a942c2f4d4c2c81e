"""A fork is the log as it stood at a commit, in every home."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import sparklog
from sparklog import (
    BatchConflictError,
    InvalidRequestError,
    Log,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from sparklog.clock import ManualClock
from sparklog.diskless.import_objects import MadeLog
from sparklog.log.log import home_of
from sparklog.logdir.forking.fork import Forked
from tests.log.forks import CONFIG, check, commit, filled, fork, held

Made: TypeAlias = Forked | MadeLog
MakeFork: TypeAlias = Callable[..., Made]


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[Log]:
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t", partitions=2, config=CONFIG)
        yield log


@pytest.fixture
def new(log_path: str) -> str:
    return f"{log_path}-new"


@pytest.fixture
def made(log_path: str, new: str, clock: ManualClock) -> MakeFork:
    """Forks the log to `new`, or to `to`."""

    def fork_it(to: str = new, **point: Any) -> Made:
        return fork(log_path, to, clock=clock, **point)

    return fork_it


def test_it_is_the_log_as_of_any_batch(
    log: Log, clock: ManualClock, made: MakeFork, new: str
) -> None:
    after = filled(log, clock)
    for batch in range(9):
        done = made(f"{new}-{batch}", writer="q", batch=batch)
        assert done.offsets["t"] == {p: (0, len(after[batch]["t", p])) for p in (0, 1)}
        assert done.writers == {"q": batch} | ({"other": batch - 1} if batch else {})
        check(f"{new}-{batch}", after[batch])
    check(log.path, held(log))


def test_a_replay_is_dropped_and_what_follows_is_new(
    log: Log, clock: ManualClock, made: MakeFork, new: str
) -> None:
    filled(log, clock, 5)
    made(writer="q", batch=3)
    with sparklog.open(new, "rw", clock=clock) as fork:
        was = commit(log, "q", 3)
        assert was.replayed
        assert commit(fork, "q", 3).ends == was.ends
        assert not commit(fork, "q", 4).replayed
        assert not commit(fork, "other", 3).replayed
        with pytest.raises(BatchConflictError):
            commit(fork, "q", 2)  # the fork's ledger begins with its snapshot
        assert commit(log, "q", 4).replayed
        assert fork.commits().num_rows == 4


def test_its_epoch_is_higher_and_its_topics_have_new_ids(
    log: Log, clock: ManualClock, made: MakeFork, new: str
) -> None:
    filled(log, clock, 4)
    done = made(writer="q", batch=2)
    assert done.epoch == home_of(log).commits.state.epoch + 1
    with sparklog.open(new, "rw", clock=clock) as forked:
        assert forked.topic("t").id != log.topic("t").id
        assert forked.topic("t").config == log.topic("t").config
        end = forked.offsets("t")[0][1]
        commit(forked, "q", 3)
        assert forked.end_offset_for_epoch("t", 0, 0) == (0, end)
        assert forked.end_offset_for_epoch("t", 0, done.epoch) == (done.epoch, end + 3)
    same = fork(new, f"{new}-same", writer="q", batch=2, clock=clock)
    assert (same.offsets, same.writers) == (done.offsets, done.writers)
    with pytest.raises(InvalidRequestError, match="no commit of batch 1"):
        fork(new, f"{new}-none", writer="q", batch=1, clock=clock)
    again = fork(new, f"{new}-third", writer="q", batch=3, clock=clock)
    assert again.epoch == done.epoch + 1
    for point in ({"offsets": {"t": {0: 3}}}, {"time_ms": 5}):
        with pytest.raises(InvalidRequestError, match="nothing to fork"):
            fork(new, f"{new}-none", clock=clock, **point)


def test_topics_and_configs_are_those_of_the_time(log: Log, made: MakeFork, new: str) -> None:
    commit(log, "q", 0)
    log.create_topic("u")
    commit(log, "q", 1)
    log.create_topic("empty")
    after = held(log)
    log.alter_topic("t", partitions=3, config={"retention.ms": "1000"})
    log.create_topic("v")
    commit(log, "q", 2)
    made(f"{new}-zero", writer="q", batch=0)
    made(writer="q", batch=1)
    with sparklog.open(f"{new}-zero") as zero, sparklog.open(new) as one:
        assert list(zero.topics()) == ["t"]
        assert list(one.topics()) == ["t", "u"]
        assert one.topic("t").partitions == 2
        assert one.topic("t").config.retention_ms == -1
    check(new, {key: rows for key, rows in after.items() if key[0] != "empty"})
    with sparklog.open(f"{new}-zero", "rw") as zero:
        assert zero.create_topic("u").partitions == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_was_deleted_since_is_gone(
    log: Log, clock: ManualClock, made: MakeFork, new: str, again: bool
) -> None:
    filled(log, clock, 2)
    log.delete_topic("t")
    if again:
        log.create_topic("t", partitions=2)
    with pytest.raises(InvalidRequestError, match="topic t was deleted since"):
        made(writer="q", batch=1)
    made(f"{new}-after", time_ms=clock())
    with sparklog.open(f"{new}-after") as after:
        assert list(after.topics()) == (["t"] if again else [])
    before = clock()
    clock.advance(1000)
    log.create_topic("u")
    created = clock()
    clock.advance(1000)
    log.delete_topic("u")
    with pytest.raises(InvalidRequestError, match=r"topic u was deleted since.*created"):
        made(time_ms=created)
    made(f"{new}-before", time_ms=before)
    with sparklog.open(f"{new}-before") as forked:
        assert "u" not in forked.topics()


class TestPoints:
    def test_by_time_and_by_offsets(
        self, log: Log, clock: ManualClock, made: MakeFork, new: str
    ) -> None:
        began = clock()
        after = filled(log, clock, 4)
        for time_ms in (began + 3000, began + 3999):
            by_time = made(f"{new}-{time_ms}", time_ms=time_ms)
            assert by_time.writers == {"q": 2, "other": 2}
            assert by_time.time_ms == began + 3000
        ends = {"t": {0: len(after[2]["t", 0]) + 1}}
        by_offsets = made(offsets=ends)
        assert by_offsets.writers == {"q": 2, "other": 1}
        assert by_offsets.time_ms == began + 3000
        check(new, after[2])

    def test_all_sinks_of_a_query(self, log: Log, made: MakeFork, new: str) -> None:
        for batch in range(3):
            commit(log, "q/a", batch)
            commit(log, "q/b", batch)
            rows = held(log)
            commit(log, "q2", batch)
            if batch == 1:
                after = rows
        assert made(writer="q", batch=1).writers == {"q/a": 1, "q/b": 1, "q2": 0}
        check(new, after)

    def test_sinks_that_never_stood_there_together(self, log: Log, made: MakeFork) -> None:
        commit(log, "q/a", 0)
        commit(log, "q/a", 1)
        commit(log, "q/b", 0)
        with pytest.raises(InvalidRequestError, match=r"q/a had committed batch 1 before"):
            made(writer="q", batch=0)
        assert made(writer="q/b", batch=0).writers == {"q/a": 1, "q/b": 0}

    def test_a_batch_that_was_taken_back_and_came_again(
        self, log: Log, made: MakeFork, new: str
    ) -> None:
        for batch in range(4):
            commit(log, "q", batch)
        log.reset("q", 1)
        with pytest.raises(InvalidRequestError, match="undone by a reset"):
            made(writer="q", batch=2)
        commit(log, "q", 2)
        after = held(log)
        commit(log, "q", 3)
        made(writer="q", batch=2)
        check(new, after)

    @pytest.mark.parametrize(
        ("how", "match"),
        [
            ({}, "give a fork point"),
            ({"writer": "q", "batch": 1, "time_ms": 7}, "give a fork point"),
            ({"writer": "q"}, "pass both"),
            ({"time_ms": 7, "batch": 3}, "pass both"),
            ({"writer": "w", "batch": 1}, "the log's writers: other, q"),
            ({"writer": "q", "batch": 77}, "last batch is 2(, the oldest in the ledger is 0)?$"),
            ({"time_ms": 7}, "was written after 7 ms"),
            ({"offsets": {"t": {0: -1}}}, "goes beyond"),
        ],
    )
    def test_what_names_no_point(
        self, log: Log, clock: ManualClock, made: MakeFork, how: dict[str, Any], match: str
    ) -> None:
        filled(log, clock, 3)
        with pytest.raises(InvalidRequestError, match=match):
            made(**how)

    def test_a_topic_that_is_not_there(self, log: Log, made: MakeFork) -> None:
        with pytest.raises(UnknownTopicError, match="x"):
            made(offsets={"x": {0: 1}})


class TestWhatIsGone:
    def test_the_log_start_is_that_of_now(
        self, log: Log, clock: ManualClock, made: MakeFork, new: str
    ) -> None:
        after = filled(log, clock)
        log.delete_records("t", {0: 7, 1: 20})
        done = made(writer="q", batch=4)
        assert done.offsets["t"] == {0: (7, 23), 1: (20, 23)}
        wanted = {key: rows[done.offsets["t"][key[1]][0] :] for key, rows in after[4].items()}
        check(new, wanted)

    def test_an_end_below_the_log_start(
        self, log: Log, clock: ManualClock, made: MakeFork
    ) -> None:
        filled(log, clock)
        log.delete_records("t", {1: 24})
        with pytest.raises(OffsetOutOfRangeError, match="t-1: the records below offset 24") as e:
            made(writer="q", batch=4)
        assert (e.value.offset, e.value.start, e.value.end) == (23, 24, 45)
        assert made(writer="other", batch=4).offsets["t"][1] == (24, 25)

    def test_a_partition_of_which_nothing_is_left(
        self, log: Log, clock: ManualClock, made: MakeFork, new: str
    ) -> None:
        after = filled(log, clock)
        log.delete_records("t", {1: 23})
        made(writer="q", batch=4)
        check(new, {**after[4], ("t", 1): []})


def test_idempotent_producers_go_on(
    log: Log, clock: ManualClock, made: MakeFork, new: str
) -> None:
    """The fork knows of a producer what it had written by then."""
    one = pa.table({"value": ["x" * 200]})
    for sequence in range(12):
        log.append("t", one, partition=0, producer=(7, 0, sequence))
        commit(log, "q", sequence, count=1)
    made(writer="q", batch=6)
    with sparklog.open(new, "rw", clock=clock) as forked:
        with pytest.raises(sparklog.OutOfOrderSequenceError):
            forked.append("t", one, partition=0, producer=(7, 0, 9))
        assert forked.append("t", one, partition=0, producer=(7, 0, 6)) == {"t": {0: (12, 13)}}
        assert forked.append("t", one, partition=0, producer=(7, 0, 7)) == {"t": {0: (14, 15)}}
