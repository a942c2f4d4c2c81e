"""Producing with acks=all, by two clients: the endpoint and the broker by turns.

The broker's topic has flush.messages=1, so that it, too, acknowledges what is on the disk.
"""

import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator

import confluent_kafka

from tests import jars
from tests.benchmarks.endpoint.servers import Server
from tests.benchmarks.table import Row

Send = Callable[[Server], float]
"""Sends all, waits until it is acknowledged, and returns the seconds that took."""


def librdkafka(topic: str, records: int, value_bytes: int, linger_ms: int) -> Send:
    """confluent-kafka, idempotent: what a user gets who asks for no loss and no repetition."""
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    value = value[:value_bytes]

    def send(server: Server) -> float:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
            }
        )
        failed: list[object] = []

        def told(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer.produce(topic, value, partition=0, on_delivery=told)  # it knows all there is then
        assert producer.flush(30) == 0
        began = time.perf_counter()
        for n in range(records):
            while True:
                try:
                    producer.produce(topic, value, partition=n % 2, on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not n % 1000:
                producer.poll(0)
        assert producer.flush(120) == 0
        assert not failed, failed[0]
        return time.perf_counter() - began

    return send


def one_by_one(topic: str, records: int, value_bytes: int) -> Send:
    """confluent-kafka, each record waited for: what a commit takes."""
    value = b"x" * value_bytes

    def send(server: Server) -> float:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "acks": "all"}
        )
        producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        began = time.perf_counter()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
            assert producer.flush(30) == 0
        return time.perf_counter() - began

    return send


def java(topic: str, records: int, value_bytes: int) -> Send:
    """kafka-producer-perf-test, a JVM of its own each time, as its users run it."""

    def send(server: Server) -> float:
        command = [
            jars.java(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
            jars.kafka_jars(), "org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
            "--num-records", str(records), "--record-size", str(value_bytes), "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={server.bootstrap}", "acks=all",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        said = re.findall(r"([\d.]+) records/sec", done.stdout)
        assert done.returncode == 0, done.stderr[-2000:]
        assert said, done.stdout + done.stderr
        return records / float(said[-1])

    return send


def rows(
    servers: tuple[Server, Server], topic: str, value_bytes: int, *, rounds: int, megabytes: int
) -> Iterator[Row]:
    """A row for each client; the broker comes second."""
    ours, theirs = servers
    records = min(megabytes * (1 << 20) // value_bytes, 400_000)
    clients: dict[str, tuple[int, Send]] = {
        "librdkafka, linger 5 ms": (records, librdkafka(topic, records, value_bytes, 5)),
        "librdkafka, one by one": (300, one_by_one(topic, 300, value_bytes)),
        "kafka-producer-perf-test": (records, java(topic, records, value_bytes)),
    }
    for name, (count, send) in clients.items():
        took: dict[str, list[float]] = {ours.name: [], theirs.name: []}
        cpu: dict[str, list[float]] = {ours.name: [], theirs.name: []}
        for turn in range(rounds + 1):
            for server in servers:
                before = server.cpu_seconds()
                seconds = send(server)
                if turn:
                    took[server.name].append(seconds)
                    cpu[server.name].append(server.cpu_seconds() - before)
        rate = {n: count / statistics.median(each) for n, each in took.items()}
        size = count * value_bytes
        cost = {n: statistics.median(each) / (size / 1e9) for n, each in cpu.items()}
        yield Row(
            f"produce, {name}, {value_bytes} B",
            f"{rate[ours.name]:,.0f} records/s, {rate[ours.name] * value_bytes / 1e6:.1f} MB/s, "
            f"{cost[ours.name]:.1f} s of CPU a GB",
            rate[ours.name] / rate[theirs.name],
            f"broker: {rate[theirs.name]:,.0f} records/s, {cost[theirs.name]:.1f} s",
        )
