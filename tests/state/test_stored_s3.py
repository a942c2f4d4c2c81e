"""Checkpoints that sparklog's manager keeps in runs, in a real S3 server."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparklog.checkpoint import fork, history, verify
from sparklog.tiered import open_store
from tests.depth import by_depth
from tests.state.s3a import s3a_conf
from tests.state.stored_driver import (
    NO_CONF,
    QUICK,
    RIDE,
    RUNS,
    SMALL_ENTRIES,
    V2,
    Driver,
    assert_same,
    no_driver_is_left,
    rows,
)  # fmt: skip
from tests.tiered.proxy import Proxy
from tests.tiered.s3 import S3Server
from tests.waiting import until

__all__ = ["no_driver_is_left"]

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.s3]
KILLS = by_depth(small=1, ci=1, all=50)
BATCHES = by_depth(small=20, ci=120, all=120)
EXECUTOR_KILLS = by_depth(small=1, ci=1, all=3)


@pytest.fixture
def bucket(s3: S3Server) -> str:
    return s3.bucket().replace("s3://", "s3a://")


def test_same_output(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """On executors of their own, with each kind of state, and a restart."""
    cases = [
        ("aggregation", "hdfs", NO_CONF), ("session_windows", "rocksdb", NO_CONF),
        ("join", "changelog", {**V2, SMALL_ENTRIES: "4000"}),
        ("transform_with_state", "changelog", V2),
    ]  # fmt: skip
    runs = list[list[Any]]()
    for operator, provider, conf in cases:
        ours, expected = tmp_path / operator, tmp_path / f"{operator}-expected"
        runs += [
            [operator, provider, f"{bucket}/{operator}", str(ours), last, {**RUNS, **QUICK, **conf}]
            for last in (3, 9)
        ]
        local = str(tmp_path / f"{operator}-ckpt")
        runs.append([operator, provider, local, str(expected), 9, NO_CONF])
    states = [f"sparklog-{bucket}/aggregation", f"sparklog-{bucket}/session_windows"]
    master = "local-cluster[2,1,1024]"
    driver = Driver(tmp_path / "driver", s3a_conf(s3), runs, master, states)
    driver.finish()
    assert all(driver.states().values())
    for operator, _, _ in cases:
        assert_same(tmp_path / operator, tmp_path / f"{operator}-expected", 9)
        options = s3.options()
        assert verify(f"{bucket}/{operator}", storage_options=options).ok
        if conf.get(SMALL_ENTRIES):
            listed = open_store(f"{bucket}/{operator}", options).list("sparklog/")
            assert any("/pack-" in each.name for each in listed)
        found_batches = history(f"{bucket}/{operator}", storage_options=options).batches
        assert found_batches[-1].batch >= 9


@pytest.mark.parametrize("commit", [{}, RIDE], ids=["put", "ride"])
def test_requests_of_a_batch(
    commit: dict[str, str], s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    """Two PUTs, or one if commits ride, and hardly anything else, for any number of partitions."""
    requests = list[Counter[str]]()
    conf = {**RUNS, **commit, "spark.sql.shuffle.partitions": "10"}
    with Proxy(s3.port) as proxy:
        for last in (5, 5 + BATCHES):
            proxy.seen.clear()
            url = f"{bucket}/{last}"
            run = ["aggregation", "hdfs", url, str(tmp_path / str(last)), last, conf]
            Driver(tmp_path / "driver", s3a_conf(s3, proxy.port), [run]).finish()
            requests.append(Counter(line.split()[0] for line in proxy.seen))
    done = [len(rows(tmp_path / str(last))) for last in (5, 5 + BATCHES)]
    more, batches = requests[1] - requests[0], done[1] - done[0]
    print(f"{batches} micro-batches: {dict(more)}")
    assert batches >= BATCHES - 5
    assert more["PUT"] <= (1.1 if commit else 2.1) * batches
    # Objects are deleted by POST.
    assert sum(more.values()) - more["PUT"] <= 0.2 * batches
    # The end of the query has stored the last commit.
    report = history(url, storage_options=s3.options())
    assert sum(row.committed_ms is None for row in report.batches[-10:]) <= 1
    assert max(row.batch for row in report.batches if row.committed_ms) >= 5 + BATCHES


@pytest.mark.parametrize("commit", [{}, RIDE], ids=["put", "ride"])
def test_killed_drivers(commit: dict[str, str], s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """After each kill -9 the query goes on, and repeats no batch with another result."""
    url, ours, expected = f"{bucket}/killed", tmp_path / "ours", tmp_path / "expected"
    provider = "changelog"
    conf, rng = {**RUNS, **QUICK, **V2, **commit}, random.Random(7)
    for _ in range(KILLS):
        run = ["join", provider, url, str(ours), 10_000, conf]
        driver = Driver(tmp_path / "driver", s3a_conf(s3), [run])
        before = len(rows(ours)) if ours.exists() else 0
        until(lambda now=before: ours.exists() and len(rows(ours)) > now,  # type: ignore[misc]
              "a batch", seconds=120, state=driver.said, pause_s=0.05)  # fmt: skip
        time.sleep(rng.uniform(0.2, 3))
        os.killpg(driver.process.pid, signal.SIGKILL)
        driver.process.wait()
        assert verify(url, storage_options=s3.options()).ok
    last = max(int(name.removesuffix(".json")) for name in rows(ours)) + 3
    local = str(tmp_path / "ckpt")
    Driver(
        tmp_path / "driver", s3a_conf(s3),
        [
            ["join", provider, url, str(ours), last, conf],
            ["join", provider, local, str(expected), last, NO_CONF],
        ],
    ).finish()  # fmt: skip
    assert_same(ours, expected, last)


@pytest.fixture
def first(s3: S3Server, bucket: str, tmp_path: Path) -> tuple[Driver, list[Any]]:
    """A query that runs, and its run."""
    run = ["aggregation", "hdfs", f"{bucket}/query", str(tmp_path / "out"), 10_000, RUNS]
    driver = Driver(tmp_path / "driver", s3a_conf(s3), [run])
    until(lambda: (tmp_path / "out" / "2.json").exists(), "a batch", seconds=120,
          state=driver.said)  # fmt: skip
    return driver, run


def test_another_driver_takes_over(
    first: tuple[Driver, list[Any]], s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    """A driver that was paused for long writes nothing when it wakes up, and says why."""
    old, run = first
    os.killpg(old.process.pid, signal.SIGSTOP)
    last = max(int(name.removesuffix(".json")) for name in rows(tmp_path / "out")) + 4
    Driver(tmp_path / "driver", s3a_conf(s3), [[*run[:4], last, RUNS]]).finish()
    before = history(f"{bucket}/query", storage_options=s3.options()).batches[-1].batch
    os.killpg(old.process.pid, signal.SIGCONT)
    assert "another driver has taken over this query" in old.finish(fails=True)
    report = history(f"{bucket}/query", storage_options=s3.options())
    assert report.batches[-1].batch == before


def test_a_session_without_the_manager(
    first: tuple[Driver, list[Any]], s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    """It is refused, with the names of two ways to go on; both are tried."""
    driver, run = first
    os.killpg(driver.process.pid, signal.SIGKILL)
    driver.process.wait()
    last = max(int(name.removesuffix(".json")) for name in rows(tmp_path / "out")) + 2
    plain = [*run[:4], last, NO_CONF]
    refused = Driver(tmp_path / "driver", s3a_conf(s3), [plain]).finish(fails=True)
    assert "sparklog keeps this checkpoint in runs" in refused
    assert "without spark.sparklog.checkpoint.store=disk" in refused
    assert "sparklog checkpoint export CHECKPOINT" in refused
    copy, options = tmp_path / "copy", s3.options()
    batch = max(
        row.batch for row in history(f"{bucket}/query", storage_options=options).batches
        if row.obstacle is None
    )  # fmt: skip
    fork(f"{bucket}/query", copy, to=batch, storage_options=options)
    by_spark = [*run[:2], str(copy), run[3], last, NO_CONF]
    Driver(tmp_path / "driver", s3a_conf(s3), [by_spark, [*run[:4], last, RUNS]]).finish()


def test_a_bad_network(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """Lost answers, refused connections and throttling: the query goes on, with the same result."""
    conf = {**RUNS, **QUICK, **V2}
    run = ["join", "changelog", f"{bucket}/query", str(tmp_path / "ours"), 25, conf]
    local = ["join", "changelog", str(tmp_path / "ckpt"), str(tmp_path / "expected"), 25, NO_CONF]
    quick = {f"spark.hadoop.fs.s3a.retry.{name}interval": "50ms" for name in ("", "throttle.")}
    rng = random.Random(3)
    with Proxy(s3.port) as proxy:
        driver = Driver(
            tmp_path / "driver", {**s3a_conf(s3, proxy.port), **quick}, [run, local]
        )  # fmt: skip
        while driver.process.poll() is None:
            way: Any = rng.choice(("drop", "drop", "busy", "refuse"))
            proxy.heal()  # faults of requests that did not come would add up
            proxy.spoil(rng.choice((b"PUT", b"PUT", b"GET")), way)
            time.sleep(rng.uniform(0.05, 0.3))
        driver.finish()
        assert proxy.spoiled > 10
    assert_same(tmp_path / "ours", tmp_path / "expected", 25)
    assert verify(f"{bucket}/query", storage_options=s3.options()).ok


def test_a_conflict(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """S3 may answer 409 to a creation while another one is under way: the driver repeats it."""
    home = bucket.replace("s3a://", "PUT /") + "/query/sparklog/home"
    with Proxy(s3.port) as proxy:
        for place in (home, "/run-0000000000/0000000002"):
            proxy.spoil(place.encode(), "conflict")
        run = ["aggregation", "hdfs", f"{bucket}/query", str(tmp_path / "out"), 3, RUNS]
        Driver(tmp_path / "driver", s3a_conf(s3, proxy.port), [run]).finish()
        assert proxy.spoiled == 2
    assert verify(f"{bucket}/query", storage_options=s3.options()).ok


def executors_of(driver: Driver) -> list[psutil.Process]:
    found = list[psutil.Process]()
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(driver.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
    return found


def test_killed_executors(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """Tasks are repeated on other executors, and their state is that of the last commit."""
    conf = {**RUNS, **QUICK, **V2}
    run = ["join", "changelog", f"{bucket}/query", str(tmp_path / "ours"), 12, conf]
    local = ["join", "changelog", str(tmp_path / "ckpt"), str(tmp_path / "expected"), 12, NO_CONF]
    driver = Driver(tmp_path / "driver", s3a_conf(s3), [run, local], "local-cluster[2,1,1024]")
    rng, killed = random.Random(5), 0
    while driver.process.poll() is None and not (tmp_path / "ours" / "11.json").exists():
        time.sleep(rng.uniform(0.5, 1.5))
        executors = executors_of(driver)
        is_ready = (tmp_path / "ours" / "2.json").exists() and len(executors) == 2
        if is_ready and killed < EXECUTOR_KILLS:
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(executors).kill()
                killed += 1
    driver.finish()
    assert killed > 0
    assert_same(tmp_path / "ours", tmp_path / "expected", 12)


@pytest.mark.parametrize("fault", ["bucket", "credentials"])
def test_a_query_that_cannot_start(fault: str, s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """A missing bucket and wrong credentials fail at once, with what the store says."""
    conf = s3a_conf(s3)
    url = f"{bucket}/query"
    if fault == "bucket":
        url = "s3a://no-such-bucket/query"
    else:
        conf["spark.hadoop.fs.s3a.secret.key"] = "wrong"
    run = ["aggregation", "hdfs", url, str(tmp_path / "out"), 2, RUNS]
    said = Driver(tmp_path / "driver", conf, [run]).finish(fails=True)
    expected = "does not exist" if fault == "bucket" else "AccessDeniedException"
    assert expected in said, said[-5000:]
