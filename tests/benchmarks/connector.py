"""Spark's Kafka connector and a broker beside it, for the benchmarks that compare with them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests import jars
from tests.kafka.broker import Broker, JarEngine
from tests.ports import free_port

FAST_WRITE = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "20"}
FAST_READ = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "20000",
}
"""What makes the connector quickest here; its defaults write and read less."""


class FastEngine(JarEngine):
    """The broker with all of HotSpot and a heap of 1 GB; the tests' own starts quickly instead."""

    def _command(self, main: str, *arguments: str) -> list[str]:
        command = super()._command(main, *arguments)
        slow = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
        kept = [part for part in command if part not in slow]
        return [kept[0], "-Xmx1g", *kept[1:]]


@contextlib.contextmanager
def connector(base: Path) -> Iterator[tuple[list[str], Broker | None]]:
    """The connector's jars and a broker, or nothing, with the reason printed."""
    try:
        found = jars.connector_jars()
        home = base / "kafka"
        (home / "logs").mkdir(parents=True)
        port = free_port()
        running = Broker(home / "logs", port, FastEngine(home, home / "logs", port))
    except jars.Unavailable as reason:
        print(f"without Spark's Kafka connector: {reason}")
        yield [], None
        return
    running.start()
    try:
        yield found, running
    finally:
        running.kill()


def delete_topic(broker: Broker, topic: str) -> None:
    """Give the disk back. The broker removes the files by and by."""
    admin = broker.admin()  # its futures die with it
    admin.delete_topics([topic])[topic].result(30)
