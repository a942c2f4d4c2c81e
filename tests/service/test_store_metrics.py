"""The metrics of a log in a store, read by its URL, beside whoever works on it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.diskless.home import open_log
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.errors import InvalidRequestError
from sparklog.log.log import home_of
from sparklog.metrics import Distribution
from sparklog.service import Service
from sparklog.service.metrics import LogMetrics, collect, store_observer
from sparklog.service.metrics.samples import samples
from sparklog.service.metrics.store_observer import StoreObserver
from sparklog.storage.round_report import Report
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.target import open_store
from tests.service.test_service import stepped

MINUTE = 60_000


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a log."""
    return f"memory://{tmp_path.name}/logs" if request.param == "memory" else f"file://{tmp_path}/l"


@pytest.fixture
def log(url: str, clock: ManualClock) -> Iterator[sparklog.Log]:
    """Topic t: two partitions, two appends to the first one."""
    with sparklog.open(url, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        write(log, "a", "b")
        write(log, "c")
        yield log


def write(log: sparklog.Log, *values: str) -> None:
    log.append("t", pa.table({"value": list(values)}), partition=0)


def everything(url: str) -> dict[str, bytes]:
    store = open_store(url)
    return {one.name: store.get(one.name) for one in store.list()}


def numbers(found: LogMetrics) -> dict[tuple[str, tuple[str, ...]], object]:
    given = samples(found, process=False)
    return {(one.metric.name, one.labels): one.value for one in given}


def test_the_names_are_those_of_log_dirs(
    url: str, log: sparklog.Log, clock: ManualClock, tmp_path: Path
) -> None:
    with sparklog.open(tmp_path / "dir", "rw", clock=clock) as other:
        other.create_topic("t", 2)
        write(other, "a", "b")
        write(other, "c")
        for one in (log, other):
            one.commit_offsets("g", {"t": {0: 1}})
    in_dir, in_store = (numbers(collect(path, clock=clock)) for path in (tmp_path / "dir", url))
    same = (
        ("kafka_log_log_logstartoffset", ("t", "0")),
        ("kafka_log_log_logendoffset", ("t", "0")),
        ("kafka_log_log_logendoffset", ("t", "1")),
        ("sparklog_commits_total", ("append",)),
        ("sparklog_commit_records_total", ("t",)),
        ("sparklog_reader_lag_records", ("g", "group", "t", "0")),
        ("sparklog_reader_offset", ("g", "group", "t", "0")),
        ("sparklog_damaged_readers", ()),
        ("kafka_log_logmanager_offlinelogdirectorycount", ()),
    )
    assert [in_store[name] for name in same] == [in_dir[name] for name in same]
    assert in_store["sparklog_commits_total", ("append",)] == 2
    for name in ("sparklog_commit_size_bytes", "sparklog_commit_duration_seconds"):
        found = in_store[name, ()]
        assert isinstance(found, Distribution)
        assert found.count == 2
    more = {name for name, _ in in_store} - {name for name, _ in in_dir}
    assert more == {
        "sparklog_merge_lag_pieces", "sparklog_merge_lag_bytes", "sparklog_merge_lag_seconds",
        "sparklog_service_term",
    }  # fmt: skip


def test_how_dirty_a_store_is_and_what_its_cleaner_left_alone(
    url: str, clock: ManualClock
) -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1}
    with sparklog.open(url, "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        log.append("t", pa.table({"key": ["a", "a"], "value": ["1", "2"]}))
    clock.advance(11 * MINUTE)
    with stepped(Service(url, clock=clock)) as service:
        service.run_once()
        found = {(one.metric.name, one.labels): one.value for one in service._samples()}
        assert found["kafka_log_logcleanermanager_max_dirty_percent", ()] == 100
        assert found["sparklog_health", ("cleaner",)] == 0
        upkeep = service._leadership.upkeep
        assert isinstance(upkeep, DisklessUpkeep)
        key, topic_id = TopicPartition("t", 0), upkeep.log.state.log.topics["t"].id
        upkeep.quarantined.add(key, topic_id, ValueError("torn"), Report(path=url, time_ms=0))
        found = {(one.metric.name, one.labels): one.value for one in service._samples()}
        assert found["sparklog_health", ("cleaner",)] == 1
        uncleanable = "kafka_log_logcleanermanager_uncleanable_partitions_count"
        assert {labels: n for (name, labels), n in found.items() if name == uncleanable} == {
            (url,): 1
        }


def test_what_awaits_deletion_in_a_store(url: str, clock: ManualClock) -> None:
    def waiting() -> dict[tuple[str, str, str], int]:
        found = collect(url, clock=clock).awaiting_deletion
        return {(one.topic, one.kind, one.storage): one.size_bytes for one in found}

    with sparklog.open(url, "rw", clock=clock) as log:
        log.create_topic("t", config={"retention.ms": 15 * MINUTE})
        log.create_topic("u", config={"retention.ms": -1})
        for _ in range(2):
            write(log, "a", "b")
            log.append("u", pa.table({"value": ["x"] * 10}))
        before = {p.topic: p.size_bytes for p in collect(url, clock=clock).partitions}
        assert waiting() == {}
        log.delete_topic("u")
        assert waiting() == {("u", "topic", "local"): before["u"]}
        with stepped(Service(url, clock=clock)) as service:
            clock.advance(11 * MINUTE)
            service.run_once()  # makes a segment of the pieces
            clock.advance(6 * MINUTE)
            for _ in range(2):
                service.run_once()  # which retention announces, and takes
        expected = {("t", "segment", "local"): before["t"], ("u", "topic", "local"): before["u"]}
        assert waiting() == expected
        with stepped(Service(url, clock=clock)) as service:
            for _ in range(4):  # the sweeps of another service
                clock.advance(11 * MINUTE)
                service.run_once()
        assert waiting() == {("u", "topic", "local"): before["u"]}
        log.delete_topic("u", now=True)
        assert waiting() == {}


def test_what_is_not_merged_yet_and_who_merges(
    url: str, log: sparklog.Log, clock: ManualClock
) -> None:
    clock.advance(11 * MINUTE)
    found = collect(url, clock=clock)
    assert [(p.partition, p.segments, p.pieces) for p in found.partitions] == [
        (0, 2, 2), (1, 0, 0),
    ]  # fmt: skip
    (merge,) = found.merges
    assert (merge.age_ms, merge.size_bytes) == (11 * MINUTE, found.partitions[0].size_bytes)
    assert (found.term, found.holder) == (0, {})
    Service(url, clock=clock).run_once()
    write(log, "d")
    found = collect(url, clock=clock)
    assert [(p.segments, p.pieces) for p in found.partitions] == [(2, 1), (0, 0)]
    assert found.term == 1
    assert found.holder.keys() == {"pid", "host", "since_ms"}
    who = str(found.holder["host"]), str(found.holder["pid"])
    assert numbers(found)["sparklog_service_taken_timestamp_seconds", who] == clock() / 1000


def test_a_look_changes_nothing(url: str, log: sparklog.Log, clock: ManualClock) -> None:
    before = everything(url)
    with home_of(log).commits.exclusive():  # nor does it wait for a writer
        assert not collect(url, clock=clock).errors
    assert everything(url) == before


def test_commits_of_a_long_ledger_are_those_of_its_last_entries(
    url: str, log: sparklog.Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_observer, "HISTORY", 3)
    write(log, "d")
    write(log, "e")
    found = collect(url, clock=clock)
    assert found.commits is not None
    assert found.commits.commits == {"append": 3, "commit": 0}
    assert found.commits.records == {"t": 3}
    assert found.partitions[0].log_end_offset == 5


def test_requests_are_few(clock: ManualClock) -> None:
    store = FaultStore(clock=clock)
    log = store_log(store, clock)
    observer = observer_of(store, clock)
    observer.observe()
    before = store.counts.as_dict()
    observer.observe()
    after = store.counts.as_dict()
    assert {k: after[k] - before[k] for k in ("puts", "lists", "deletes", "gets")} == {
        "puts": 0, "lists": 1, "deletes": 0, "gets": 2,
    }  # fmt: skip
    log.close()


def store_log(store: FaultStore, clock: ManualClock) -> sparklog.Log:
    log = open_log(store.url, mode="rw", store=store, clock=clock, background=False)
    log.create_topic("t", 2)
    write(log, "a")
    return log


def observer_of(store: FaultStore, clock: ManualClock) -> StoreObserver:
    options = {"remote.patience.ms": 0}
    return StoreObserver(
        store.url, store.url, options=options, clock=clock, connect=lambda: store
    )


def test_a_store_that_is_away_is_told_and_comes_back(clock: ManualClock) -> None:
    store = FaultStore(clock=clock)
    log = store_log(store, clock)
    observer = observer_of(store, clock)
    assert not observer.observe().errors
    write(log, "b")
    store.down(MINUTE)
    found = observer.observe()
    assert found.errors
    assert found.directories[0].error
    assert numbers(found)["kafka_log_logmanager_logdirectoryoffline", (store.url,)] == 1
    clock.advance(2 * MINUTE)
    found = observer.observe()
    assert not found.errors
    assert found.commits is not None
    assert found.commits.commits["append"] == 1  # the one of before the failure, once


def test_a_log_that_is_replaced_under_an_observer(url: str, clock: ManualClock) -> None:
    store = open_store(url)
    observer = StoreObserver(url, url, clock=clock, connect=lambda: open_store(url))
    ends = []
    for values in (["a", "b"], ["c"]):
        with sparklog.open(url, "rw", clock=clock) as log:
            log.create_topic("t")
            write(log, *values)
        found = observer.observe()
        assert not found.errors
        ends.append([p.log_end_offset for p in found.partitions])
        store.delete([one.name for one in store.list()])
    assert ends == [[2], [1]]
    assert "contains no log" in observer.observe().errors[0]


def test_no_log_is_said_so(url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"contains no log|does not exist"):
        collect(url)
    assert not open_store(url).list()
