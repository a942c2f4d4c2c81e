"""What works with Spark 3.5, without Python data sources: python -m tests.spark.sink_only DIR"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import sparklog
from sparklog.cli.app import run as cli
from sparklog.errors import InvalidRequestError
from sparklog.sink import SegmentSink


def refused(call: Callable[[], object]) -> bool:
    """Whether it is refused with the list of the supported versions."""
    try:
        call()
    except InvalidRequestError as error:
        return f"Spark {pyspark.__version__}. The supported versions are 4.0, 4.1" in str(error)
    return False


def main(directory: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    assert refused(lambda: sparklog.register(spark))
    assert refused(lambda: sparklog.enable(spark))
    assert refused(sparklog.spark_conf)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    rows = rows.selectExpr("cast(value as string) as value", "cast(value % 10 as string) as key")
    log, checkpoint = str(directory / "log"), str(directory / "checkpoint")
    for _ in range(2):
        writer = rows.writeStream.foreachBatch(SegmentSink(log, "t"))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    with sparklog.open(log) as opened:
        assert len(set(opened.read("t").read_all()["value"].to_pylist())) == 200
    assert cli(["verify", log]) == cli(["checkpoint", "verify", checkpoint]) == 0
    (spark_line, *others) = sparklog.doctor(spark).lines
    assert "The supported versions are" in spark_line.fault
    assert not any(line.fault for line in others)
    assert cli(["doctor"]) == 1
    print(pyspark.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
