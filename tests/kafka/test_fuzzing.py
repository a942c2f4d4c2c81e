"""Requests that are half right, and bytes that are wrong, at a live endpoint.

Whatever comes, the answer is Kafka's or a closed connection: no fault of ours in the log, no hang,
no memory for nothing; those beside it consume what they produce, and a log that is opened for
reading is as it was, byte for byte.
"""

import contextlib
import dataclasses
import logging
import random
import socket
import struct
import threading

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from kio.index import load_request_schema

import sparklog
from sparklog.fs import LOCAL
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api
from sparklog.testing.trees import contents
from tests.depth import by_depth
from tests.kafka.test_messages import filled, written
from tests.waiting import until

REQUESTS = by_depth(small=1200, ci=4000, all=20_000)
SEEDS = by_depth(small=1, ci=1, all=6)
DESTRUCTIVE = {
    Api.DELETE_TOPICS, Api.DELETE_RECORDS, Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS,
    Api.CREATE_PARTITIONS, Api.DELETE_GROUPS, Api.OFFSET_DELETE, Api.CREATE_TOPICS,
    Api.ALTER_USER_SCRAM_CREDENTIALS, Api.ELECT_LEADERS,
}  # fmt: skip
GROUPS = ("/sparklog.endpoint", "/sparklog.readers")
"""What is written of groups beside a log that is only read: who coordinates, what is committed."""
BATCH = bytes.fromhex(  # of one record, as a producer sends it
    "000000000000000000000038ffffffff02c9d04ab80000000000000000019b0f1c8c800000019b0f1c8c80"
    "ffffffffffffffffffffffffffff000000010c00000002780c00"
)


def _sane(entity, rng, topics):
    """Put names and numbers in that mean something here, or nearly."""
    found = {}
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        name = field.name
        if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            found[name] = tuple(_sane(each, rng, topics) for each in value)
        elif dataclasses.is_dataclass(value):
            found[name] = _sane(value, rng, topics)
        elif name in ("name", "topic", "resource_name"):
            found[name] = rng.choice(topics)
        elif name in ("topics", "topic_names") and value and isinstance(value[0], str):
            found[name] = tuple(rng.choice(topics) for _ in value)
        elif name in ("group_id", "key"):
            found[name] = rng.choice(["fuzz", "fuzz2", "", "x" * 300])
        elif name in ("member_id", "group_instance_id", "instance_id"):
            found[name] = rng.choice(["", "m", "x" * 100])
        elif name in ("partition", "partition_index", "index"):
            found[name] = rng.choice([0, 0, 1, 2, -1, 2**31 - 1])
        elif name in ("fetch_offset", "offset", "committed_offset", "timestamp"):
            found[name] = rng.choice([0, 1, 5, 10**6, -1, -2, -3, -4, -5, 2**63 - 1, -(2**63)])
        elif name == "acks":
            found[name] = rng.choice([-1, 0, 1, 2, -2])
        elif name == "records":
            found[name] = _batch(rng)
        elif name in ("max_bytes", "partition_max_bytes", "min_bytes"):
            found[name] = rng.choice([0, 1, 1 << 20, -1, 2**31 - 1])
        elif name in ("generation_id", "member_epoch", "generation_id_or_member_epoch"):
            found[name] = rng.choice([-1, 0, 1, 2, -2])
        elif name in ("producer_id", "transactional_id", "resource_type", "count"):
            found[name] = rng.choice([None, value]) if name == "transactional_id" else value
        elif name in ("max_wait", "timeout", "session_timeout", "rebalance_timeout"):
            found[name] = value * rng.choice([0, 0, 1])
    with contextlib.suppress(TypeError, ValueError):
        return dataclasses.replace(entity, **found)
    return entity


def _batch(rng):
    data = bytearray(BATCH)
    if rng.random() < 0.7:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data))]
    return bytes(data) * rng.choice([1, 1, 2])


def _frame(rng, served):
    api = rng.choice(list(served))
    low, high = served[api].versions
    version = rng.randint(low, high)
    kind = load_request_schema(int(api), version)
    topics = ["t", "u", "nope", "", "x" * 300, "ä"]
    if api in DESTRUCTIVE:
        topics = ["others", "other", ""]  # no bit away from a topic that has to stay
    entity = _sane(filled(kind, rng), rng, topics)
    header = kind.__header_schema__(
        request_api_key=int(api), request_api_version=version, correlation_id=7, client_id="fuzz"
    )
    body = bytearray(written(header) + written(entity))
    way = rng.random()
    if way < 0.2:
        body = body[: rng.randrange(1, len(body) + 1)]
    elif way < 0.45:
        for _ in range(rng.randint(1, 5)):
            body[rng.randrange(4, len(body))] ^= 1 << rng.randrange(8)
    elif way < 0.55:  # a length or a count that is huge, or negative
        at = rng.randrange(4, max(5, len(body) - 4))
        body[at : at + 4] = rng.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
    elif way < 0.6:
        body[:4] = struct.pack(">hh", rng.randint(-5, 120), rng.randint(-2, 30))
    elif way < 0.65:
        body += rng.randbytes(rng.randint(1, 50))
    return struct.pack(">i", len(body)) + bytes(body)


def _attack(endpoint, seed, count):
    """Send `count` frames, several a connection; a connection that is closed is made anew.

    The frames are the seed's, whatever the endpoint takes its time for.
    """
    rng, ways = random.Random(seed), random.Random(f"the ways of {seed}")
    client = None
    for _ in range(count):
        if client is None:
            client = socket.create_connection(("127.0.0.1", endpoint.port), timeout=240)
            client.settimeout(0.02)
        frame = _frame(rng, endpoint._server.served)
        try:
            client.sendall(frame)
            if ways.random() < 0.8 and not client.recv(1 << 16):
                raise ConnectionError
        except TimeoutError:  # it waits, as a Fetch may; with what comes next or without
            if ways.random() < 0.5:
                client.close()
                client = None
        except OSError:
            client.close()
            client = None
    if client is not None:
        client.close()


def _faults(caplog):
    ours = [r for r in caplog.records if r.name.startswith("sparklog")]
    return [r for r in ours if r.levelno >= logging.ERROR or r.exc_info]


def _run(endpoint, seeds, count):
    threads = [
        threading.Thread(target=_attack, args=(endpoint, seed, count // len(seeds)))
        for seed in seeds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Healthy:
    """A producer and a consumer in a group, beside it all."""

    def __init__(self, endpoint):
        self.servers = endpoint.bootstrap_servers
        self.sent, self.got = 0, []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=f) for f in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self):
        producer = confluent_kafka.Producer({
            "bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True,
        })  # fmt: skip
        failed = []
        while not self._stop.wait(0.01):
            producer.produce(
                "healthy", f"{self.sent}".encode(), on_delivery=lambda e, m: e and failed.append(e)
            )
            self.sent += 1
            producer.poll(0)
        assert producer.flush(240) == 0 and not failed

    def _consume(self):
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": self.servers, "group.id": "healthy",
            "auto.offset.reset": "earliest", "session.timeout.ms": 240_000,
        })  # fmt: skip
        consumer.subscribe(["healthy"])

        def all_came():
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                self.got.append(int(message.value()))
            return self._stop.is_set() and len(self.got) >= self.sent

        until(all_came, seconds=300, state=lambda: (len(self.got), self.sent), pause_s=0)
        consumer.close()

    def end(self):
        """All that was sent has come, once and in its order."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.got == list(range(self.sent)) and self.sent > 0


@pytest.mark.sparklog(topics={"t": 2, "others": 1, "healthy": 1})
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_log_that_is_written_to(sparklog_log, caplog, seed):
    before = psutil.Process().memory_info().rss
    options = {"group.initial.rebalance.delay.ms": 0}
    with Endpoint(sparklog_log, options=options) as endpoint:
        healthy = Healthy(endpoint)
        _run(endpoint, [seed * 10 + n for n in range(3)], REQUESTS)
        healthy.end()
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        assert {"t", "healthy"} <= set(admin.list_topics(timeout=240).topics)
        assert endpoint._server.request_memory.used == 0
    assert [f"{r.getMessage()} {r.exc_info}" for r in _faults(caplog)] == []
    assert psutil.Process().memory_info().rss - before < 300 << 20
    assert endpoint._server.quotas.count == 0 and endpoint._server.outgoing_bytes == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_log_that_is_only_read_stays_as_it_is(tmp_path, caplog, seed):
    import pyarrow as pa

    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        for topic in ("t", "u"):
            log.create_topic(topic, 2)
            log.append(topic, pa.table({"value": [b"x" * 100] * 500}), partition=0)
    before = contents(LOCAL, str(path))
    with sparklog.open(path) as log, Endpoint(log) as endpoint:
        _run(endpoint, [1000 + seed * 10 + n for n in range(3)], REQUESTS)
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        assert set(admin.list_topics(timeout=240).topics) == {"t", "u"}
    assert [f"{r.getMessage()} {r.exc_info}" for r in _faults(caplog)] == []
    after = contents(LOCAL, str(path))
    added = {name.removeprefix(str(path)) for name in after.keys() - before.keys()}
    assert all(name.startswith(GROUPS) for name in added), added
    assert {name: after[name] for name in before} == before
