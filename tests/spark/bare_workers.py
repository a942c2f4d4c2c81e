"""An application whose Python workers don't have sparklog; prints what becomes of it, as JSON.

python bare_workers.py PYTHON ZIP JARS DIRECTORY: of the workers; the package; spark.jars, or "".
"""

import json
import os
import sys

from pyspark.sql import SparkSession

import sparklog


def main(python: str, package: str, jars: str, directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    told = []

    def count() -> int:
        path = f"{directory}/log"
        rows = spark.sql("SELECT 'a' value")
        rows.write.format("sparklog").mode("append").options(path=path, topic="t").save()
        given = {"path": path, "subscribe": "t"}
        return spark.read.format("sparklog").options(**given).load().count()

    def attempt(call: object) -> None:
        try:
            told.append(call())  # type: ignore[operator]
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")

    if jars:
        attempt(count)
    attempt(lambda: sparklog.enable(spark, checkpoints=False))
    spark.sparkContext.addPyFile(package)
    for call in (lambda: sparklog.enable(spark, checkpoints=False), count, count):
        attempt(call)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
