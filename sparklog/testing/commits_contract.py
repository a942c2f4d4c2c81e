"""Contract tests of `sparklog.storage.commits.CommitLog`. Each home has a subclass.

    class TestMine(CommitLogContract):
        @pytest.fixture
        def open_commits(self) -> Callable[[], CommitLog]: ...
            # another handle on the same new log, like another process's handle

Situations of a single home (a store that takes a record and does not answer, a crash, a full disk)
are covered by its own tests.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.common import TopicPartition
from sparklog.errors import (
    BatchConflictError,
    FencedError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.format.batch import encode_one
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.log.admin import create_topic, delete_records, drop_topic, reset_writers
from sparklog.log.commit import Identity, commit
from sparklog.log.producing import Outcome, Produced, produce
from sparklog.storage.commits import Change, Chunk, CommitLog, PositionMovedError, change
from sparklog.storage.ledger_records import AppendRecord, StartRecord, TopicRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange

Open = Callable[[], CommitLog]
KEY = TopicPartition("t", 0)


def chunk(commits: CommitLog, count: int, *, partition: int = 0) -> Chunk:
    """Return a chunk in memory with `count` records, for topic t."""
    now_ms = commits.clock()
    batches = [encode_one(None, b"value", timestamp=now_ms) for _ in range(count)]
    for offset, batch in enumerate(batches):
        batch[:8] = offset.to_bytes(8, "big")  # outside of the CRC
    data = b"".join(batches)
    return Chunk(
        topic="t", partition=partition, data=data, size_bytes=len(data), records=count,
        min_timestamp=now_ms, max_timestamp=now_ms,
    )  # fmt: skip


def sent(
    commits: CommitLog, sequence: int = -1, count: int = 1, *,
    partition: int = 0, producer: int = 7, epoch: int = 0, topic: str = "t",
) -> Chunk:
    """Return a batch of `count` records of a client's producer: idempotent, or not (-1)."""
    now_ms = commits.clock()
    times = pa.array([now_ms] * count, pa.timestamp("ms"))
    encoded = encode(
        pa.record_batch({"value": pa.array([b"value"] * count), "timestamp": times}),
        codec=Codec.NONE, batch_size=1 << 20, timestamp_ms_default=now_ms,
        producer=None if sequence < 0 else (producer, epoch, sequence),
    )
    data = bytes(encoded.data)
    return Chunk(
        topic=topic, partition=partition, data=data, size_bytes=len(data), records=count,
        min_timestamp=now_ms, max_timestamp=now_ms, idempotent=sequence >= 0,
    )  # fmt: skip


def spans(outcomes: Sequence[Outcome]) -> list[tuple[int, int] | type[Exception]]:
    """Return the offsets of each batch, or the class of its error."""
    return [
        (found.first, found.end) if isinstance(found, Produced) else type(found)
        for found in outcomes
    ]


def appended(commits: CommitLog, *chunks: Chunk) -> Change:
    """Return a change that commits chunks, without an identity."""
    size = sum(one.size_bytes for one in chunks)
    return Change(record=AppendRecord(ends={}, size_bytes=size), chunks=chunks)


def folded(commits: CommitLog) -> LogState:
    """Return the state of the entire ledger."""
    state = LogState()
    for _, record in commits.records(commits.oldest, commits.position):
        state.apply(record)
    return state


class CommitLogContract:
    """Requirements of the engine on a log's ordered changes."""

    def test_others_see_a_change_when_they_catch_up(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        before = two.catch_up()
        assert before == one.catch_up()
        create_topic(one, "t", 2, {}, False)
        assert one.position > before
        assert two.catch_up() == one.position
        assert two.state.topics == one.state.topics
        assert two.state.ends == {("t", 0): 0, ("t", 1): 0}
        assert two.catch_up() == one.position  # no new entries

    def test_a_change_at_a_position_that_is_taken_writes_nothing(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        expected = two.catch_up()
        create_topic(one, "t", 1, {}, False)
        at = one.position
        with two.exclusive(), pytest.raises(PositionMovedError):
            two.append(appended(two, chunk(two, 1)), expected=expected)
        assert two.catch_up() == at
        assert one.catch_up() == at
        assert two.state.ends[KEY] == 0

    def test_who_wants_nothing_or_fails_writes_nothing(self, open_commits: Open) -> None:
        one = open_commits()
        before = one.catch_up()

        def fail(state: LogState) -> Change | None:
            raise InvalidRequestError("no")

        assert change(one, lambda state: None) is None
        with pytest.raises(InvalidRequestError):
            change(one, fail)
        with pytest.raises(UnknownTopicError):
            commit(one, [chunk(one, 1)])
        assert one.catch_up() == before  # and the turn was given back each time

    def test_the_record_as_written_is_what_the_ledger_holds(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 1, {}, False)
        start = one.position
        written = [
            change(one, lambda _, n=n: appended(one, chunk(one, n)))  # type: ignore[misc]
            for n in (1, 2, 3)
        ]
        end = two.catch_up()
        assert [record for _, record in two.records(start, end)] == written
        assert [at for at, _ in two.records(start, end)] == list(range(start, end))
        backwards = list(two.records_backwards(end))
        assert backwards == list(two.records(two.oldest, end))[::-1]
        assert next(iter(two.records_backwards(start + 1)))[0] == start
        times = [record.time_ms for _, record in two.records(two.oldest, end)]
        assert times == sorted(times)

    def test_chunks_follow_one_another(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 2, {}, False)
        first = commit(one, [chunk(one, 2), chunk(one, 1, partition=1), chunk(one, 3)])
        assert first.ends == {"t": {0: (0, 5), 1: (0, 1)}}
        second = commit(two, [chunk(two, 4)])
        assert second.ends == {"t": {0: (5, 9)}}
        one.catch_up()
        assert one.state.ends == {("t", 0): 9, ("t", 1): 1}

    def test_the_state_is_a_function_of_the_ledger(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 2, {"retention.ms": "1000"}, False)
        commit(one, [chunk(one, 3)], identity=Identity(writer="w", batch=0, fingerprint="a"))
        delete_records(two, "t", {0: 2})
        create_topic(two, "gone", 1, {}, False)
        drop_topic(one, "gone")
        for handle in (one, two, open_commits()):
            handle.catch_up()
            state = folded(handle)
            assert state == handle.state
            assert state.starts == {("t", 0): 2}

    def test_many_writers_lose_nothing_and_write_nothing_twice(self, open_commits: Open) -> None:
        create_topic(open_commits(), "t", 1, {}, False)
        handles = [open_commits() for _ in range(4)]

        def work(number: int) -> list[OffsetRange]:
            found = []
            for n in range(5):
                result = commit(handles[number], [chunk(handles[number], n + 1)])
                found.append(OffsetRange(*result.ends["t"][0]))
            return found

        with ThreadPoolExecutor(len(handles)) as pool:
            spans = sorted(span for found in pool.map(work, range(len(handles))) for span in found)
        assert [span.first for span in spans] == [0, *(span.end for span in spans[:-1])]
        last = open_commits()
        last.catch_up()
        assert last.state.ends[KEY] == spans[-1].end == 4 * (1 + 2 + 3 + 4 + 5)

    def test_one_micro_batch_is_committed_once_by_whomever(self, open_commits: Open) -> None:
        create_topic(open_commits(), "t", 1, {}, False)
        handles = [open_commits() for _ in range(4)]
        identity = Identity(writer="w", batch=7, fingerprint="a")
        with ThreadPoolExecutor(len(handles)) as pool:
            results = list(pool.map(lambda h: commit(h, [chunk(h, 2)], identity=identity), handles))
        assert [result.ends for result in results] == [{"t": {0: (0, 2)}}] * 4
        assert sorted(result.replayed for result in results) == [False, True, True, True]

    def test_another_fingerprint_is_another_micro_batch(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 1, {}, False)
        for batch in (0, 1):
            identity = Identity(writer="w", batch=batch, fingerprint=f"{batch}")
            commit(one, [chunk(one, 1)], identity=identity)
        at = one.position
        for batch in (0, 1):
            with pytest.raises(BatchConflictError):
                identity = Identity(writer="w", batch=batch, fingerprint="other")
                commit(two, [chunk(two, 1)], identity=identity)
            identity = Identity(writer="w", batch=batch, fingerprint=f"{batch}")
            assert commit(two, [chunk(two, 1)], identity=identity).replayed
        assert two.catch_up() == at

    def test_a_reset_lets_a_number_come_again(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 1, {}, False)
        identity = Identity(writer="w", batch=0, fingerprint="a")
        commit(one, [chunk(one, 2)], identity=identity)
        assert reset_writers(two, "w", -1) == ["w"]
        one.catch_up()  # a writer that missed the reset could be rejected
        again = commit(one, [chunk(one, 2)], identity=identity)
        assert not again.replayed
        assert again.ends == {"t": {0: (2, 4)}}
        assert one.state.abandoned == {("t", 0): [(0, 2)]}

    def test_a_topic_that_is_made_again_goes_on_at_its_old_end(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 1, {}, False)
        old = one.state.topics["t"].id
        commit(one, [chunk(one, 3)])
        drop_topic(two, "t")
        create_topic(one, "t", 1, {}, False)
        assert one.state.topics["t"].id != old
        assert commit(two, [chunk(two, 1)]).ends == {"t": {0: (3, 4)}}
        made = [r for _, r in one.records(one.oldest, one.position) if isinstance(r, TopicRecord)]
        assert made[-1].bases == {0: 3}

    def test_a_leader_epoch_only_rises(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        epoch = one.state.epoch + 5
        record = StartRecord(starts={}, epoch=epoch, begins_epoch=True)
        change(one, lambda _: Change(record=record))
        create_topic(two, "t", 1, {}, False)
        assert two.state.epoch == epoch
        assert next(record.epoch for _, record in two.records_backwards(two.position)) == epoch

    def test_many_clients_batches_are_one_commit(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 2, {}, False)
        at = one.position
        found = produce(one, [
            sent(one, count=2), sent(one, 0, 3), sent(one, 3, 1), sent(one, 0, 2, producer=8),
            sent(one, 0, 2, partition=1), sent(one, count=1, partition=1), sent(one, 2, 2),
        ])  # fmt: skip
        assert spans(found) == [
            (0, 2), (2, 5), (5, 6), (6, 8), (0, 2), (2, 3), OutOfOrderSequenceError
        ]  # fmt: skip
        assert two.catch_up() == at + 1
        ((_, record),) = two.records(at, at + 1)
        assert isinstance(record, AppendRecord)
        assert record.ends == {("t", 0): (0, 8), ("t", 1): (0, 3)}
        again = [sent(two, 3, 1), sent(two, 0, 3), sent(two, 0, 2, producer=8)]
        found = produce(two, [*again, sent(two, 0, 2, partition=1)])
        assert spans(found) == [(5, 6), (2, 5), (6, 8), (0, 2)]
        assert all(isinstance(each, Produced) and each.is_replay for each in found)
        assert one.catch_up() == at + 1  # no write happened

    def test_a_batch_that_is_refused_takes_no_other_with_it(self, open_commits: Open) -> None:
        one = open_commits()
        create_topic(one, "t", 1, {}, False)
        assert spans(produce(one, [sent(one, 0, epoch=4)])) == [(0, 1)]
        found = produce(one, [
            sent(one, 1, epoch=3), sent(one, 5, epoch=4), sent(one, 1, epoch=4),
            sent(one, topic="gone"), sent(one, partition=9), sent(one, 1, epoch=4),
            replace(sent(one), topic_id="another"), sent(one, 1, 2, producer=8),
            sent(one, 7, epoch=5), sent(one, 0, epoch=5), sent(one, 2, epoch=4),
            sent(one, topic="__consumer_offsets"), sent(one),
        ])  # fmt: skip
        assert spans(found) == [
            FencedError, OutOfOrderSequenceError, (1, 2), UnknownTopicError, UnknownTopicError,
            (1, 2), TopicReplacedError, (2, 4), OutOfOrderSequenceError, (4, 5), FencedError,
            InvalidRequestError, (5, 6),
        ]  # fmt: skip
        before = one.position
        assert spans(produce(one, [sent(one, 1, epoch=3)])) == [FencedError]
        assert one.catch_up() == before
        assert produce(one, []) == []

    def test_the_last_five_batches_of_each_producer_are_known(self, open_commits: Open) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 1, {}, False)
        for n in range(7):  # a producer may move between processes
            now = (one, two)[n % 2]
            assert spans(produce(now, [sent(now, 2 * n, 2)])) == [(2 * n, 2 * n + 2)]
            again = produce(now, [sent(now, 2 * max(n - 1, 0), 2), sent(now, 2 * n, 2)])
            assert spans(again) == [(2 * max(n - 1, 0), 2 * max(n - 1, 0) + 2), (2 * n, 2 * n + 2)]
        found = produce(two, [sent(two, 2 * n, 2) for n in range(7)])
        assert spans(found)[:2] == [OutOfOrderSequenceError] * 2
        assert spans(found)[2:] == [(2 * n, 2 * n + 2) for n in range(2, 7)]

    def test_clients_and_others_take_turns(self, open_commits: Open) -> None:
        create_topic(open_commits(), "t", 1, {}, False)
        handles = [open_commits() for _ in range(3)]

        def work(number: int) -> list[tuple[int, int]]:
            handle, found = handles[number], []
            for n in range(6):
                if number == 0:
                    found.append(commit(handle, [chunk(handle, 2)]).ends["t"][0])
                else:
                    batch = sent(handle, 3 * n, 3, producer=number)
                    outcomes = spans(produce(handle, [batch]))
                    assert spans(produce(handle, [batch])) == outcomes
                    found += outcomes  # type: ignore[arg-type]
            return found

        with ThreadPoolExecutor(len(handles)) as pool:
            found = sorted(span for some in pool.map(work, range(len(handles))) for span in some)
        assert [first for first, _ in found] == [0, *(end for _, end in found[:-1])]
        assert found[-1][1] == 6 * (2 + 3 + 3)

    def test_the_append_gives_records_their_time_where_the_topic_says_so(
        self, open_commits: Open
    ) -> None:
        one, two = open_commits(), open_commits()
        create_topic(one, "t", 1, {"message.timestamp.type": "LogAppendTime"}, False)
        create_topic(one, "u", 1, {}, False)
        stamped, plain = produce(one, [sent(one, 0, 2), sent(one, topic="u")])
        assert isinstance(stamped, Produced)
        assert isinstance(plain, Produced)
        assert plain.append_time_ms == -1
        ((_, record),) = one.records(one.position - 1, one.position)
        assert stamped.append_time_ms == record.time_ms
        (again,) = produce(two, [sent(two, 0, 2)])
        assert again == replace(stamped, is_replay=True)

    def test_what_must_be_durable_is(self, open_commits: Open) -> None:
        one = open_commits()
        create_topic(one, "t", 1, {}, False)
        commit(one, [chunk(one, 1)])
        with one.exclusive():
            one.make_durable()
            assert not one.state.unsynced
            assert one.state.ends[KEY] == 1
