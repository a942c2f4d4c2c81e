"""Calls of `bootstrap` for a query that counts rows by key, for tests in a process of its own.

    python -m tests.state.s3_bootstrap SETTINGS CALLS

`SETTINGS` is a file with Spark's settings, as JSON. `CALLS` is a file with a list of calls, as
JSON: `target`, `options`, and `fails` for a query that fails. A call with `moved` moves the state
of this checkpoint to `target` by tasks that use `scratch`, and compares both. Prints the results,
as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.checkpoint import bootstrap, diff, rewrite
from sparklog.errors import SparklogError
from tests.spark.conftest import build_session


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").count()


def _failing(rows: DataFrame) -> DataFrame:
    key = F.when(F.col("id") == 69, F.raise_error(F.lit("row 69"))).otherwise(F.col("key"))
    return _counted(rows.withColumn("key", key))


def main(settings: str, calls: str) -> None:
    spark = build_session(**json.loads(Path(settings).read_text()))
    history = spark.range(70).selectExpr("id", "encode(concat('k', id % 7), 'UTF-8') AS key")

    def result(call: dict[str, Any]) -> str:
        if "moved" in call:
            scratch, options = call["scratch"], call["options"]
            both = call["moved"], call["target"]
            rewrite(*both, partitions=3, spark=spark, scratch=scratch, storage_options=options)
            return str(diff(*both, spark=spark, scratch=scratch, storage_options=options))
        query = _failing if call.get("fails") else _counted
        try:
            made = bootstrap(
                call["target"], query, from_=history, output_mode="update",
                storage_options=call["options"],
            )  # fmt: skip
        except SparklogError as error:
            return f"{type(error).__name__}: {error}"
        return str(made)

    print(json.dumps([result(call) for call in json.loads(Path(calls).read_text())]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
