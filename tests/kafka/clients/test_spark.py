"""Spark's Kafka connector: batch, by time, a stream, and as a sink."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.clients.client import decoded
from tests.kafka.clients.servers import Ours
from tests.oracle.rows import from_table, make, table
from tests.paths import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.deep]

JOB = Path(__file__).with_name("spark_job.py")


def test_the_connector(
    endpoint_of_ours: Ours, kafka_connector_jars: list[str], tmp_path: Path
) -> None:
    log, topic, other = (
        endpoint_of_ours.log, endpoint_of_ours.topic(2), endpoint_of_ours.topic()
    )  # fmt: skip
    rows = {0: make(150), 1: make(90)}
    for partition, mine in rows.items():
        for at in range(0, len(mine), 50):
            log.append(topic, table(mine[at : at + 50]), partition=partition)
    command = [
        sys.executable, str(JOB), ",".join(kafka_connector_jars), endpoint_of_ours.bootstrap, topic,
        other, str(tmp_path / "checkpoint"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    want = [
        [partition, offset, ms, key, value, headers]
        for partition, mine in rows.items()
        for offset, (key, value, headers, ms) in enumerate(mine)
    ]
    got = [
        [p, o, ms, decoded(k), decoded(v), [(name, decoded(h)) for name, h in hs]]
        for p, o, ms, k, v, hs in seen["batch"]
    ]
    assert got == want
    assert seen["by_time"] == sorted(
        [p, o] for p, mine in rows.items()
        for o in range(_first(mine, seen["started_at"]), len(mine))
    )  # fmt: skip
    written = from_table(log.read(other).read_all())
    assert sorted(map(repr, [row[:3] for row in written])) == sorted(
        repr((key, value, headers)) for mine in rows.values() for key, value, headers, _ in mine
    )


def _first(rows: list[tuple], ms: int) -> int:  # type: ignore[type-arg]
    """The first offset whose record is as young; the end if none is."""
    return next((at for at, row in enumerate(rows) if row[3] >= ms), len(rows))
