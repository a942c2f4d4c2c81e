"""The application that test_deployments.py deploys; prints its results as JSON.

deployed.py DIRECTORY [CALLS] [ZIP]

It stores logs in DIRECTORY, calls sparklog.register or sparklog.enable, and ships ZIP by addPyFile.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

VALUES = 100


def python_of_an_executor(_: object) -> tuple[str, str, bool]:
    """Return its Python, the file of its kernel, and whether the kernel is compiled."""
    from sparklog.format import kernel

    return sys.executable, kernel.__file__, kernel.COMPILED


class Application:
    """Reads and writes a log in every way, moved by the JVM or, with jvm=false, by Python."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark, self._directory = spark, directory

    def batch(self, name: str, **given: str) -> int:
        """Write rows, and count them in the log."""
        rows = self._spark.range(VALUES).selectExpr("cast(id as string) value")
        path = f"{self._directory}/{name}"
        writer = rows.write.format("sparklog").mode("append").options(**given)
        writer.options(path=path, topic="t").save()
        return self._source(self._spark.read, path, **given).count()

    def stream(self, name: str, **given: str) -> tuple[str, str, int]:
        """Copy a batch's log by a query; return the movers of reads and writes, and the count."""
        source = self._source(self._spark.readStream, f"{self._directory}/{name}", **given)
        path = f"{self._directory}/{name}-copy"
        writer = source.select("value").writeStream.format("sparklog").options(**given)
        writer = writer.options(path=path, topic="t").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{path}-checkpoint").start()
        query.awaitTermination()
        told: Any = query.lastProgress
        # Without the jar neither is reported.
        reader = told["sources"][0]["metrics"].get("reader", "python")
        writer = told["sink"]["metrics"].get("writer", "python")
        return reader, writer, self._source(self._spark.read, path, **given).count()

    def _source(self, reader: Any, path: str, **given: str) -> DataFrame:
        options = {"path": path, "subscribe": "t", "startingOffsets": "earliest"}
        frame: DataFrame = reader.format("sparklog").options(**options, **given).load()
        return frame


def main(directory: str, setup: str = "", package: str = "") -> None:
    spark = SparkSession.builder.getOrCreate()
    if package:
        spark.sparkContext.addPyFile(package)
    if setup:
        import sparklog

        {"enable": sparklog.enable, "register": sparklog.register}[setup](spark)
    application = Application(spark, directory)
    found: dict[str, Any] = {"driver": sys.executable, "version": spark.version}

    def attempt(name: str, call: Any, *arguments: Any, **given: Any) -> None:
        try:
            found[name] = call(*arguments, **given)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"

    executors = spark.sparkContext.range(1, numSlices=1).map(python_of_an_executor)
    attempt("executor", lambda: executors.collect()[0])
    attempt("batch", application.batch, "any")
    attempt("stream", application.stream, "any")
    attempt("python batch", application.batch, "python", jvm="false")
    attempt("python stream", application.stream, "python", jvm="false")
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
