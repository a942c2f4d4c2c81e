"""What clients talk to: our endpoint, or a real broker that shows what they expect."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import sparklog
from sparklog.kafka import Endpoint
from sparklog.log.log import Log
from tests.kafka.broker import Broker
from tests.kafka.broker import broker as run_broker
from tests.kafka.clients import golden


class Server(Protocol):
    """Something that clients connect to."""

    bootstrap: str

    def topic(self, partitions: int = 1, **config: object) -> str:
        """Make a topic of a name of its own; `config` has Kafka's keys with underscores."""

    def asked(self) -> Counter[tuple[str, int]]:
        """How often each API was asked for, in which version; empty where that isn't known."""


@dataclass
class Ours:
    """Our endpoint."""

    endpoint: Endpoint
    log: Log

    def __post_init__(self) -> None:
        self.bootstrap = self.endpoint.bootstrap_servers

    def topic(self, partitions: int = 1, **config: object) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.log.create_topic(name, partitions, {k.replace("_", "."): v for k, v in config.items()})
        return name

    def asked(self) -> Counter[tuple[str, int]]:
        return Counter({(api.name, v): n for (api, v), n in self.endpoint._server.requests.items()})


@dataclass
class Theirs:
    """A broker."""

    broker: Broker

    def __post_init__(self) -> None:
        self.bootstrap = self.broker.bootstrap

    def topic(self, partitions: int = 1, **config: object) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.broker.create_topic(name, partitions, **config)
        return name

    def asked(self) -> Counter[tuple[str, int]]:
        return Counter()


_AT_ONCE = {"group.initial.rebalance.delay.ms": 0}


@contextlib.contextmanager
def ours(home: Path) -> Iterator[Ours]:
    """Serve a new log."""
    with sparklog.open(home / "log", "rw") as log, Endpoint(log, options=_AT_ONCE) as endpoint:
        yield Ours(endpoint, log)


@contextlib.contextmanager
def ours_of_golden(home: Path) -> Iterator[Ours]:
    """Serve what a broker wrote, opened for reading."""
    shutil.copytree(golden.LOGDIR, home / "golden")
    with sparklog.open(home / "golden") as log, Endpoint(log, options=_AT_ONCE) as endpoint:
        yield Ours(endpoint, log)


@contextlib.contextmanager
def theirs(home: Path) -> Iterator[Theirs]:
    """Run a broker that has the golden partitions. Raises: jars.Unavailable."""
    with run_broker(home) as broker:
        for topic, count in golden.topics().items():
            kind = "LogAppendTime" if topic == "appendtime" else "CreateTime"
            broker.create_topic(topic, count, message_timestamp_type=kind)
        broker.stop()
        for topic, count in golden.topics().items():
            for partition in range(count):
                broker.adopt(golden.LOGDIR / f"{topic}-{partition}")
        starts = "log-start-offset-checkpoint"  # some were deleted into the middle of a segment
        shutil.copy(golden.LOGDIR / starts, broker.log_dir / starts)
        broker.start()
        yield Theirs(broker)
