"""The examples of the public API that use a Spark session or the checkpoint of a query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog import sink
from tests import api_examples
from tests.spark.test_pytest_plugin import as_it_was

__all__ = ["as_it_was"]
pytestmark = [pytest.mark.spark, pytest.mark.one_path]


@pytest.mark.deep
@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize("name", api_examples.cases(spark=True))
def test_the_examples_run(
    name: str, tmp_path: Path, spark: SparkSession, run_batches: Callable[..., int]
) -> None:
    for n, test in enumerate(api_examples.tests_of(api_examples.documented()[name])):
        place = tmp_path / str(n)
        place.mkdir()
        with api_examples.directory(place):
            _write_flights(spark, run_batches)
            api_examples.run(test, spark=spark)
            for query in spark.streams.active:
                query.stop()
            sink.close()


def _write_flights(spark: SparkSession, run_batches: Callable[..., Any]) -> None:
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 200)
        .load()
        .selectExpr("concat('N', value % 9) AS key", "cast(value AS string) AS value")
    )
    writer = rows.writeStream.foreachBatch(sink.SegmentSink("log", "flights", partitions=2))
    # The JVM has another current directory.
    assert run_batches(writer.option("checkpointLocation", f"{Path.cwd()}/checkpoint"), 3) == 2
    sink.close()
