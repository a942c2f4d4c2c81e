"""Checkpoints that sparklog's manager keeps in runs, in an emulator of Google Cloud Storage."""

import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.checkpoint import history, verify
from sparklog.spark_versions import PYSPARK
from tests.depth import DEPTH, by_depth
from tests.jvm.probe import Probe, ProbeError, pack
from tests.state.gcs import Gcs, running
from tests.state.stored_driver import (
    NO_CONF,
    QUICK,
    RUNS,
    V2,
    Driver,
    assert_same,
    no_driver_is_left,
    rows,
)  # fmt: skip
from tests.waiting import until

__all__ = ["no_driver_is_left"]

pytestmark = [pytest.mark.spark, pytest.mark.deep]
KILLS = by_depth(small=1, ci=2, all=20)


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    with running(tmp_path_factory.mktemp("gcs")) as server:
        yield server


def test_killed_drivers(gcs: Gcs, tmp_path: Path) -> None:
    """After each kill -9 the query continues, and repeats no batch with another result."""
    url, ours, expected = f"{gcs.bucket()}/killed", tmp_path / "ours", tmp_path / "expected"
    conf, rng = {**RUNS, **QUICK, **V2}, random.Random(7)
    for kill in range(KILLS):
        run = ["join", "changelog", url, str(ours), 10_000, conf]
        driver = Driver(tmp_path / "driver", gcs.spark_conf(), [run])
        before = len(rows(ours)) if ours.exists() else 0
        until(lambda now=before: ours.exists() and len(rows(ours)) > now,  # type: ignore[misc]
              "a batch", seconds=120, state=driver.said, pause_s=0.05)  # fmt: skip
        time.sleep(rng.uniform(0.2, 3))
        os.killpg(driver.process.pid, signal.SIGKILL)
        driver.process.wait()
        copy = gcs.download(url, tmp_path / f"copy-{kill}")
        assert verify(copy).ok
        assert history(copy).batches
    last = max(int(name.removesuffix(".json")) for name in rows(ours)) + 3
    local = str(tmp_path / "ckpt")
    Driver(
        tmp_path / "driver", gcs.spark_conf(),
        [
            ["join", "changelog", url, str(ours), last, conf],
            ["join", "changelog", local, str(expected), last, NO_CONF],
        ],
    ).finish()  # fmt: skip
    assert_same(ours, expected, last)
    assert any("/run-" in name for name in gcs.objects(url))


FEW_REQUESTS = {
    "spark.hadoop.fs.gs.create.items.conflict.check.enable": "false",
    "spark.hadoop.fs.gs.outputstream.direct.upload.enable": "true",
}


@pytest.mark.parametrize(
    ("options", "requests"),
    [(NO_CONF, 16), (FEW_REQUESTS, 4)] if DEPTH == "all" else [(FEW_REQUESTS, 4)],
)
def test_requests_of_a_batch(
    options: dict[str, str], requests: int, gcs: Gcs, tmp_path: Path
) -> None:
    """Two uploads, for any number of partitions. The connector sends other requests beside them."""
    seen, done = list[list[str]](), list[int]()
    conf = {**RUNS, "spark.sql.shuffle.partitions": "10"}
    for last in (5, 25):
        before = len(gcs.requests())
        output = tmp_path / str(last)
        run = ["aggregation", "hdfs", f"{gcs.bucket()}/{last}", str(output), last, conf]
        Driver(tmp_path / "driver", {**gcs.spark_conf(), **options}, [run]).finish()
        seen.append(gcs.requests()[before:])
        done.append(len(rows(output)))
    uploads = [sum("POST /upload/" in line for line in lines) for lines in seen]
    batches = done[1] - done[0]
    print(f"{batches} micro-batches: {len(seen[1]) - len(seen[0])} requests")
    assert batches >= 15
    assert uploads[1] - uploads[0] <= 2.1 * batches
    assert len(seen[1]) - len(seen[0]) <= 1.1 * requests * batches


@pytest.fixture
def probe(gcs: Gcs) -> Iterator[Probe]:
    made = Probe(class_path=gcs.class_path())
    yield made
    made.close()


def race(probe: Probe, url: str, names: int) -> tuple[int, ...]:
    """Return how many of four creations of each name succeeded."""
    asked = pack([url.encode()]) + struct.pack(">ii", 4, names)
    return struct.unpack(f">{names}i", probe.call("objects created at once", asked))


def test_one_of_many_creators_wins(gcs: Gcs, probe: Probe) -> None:
    names = by_depth(small=20, ci=50, all=1000)
    url = f"{gcs.bucket()}/race"
    assert race(probe, url, names) == (1,) * names
    assert len(gcs.objects(url)) == names
    # Some creators lose before they send anything, and others when the upload ends.
    assert any("PUT /upload/" in line and " 412 " in line for line in gcs.requests())


def test_creation_of_an_existing_object(gcs: Gcs, probe: Probe) -> None:
    url = f"{gcs.bucket()}/race"
    assert race(probe, url, 1) == (1,)
    with pytest.raises(ProbeError):  # no creation succeeds
        race(probe, url, 1)


def test_interrupted_creations(gcs: Gcs, probe: Probe) -> None:
    """They leave no incomplete object."""
    asked = pack([f"{gcs.bucket()}/interrupted".encode()]) + struct.pack(">i", 100)
    probe.call("interrupted creations", asked)


@pytest.mark.skipif(PYSPARK < (4, 2), reason="Hadoop 3.5: since Spark 4.2")
def test_block_size_of_hadoop_3_5(gcs: Gcs) -> None:
    """Its default stops Google's connector, which needs a number."""
    probe = Probe(class_path=gcs.class_path(**{"fs.gs.block.size": "64m"}))
    with pytest.raises(ProbeError, match='NumberFormatException: For input string: "64m"'):
        race(probe, f"{gcs.bucket()}/race", 1)
    probe.close()
