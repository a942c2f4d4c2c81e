"""What the files of docker/ start, as plain processes: their own commands, names replaced."""

from __future__ import annotations

import contextlib
import functools
import graphlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyspark
import pytest

import sparklog
from sparklog.service import verify
from tests import docker
from tests.ports import free_ports
from tests.spark.conftest import environment
from tests.spark.jvm import quick
from tests.tiered.s3 import S3Server
from tests.waiting import until

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.deep]
HERE = "127.0.0.1"
GIVEN = {"minio", "bucket"}  # another S3 server, and a bucket of it
WAIT_S = 400  # for anything, on a machine that has much else to do
RESTARTS_MAX = 3
PROGRAMS = {
    "python": [sys.executable],
    "sparklog": [sys.executable, "-m", "sparklog.cli"],
    "spark-class": [str(Path(pyspark.__file__).parent / "bin" / "spark-class")],
}


class Topology:
    """The services of a compose file as processes of this machine."""

    def __init__(self, home: Path, s3: S3Server, file: str = "compose.yaml") -> None:
        self.home, self.services = home, docker.compose(file)["services"]
        self.bucket = s3.bucket()
        self.log, self.url = home / "log", self.bucket + "/archive"
        master, ui, *self.ports = map(str, free_ports(2 + len(self.services)))
        given = s3.options()
        self.swaps = {
            "/data/log": str(self.log),
            "/data/checkpoint": str(home / "checkpoint"),
            "/opt/sparklog/pipeline.py": str(docker.FOLDER / "pipeline.py"),
            "s3://logs": self.bucket,
            "http://minio:9000": given["endpoint_url"],
            "spark-master": HERE, "localhost": HERE,
            "7077": master, "8080": ui,
        }  # fmt: skip
        self.keys = {
            "AWS_ACCESS_KEY_ID": given["key"], "AWS_SECRET_ACCESS_KEY": given["secret"]
        }  # fmt: skip
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0
        for name in ("log", "checkpoint"):
            (home / name).mkdir()

    def words(self, name: str, command: list[str]) -> list[str]:
        """A service's command, for here."""
        port = self.ports[list(self.services).index(name)]
        own = {
            "8081": port, "9464": port,
            "/tmp/spark-work": str(self.home / f"{name}.work"),
        }  # fmt: skip
        swaps: dict[str, str] = self.swaps | own
        pattern = "|".join(map(re.escape, sorted(swaps, key=len, reverse=True)))
        first, *rest = [re.sub(pattern, lambda m: swaps[m[0]], word) for word in command]
        return [*PROGRAMS[first], *rest]

    def environment(self, name: str) -> dict[str, str]:
        wanted = self.services[name].get("environment", {})
        given = {k: self.keys.get(k, self.swaps.get(v, v)) for k, v in wanted.items()}
        mine = {k: v for k, v in environment().items() if not k.startswith("AWS_")}
        swift = {"JAVA_TOOL_OPTIONS": quick()}  # of master, worker and executor, too
        return {**mine, **given, **swift, "HOME": os.environ.get("HOME", str(self.home))}

    def start(self, name: str) -> None:
        """Start a service when those that it depends on are healthy, as compose does."""
        for other in self.services[name].get("depends_on", {}).keys() - GIVEN:
            tended(functools.partial(self.healthy, other), f"{other} is healthy", self)
        self.run(name)

    def run(self, name: str) -> None:
        entry = ["sparklog"] if self.services[name]["build"]["target"] == "service" else []
        with (self.home / f"{name}.out").open("ab") as output:
            self.running[name] = subprocess.Popen(
                self.words(name, [*entry, *self.services[name]["command"]]),
                env=self.environment(name), cwd=self.home, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def tend(self) -> bool:
        """Start again what ended, as `restart: unless-stopped` does; False once that is too much.

        A driver whose Python worker isn't up in ten seconds fails: so Spark is on a busy machine.
        """
        for name, process in self.running.items():
            if process.poll() is not None:
                assert self.services[name]["restart"] == "unless-stopped"
                self.restarts += 1
                if self.restarts > RESTARTS_MAX:
                    return False
                self.run(name)
        return True

    def healthy(self, name: str) -> bool:
        """Run the file's own health check."""
        _, *command = self.services[name]["healthcheck"]["test"]
        done = subprocess.run(
            self.words(name, command), env=self.environment(name), capture_output=True, check=False
        )
        return done.returncode == 0

    def stop(self, name: str) -> int:
        process = self.running[name]
        process.send_signal(signal.SIGTERM)
        return process.wait(WAIT_S)

    def said(self) -> str:
        """What the processes said last; for failure messages."""
        texts = ((name, (self.home / f"{name}.out").read_text()[-3000:]) for name in self.running)
        return "\n".join(f"--- {name}: {self.running[name].poll()}\n{text}" for name, text in texts)

    def start_all(self) -> None:
        needs = {name: one.get("depends_on", {}).keys() for name, one in self.services.items()}
        for name in graphlib.TopologicalSorter(needs).static_order():
            if name not in GIVEN:
                self.start(name)

    def kill(self, *names: str) -> None:
        """End these as `docker compose kill` does, which starts none again; all without a name."""
        for name in names or [*self.running]:
            process = self.running.pop(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(240)


def tended(found: Callable[[], bool], what: str, topology: Topology) -> None:
    """Wait for it, and start again meanwhile what ended."""

    def came() -> bool:
        assert topology.tend(), f"not {what}:\n{topology.said()}"
        return found()

    until(came, what, state=topology.said, seconds=WAIT_S, pause_s=0.2)


@pytest.fixture
def topology(tmp_path: Path, s3: S3Server) -> Iterator[Topology]:
    made = Topology(tmp_path, s3)
    yield made
    made.kill()


def latest(log: sparklog.Log) -> dict[bytes, int]:
    rows = log.read("counts", columns=["key", "value"]).read_all()
    return {row["key"]: int(row["value"]) for row in rows.to_pylist()}


@pytest.mark.timeout(1500)
def test_all_of_it(topology: Topology, s3: S3Server) -> None:
    topology.start_all()
    given: dict[str, Any] = {"storage_options": s3.options()}

    def is_tiered() -> bool:
        with contextlib.suppress(sparklog.SparklogError), sparklog.open(topology.log) as log:
            if not sum(end for _, end in log.offsets("counts").values()):
                return False
            with sparklog.open(topology.url, **given) as archive:
                return sum(end for _, end in archive.offsets("visits").values()) > 0
        return False

    tended(is_tiered, "tiered and counted", topology)
    assert topology.healthy("service")
    assert topology.stop("pipeline") == 0, topology.said()
    assert topology.stop("service") == 0, topology.said()
    for name in ("spark-worker", "spark-master"):
        topology.stop(name)

    report = verify(topology.log)
    assert report.ok, str(report)
    with sparklog.open(topology.log, **given) as log:
        rows = log.read("visits", columns=["value"]).read_all()["value"]
        texts = pc.cast(rows, "string")
        found = sorted(json.loads(text)["visit"] for text in texts.to_pylist())
        assert found == list(range(len(found)))  # each visit once
        counted = latest(log)
        assert 0 < sum(counted.values()) <= len(found)
        assert len(counted) == 50
    for query in ("visits", "counts"):
        assert (topology.home / "checkpoint" / query / "sparklog" / "offsets-0").is_dir()


@pytest.fixture
def cluster(tmp_path: Path, s3: S3Server) -> Iterator[Topology]:
    made = Topology(tmp_path, s3, "cluster.yaml")
    yield made
    made.kill()


@pytest.mark.slow  # tests/spark/test_applications.py has a cluster
@pytest.mark.timeout(1500)
def test_the_cluster_when_a_worker_is_killed(cluster: Topology, s3: S3Server) -> None:
    """Visits go in and out before and after, and each is there once."""
    cluster.start_all()
    url = f"{cluster.bucket}/log"
    given: dict[str, Any] = {"storage_options": s3.options()}

    def copied() -> int:
        with contextlib.suppress(sparklog.UnknownTopicError), sparklog.open(url, **given) as log:
            return sum(end for _, end in log.offsets("copies").values())
        return 0

    tended(lambda: copied() > 0, "copied", cluster)
    assert cluster.healthy("service")
    cluster.kill("worker-1")  # with its executor, a child; unlike a stop, nothing is finished
    before = copied()
    tended(lambda: copied() > before, "copied after the kill", cluster)
    assert cluster.stop("driver") == 0, cluster.said()
    assert cluster.stop("service") == 0, cluster.said()
    for name in ("worker-2", "spark-master"):
        cluster.stop(name)

    with sparklog.open(url, **given) as log:
        visits, copies = (
            sorted(json.loads(value)["visit"] for value in values.to_pylist())
            for values in (log.read(topic).read_all()["value"] for topic in ("visits", "copies"))
        )
    assert visits == list(range(len(visits)))  # each visit once
    assert 0 < before < len(copies) <= len(visits) and len(set(copies)) == len(copies)
    assert set(copies) <= set(visits)
    assert not any((cluster.home / "log").iterdir())  # nothing but the bucket has the log
    found = {path.name for path in (cluster.home / "checkpoint").iterdir()}
    assert found == {"visits", "copies"}
