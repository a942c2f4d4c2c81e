"""Each alert that is shipped: a real log is driven into trouble, its real endpoint is scraped, and
promtool, with what was scraped, says which rules fire.

So the names in the rules and those of the endpoint can't drift apart.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import LogReplacedError, StorageUnavailableError
from sparklog.fs.local import LocalFileSystem
from sparklog.log.rounds import LogCleaner
from sparklog.logdir.home import commits_of
from sparklog.service import Service
from sparklog.service.metrics import alert_rules
from sparklog.service.metrics.endpoint import Endpoint
from sparklog.service.metrics.names import METRICS
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from sparklog.testing.faultstore import FaultStore
from tests.promql import unknown
from tests.promtool import RULES, Scrapes
from tests.service import test_alert_rules
from tests.service.logs import flip, logs
from tests.service.test_disk_probe import Writer
from tests.service.test_service import compacted, filled, rows
from tests.tiered.logs import filled as tiered
from tests.waiting import until

MINUTE = 60_000
QUICK = {"log.initial.task.delay.ms": "0"}


class Watched:
    """A service without threads whose turns the test takes, and its endpoint."""

    def __init__(self, service: Service, clock: ManualClock) -> None:
        self.service, self.clock = service, clock
        service._open()
        self.endpoint = Endpoint("127.0.0.1", 0, read=service._samples, health=service._health)
        self.scrapes = Scrapes(clock())
        self._minute = 0

    def scrape(self) -> str:
        with urllib.request.urlopen(self.endpoint.url) as answer:
            return str(answer.read().decode())

    def run(
        self,
        minutes: int,
        *works: str,
        each: Callable[[int], object] = lambda _: None,
        step: int = 5,
    ) -> None:
        """Let time pass, `step` minutes at a time: `each`, the turns of `works` (all), a scrape."""
        for _ in range(0, minutes, step):
            each(self._minute)
            for work in works or ("retain", "clean", "tier"):
                with contextlib.suppress(LogReplacedError):  # the threads try again as well
                    self.service._run_due_work(work)
            self.scrapes.add(self.scrape(), self._minute)
            self.clock.advance(step * MINUTE)
            self._minute += step

    def close(self) -> None:
        self.endpoint.close()
        self.service.close()


@pytest.fixture
def watch(clock: ManualClock, judge: str) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(path: str, **given: Any) -> Watched:
        options = QUICK | given.pop("options", {})
        made.append(Watched(Service(path, clock=clock, options=options, **given), clock))
        return made[-1]

    yield start
    for watched in made:
        watched.close()


def test_the_rules_are_whole(judge: str) -> None:
    done = subprocess.run([judge, "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert alert_rules() == RULES.read_text()
    names = [rule["alert"] for rule in rules() if "alert" in rule]
    tested = Path(__file__).read_text() + Path(test_alert_rules.__file__).read_text()
    assert len(set(names)) == len(names)
    for name in names:
        assert f'"{name}"' in tested, f"no test fires {name}"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(alert_rules())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    recorded = {each["record"] for each in rules() if "record" in each}
    assert unknown(rule["expr"], recorded) == []
    text = rule.get("annotations", {}).get("description", "")
    assert set(re.findall(r"\b(?:kafka|sparklog)_\w+", text)) <= METRICS.keys()


def test_a_good_log_fires_nothing(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with filled(path, clock) as log:
        watched = watch(path)

        def write(minute: int) -> None:
            log.append("t", rows(["x"]))
            log.commit_offsets("g", {"t": {0: log.offsets("t")[0][1]}})

        watched.run(90, each=write)
        for at in (10, 85):
            watched.scrapes.firing(tmp_path, at, set())


def test_no_service(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    filled(path, clock).close()
    watched = watch(path)
    watched.run(15)
    watched.close()
    watched.scrapes.silence(20)
    watched.scrapes.firing(tmp_path, 11, set())
    watched.scrapes.firing(tmp_path, 32, {"SparklogServiceNotRunning"})


def test_one_that_stands_by_is_none_but_beside_one_that_works(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    filled(path, clock).close()
    first, second = watch(path), watch(path)
    first.run(5)
    second.run(15)
    assert "sparklog_service_leading 0.0" in second.scrape()
    second.scrapes.firing(tmp_path, 11, {"SparklogServiceNotRunning"})
    assert "sparklog_service_leading 1.0" in first.scrape()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_cleaner_that_dies(
    path: str, clock: ManualClock, judge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **given: object) -> bool:
        raise SimulatedKill

    filled(path, clock).close()
    monkeypatch.setattr(LogCleaner, "clean", die)
    with Service(path, options=QUICK, metrics_port=0) as service:
        assert service.metrics_url is not None
        health = service.metrics_url.replace("/metrics", "/healthz")
        cleaners = [t for t in service._threads if t.name == "sparklog-clean"]
        until(lambda: not any(t.is_alive() for t in cleaners))
        with urllib.request.urlopen(service.metrics_url) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(health)
        assert refused.value.code == 503
        assert b"clean has died" in refused.value.read()
        refused.value.close()
    scrapes = Scrapes(0)
    scrapes.hold(text, 10)
    scrapes.firing(tmp_path, 9, {"SparklogCleanerDied", "SparklogServiceThreadDied"})


def test_a_cleaner_that_hangs(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with compacted(path, clock):
        watched = watch(path)
        watched.run(5)
        watched.run(80, "retain")  # what the other threads do meanwhile
        watched.scrapes.firing(tmp_path, 50, set())
        watched.scrapes.firing(tmp_path, 84, {"SparklogCleanerStopped"})


def test_a_partition_that_cannot_be_cleaned(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with compacted(path, clock):
        victim = Path(path, "t-0", f"{0:020d}.log")
        data = bytearray(victim.read_bytes())
        data[80] ^= 1
        victim.write_bytes(data)
        watched = watch(path)
        watched.run(15)
        watched.scrapes.firing(tmp_path, 14, {"SparklogUncleanablePartitions"})


def test_a_disk_that_fails(
    clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    fs = CrashFS(clock=clock)
    with sparklog.open("/log", "rw", fs=fs, clock=clock) as log:
        log.create_topic("t")

        def write(minute: int) -> None:
            if minute == 10:
                fs.fail_at(1, Fault.IO_ERROR, times=10**9, when=lambda call: call.op == "pwrite")
            if minute < 10:
                log.append("t", rows(["x"]))
            elif minute < 30:
                with pytest.raises(StorageUnavailableError):
                    log.append("t", rows(["x"]))
            else:
                fs.heal()
                log.append("t", rows(["x"]))

        watched = watch("/log", fs=fs)
        watched.run(60, each=write)
        watched.scrapes.firing(tmp_path, 9, set())
        watched.scrapes.firing(tmp_path, 29, {"SparklogLogDirectoryOffline", "SparklogCommitsFail"})
        watched.scrapes.firing(tmp_path, 59, set())


@pytest.mark.deep
def test_a_disk_that_fails_for_another_process(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    filled(path, clock).close()
    watched, writer = watch(path), Writer(path)
    try:
        watched.run(10)
        assert writer.write(100) == "failed"
        watched.run(10)
        assert writer.write() == "written"
        watched.run(10)
    finally:
        writer.kill()
    watched.scrapes.firing(tmp_path, 9, set())
    watched.scrapes.firing(tmp_path, 19, {"SparklogLogDirectoryOffline"})
    watched.scrapes.firing(tmp_path, 29, set())


def test_a_log_dir_that_vanishes(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    log = filled(path, clock)
    watched = watch(path)
    watched.run(5)
    shutil.move(path, path + ".away")
    try:
        watched.run(10)
        text = watched.scrape()
        assert "sparklog_scrape_errors 0.0" not in text
        assert f'offline{{logDirectory="{path}"}} 1.0' in text
        watched.scrapes.firing(tmp_path, 14, {"SparklogLogDirectoryOffline"})
    finally:
        shutil.move(path + ".away", path)
        log.close()


def test_a_damaged_partition(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    log = filled(path, clock)
    data = logs(Path(path, "t-0"))[-1]
    flip(data, 30)
    commits_of(log).release()  # as a process that dies
    Path(path, "sparklog.lock").unlink()
    watched = watch(path)
    watched.run(10)
    text = watched.scrape()
    assert 'sparklog_partition_offline{partition="0",topic="t"} 1.0' in text
    watched.scrapes.firing(tmp_path, 8, {"SparklogPartitionOffline"})


def test_a_full_disk(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    class Full(LocalFileSystem):
        def free_bytes(self, path: str) -> int:
            return 900_000_000

    filled(path, clock).close()
    watched = watch(path, fs=Full())
    watched.run(10)
    watched.scrapes.firing(tmp_path, 9, {"SparklogDiskFull"})


def test_retention_that_does_not_run(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with filled(path, clock, retention_ms=str(10 * MINUTE)):
        watched = watch(path)
        watched.run(60, "clean")
        watched.scrapes.firing(tmp_path, 12, set())
        watched.scrapes.firing(tmp_path, 59, {"SparklogRetentionBehind"})
        assert 'sparklog_retention_due_bytes{topic="t"} 0.0' not in watched.scrape()
        watched.run(40)
        watched.scrapes.firing(tmp_path, 99, set())


def test_a_store_that_is_down(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    store = FaultStore(clock=clock, attempts=1)
    with tiered(path, clock, 12) as log:
        watched = watch(path, remote="memory://bucket", opening=lambda url, options: store)
        watched.run(10)
        store.down(10 * 3600_000)
        append = lambda n: log.append("t", rows(["x" * 300]))  # noqa: E731
        watched.run(150, each=append)
        watched.scrapes.firing(tmp_path, 9, set())
        watched.scrapes.firing(
            tmp_path,
            158,
            {"SparklogTierBehind", "SparklogTierGrowing", "SparklogServiceRoundsFail"},
        )


def test_a_reader_that_falls_behind(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with filled(path, clock) as log:
        log.commit_offsets("slow", {"t": {0: 12}})
        watched = watch(path)

        def write(minute: int) -> None:
            log.append("t", rows(["x"] * 10))
            log.commit_offsets("quick", {"t": {0: log.offsets("t")[0][1]}})

        watched.run(90, each=write)
        watched.scrapes.firing(tmp_path, 89, {"SparklogReaderLagGrowing"})
        quick = 'group="quick",kind="group",partition="0",topic="t"'
        assert f"sparklog_reader_lag_records{{{quick}}} 0.0" in watched.scrape()


def test_records_that_go_before_they_are_read(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    """By delete-records, past a reader and over most of the partition."""
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t")
        log.append("t", rows(["x"] * 3000))
        log.commit_offsets("slow", {"t": {0: 100}})
        watched = watch(path)

        def work(minute: int) -> None:
            log.commit_offsets("quick", {"t": {0: log.offsets("t")[0][1]}})
            if minute == 30:
                log.delete_records("t", {0: 2000})

        watched.run(60, each=work)
        watched.scrapes.firing(tmp_path, 29, set())
        watched.scrapes.firing(
            tmp_path, 38, {"SparklogReaderLostRecords", "SparklogLogStartJumped"}
        )
        watched.scrapes.firing(tmp_path, 58, {"SparklogReaderLostRecords"})


def test_retention_that_runs_is_no_jump(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic(
            "t",
            config={"retention.ms": str(20 * MINUTE), "segment.ms": str(10 * MINUTE)},
        )
        log.append("t", rows(["x"] * 3000))
        watched = watch(path)
        watched.run(60, each=lambda _: log.append("t", rows(["x"] * 10)))
        assert log.offsets("t")[0][0] >= 3000
        for at in (20, 25, 30, 35, 40):
            watched.scrapes.firing(tmp_path, at, set())


def test_a_disk_that_fills(
    path: str, clock: ManualClock, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    began = clock()

    class Filling(LocalFileSystem):
        def free_bytes(self, path: str) -> int:
            return (100 << 30) - (clock() - began) // MINUTE * (1 << 29)  # 30 GiB an hour

    filled(path, clock).close()
    watched = watch(path, fs=Filling())
    watched.run(90)
    watched.scrapes.firing(tmp_path, 30, set())
    watched.scrapes.firing(tmp_path, 80, {"SparklogDiskFullInHours"})
