"""Moves between log dirs, by Kafka's own tool, beside a broker of several log dirs."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

import sparklog
from sparklog.kafka import Endpoint
from tests import jars
from tests.kafka.broker import Broker, JarEngine
from tests.kafka.tools import Ran, Tools
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.deep]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """A broker of three log dirs with topic t, 20 MB in partition 0; its address, its dirs."""
    home = tmp_path_factory.mktemp("several")
    dirs = [str(home / name) for name in ("one", "two", "three")]
    port = free_port()
    try:
        engine: Any = JarEngine(home, Path(",".join(dirs)), port)
    except jars.Unavailable as reason:
        pytest.skip(f"broker: {reason}")
    broker = Broker(Path(dirs[0]), port, engine)
    try:
        broker.start()
        config = {"retention.ms": "-1"}
        topics = [NewTopic("t", num_partitions=1, replication_factor=1, config=config)]
        admin = broker.admin()
        admin.create_topics(topics)["t"].result(240)
        producer = broker.producer(linger_ms=50)
        for _ in range(400):
            producer.produce("t", b"x" * 50_000, partition=0)
            producer.poll(0)
        producer.flush()
        yield broker.bootstrap, dirs
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


class Side:
    """One of the two: its log dirs by letters, in that order from where t-0 is."""

    def __init__(self, tools: Tools, bootstrap: str, dirs: list[str], folder: Path) -> None:
        self._tools, self._bootstrap, self._folder = tools, bootstrap, folder
        here = next(d for d in dirs if Path(d, "t-0").is_dir())
        self.dirs = dict(zip("ABC", [here, *(d for d in dirs if d != here)], strict=True))
        self.dirs["nowhere"] = str(folder / "nowhere")
        self.steps: list[Any] = []

    def plan(self, to: str, topic: str = "t") -> str:
        path = self._folder / "plan.json"
        one = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [self.dirs[to]]}
        path.write_text(json.dumps({"version": 1, "partitions": [one]}))
        return str(path)

    def reassign(self, action: str, to: str, *more: str, topic: str = "t") -> Ran:
        file = ["--reassignment-json-file", self.plan(to, topic), *more]
        ran = self._tools.run("reassign-partitions", action, *file, bootstrap=self._bootstrap)
        self.steps.append((action, to, ran.exit, self._said(ran)))
        return ran

    def describe(self) -> dict[str, tuple[bool, bool]]:
        """{letter: (is it a future replica, does it lack records)} of t-0; letters' sizes agree."""
        ran = self._tools.run("log-dirs", "--describe", bootstrap=self._bootstrap)
        document = json.loads(ran.lines[-1])
        letters = {path: letter for letter, path in self.dirs.items()}
        found = {
            letters[each["logDir"]]: (part["isFuture"], part["offsetLag"] > 0)
            for each in document["brokers"][0]["logDirs"]
            for part in each["partitions"] if part["partition"] == "t-0"
        }  # fmt: skip
        self.steps.append(dict(sorted(found.items())))
        return found

    def wait(self, to: str) -> None:
        def is_there() -> bool:
            ran = self._tools.run("log-dirs", "--describe", bootstrap=self._bootstrap)
            return ran.lines[-1].count('"t-0"') == 1

        until(is_there, pause_s=0.1)
        self.reassign("--verify", to)

    def _said(self, ran: Ran) -> list[str]:
        lines = []
        for line in (ran.out + ran.err).splitlines():
            if line.startswith(("\tat ", "\t... ")) or not line.strip():
                continue
            for letter, path in self.dirs.items():
                line = line.replace(path, letter)
            lines.append(re.sub(r"\s+", " ", line).strip())
        return lines


def walk(side: Side) -> list[Any]:
    slow = ["--replica-alter-log-dirs-throttle", "1000"]
    side.reassign("--verify", "B")
    side.reassign("--execute", "A")  # where it is
    side.reassign("--execute", "B", *slow)
    side.describe()
    side.reassign("--verify", "B")
    side.reassign("--verify", "C")
    side.reassign("--execute", "B")  # asked twice
    side.describe()
    side.reassign("--execute", "C")  # elsewhere
    side.describe()
    side.reassign("--cancel", "C")
    side.describe()
    side.reassign("--cancel", "C")
    side.reassign("--verify", "C")  # and the throttle goes
    side.reassign("--execute", "B")
    side.wait("B")
    side.reassign("--execute", "A")
    side.wait("A")
    side.reassign("--execute", "nowhere", "--timeout", "300")
    side.reassign("--execute", "B", "--timeout", "300", topic="nope")
    return side.steps


def test_the_same_words(
    several: tuple[str, list[str]], tools: Tools, tmp_path: Path
) -> None:
    bootstrap, dirs = several
    theirs = walk(Side(tools, bootstrap, dirs, tmp_path))
    own = [str(tmp_path / name) for name in ("one", "two", "three")]
    with sparklog.open(",".join(own), "rw") as log:
        log.create_topic("t", 1, {"retention.ms": "-1"})
        for _ in range(4):
            log.append("t", pa.table({"value": [b"x" * 50_000] * 100}))
        with Endpoint(log) as endpoint:
            ours = walk(Side(tools, endpoint.bootstrap_servers, own, tmp_path))
            assert log.read("t").read_all().num_rows == 400
    for one, other in itertools.zip_longest(theirs, ours):
        assert other == one
