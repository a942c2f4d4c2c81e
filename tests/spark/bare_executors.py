"""An application on a cluster whose executors don't have sparklog; prints what it answers, as JSON.

python bare_executors.py PYTHON ZIP LOG: of the workers; the package.
"""

import json
import os
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

import sparklog
from tests.spark.jvm import quick


def main(python: str, package: str, log: str) -> None:
    os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master("local-cluster[1,1,1024]")
    conf = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": quick(), "spark.task.maxFailures": "1",
    }  # fmt: skip
    spark = builder.config(map=conf).getOrCreate()
    sparklog.register(spark)
    with sparklog.open(log, "rw") as opened:
        opened.create_topic("t")
        opened.append("t", pa.table({"value": ["x"]}))
    rows = spark.sql("SELECT 'a' value")

    def write() -> None:
        rows.write.format("sparklog").mode("append").options(path=log, topic="t").save()

    def read() -> int:
        return spark.read.format("sparklog").options(path=log, subscribe="t").load().count()

    def ship() -> None:
        spark.sparkContext.addPyFile(package)
        sparklog.register(spark)

    told: list[int | str | None] = []
    for call in (write, read, ship, write, read):
        try:
            told.append(call())
        except Exception as error:
            told.append(str(error))
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
