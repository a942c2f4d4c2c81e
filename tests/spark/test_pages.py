"""The pages that name `spark`: their blocks run in the session of all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog import sink
from tests.doc_blocks.run import cases, run
from tests.spark.test_pytest_plugin import as_it_was

__all__ = ["as_it_was"]
pytestmark = pytest.mark.spark


@pytest.fixture
def quiet(spark: SparkSession) -> Iterator[None]:
    """Some pages let a query fail; its queries end with the page."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    for query in spark.streams.active:
        query.stop()
    sink.close()
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.usefixtures("quiet", "as_it_was")
@pytest.mark.parametrize("page", cases(spark=True))
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    run(page, tmp_path, request, spark=spark)
