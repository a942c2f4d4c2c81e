"""Checkpoints that sparklog's manager keeps in runs, in a real HDFS."""

import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from sparklog.checkpoint import history, verify
from tests.depth import by_depth
from tests.jvm.probe import Probe, pack
from tests.spark.versions import since
from tests.state.hdfs import Hdfs, running
from tests.state.stored_driver import (
    NO_CONF,
    QUICK,
    RUNS,
    SMALL_ENTRIES,
    V2,
    Driver,
    assert_same,
    no_driver_is_left,
    rows,
)  # fmt: skip
from tests.waiting import until

__all__ = ["no_driver_is_left"]

pytestmark = [pytest.mark.spark, pytest.mark.deep, since((4, 2), "Hadoop 3.5")]
KILLS = by_depth(small=1, ci=1, all=20)


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


def files(url: str) -> list[str]:
    fs, path = fsspec.url_to_fs(url, skip_instance_cache=True)
    return [str(name) for name in fs.find(path)]


def test_same_output(hdfs: Hdfs, tmp_path: Path) -> None:
    """With a restart, on executors of their own; read through WebHDFS."""
    cases = [("aggregation", "hdfs", {SMALL_ENTRIES: "400"})]
    runs = list[list[object]]()
    for operator, provider, conf in cases:
        url, local = f"{hdfs.url}/same/{operator}", str(tmp_path / f"{operator}-ckpt")
        output = str(tmp_path / operator)
        settings = {**RUNS, **QUICK, **conf}
        runs += [[operator, provider, url, output, last, settings] for last in (3, 9)]
        runs.append([operator, provider, local, f"{output}-expected", 9, NO_CONF])
    states = [f"sparklog-{hdfs.url}/same/aggregation"]
    driver = Driver(tmp_path / "driver", {}, runs, "local-cluster[2,1,1024]", states)
    driver.finish()
    assert all(driver.states().values())
    for operator, _, _ in cases:
        assert_same(tmp_path / operator, tmp_path / f"{operator}-expected", 9)
        url = f"{hdfs.webhdfs}/same/{operator}"
        assert verify(url).ok
        assert history(url).batches[-1].batch >= 9
    assert any("/pack-" in name for name in files(f"{hdfs.webhdfs}/same/aggregation"))


def test_killed_drivers(hdfs: Hdfs, tmp_path: Path) -> None:
    """After each kill -9 the query goes on, and repeats no batch with another result."""
    url, ours, expected = f"{hdfs.url}/killed", tmp_path / "ours", tmp_path / "expected"
    conf, rng = {**RUNS, **QUICK, **V2}, random.Random(7)
    for _ in range(KILLS):
        run = ["join", "changelog", url, str(ours), 10_000, conf]
        driver = Driver(tmp_path / "driver", {}, [run])
        before = len(rows(ours)) if ours.exists() else 0
        until(lambda now=before: ours.exists() and len(rows(ours)) > now,  # type: ignore[misc]
              "a batch", seconds=120, state=driver.said, pause_s=0.05)  # fmt: skip
        time.sleep(rng.uniform(0.2, 3))
        os.killpg(driver.process.pid, signal.SIGKILL)
        driver.process.wait()
        assert verify(f"{hdfs.webhdfs}/killed").ok
    last = max(int(name.removesuffix(".json")) for name in rows(ours)) + 3
    local = str(tmp_path / "ckpt")
    Driver(
        tmp_path / "driver", {},
        [
            ["join", "changelog", url, str(ours), last, conf],
            ["join", "changelog", local, str(expected), last, NO_CONF],
        ],
    ).finish()  # fmt: skip
    assert_same(ours, expected, last)


@pytest.fixture
def probe() -> Iterator[Probe]:
    made = Probe()
    yield made
    made.close()


def test_one_of_many_creators_wins(hdfs: Hdfs, probe: Probe) -> None:
    names = by_depth(small=20, ci=50, all=1000)
    asked = pack([f"{hdfs.url}/race".encode()]) + struct.pack(">ii", 4, names)
    answer = probe.call("objects created at once", asked)
    assert struct.unpack(f">{names}i", answer) == (1,) * names
    assert len(files(f"{hdfs.webhdfs}/race")) == names


def test_interrupted_creations(hdfs: Hdfs, probe: Probe) -> None:
    """They leave no incomplete object."""
    asked = pack([f"{hdfs.url}/interrupted".encode()]) + struct.pack(">i", 100)
    probe.call("interrupted creations", asked)
