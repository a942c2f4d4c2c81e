"""Its tests: real Spark, a real log, no broker, no Docker, nothing to set up.

    $ pip install 'sparklog[spark]' pytest
    $ pytest examples/tests_without_a_broker

The fixtures come with sparklog (pytest_sparklog.py has them all).
"""

import json
from pathlib import Path
from typing import Any

import pipeline
import pyarrow as pa
import pytest

import sparklog

pytestmark = pytest.mark.sparklog(topics={"flights": 2, "alerts": 1})


def fly(log: sparklog.Log, **delays: int) -> None:
    values = [json.dumps({"delay": delay}) for delay in delays.values()]
    log.append("flights", pa.table({"key": list(delays), "value": values}))


def alerts(log: sparklog.Log) -> list[str]:
    return sorted(value.decode() for value in log.read("alerts").read_all()["value"].to_pylist())


def test_only_late_flights_raise_an_alert(
    sparklog_spark: Any, sparklog_log: sparklog.Log, tmp_path: Path
) -> None:
    fly(sparklog_log, UA1=5, UA2=60, UA3=59, UA4=200)
    pipeline.run(sparklog_spark, sparklog_log.path, str(tmp_path / "checkpoint"))
    assert alerts(sparklog_log) == ["UA2 is late by 60 min", "UA4 is late by 200 min"]


def test_a_restart_neither_loses_nor_repeats(
    sparklog_spark: Any, sparklog_log: sparklog.Log, tmp_path: Path
) -> None:
    for delays in ({"UA1": 90}, {"UA2": 70, "UA3": 0}):
        fly(sparklog_log, **delays)
        pipeline.run(sparklog_spark, sparklog_log.path, str(tmp_path / "checkpoint"))
    assert alerts(sparklog_log) == ["UA1 is late by 90 min", "UA2 is late by 70 min"]
    writers = sparklog_log.commits()["writer"].to_pylist()
    assert len({writer for writer in writers if writer}) == 1  # one query, over both runs


def test_who_reads_along_sees_the_lag(sparklog_log: sparklog.Log) -> None:
    """Without Spark: milliseconds."""
    fly(sparklog_log, UA1=1, UA2=2)
    sparklog_log.read("flights", group="audit").read_all()
    fly(sparklog_log, UA3=3)
    assert sum(sparklog_log.readers()["lag"].to_pylist()) == 1
