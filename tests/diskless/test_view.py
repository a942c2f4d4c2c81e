"""Reading a log in a store: what it costs, what moves under a reader, what is lost."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from sparklog.diskless.extents import Extent
from sparklog.diskless.names import HOME, entry_name
from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.format.scan import rebase
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.partition_reader import reader_of
from sparklog.log.positions import offsets_for_times
from sparklog.log.read_retry import PartitionRead, last_stable_offset
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.segments import UndeterminedLossError
from sparklog.tiered.reading.store_retry import StoreRetry
from sparklog.tiered.target import open_store
from tests.diskless.bucket_log import (
    LOG_ID,
    START_MS,
    T0,
    T1,
    TOPIC_ID,
    BucketLog,
    Part,
    counting,
    expected,
    read_all,
    view_of,
)
from tests.logdir.partitions import batch, marker, transactional
from tests.tiered.copies import segment_id


@pytest.fixture
def log(store_url: str) -> BucketLog:
    return BucketLog(store_url)


def records_of(view: Any, start: int, end: int, **given: Any) -> list[tuple[int, bytes]]:
    """Offsets and values of partition 0, without a look at its span."""
    found = []
    schema = schema_of(["offset", "value"])
    for rows in read_partition(PartitionRead(view, "t", 0, start, end, **given), schema):
        found += list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return found


# -- what it costs


def test_a_poll_without_news_is_one_get(log: BucketLog) -> None:
    log.commit([Part(T0, 5), Part(T1, 5)])
    view = log.view()
    view.topics()
    for _ in range(3):
        with counting(view) as cost, view.metadata_snapshot():
            topics = view.topics()
            ids = [view.topic_id("t", p) for p in view.partitions("t")]
            view.spans([T0, T1])
            assert ids == [topics["t"].id] * 2
        assert (cost.gets, cost.lists) == (1, 0)
        with counting(view) as cost:
            view.spans([T0])
        assert cost.gets == 1
        with counting(view) as cost:
            view.renew()
            view.bases("t")
            view.offline()
            view.topic_id("t", 1)
            reader_of(view, "t", 0).first_base()
            view.plan(T0, 0, 5)
        assert cost.gets == 0


def test_a_look_ends_and_the_next_one_sees_the_news(log: BucketLog) -> None:
    view = log.view()
    with view.metadata_snapshot():
        view.topics()
        log.commit([Part(T0, 5)])
        assert view.spans([T0]) == {T0: (0, 0)}
    assert view.spans([T0]) == {T0: (0, 5)}


def test_a_small_extent_of_a_large_object_is_fetched_alone(log: BucketLog) -> None:
    log.commit([Part(T1, 50_000, batch_size=16_000), Part(T0, 20)], how="staged")
    view = log.view()
    view.topics()
    size = log.state.extents[T0][0].size
    with counting(view) as cost:
        assert read_all(view) == expected(0, 20)
    assert (cost.gets - 1, cost.bytes_in) == (1, size)


@pytest.mark.parametrize("how", ["inline", "staged"])
def test_neighbours_in_one_object_come_by_one_request(log: BucketLog, how: str) -> None:
    log.commit([Part(T0, 9), Part(T1, 3)] * 30, how=how)
    view = log.view()
    view.topics()
    with counting(view) as cost:
        assert records_of(view, 0, 270) == expected(0, 270)
    assert cost.gets == 1


def test_extents_that_come_together_are_not_fetched_one_by_one(log: BucketLog) -> None:
    """Each takes a request, none more than one, and they are on their way at the same time.

    All but the first one: what comes behind it is asked for once it is read on.
    """
    import threading

    for _ in range(40):
        log.commit([Part(T0, 3)], how="staged")
    view = log.view(threads=8)
    view.topics()
    store, asked, at_once, most = view.objects.store, 0, 0, 0
    changed, get = threading.Condition(), store.get

    def slow(*args: Any) -> bytes:
        nonlocal asked, at_once, most
        with changed:
            asked, at_once = asked + 1, at_once + 1
            most = max(most, at_once)
            changed.notify_all()
            if asked > 1:
                changed.wait_for(lambda: most >= 4, timeout=30)
            at_once -= 1
        return get(*args)

    store.get = slow  # type: ignore[method-assign]
    with counting(view) as cost:
        assert records_of(view, 0, 120) == expected(0, 120)
    assert cost.gets == 40
    assert most >= 4


def test_what_came_as_news_is_not_asked_for_again(store_url: str) -> None:
    from sparklog.diskless.ledger import EntryReader, Head

    log = BucketLog(store_url)
    view = log.view()
    objects = view.objects
    view._open_state = lambda: Head(  # type: ignore[assignment]
        EntryReader(objects.store, LOG_ID, cache=objects.entries)
    )
    view.topics()
    for number in range(5):
        log.commit([Part(T0, 3), Part(T1, 4)])
        with counting(view) as cost:
            assert len(read_all(view)) == 3 * (number + 1)
            assert len(read_all(view, T1)) == 4 * (number + 1)
        assert cost.gets == 3  # the entry, and that there is none behind it, twice


def test_a_time_is_found_by_few_requests(log: BucketLog) -> None:
    for _ in range(30):
        log.commit([Part(T0, 20)], how="staged")
    log.merge(T0, 0, 9)
    for when, offset in ((5, 5), (205, 205), (599, 599), (10_000, None)):
        view = log.view()
        spans = view.spans([T0])
        with counting(view) as cost:
            found = offsets_for_times(
                view, "t", {0: START_MS + when}, spans, isolation="read_uncommitted"
            )
        assert found == {0: offset}
        assert cost.gets <= 4 and cost.lists == 0
    for when, offset in ((-3, 599), (-4, None), (-5, 599), (-1, 600), (-2, 0)):
        assert offsets_for_times(view, "t", {0: when}, spans, isolation="read_uncommitted") == {
            0: offset
        }


def test_read_committed_asks_for_no_more_where_nobody_has_a_producer(log: BucketLog) -> None:
    for _ in range(6):
        log.commit([Part(T0, 10)], how="staged")
    log.merge(T0, 0, 2)
    view = log.view()
    view.topics()
    with counting(view) as cost:
        assert last_stable_offset(view, "t", 0, 60) == 60
        assert records_of(view, 0, 60, isolation="read_committed") == expected(0, 60)
    assert cost.gets == 4  # the segment, three extents


# -- plans


def test_a_plan_is_read_with_nothing_but_its_bytes(log: BucketLog) -> None:
    for how in ("inline", "staged", "table", "inline"):
        log.commit([Part(T0, 10), Part(T1, 10)], how=how)
    log.merge(T0, 0, 1)
    planned = log.view()
    planned.spans([T0])
    with counting(planned) as cost:
        plan = planned.plan(T0, 15, 35)
    assert cost.gets == 0
    raw = pickle.dumps(plan)
    assert len(raw) < 2000
    whole = log.view()
    view = pickle.loads(raw).open(whole)
    topic_id = planned.topic_id("t", 0)
    with counting(whole) as cost:
        for isolation in ("read_uncommitted", "read_committed"):
            found = records_of(view, 15, 35, topic_id=topic_id, isolation=isolation)
            assert found == expected(15, 35)
    # a manifest for its index, the segment, the table, its piece, an entry
    assert cost.gets == 5
    assert cost.lists == 0
    assert whole._known is None, "the log itself was asked"


def test_a_plan_that_is_out_of_date_finds_its_way(log: BucketLog) -> None:
    for _ in range(6):
        log.commit([Part(T0, 10)], how="staged")
    view = log.view()
    view.spans([T0])
    plan = view.plan(T0, 5, 55)
    assert plan is not None
    old = log.state.extents[T0]
    log.merge(T0, 1, 4)
    log.store.delete([each.object for each in old[1:5]])
    opened = plan.open(log.view())
    assert records_of(opened, 5, 55, topic_id=plan.topic_id) == expected(5, 55)
    log.start(T0, 20)
    log.store.delete([old[0].object])
    with pytest.raises(OffsetOutOfRangeError) as lost:
        records_of(plan.open(log.view()), 5, 55, topic_id=plan.topic_id)
    assert lost.value.start == 20
    log.drop()
    with pytest.raises(UnknownTopicError):
        records_of(plan.open(log.view(memory_bytes=0)), 5, 55, topic_id=plan.topic_id)
    log.topic("t", 2, topic_id="U" * 21 + "A")
    with pytest.raises(TopicReplacedError):
        records_of(plan.open(log.view()), 5, 55, topic_id=plan.topic_id)


@pytest.mark.usefixtures("impatient")
def test_a_plan_of_another_log_is_not_read(log: BucketLog) -> None:
    log.commit([Part(T0, 10)], how="staged")
    view = log.view()
    view.spans([T0])
    plan = view.plan(T0, 0, 10)
    assert plan is not None
    other = BucketLog(log.url + "-other")
    opened = plan.open(other.view())
    other.store.put(HOME, json.dumps({"log_id": "another"}).encode())
    with pytest.raises((StorageUnavailableError, LogReplacedError, UnknownTopicError)) as error:
        records_of(opened, 0, 10, topic_id=plan.topic_id)
    assert not isinstance(error.value, DataCorruptionError)


# -- what moves under a reader


@pytest.mark.parametrize("cut", [False, True])
def test_an_object_that_was_merged_away_under_a_reader(log: BucketLog, cut: bool) -> None:
    for _ in range(10):
        log.commit([Part(T0, 200)], how="inline" if cut else "staged")
    view = log.view(threads=0)
    topic_id = view.topic_id("t", 0)
    end = view.spans([T0])[T0][1]
    found: list[tuple[int, bytes]] = []
    moved = False
    schema = schema_of(["offset", "value"])
    reader = reader_of(view, "t", 0)
    list(reader.read(0, 10))
    old = log.state.extents[T0]
    for rows in read_partition(PartitionRead(view, "t", 0, 0, end, topic_id=topic_id), schema):
        found += list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
        if not moved:
            moved = True
            log.merge(T0, 0, 9)
            for each in old[1:]:
                if cut:  # an entry keeps what lies before its data
                    log.store.put(each.object, log.store.get(each.object)[: each.start])
                else:
                    log.store.delete([each.object])
    assert found == expected(0, 2000)


def test_a_log_start_that_rises_under_a_reader(log: BucketLog) -> None:
    for _ in range(4):
        log.commit([Part(T0, 10)], how="staged")
    view = log.view()
    old = log.state.extents[T0]
    assert view.spans([T0])[T0] == (0, 40)
    log.start(T0, 25)
    log.store.delete([each.object for each in old[:2]])
    with pytest.raises(OffsetOutOfRangeError) as gone:
        records_of(view, 0, 40)
    assert (gone.value.offset, gone.value.start) == (0, 25)
    assert read_all(view) == expected(25, 40)
    log.start(T0, 40)
    assert read_all(view) == []
    assert log.view().spans([T0])[T0] == (40, 40)
    assert reader_of(log.view(), "t", 0).first_base() == 40


@pytest.mark.usefixtures("impatient")
def test_an_offset_beyond_the_end_is_another_log(log: BucketLog) -> None:
    log.commit([Part(T0, 10)])
    view = log.view()
    with pytest.raises(LogReplacedError, match="ends at 10 now"):
        records_of(view, 0, 11)


def test_another_log_in_its_place(log: BucketLog) -> None:
    log.commit([Part(T0, 10)])
    now = 0.0
    view = log.view()
    view._timer = lambda: now
    assert read_all(view) == expected(0, 10)
    begun = view.renew()
    log.store.put(HOME, json.dumps({"log_id": "M" * 32}).encode())
    assert view.renew() == begun
    now += 60_000
    view.refresh()
    assert view.renew() == begun + 1
    with pytest.raises(LogReplacedError):
        records_of(view, 0, 10, incarnation=begun)


# -- what is lost


@pytest.mark.parametrize("how", ["inline", "staged", "table"])
@pytest.mark.usefixtures("impatient")
def test_an_object_that_is_lost_is_told_by_its_name(log: BucketLog, how: str) -> None:
    log.commit([Part(T0, 10)], how="staged")
    log.commit([Part(T0, 10), Part(T1, 3)], how=how)
    (_, extent) = log.state.extents[T0]
    raw = log.store.get(extent.object)
    if how == "inline":
        log.store.put(extent.object, raw[: extent.start + 5])
    else:
        log.store.delete([extent.object])
    view = log.view()
    assert records_of(view, 0, 10) == expected(0, 10)
    with pytest.raises(DataCorruptionError, match="lost") as lost:
        records_of(view, 0, 20)
    assert lost.value.path.endswith(extent.object)
    assert (lost.value.first, lost.value.end) == (10, 20)
    log.store.put(extent.object, raw)
    assert read_all(log.view()) == expected(0, 20)


@pytest.mark.parametrize("how", ["inline", "staged", "table"])
@pytest.mark.parametrize("stamp_ms", [-1, 5])
@pytest.mark.usefixtures("impatient")
def test_a_damaged_byte_is_told_by_object_and_offsets(
    log: BucketLog, how: str, stamp_ms: int
) -> None:
    log.commit([Part(T0, 10)], how="staged")
    log.commit([Part(T0, 30, stamp_ms=stamp_ms), Part(T0, 9, stamp_ms=stamp_ms)], how=how)
    extent = log.state.extents[T0][1]
    name, at = extent.object, extent.start + extent.size - 3
    if how == "table":
        name = max(
            one.name
            for one in log.store.list("staged")
            if one.name.endswith("")
            and log.store.get(one.name)[:3] == b"@@@"
            and b"v39-" in log.store.get(one.name)
        )
        at = len(log.store.get(name)) - 3
    raw = bytearray(log.store.get(name))
    raw[at] ^= 0x10
    log.store.put(name, bytes(raw))
    view = log.view()
    with pytest.raises(DataCorruptionError, match="crc") as damage:
        records_of(view, 0, 49)
    assert name in damage.value.path
    first, end = damage.value.first, damage.value.end
    assert first is not None and end is not None and 10 < first < end <= 49
    assert records_of(view, 0, first) == expected(0, first)


def test_segments_of_a_topic_that_was_made_again(log: BucketLog) -> None:
    """Who holds those of the old one is never given records of the new one."""
    log.commit([Part(T0, 5)])
    view = log.view()
    view.spans([T0])
    held = view.of_partition(*T0, lambda found: found)
    log.drop()
    log.topic("t", 2, topic_id="D" * 21 + "A")
    log.commit([Part(T0, 5)])
    view.spans([T0])
    again = view.of_partition(*T0, lambda found: found)
    assert (held.topic_id, again.topic_id) == (TOPIC_ID, "D" * 21 + "A")
    assert [one.base for one in again.metadata()] == [5]
    with pytest.raises(FileNotFoundError, match="not in the log any more"):
        held.metadata()


def test_only_a_definite_absence_is_a_loss(log: BucketLog) -> None:
    log.commit([Part(T0, 10)], how="staged")
    objects, gone = log.view().objects, FileNotFoundError("gone")
    name = log.state.extents[T0][0].object
    assert isinstance(objects.judge(name, LOG_ID, gone), UndeterminedLossError)  # it is listed
    log.store.delete([name])
    assert not isinstance(objects.judge(name, LOG_ID, gone), UndeterminedLossError)
    log.store.delete([HOME])
    assert isinstance(objects.judge(name, LOG_ID, gone), UndeterminedLossError)  # another store


def test_no_plan_for_offsets_that_no_extent_has(log: BucketLog) -> None:
    log.commit([Part(T0, 5)])
    log.commit([Part(T0, 5)])
    view = log.view()
    view.spans([T0])
    assert view.plan(T0, 0, 10) is not None
    assert view.plan(T0, 5, 11) is None
    log.start(T0, 5)
    view.spans([T0])
    assert view.plan(T0, 4, 10) is None


def test_a_store_that_is_away_is_waited_for(
    log: BucketLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.commit([Part(T0, 10)], how="staged")
    view = log.view()
    view.topics()
    store, get, left = view.objects.store, view.objects.store.get, 3

    def away(*args: Any, **given: Any) -> bytes:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StorageUnavailableError("away", passing=True)
        return get(*args, **given)

    store.get = away  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailableError):
        view.spans([T0])
    view.objects.remote.retry = StoreRetry(240_000, first_ms=1)
    assert read_all(view) == expected(0, 10)
    left = 2
    assert log.view().spans([T0])[T0] == (0, 10)


@pytest.mark.usefixtures("impatient")
def test_another_store_than_the_one_that_has_it(log: BucketLog, tmp_path: Path) -> None:
    log.commit([Part(T0, 10)], how="staged")
    view = log.view()
    view.spans([T0])
    log.store.delete([log.state.extents[T0][0].object, HOME])
    with pytest.raises((StorageUnavailableError, LogReplacedError)):
        records_of(view, 0, 10)


def test_a_ledger_entry_that_is_damaged_stops_the_reader(log: BucketLog) -> None:
    log.commit([Part(T0, 10)])
    name = entry_name(LOG_ID, log.state.number)
    log.store.put(name, log.store.get(name)[:50])
    with pytest.raises(DataCorruptionError, match="ledger"):
        log.view().topics()


# -- transactions, of a broker's log that became one in a store


def test_aborted_transactions_are_found_without_manifests(log: BucketLog) -> None:
    """The marker of one lies in the next segment; no manifest tells of either."""
    first = [
        transactional(batch("7a", producer=(7, 0, 0))),
        transactional(batch("8a", producer=(8, 0, 0))),
    ]
    second = [
        marker(0, producer_id=7),
        transactional(batch("7b", producer=(7, 0, 1))),
        marker(1, producer_id=8),
        marker(1, producer_id=7),
        batch("end"),
    ]
    at, extents = 0, []
    for number, batches in enumerate((first, second)):
        data, base = bytearray(), at
        for one in batches:
            raw = bytearray(one)
            at = rebase(raw, at, 3)
            data += raw
        name = f"t-0-{TOPIC_ID}/{number}.log"
        log.store.put(name, bytes(data))
        extents.append(
            (T0, Extent(base, at, name, 0, len(data), START_MS, 3, -1, segment_id(number)))
        )
    log.add(
        AppendRecord(time_ms=1, epoch=3, ends={T0: OffsetRange(0, at)}, idempotent=True),
        extents=tuple(extents),
    )
    log.commit([Part(T0, 5)])
    view = log.view()
    end = view.spans([T0])[T0][1]
    assert last_stable_offset(view, "t", 0, end) == end
    plan = view.plan(T0, 0, 2)
    assert plan is not None
    for seen in (view, plan.open(log.view())):  # its marker lies behind what was planned
        found = records_of(seen, 0, 2, isolation="read_committed", topic_id=plan.topic_id)
        assert [value for _, value in found] == [b"8a"]
    found = records_of(view, 0, end, isolation="read_committed")
    assert [value for _, value in found][:3] == [b"8a", b"7b", b"end"]
    assert len(records_of(view, 0, end)) == 9


@pytest.mark.parametrize("how", ["missing", "another entry"])
def test_a_reader_notices_a_roll_back(store_url: str, how: str) -> None:
    """The home object is the same, but the newest entry that the reader knows is not there."""
    log = BucketLog(store_url)
    for _ in range(2):
        log.commit([Part(T0, 3)])
    view = view_of(open_store(store_url))
    assert read_all(view) == expected(0, 6)
    name = entry_name(LOG_ID, log.state.number)
    log.store.delete([name])
    if how == "another entry":
        other = BucketLog(store_url, topics={})
        other.commit([Part(T0, 2)])
    view.renew_if_replaced()
    assert view.incarnation == 1
    assert view.spans([T0])[T0] == (0, 3 if how == "missing" else 5)
    assert read_all(view) == expected(0, 3 if how == "missing" else 5)
