"""The service of a log whose home is a store, by its URL."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.names import entry_name, service_name
from sparklog.errors import DataCorruptionError, InvalidRequestError, UnknownTopicError
from sparklog.log.admin import create_topic
from sparklog.log.log import home_of
from sparklog.service import Service
from sparklog.storage.commits import Change, change
from sparklog.storage.ledger_records import AppendRecord
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.diskless.logs import T0, _chunk
from tests.logdir.partitions import batch
from tests.tiered.s3 import S3Server
from tests.waiting import until

MINUTE = 60_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A place for a log."""
    return f"memory://{tmp_path.name}/logs"


@pytest.fixture
def store(url: str) -> ObjectStore:
    return open_store(url)


@pytest.fixture
def home(url: str, clock: ManualClock) -> Iterator[DisklessHome]:
    """A writer's handle."""
    log = open_log(url, mode="rw", clock=clock)
    assert isinstance(home_of(log), DisklessHome)
    yield home_of(log)
    log.close()


def topic(home: DisklessHome, **config: str) -> None:
    named = {key.replace("_", "."): value for key, value in config.items()}
    create_topic(home.commits, "t", 1, named, False)


def write(home: DisklessHome, *values: str | None, key: str = "", **given: Any) -> None:
    data = batch(*values, key=key.encode() or None, one_each=True, **given)
    chunk = _chunk("t", 0, data)
    change(home.commits, lambda _: Change(record=AppendRecord(ends={}), chunks=[chunk]))


def segments(home: DisklessHome) -> list[tuple[int, int, bool]]:
    state = home.head.follow()
    return [(e.base, e.end, bool(e.segment)) for e in state.extents.get(T0, ())]


def test_a_round_merges_what_is_old(
    url: str, home: DisklessHome, store: ObjectStore, clock: ManualClock
) -> None:
    topic(home, file_delete_delay_ms="0")
    write(home, "a")
    write(home, "b")
    clock.advance(11 * MINUTE)
    service = Service(url, clock=clock)
    dry = service.run_once(dry_run=True)
    assert segments(home) == [(0, 1, False), (1, 2, False)]
    assert [(one.base, one.end, one.extents) for one in dry.merged] == [(0, 2, 2)]
    assert store.list("service/") == []
    report = service.run_once()
    assert not report.errors
    assert [(one.base, one.end, one.extents) for one in report.merged] == [(0, 2, 2)]
    assert segments(home) == [(0, 2, True)]
    assert "merged into a segment" in str(report)
    assert store.list(service_name(1))
    assert not service.run_once().merged
    assert home.head.follow().term == 1  # nobody else took the log meanwhile


def test_a_clock_ten_years_ahead_does_not_stop_merging_by_age(
    url: str, home: DisklessHome, store: ObjectStore, clock: ManualClock
) -> None:
    """Times of entries never fall, so all later entries have times from the future, too."""
    topic(home)
    clock.advance(max(one.time_ms for one in store.list()) - clock())  # the store's time
    ahead = open_log(url, mode="rw", clock=ManualClock(clock() + 3650 * 24 * 60 * MINUTE))
    assert isinstance(home_of(ahead), DisklessHome)
    write(home_of(ahead), "a")
    ahead.close()
    home.commits.catch_up()
    write(home, "b")
    clock.advance(60 * MINUTE)
    Service(url, clock=clock).run_once()
    assert segments(home) == [(0, 2, True)]


@pytest.mark.parametrize("same", [True, False])
def test_rounds_one_by_one_leave_readers_their_time(
    url: str, home: DisklessHome, store: ObjectStore, clock: ManualClock, same: bool
) -> None:
    """What a round replaced the next leaves there for file.delete.delay.ms, whose ever it is."""
    topic(home, segment_ms=str(MINUTE))
    services = [Service(url, clock=clock, options={"file.delete.delay.ms": "60000"})]
    services.append(services[0] if same else Service(url, clock=clock))
    for value in ("a", "b"):
        write(home, value)
        clock.advance(11 * MINUTE)
        services[0].run_once()
    clock.advance(11 * MINUTE)
    services[0].run_once()
    assert segments(home) == [(0, 2, True)]
    logs = {each.name for each in store.list("t-0-") if each.name.endswith(".log")}
    assert len(logs) > 1
    for number in range(3):
        clock.advance(10_000)
        report = services[number % 2].run_once()
        assert not report.swept
    clock.advance(30_000)
    services[1].run_once()
    assert len([each for each in store.list("t-0-") if each.name.endswith(".log")]) == 1
    assert (home.head.follow().term == 1) == same


def test_retain_is_at_once_and_nothing_else(
    url: str, home: DisklessHome, clock: ManualClock
) -> None:
    topic(home, retention_bytes="10")
    write(home, "a" * 50)
    write(home, "b" * 50)
    clock.advance(11 * MINUTE)
    report = Service(url, clock=clock).retain()
    assert [one.log_start for one in report.deleted] == [1]
    assert not report.merged
    assert segments(home) == [(1, 2, False)]


def test_segments_that_compaction_has_emptied_expire(url: str, clock: ManualClock) -> None:
    """They were as old as their cleaning, and kept all that follows them."""
    day, options = 24 * 60 * MINUTE, {"diskless.merge.interval.ms": 1}
    config = {
        "cleanup.policy": "compact,delete", "internal.segment.bytes": 400,
        "retention.ms": 7 * day, "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 0,
    }  # fmt: skip
    with sparklog.open(url, "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        for n in range(12):
            stamps = pa.array([clock() + n], pa.timestamp("ms"))
            rows = {"key": [b"k"], "value": [b"%04d" % n + b"." * 100], "timestamp": stamps}
            log.append("t", pa.table(rows), partition=0)
        clock.advance(1000)
        Service(url, clock=clock, options=options | {"log.cleaner.enable": "false"}).run_once()
        clock.advance(6 * day)
        for _ in range(2):
            Service(url, clock=clock, options=options).run_once()
        assert log.offsets("t") == {0: (0, 12)}
        assert log.read("t").read_all().num_rows == 1
        assert not Service(url, clock=clock, options=options).retain().deleted  # a day is left
        clock.advance(2 * day)
        (gone,) = Service(url, clock=clock, options=options).retain().deleted
        assert {segment.bytes for segment in gone.segments[:5]} == {0}
        assert log.offsets("t") == {0: (12, 12)}


def test_compaction(url: str, home: DisklessHome, clock: ManualClock) -> None:
    topic(home, cleanup_policy="compact")
    for n in range(5):
        write(home, f"v{n}", key="k")
        write(home, f"w{n}", key=f"l{n}")
    clock.advance(11 * MINUTE)
    service = Service(url, clock=clock)
    service.run_once()
    assert segments(home) == [(0, 10, True)]
    write(home, "v9", key="k")
    clock.advance(11 * MINUTE)
    service.run_once()
    report = service.compact(["t"])
    assert not report.errors
    state = home.head.follow()
    assert T0 in state.gaps
    assert [(e.base, e.end) for e in state.extents[T0]][-1][1] == 11
    size = sum(e.size for e in state.extents[T0])
    assert all(one.records_kept <= one.records_read for one in report.cleaned)
    assert size < 11 * 75
    with pytest.raises(UnknownTopicError):
        service.compact(["u"])


def test_metrics_of_a_log_in_a_store(url: str, home: DisklessHome, clock: ManualClock) -> None:
    topic(home)
    write(home, "a")
    service = Service(url, clock=clock)
    service._open()
    service._samples()
    write(home, "b")
    clock.advance(5000)
    home.groups.commit("g", {T0: 1}, now_ms=clock(), host="h")
    found = {
        (sample.metric.name, sample.labels): sample.value for sample in service._samples()
    }
    assert found["sparklog_merge_lag_pieces", ("t", "0")] == 2
    assert found["sparklog_merge_lag_seconds", ("t",)] == 5
    assert found["kafka_log_log_logendoffset", ("t", "0")] == 2
    assert found["sparklog_reader_lag_records", ("g", "group", "t", "0")] == 1
    assert found["sparklog_service_term", ()] == 0
    assert found["kafka_log_logmanager_logdirectoryoffline", (url,)] == 0
    assert found["sparklog_commits_total", ("append",)] == 1
    assert service._health()[0] == []
    service.close()


def test_what_is_for_log_dirs_alone(url: str, home: DisklessHome) -> None:
    for given in ({"remote": "s3://b/x"}, {"take_over": True}, {"map": map}):
        with pytest.raises(InvalidRequestError, match="is only for log dirs"):
            Service(url, **given)  # type: ignore[arg-type]
    with Service(url) as service:
        assert not service.run_once().errors


@pytest.mark.deep
@pytest.mark.s3
def test_on_s3_with_writers_beside_it(s3: S3Server) -> None:
    """A started service, a writer and a reader, each on its own; then who has manifests alone."""
    url = f"{s3.bucket()}/logs"
    options = {
        "log.initial.task.delay.ms": "0",
        "remote.log.manager.task.interval.ms": "100",
        "log.retention.check.interval.ms": "500",
        "log.cleaner.backoff.ms": "100",
        "diskless.merge.interval.ms": "300",
        "service.remote.sweep.interval.ms": "500",
    }
    with sparklog.open(url, mode="rw", storage_options=s3.options()) as log:
        log.create_topic("t", 2, {"file.delete.delay.ms": "0"})
        log.create_topic("c", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        with Service(url, storage_options=s3.options(), options=options) as service:
            for n in range(30):
                rows = [{"value": f"{n}-{i}".encode(), "partition": i % 2} for i in range(4)]
                log.append("t", pa.Table.from_pylist(rows))
                latest = [{"key": b"k", "value": f"{n}".encode()}]
                log.append("c", pa.Table.from_pylist(latest))
                if n % 10 == 5:
                    assert log.read("t").read_all().num_rows == 4 * (n + 1)

            def in_segments() -> bool:
                state = home_of(log).head.follow()
                extents = [e for each in state.extents.values() for e in each]
                return all(e.segment for e in extents) and log.read("c").read_all().num_rows == 1

            def names() -> list[str]:
                return [o.name for o in open_store(url, s3.options()).list()]

            until(in_segments, state=lambda: (service.last_report, names()), pause_s=0.3)
        assert log.read("c").read_all().num_rows == 1
        assert log.read("t").read_all().num_rows == 120
        values = set(log.read("t").read_all()["value"].to_pylist())
    assert len(values) == 120
    once = Service(url, storage_options=s3.options(), options=options)
    assert not once.run_once().errors
    store = open_store(url, s3.options())
    manifests = [o for o in store.list("t-") if o.name.endswith(".manifest")]
    with_manifests = f"{s3.bucket()}/copies"
    copies = open_store(with_manifests, s3.options())
    for each in store.list("t-"):
        copies.copy(store, each.name, each.name)
    assert manifests
    with sparklog.open(with_manifests, storage_options=s3.options()) as archive:
        assert set(archive.read("t").read_all()["value"].to_pylist()) == values


def test_silent_readers_and_a_makers_trial_go(
    url: str, home: DisklessHome, store: ObjectStore, clock: ManualClock
) -> None:
    topic(home)
    home.groups.commit("silent", {T0: 0}, now_ms=clock(), host="h")
    store.put("trial-x/0-0", b"left")
    store.put("notes.txt", b"somebody's")  # nothing that it doesn't know is touched
    clock.advance(max(0, int(time.time() * 1000) - clock()) + 8 * 24 * 60 * MINUTE)
    home.groups.commit("new", {T0: 0}, now_ms=clock(), host="h")
    before = {one.name: store.get(one.name) for one in store.list()}
    dry = Service(url, clock=clock).run_once(dry_run=True)
    assert {one.name: store.get(one.name) for one in store.list()} == before
    assert any("reader silent would be forgotten" in note for note in dry.notes)
    report = Service(url, clock=clock).run_once()
    assert any("reader silent forgotten" in note for note in report.notes)
    assert [one.objects for one in report.swept if one.kind == "trial"] == [1]
    assert [reader.group for reader in home.groups.readers().groups] == ["new"]
    left = [one.name for one in store.list()]
    assert "notes.txt" in left
    assert "trial-x/0-0" not in left


def test_an_entry_that_is_gone_is_told_by_the_round(
    url: str, home: DisklessHome, store: ObjectStore, clock: ManualClock
) -> None:
    topic(home)
    for value in "abc":
        write(home, value)
    service = Service(url, clock=clock)
    name = entry_name(home.head.state.log_id, 2)
    store.delete([name])
    with pytest.raises(DataCorruptionError, match="lifecycle rule") as caught:
        service.run_once()
    assert name in str(caught.value)
