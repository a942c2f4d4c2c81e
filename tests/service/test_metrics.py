"""What an observer sees of a log, what a service counts, and what its endpoint says of both."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import (
    BatchConflictError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.fs import FileSystem
from sparklog.fs.local import LocalFileSystem
from sparklog.logdir import meters as writing
from sparklog.logdir.home import commits_of
from sparklog.logdir.lock import LogLock, peek
from sparklog.logdir.recovery import partition_recovery
from sparklog.metrics import Distribution, Metric, meters
from sparklog.service import Service
from sparklog.service.health import examine
from sparklog.service.metrics import Observer, PartitionMetrics, collect, names
from sparklog.service.metrics.endpoint import text_of
from sparklog.service.metrics.names import METRICS
from sparklog.service.metrics.observed import AwaitingDeletion
from sparklog.service.metrics.samples import samples
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.reading import meters as fetching
from tests import promql
from tests.micro_batches import commit_batch
from tests.promtool import parsed
from tests.service.health.test_examine import what
from tests.service.logs import make
from tests.service.test_service import compacted, filled, rows, stepped
from tests.tiered.logs import filled as tiered

MINUTE = 60_000
DAY = 1440 * MINUTE
Found = dict[tuple[str, tuple[str, ...]], float]


def numbers(text: str) -> Found:
    """{(name, label values by the label's name): value}"""
    return {(s.name, tuple(v for _, v in sorted(s.labels.items()))): s.value for s in parsed(text)}


def scrape(service: Service) -> Found:
    return numbers(text_of(service._samples()))


def partition(observer: Observer, topic: str = "t", number: int = 0) -> PartitionMetrics:
    (found,) = [
        p for p in observer.observe().partitions if (p.topic, p.partition) == (topic, number)
    ]
    return found


def on_disk(path: str, name: str) -> tuple[int, int]:
    sizes = [p.stat().st_size for p in Path(path, name).glob("*.log")]
    return sum(sizes), len(sizes)


# --- the log's files ----------------------------------------------------------------------------


def test_partitions_are_as_their_files(path: str, clock: ManualClock) -> None:
    make(Path(path))
    found = collect(path, clock=clock)
    assert not found.errors
    assert {(p.topic, p.partition) for p in found.partitions} == {
        ("t", 0), ("t", 1), ("u", 0), ("__sparklog_commits", 0),
    }  # fmt: skip
    with sparklog.open(path) as log:
        for one in found.partitions:
            name = f"{one.topic}-{one.partition}"
            assert (one.size_bytes, one.segments) == on_disk(path, name)
            if one.topic != "__sparklog_commits":
                span = log.offsets(one.topic)[one.partition]
                assert (one.log_start_offset, one.log_end_offset) == span


def test_each_look_sees_what_others_did_since(path: str, clock: ManualClock) -> None:
    """Appends, rolls, retention, compaction, topics that come and go, the close: by their files."""
    with filled(path, clock) as log:
        observer = Observer(path, clock=clock)
        for _ in range(8):
            log.append("t", rows(["x" * 150]))
            one = partition(observer)
            assert (one.size_bytes, one.segments) == on_disk(path, "t-0")
            assert one.log_end_offset == log.offsets("t")[0][1]
        log.delete_records("t", {0: 10})
        Service(path, clock=clock).run_once()
        one = partition(observer)
        assert (one.size_bytes, one.segments) == on_disk(path, "t-0")
        assert one.log_start_offset == 10
        log.create_topic("new", 3)
        assert partition(observer, "new", 2).size_bytes == 0
        log.delete_topic("new")
        assert "new" not in {p.topic for p in observer.observe().partitions}
    before = observer.observe()
    assert not before.errors
    assert partition(observer).log_end_offset == 20
    with sparklog.open(path, "rw", clock=clock) as log:
        log.append("t", rows(["x"]))
        assert partition(observer).log_end_offset == 21


def test_a_look_at_a_log_where_nothing_changed_asks_little(path: str, clock: ManualClock) -> None:
    asked: list[str] = []

    class Counting(LocalFileSystem):
        def listdir(self, path: str) -> list[str]:
            asked.append(path)
            return super().listdir(path)

        def size(self, path: str) -> int:
            asked.append(path)
            return super().size(path)

    with filled(path, clock) as log:
        observer = Observer(path, clock=clock, fs=Counting())
        log.create_topic("many", 50, config={"retention.ms": "-1"})
        observer.observe()
        settle(path)
        observer.observe()
        asked.clear()
        observer.observe()
        assert not [p for p in asked if "many" in p or "/t-0" in p]
        log.append("many", rows(["x"]), partition=7)
        asked.clear()
        observer.observe()
        assert {p.split("/")[-2] for p in asked if p.endswith(".log")} <= {
            "many-7", "__sparklog_commits-0",
        }  # fmt: skip


def settle(path: str) -> None:
    """Let the partitions' directories have changed long ago, as they mostly have."""
    import os

    for directory in Path(path).iterdir():
        if directory.is_dir():
            os.utime(directory, (1_600_000_000, 1_600_000_000))


def test_a_brokers_directory(path: str, clock: ManualClock) -> None:
    """Without a ledger, and after a broker has been at ours."""
    make(Path(path))
    for name in ("sparklog.watermarks", "sparklog.topics", "sparklog.lock"):
        Path(path, name).unlink()
    shutil.rmtree(Path(path, "__sparklog_commits-0"))
    found = collect(path, clock=clock)
    assert not found.errors
    assert found.commits is None
    spans = {(p.topic, p.partition): p.log_end_offset for p in found.partitions}
    assert spans == {("t", 0): 60, ("t", 1): 24, ("u", 0): 10}
    assert "sparklog_commits_total" not in text_of(samples(found, process=False))


def test_what_retention_has_left_to_do(path: str, clock: ManualClock) -> None:
    with filled(path, clock, retention_ms=str(10 * MINUTE)):
        observer = Observer(path, clock=clock)
        assert partition(observer).due_bytes == 0
        clock.advance(20 * MINUTE)
        size, _ = on_disk(path, "t-0")
        assert partition(observer).due_bytes == size
        Service(path, clock=clock).run_once()
        assert partition(observer).due_bytes == 0


def test_readers(path: str, clock: ManualClock) -> None:
    with filled(path, clock) as log:
        log.commit_offsets("g", {"t": {0: 5}})
        (one,) = Observer(path, clock=clock).observe().readers
        assert (one.group, one.kind, one.offset, one.lag) == ("g", "group", 5, 7)
        clock.advance(8 * 24 * 3600_000)
        found = Observer(path, clock=clock).observe()
        assert [r.expired for r in found.readers] == [True]
        assert "reader_lag" not in text_of(samples(found, process=False))
        for file in Path(path).glob("sparklog.readers-*"):
            file.write_bytes(b"rubbish")
        assert Observer(path, clock=clock).observe().damaged_readers == 1


def commit(log: sparklog.Log, batch: int, fingerprint: str = "a") -> bool:
    rows = pa.table({"value": [b"v" * 50] * 3})
    return commit_batch(log, "w", batch, rows, fingerprint=fingerprint).replayed


def test_commits_of_all_processes_are_counted_once(path: str, clock: ManualClock) -> None:
    with filled(path, clock, 3) as log:
        observer, late = Observer(path, clock=clock), Observer(path, history=True, clock=clock)
        observer.observe()
        before, _ = on_disk(path, "t-0")
        commit(log, 0)
        assert commit(log, 0)  # a replay leaves no record
        clock.advance(5000)
        code = (
            "import sys, sparklog, pyarrow as pa\n"
            "with sparklog.open(sys.argv[1], 'rw') as log:\n"
            "    log.append('t', pa.table({'value': ['a', 'b']}))\n"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        found, whole = observer.observe(), late.observe()
        assert found.commits is not None
        assert whole.commits is not None
        assert found.commits.commits == {"append": 1, "commit": 1}
        assert found.commits.records == {"t": 5}
        assert whole.commits.commits == {"append": 4, "commit": 1}
        ends = log.commits("w").column("end").to_pylist()
        (writer,) = found.writers
        assert (writer.writer, writer.batch, writer.time_ms) == ("w", 0, 1_700_000_003_000)
        assert ends == [6]
        assert found.commits.size_bytes.count == 2
        assert found.commits.size_bytes.sum == on_disk(path, "t-0")[0] - before
        assert observer.observe().commits == found.commits
        fresh = Observer(path, clock=clock).observe()  # a service that was started again
        assert fresh.commits is not None
        assert fresh.commits.commits == {"append": 0, "commit": 0}


def test_a_log_that_is_replaced_under_an_observer(path: str, clock: ManualClock) -> None:
    filled(path, clock).close()
    observer = Observer(path, clock=clock)
    assert partition(observer).log_end_offset == 12
    shutil.rmtree(path)
    gone = observer.observe()
    assert gone.errors
    assert [d.free_bytes for d in gone.directories] == [None]
    assert not gone.partitions
    filled(path, clock, 2).close()
    found = observer.observe()
    assert not found.errors
    assert partition(observer).log_end_offset == 2
    assert found.commits is not None
    assert found.commits.commits == {"append": 0, "commit": 0}


def test_partitions_that_vanish_while_they_are_looked_at(path: str, clock: ManualClock) -> None:
    log = filled(path, clock)
    observer = Observer(path, clock=clock)
    stop = threading.Event()
    looks, wrong = [], []

    def look() -> None:
        while not stop.is_set():
            found = observer.observe()
            looks.append(found.took_ms)
            wrong.extend(found.errors)

    thread = threading.Thread(target=look)
    thread.start()
    for n in itertools.count():
        log.create_topic(f"u{n}", 2)
        log.append(f"u{n}", rows(["x"]))
        log.delete_topic(f"u{n}")
        if n >= 14 and (len(looks) > 3 or not thread.is_alive()):
            break
    stop.set()
    thread.join()
    assert len(looks) > 3
    assert not wrong
    log.close()


def test_a_page_read_while_it_is_written_proves_nothing_missing(
    path: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(path, clock) as log:
        log.create_topic("u")
        look = Observer(path, clock=clock)
        shutil.move(f"{path}/u-0", f"{path}-u")  # as a deletion that has just been committed
        torn = [None]
        monkeypatch.setattr(
            "sparklog.service.metrics.observer.peek", lambda *at: torn.pop() if torn else peek(*at)
        )
        assert not look.observe().errors
        assert look.observe().errors == ["u-0: its files could not be read"]
        shutil.move(f"{path}-u", f"{path}/u-0")


def test_a_partition_that_is_missing_is_told(path: str, clock: ManualClock) -> None:
    with filled(path, clock) as log:
        log.create_topic("u")
        shutil.move(f"{path}/u-0", f"{path}-u")
        observer = Observer(path, clock=clock)
        assert observer.observe().errors == ["u-0: its files could not be read"]
        assert partition(observer).log_end_offset == 12
        shutil.move(f"{path}-u", f"{path}/u-0")
        assert not observer.observe().errors


def test_what_awaits_deletion(path: str, clock: ManualClock) -> None:
    """As the files are on disk, until the delay is over: segments, then the whole topic."""
    with filled(path, clock) as log, stepped(Service(path, clock=clock)) as service:
        observer = Observer(path, clock=clock)
        assert observer.observe().awaiting_deletion == []
        log.delete_records("t", {0: 8})
        service.run_once()
        retired = sum(p.stat().st_size for p in Path(path, "t-0").glob("*.deleted"))
        (waiting,) = observer.observe().awaiting_deletion
        assert waiting == AwaitingDeletion("t", "segment", "local", retired)
        assert retired > 0
        name = "sparklog_awaiting_deletion_bytes"
        assert scrape(service)[name, ("segment", "local", "t")] == retired
        log.delete_topic("t")
        held = sum(p.stat().st_size for p in Path(path).glob("t-0.*-delete/*"))
        (waiting,) = observer.observe().awaiting_deletion
        assert waiting == AwaitingDeletion("t", "topic", "local", held)
        assert f"{held / 1024:.1f} KiB more when" in what(examine(path, clock=clock), "disk")
        clock.advance(DAY + 1)
        service.run_once()
        assert observer.observe().awaiting_deletion == []


# --- the tier -----------------------------------------------------------------------------------


def test_copies_of_a_deleted_topic_await_deletion_and_are_not_late(
    path: str, clock: ManualClock
) -> None:
    store = FaultStore(clock=clock)
    with (
        tiered(path, clock, 12, file_delete_delay_ms=str(DAY)) as log,
        stepped(
            Service(path, remote="memory://b", clock=clock, opening=lambda url, options: store)
        ) as service,
    ):
        service.run_once()
        (row,) = service._observer.observe().tiers
        log.delete_topic("t")
        found = service._observer.observe()
        assert [t.delete_lag_bytes for t in found.tiers] == []
        remote = [one for one in found.awaiting_deletion if one.storage == "remote"]
        assert remote == [AwaitingDeletion("t", "topic", "remote", row.remote_bytes)]
        clock.advance(DAY + 1)
        service.run_once()
        assert service._observer.observe().awaiting_deletion == []


def test_the_tier(path: str, clock: ManualClock) -> None:
    store = FaultStore(clock=clock)
    with (
        tiered(path, clock, 12) as log,
        stepped(
            Service(path, remote="memory://b", clock=clock, opening=lambda url, options: store)
        ) as service,
    ):
        service.run_once()
        (row,) = service._observer.observe().tiers
        assert (row.topic, row.copy_lag_bytes, row.copy_lag_ms) == ("t", 0, 0)
        found = scrape(service)
        copied = found["kafka_server_brokertopicmetrics_remotecopybytes_total", ("t",)]
        assert copied == row.remote_bytes > 0
        for _ in range(4):
            log.append("t", rows(["x" * 300]))
        clock.advance(MINUTE)
        (behind,) = service._observer.observe().tiers
        report = service.run_once(dry_run=True)
        assert behind.copy_lag_bytes == sum(u.bytes for u in report.uploaded) > 0
        assert behind.copy_lag_segments == len(report.uploaded)
        assert behind.copy_lag_ms >= MINUTE
        log.delete_records("t", {0: 8})
        (late,) = service._observer.observe().tiers
        assert late.delete_lag_segments > 0
        service.run_once()
        (row,) = service._observer.observe().tiers
        assert (row.copy_lag_bytes, row.delete_lag_bytes) == (0, 0)
        assert scrape(service)["kafka_server_brokertopicmetrics_remotedeleterequests_total", ("t",)]


# --- what this process counts --------------------------------------------------------------------


def test_commits_of_this_process(path: str, clock: ManualClock) -> None:
    with filled(path, clock, 0) as log:
        commit(log, 0)
        assert commit(log, 0)
        with pytest.raises(BatchConflictError):
            commit(log, 0, "b")
        found = numbers(text_of(meters(path).samples()))
    assert found["sparklog_process_commit_duration_seconds_count", ()] == 1
    assert found["sparklog_process_chunk_bytes_sum", ()] == on_disk(path, "t-0")[0]
    assert found["sparklog_process_replayed_commits_total", ()] == 1
    assert found["sparklog_process_commit_errors_total", ("BatchConflictError",)] == 1
    assert found["kafka_log_logflushstats_logflushrateandtimems_count", ()] == 1
    with sparklog.open(path, "rw", clock=clock) as log:  # it counts on
        commit(log, 1)
    found = numbers(text_of(meters(path).samples()))
    assert found["sparklog_process_commit_duration_seconds_count", ()] == 2


def test_the_ledger_tells_how_long_and_how_large(path: str) -> None:
    """The time is the log's clock's: here it moves on by itself at each look."""

    class Ticking(ManualClock):
        def __call__(self) -> int:
            self.now_ms += 10
            return self.now_ms

    clock = Ticking()
    with filled(path, clock, 1) as log:
        found = Observer(path, history=True, clock=clock).observe().commits
        assert found is not None
        assert found.duration_seconds.count == 1
        assert 0.01 <= found.duration_seconds.sum < 1
        assert log.commits().num_rows == 1


def test_the_cleaner(path: str, clock: ManualClock) -> None:
    with compacted(path, clock), stepped(Service(path, clock=clock)) as service:
        service._leadership.leading()  # takes the lease
        report = service.run_once()
        (cleaned,) = report.cleaned
        found = scrape(service)
        assert found["sparklog_service_cleaned_bytes_total", ()] == cleaned.bytes_before
        assert found["sparklog_service_cleaner_written_bytes_total", ()] == cleaned.bytes_after
        recopy = 100 * cleaned.bytes_after / cleaned.bytes_before
        assert found["kafka_log_logcleaner_cleaner_recopy_percent", ()] == recopy
        dirty = found["kafka_log_logcleanermanager_max_dirty_percent", ()]
        assert dirty == 100 * cleaned.dirt.ratio
        assert found["sparklog_service_rounds_total", ("clean",)] == 1
        assert found["sparklog_service_rounds_total", ("retain",)] == 1
        clock.advance(MINUTE)
        since = "kafka_log_logcleanermanager_time_since_last_run_ms"
        assert scrape(service)[since, ()] == MINUTE
        service.run_once(dry_run=True)
        assert scrape(service)["sparklog_service_rounds_total", ("clean",)] == 1


def test_retention(path: str, clock: ManualClock) -> None:
    with filled(path, clock, retention_bytes="500"), stepped(Service(path, clock=clock)) as service:
        report = service.run_once()
        found = scrape(service)
        gone = sum(d.bytes for d in report.deleted)
        assert found["sparklog_service_deleted_bytes_total", ("retention.bytes",)] == gone > 0
        assert found["sparklog_service_lock_held_seconds_count", ()] == len(report.locked_ms)


# --- the endpoint ---------------------------------------------------------------------------------


@pytest.fixture
def served(path: str, clock: ManualClock) -> Iterator[Service]:
    filled(path, clock).close()
    with Service(path, metrics_port=0) as service:
        yield service


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_pages(served: Service) -> None:
    url = served.metrics_url or ""
    status, text = get(url)
    assert status == 200
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names <= {metric.name for metric in promql.OF_ALL}
    assert {"kafka_log_log_size", "sparklog_service_leading"} <= names
    status, text = get(url, Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert list(open_metrics_families(text))  # OpenMetrics is stricter
    health = url.replace("/metrics", "/healthz")
    status, text = get(health)
    said = json.loads(text)
    assert (status, said["ok"], said["wrong"], said["level"]) == (200, True, [], "green")
    assert [check["name"] for check in said["checks"]] == [
        "writable", "partitions", "readers", "disk", "service", "writers"
    ]  # fmt: skip
    assert get(url + "/nothing")[0] == 404
    served.close()
    assert served.metrics_url is None
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_two_logs_have_each_their_endpoint(tmp_path: Path, clock: ManualClock) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for count, path in enumerate(paths, 3):
        filled(path, clock, count).close()
    with Service(paths[0], metrics_port=0) as one, Service(paths[1], metrics_port=0) as two:
        for count, (service, path) in enumerate(zip((one, two), paths, strict=True), 3):
            found = numbers(get(service.metrics_url or "")[1])
            assert found["kafka_log_log_logendoffset", ("0", "t")] == count
            assert found["sparklog_info", (path,)] == 1
            assert found["sparklog_process_commit_duration_seconds_count", ()] == count


def test_odd_names_come_out_as_they_are(path: str, clock: ManualClock) -> None:
    group = 'a "quoted" \\ {name="x"} \u20ac'
    with filled(path, clock) as log:
        log.create_topic("odd._-Name")
        log.commit_offsets(group, {"t": {0: 1}})
        found = numbers(text_of(samples(collect(path, clock=clock))))
    assert found["kafka_log_log_size", ("0", "odd._-Name")] == 0
    assert found["sparklog_reader_lag_records", (group, "group", "0", "t")] == 11
    half = meters("odd")
    half.counter(METRICS["sparklog_process_commit_errors_total"]).add(1, "half \ud83d")
    assert ("half ?",) in {labels for _, labels in numbers(text_of(half.samples()))}


def test_a_port_that_is_taken(served: Service, path: str) -> None:
    port = int((served.metrics_url or "").split(":")[2].split("/")[0])
    other = Service(path, metrics_port=port)
    with pytest.raises(InvalidRequestError, match="choose another port"):
        other.start()
    assert not other._threads


def test_without_the_library(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "prometheus_client":
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'sparklog\[metrics\]'"):
        text_of([])


def test_an_address_of_ipv6(path: str, clock: ManualClock) -> None:
    filled(path, clock).close()
    with Service(path, metrics_port=0, metrics_address="::1") as service:
        assert (service.metrics_url or "").startswith("http://[::1]:")
        assert get(service.metrics_url or "")[0] == 200


def test_an_endpoint_goes_when_the_log_can_not_be_opened(path: str, clock: ManualClock) -> None:
    filled(path, clock).close()
    Path(path, "sparklog.topics").unlink()
    (Path(path) / "x-y").touch()
    broker = LocalFileSystem().open_lock(f"{path}/.lock")
    assert broker.try_lock(0, 0, exclusive=True)
    service, before = Service(path, metrics_port=0), set(threading.enumerate())
    with pytest.raises(sparklog.LogLockedError):
        service.start()
    assert service.metrics_url is None
    new = set(threading.enumerate()) - before
    assert not [t for t in new if t.name == "sparklog-metrics"]
    broker.close()


def test_a_scrape_waits_for_no_lock(path: str, clock: ManualClock) -> None:
    """A commit, a round, a recovery under way: the endpoint answers, and delays nobody."""
    with (
        filled(path, clock) as log,
        stepped(Service(path, clock=clock)) as service,
        commits_of(log).exclusive(),
        service._work_locks["retain"],
        service._leadership._mutex,
    ):
        done = threading.Thread(target=lambda: scrape(service))
        done.start()
        done.join(240)
        assert not done.is_alive()


LOGS = "kafka_log_logmanager_remaininglogstorecover"
SEGMENTS = "kafka_log_logmanager_remainingsegmentstorecover"
ROLLING = {"internal.segment.bytes": "200"}


def unclean(path: str, count: int) -> int:
    """Partitions t-0 and t-1 that must be read whole; returns how many segments t-0 has."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2, ROLLING)
        for _ in range(count):
            log.append("t", rows(["x" * 50]), partition=0)
        log.append("t", rows(["y"]), partition=1)
        shutil.copytree(path, f"{path}-cut")
    shutil.rmtree(path)
    shutil.move(f"{path}-cut", path)  # other inodes: nobody knows what was written
    Path(path, "recovery-point-offset-checkpoint").unlink()
    return len(list(Path(path, "t-0").glob("*.log")))


def test_a_recovery_says_how_far_it_is(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = unclean(path, 6)
    assert segments > 2
    service = Service(path, metrics_port=0, options={"num.recovery.threads.per.data.dir": "1"})
    seen: list[tuple[str, float, float]] = []
    scan = partition_recovery.scan_segment

    def scanned(fs: FileSystem, directory: str, *given: Any, **named: Any) -> Any:
        if Path(directory).name.startswith("t-"):
            found = numbers(get(service.metrics_url or "")[1])
            seen.append((Path(directory).name, found[LOGS, (path,)], found[SEGMENTS, (path, "0")]))
        return scan(fs, directory, *given, **named)

    monkeypatch.setattr(partition_recovery, "scan_segment", scanned)
    with service:
        assert seen == [("t-0", 2, n) for n in range(segments, 0, -1)] + [("t-1", 1, 1)]
        found = scrape(service)
        assert (found[LOGS, (path,)], found[SEGMENTS, (path, "0")]) == (0, 0)
    assert {s.labels: s.value for s in meters(path).samples() if s.metric.name == SEGMENTS} == {
        (path, "0"): 0
    }


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_recovery_that_fails_leaves_nothing_to_recover(
    path: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who try again begin to count anew."""
    unclean(path, 6)

    scan = partition_recovery.scan_segment

    def broken(fs: FileSystem, directory: str, *given: Any, **named: Any) -> Any:
        if Path(directory).name.startswith("t-"):
            raise StorageUnavailableError("the disk")
        return scan(fs, directory, *given, **named)

    options = {"num.recovery.threads.per.data.dir": threads}

    def left() -> float:
        found = {s.metric.name: s.value for s in meters(path).samples() if s.labels == (path,)}
        return found[LOGS]  # type: ignore[return-value]  # a gauge

    with monkeypatch.context() as patch:
        patch.setattr(partition_recovery, "scan_segment", broken)
        for _ in range(2):
            with pytest.raises(StorageUnavailableError):
                sparklog.open(path, "rw", options=options)
            assert left() == 0
    with sparklog.open(path, "rw", options=options):
        assert left() == 0


def test_scrapes_at_the_same_time(served: Service) -> None:
    answers: list[int] = []
    url = served.metrics_url or ""
    threads = [threading.Thread(target=lambda: answers.append(get(url)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8


def test_every_metric_is_defined_once_and_described() -> None:
    """A second metric of a name would take the place of the first in METRICS, unnoticed."""
    defined = {
        id(value): value
        for module in (names, writing, fetching)
        for value in vars(module).values()
        if isinstance(value, Metric)
    }
    assert Counter(one.name for one in defined.values()) == Counter(list(METRICS))
    for name, metric in METRICS.items():
        assert name == name.lower()
        assert metric.help.endswith(".")
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert (metric.kind == "counter") == name.endswith("_total")
        assert name.startswith("kafka_" if metric.kafka else "sparklog_")


def test_objects_as_json(path: str, clock: ManualClock) -> None:
    make(Path(path))
    found = json.loads(json.dumps(collect(path, clock=clock).to_dict()))
    assert found["commits"]["size_bytes"]["count"] > 0
    assert isinstance(collect(path).commits.size_bytes, Distribution)  # type: ignore[union-attr]


# --- the page that is peeked at -------------------------------------------------------------------


def test_a_page_is_read_without_its_lock(path: str, clock: ManualClock) -> None:
    with filled(path, clock) as log:
        page = peek(LocalFileSystem(), path)
        assert page is not None
        with commits_of(log).exclusive():
            assert commits_of(log).lock.read() == page
        assert page.ledger_end == commits_of(log).ledger.end
    lock = LogLock(LocalFileSystem(), path, timeout_ms=1000)
    lock._file.pwrite(b"x", 30)
    lock.close()
    assert peek(LocalFileSystem(), path) is None
    Path(path, "sparklog.lock").unlink()
    assert peek(LocalFileSystem(), path) is None
    assert not Path(path, "sparklog.lock").exists()


def test_a_first_log_dir_that_is_not_mounted(tmp_path: Path) -> None:
    """The other ones were called offline, and the first wasn't."""
    one, two = tmp_path / "one", tmp_path / "two"
    with sparklog.open(f"{one},{two}", "rw") as log:
        log.create_topic("t", 2)
    one.rename(tmp_path / "away")
    one.mkdir()
    first, second = collect(f"{one},{two}").directories
    assert "is its disk mounted?" in first.error and not second.error
