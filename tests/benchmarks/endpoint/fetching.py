"""Reading all of a topic, by three clients: the endpoint and the broker by turns."""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import confluent_kafka

import sparklog
from sparklog.format.compression import Codec
from sparklog.storage.staging import BATCH_SIZE, Framing
from tests import jars
from tests.benchmarks.endpoint.servers import Server
from tests.benchmarks.endpoint.wire import Wire
from tests.benchmarks.table import Row, sample

PARTITIONS = 4
SIZES = (4 << 10, 64 << 10, 1 << 20)
"""Bytes of a fetch in `size_rows`."""
TURN_SECONDS = 1.0
_MB = 1 << 20
Read = Callable[[Server], float]
"""Reads all and returns the seconds that took."""


def fill(
    log: Path, topic: str, megabytes: int, value_bytes: int, codec: str, *,
    batch_size: int = BATCH_SIZE,
) -> tuple[int, int]:  # fmt: skip
    """Make a topic of so many MB of values; returns (records, bytes of its segments)."""
    framing = Framing(batch_size=batch_size, codec=Codec.parse(codec))
    each = 8 * _MB // value_bytes
    rows = sample(each, value_bytes)
    with sparklog.open(log, "rw") as opened:
        if topic not in opened.topics():
            opened.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        rounds = max(1, megabytes // 8 // PARTITIONS)
        for _ in range(rounds):
            for p in range(PARTITIONS):
                opened.append(topic, rows, partition=p, framing=framing)
    size = sum(path.stat().st_size for path in log.glob(f"{topic}-*/*.log"))
    return each * rounds * PARTITIONS, size


def librdkafka(topic: str, records: int) -> Read:
    """confluent-kafka with large fetches, in this process."""

    def read(server: Server) -> float:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.max.bytes": 64 * _MB,
                "receive.message.max.bytes": 65 * _MB,
                "max.partition.fetch.bytes": 8 * _MB,
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 128 << 10,
                "auto.offset.reset": "earliest",
            }
        )
        start = confluent_kafka.OFFSET_BEGINNING
        began, count = time.perf_counter(), 0
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, p, start) for p in range(PARTITIONS)]
            )
            while count < records:
                messages = consumer.consume(min(20_000, records - count), 10)
                assert messages, f"{server.name}: nothing for 10 s, after {count} records"
                count += len(messages)
            return time.perf_counter() - began
        finally:
            consumer.close()

    return read


def by_hand(topic: str, records: int) -> Read:
    """Fetches of 16 MB that nobody decodes: what the server alone can do."""

    def read(server: Server) -> float:
        offsets, ended = dict.fromkeys(range(PARTITIONS), 0), 0
        began = time.perf_counter()
        with Wire(server.address, topic) as wire:
            while ended < PARTITIONS:
                fetched = wire.fetch(
                    offsets, max_bytes=16 * _MB, partition_bytes=8 * _MB, max_wait_ms=500
                )
                for p, found in fetched.items():
                    if found.next_offset is not None:
                        offsets[p] = found.next_offset
                        ended += found.next_offset >= found.high_watermark
        assert sum(offsets.values()) == records
        return time.perf_counter() - began

    return read


class Java:
    """Kafka's Java consumer, in a JVM that stays: it is warm after the first turns."""

    def __init__(self, topic: str, records: int) -> None:
        source = Path(__file__).with_name("FetchSpeed.java")
        class_path = jars.compiled(source, jars.kafka_jars())
        self._process = subprocess.Popen(
            [jars.java(), "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
             class_path, "FetchSpeed", topic, str(PARTITIONS), str(records)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, server: Server) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(server.bootstrap + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()) / 1000

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def rows(
    servers: Iterable[Server], topic: str, records: int, size: int, what: str, *, rounds: int
) -> Iterator[Row]:
    """A row for each client; `size`: bytes of the segments; the broker comes second."""
    ours, theirs = servers
    java = Java(topic, records)
    clients: dict[str, Read] = {
        "librdkafka": librdkafka(topic, records),
        "Java consumer": java,
        "by hand": by_hand(topic, records),
    }
    try:
        for name, read in clients.items():
            took: dict[str, list[float]] = {ours.name: [], theirs.name: []}
            cpu: dict[str, list[float]] = {ours.name: [], theirs.name: []}
            for turn in range(rounds + 1):
                for server in (ours, theirs):
                    before = server.cpu_seconds()
                    seconds = read(server)
                    if turn:  # the first warms up caches, and Java's compilers
                        took[server.name].append(seconds)
                        cpu[server.name].append(server.cpu_seconds() - before)
            speed = {n: size / 1e6 / statistics.median(each) for n, each in took.items()}
            cost = {n: statistics.median(each) / (size / 1e9) for n, each in cpu.items()}
            yield Row(
                f"fetch, {name}, {what}",
                f"{speed[ours.name]:.0f} MB/s, {cost[ours.name]:.2f} s of CPU a GB",
                speed[ours.name] / speed[theirs.name],
                f"broker: {speed[theirs.name]:.0f} MB/s, {cost[theirs.name]:.2f} s",
                "" if name == "by hand" else ">= 0.80",
            )
    finally:
        java.close()


def size_rows(
    servers: tuple[Server, Server], topic: str, size: int, *, rounds: int
) -> Iterator[Row]:
    """Fetches of `size` bytes by one connection, one after the other, without decoding."""
    speed: dict[str, list[float]] = {server.name: [] for server in servers}
    cpu: dict[str, list[float]] = {server.name: [] for server in servers}
    for turn in range(rounds + 1):
        for server in servers:
            before = server.cpu_seconds()
            taken, seconds = _fetch_for(server, topic, size)
            if turn:  # the first warms up caches, and Java's compilers
                speed[server.name].append(taken / 1e6 / seconds)
                cpu[server.name].append((server.cpu_seconds() - before) / (taken / 1e9))
    ours, theirs = (server.name for server in servers)
    mean = {name: statistics.median(each) for name, each in speed.items()}
    cost = {name: statistics.median(each) for name, each in cpu.items()}
    yield Row(
        f"fetches of {size >> 10} KiB",
        f"{mean[ours]:.0f} MB/s, {cost[ours]:.2f} s of CPU per GB",
        mean[ours] / mean[theirs],
        f"broker: {mean[theirs]:.0f} MB/s, {cost[theirs]:.2f} s",
    )


def _fetch_for(server: Server, topic: str, size: int) -> tuple[int, float]:
    """Fetch for TURN_SECONDS, from the start again at the end; return (bytes, seconds)."""
    taken = offset = 0
    began = time.perf_counter()
    with Wire(server.address, topic) as wire:
        while (seconds := time.perf_counter() - began) < TURN_SECONDS:
            fetched = wire.fetch({0: offset}, max_bytes=size, partition_bytes=size, max_wait_ms=500)
            taken += len(fetched[0].records)
            offset = fetched[0].next_offset or 0
            if offset >= fetched[0].high_watermark:
                offset = 0
    return taken, seconds
