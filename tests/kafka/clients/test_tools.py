"""Kafka's verifiable and performance tools: each counts for itself what came through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.depth import by_depth
from tests.kafka.clients.java import ClientJvm, Done, process
from tests.kafka.clients.servers import Server

pytestmark = pytest.mark.kafka

RECORDS = by_depth(small=2000, ci=10_000, all=200_000)


def _events(done: Done, name: str) -> list[dict[str, Any]]:
    assert done.status == 0, done.err
    found = [json.loads(line) for line in done.lines if line.startswith("{")]
    return [event for event in found if event["name"] == name]


@pytest.mark.deep
@pytest.mark.usefixtures("jvm")  # or the reason why there is none
def test_verifiable_producer_and_consumer(server: Server) -> None:
    """Every record is acknowledged, read once, by a group, and committed."""
    topic = server.topic(3)
    to = ("--bootstrap-server", server.bootstrap, "--topic", topic)
    count = ("--max-messages", str(RECORDS))
    done = process("VerifiableProducer", *to, *count, "--acks", "-1")
    sent = _events(done, "producer_send_success")
    assert len(sent) == RECORDS
    done = process(
        "VerifiableConsumer", *to, *count, "--group-id", "verify", "--reset-policy", "earliest",
        "--verbose",
    )  # fmt: skip
    read = _events(done, "record_data")
    assert sorted((r["partition"], r["offset"], r["value"]) for r in read) == sorted(
        (s["partition"], s["offset"], s["value"]) for s in sent
    )
    committed = _events(done, "offsets_committed")
    assert committed and all(event["success"] for event in committed)
    last = {p["partition"]: p["offset"] for event in committed for p in event["offsets"]}
    assert sum(last.values()) == RECORDS


def test_performance_tools(jvm: ClientJvm, server: Server, tmp_path: Path) -> None:
    topic = server.topic(2)
    done = jvm.tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS), "--record-size",
        "100", "--throughput", "-1", "--producer-props", f"bootstrap.servers={server.bootstrap}",
        "acks=all", "compression.type=lz4",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert done.lines[-1].startswith(f"{RECORDS} records sent"), done.lines
    done = jvm.tool(
        "ConsumerPerformance", "--bootstrap-server", server.bootstrap, "--topic", topic,
        "--messages", str(RECORDS), "--timeout", "120000", "--hide-header",
    )  # fmt: skip
    assert done.status == 0, done.err
    (line,) = (line for line in done.lines if line.count(",") > 7)
    assert int(line.split(",")[4]) == RECORDS
