"""docs/migrating.md: the query with the connector and the one without do the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from tests.kafka.clients.servers import Ours
from tests.oracle.rows import make, table
from tests.paths import ROOT
from tests.spark.conftest import environment

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.deep]

JOB = Path(__file__).with_name("migration_job.py")


def late(log: sparklog.Log) -> list[str]:
    """Key, value and headers of each record; of one with a key its partition, too."""
    return sorted(
        repr([row["key"] and row["partition"], row["key"], row["value"], row["headers"]])
        for row in log.read("late").read_all().to_pylist()
    )


def test_both_write_the_same(
    endpoint_of_ours: Ours, kafka_connector_jars: list[str], tmp_path: Path
) -> None:
    rows = [
        (key, str(n).encode(), headers, ms)
        for n, (key, _, headers, ms) in enumerate(make(300))
    ]  # fmt: skip
    other = tmp_path / "log"
    with sparklog.open(other, "rw") as log:
        for each in (endpoint_of_ours.log, log):
            each.create_topic("flights", 2)
            each.create_topic("late", 3)
            each.append("flights", table(rows[:200]), partition=0)
            each.append("flights", table(rows[200:]), partition=1)
    command = [
        sys.executable, str(JOB), ",".join(kafka_connector_jars), endpoint_of_ours.bootstrap,
        str(other), str(tmp_path / "checkpoints"),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with sparklog.open(other) as log:
        ours = late(log)
    assert len(ours) == 240
    assert ours == late(endpoint_of_ours.log)
