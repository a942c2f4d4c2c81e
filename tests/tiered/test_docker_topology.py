"""What docker/compose.yaml starts, as plain processes: its own commands, only names replaced."""

from __future__ import annotations

import contextlib
import graphlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyspark
import pytest

import sparklog
from sparklog.service import verify
from tests import docker
from tests.spark.conftest import environment
from tests.spark.jvm import quick
from tests.tiered.s3 import S3Server, free_ports

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
    """The services of the compose file as processes of this machine."""

    def __init__(self, home: Path, s3: S3Server) -> None:
        self.home, self.services = home, docker.compose()["services"]
        self.log, self.url = home / "log", s3.bucket() + "/archive"
        master, *uis = map(str, free_ports(3))
        given = s3.options()
        self.swaps = {
            "/data/log": str(self.log),
            "/data/checkpoint": str(home / "checkpoint"),
            "/opt/sparklog/pipeline.py": str(docker.FOLDER / "pipeline.py"),
            "/tmp/spark-work": str(home / "work"),
            "s3://logs/archive": self.url,
            "http://minio:9000": given["endpoint_url"],
            "spark-master": HERE, "localhost": HERE,
            "7077": master, "8080": uis[0], "8081": uis[1],
        }  # fmt: skip
        self.keys = {
            "AWS_ACCESS_KEY_ID": given["key"], "AWS_SECRET_ACCESS_KEY": given["secret"]
        }  # fmt: skip
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0
        for name in ("log", "checkpoint", "work"):
            (home / name).mkdir()

    def words(self, command: list[str]) -> list[str]:
        """A command of the file, for here."""
        pattern = "|".join(map(re.escape, sorted(self.swaps, key=len, reverse=True)))
        first, *rest = [re.sub(pattern, lambda m: self.swaps[m[0]], word) for word in command]
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
            until(lambda other=other: self.healthy(other), f"{other} is healthy", self)
        self.run(name)

    def run(self, name: str) -> None:
        entry = ["sparklog"] if self.services[name]["build"]["target"] == "service" else []
        with (self.home / f"{name}.out").open("ab") as output:
            self.running[name] = subprocess.Popen(
                self.words([*entry, *self.services[name]["command"]]),
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
            self.words(command), env=self.environment(name), capture_output=True, check=False
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

    def kill(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def until(found: Callable[[], bool], what: str, topology: Topology) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        tended = topology.tend()
        assert tended and time.monotonic() < deadline, f"not {what}:\n{topology.said()}"
        time.sleep(0.2)


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
    services = topology.services
    needs = {name: one.get("depends_on", {}).keys() for name, one in services.items()}
    for name in graphlib.TopologicalSorter(needs).static_order():
        if name not in GIVEN:
            topology.start(name)
    given: dict[str, Any] = {"storage_options": s3.options()}

    def is_tiered() -> bool:
        with contextlib.suppress(sparklog.SparklogError), sparklog.open(topology.log) as log:
            if not sum(end for _, end in log.offsets("counts").values()):
                return False
            with sparklog.open(topology.url, **given) as archive:
                return sum(end for _, end in archive.offsets("visits").values()) > 0
        return False

    until(is_tiered, "tiered and counted", topology)
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
