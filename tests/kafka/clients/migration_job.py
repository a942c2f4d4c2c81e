"""The two queries of docs/migrating.md; a program, for a session with the connector.

    python migration_job.py JARS BOOTSTRAP LOG CHECKPOINTS

The first, as it was, runs against BOOTSTRAP; the second, as it becomes, on LOG.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from tests.doc_blocks.pages import blocks_of
from tests.paths import ROOT


def queries() -> list[Callable[..., Any]]:
    """The page's functions: before, after."""
    found = []
    for block in blocks_of(ROOT / "docs/migrating.md"):
        if block.kind == "python" and "def late_flights(" in block.text:
            namespace: dict[str, Any] = {}
            exec(block.text, namespace)
            found.append(namespace["late_flights"])
    return found


def main(jars: str, bootstrap: str, log: str, checkpoints: str) -> None:
    """Run one after the other."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for key, value in {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC",
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    before, after = queries()
    assert before(spark, bootstrap, f"{checkpoints}/before").awaitTermination(240)
    assert after(spark, log, f"{checkpoints}/after").awaitTermination(240)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
