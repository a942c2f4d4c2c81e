"""One step of a pipeline that different versions of Spark continue in turn.

    python -m tests.spark.continued DIRECTORY STEP

Appends rows by a batch write, and runs four queries over them, each with a checkpoint of its own,
which the step before has left: a copy by format("sparklog"), a copy by SegmentSink, an aggregation
(its state, too, in the log-backed checkpoint), and a limited one. Then everything is verified.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.cli.app import run as cli
from sparklog.sink import SegmentSink
from sparklog.sink import close as close_logs
from tests.spark.conftest import build_session

ROWS = 300  # a step's


def stream(spark: SparkSession, path: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("sparklog").option("path", path)
    return reader.options(subscribe="t", startingOffsets="earliest", **options).load()


def run(writer: Any, directory: Path, name: str) -> int:
    """Run a query up to now; return how many micro-batches it ran."""
    query = writer.option("checkpointLocation", str(directory / name)).trigger(
        availableNow=True
    ).start()  # fmt: skip
    assert query.awaitTermination(120)
    return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)


def main(directory: Path, step: int) -> None:
    conf = sparklog.spark_conf({"spark.jars": ""})
    spark = build_session(**conf)
    path = str(directory / "log")
    rows = spark.range(step * ROWS, (step + 1) * ROWS)
    rows = rows.selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value")
    rows.write.format("sparklog").mode("append").options(path=path, topic="t").save()
    for jvm in ("true", "false"):
        reader = spark.read.format("sparklog").options(path=path, subscribe="t", jvm=jvm)
        assert reader.load().select("value").distinct().count() == (step + 1) * ROWS

    copied = stream(spark, path).select("key", "value").writeStream.format("sparklog")
    run(copied.option("path", path).option("topic", "copy"), directory, "copy")
    sink = stream(spark, path).select("key", "value").writeStream
    run(sink.foreachBatch(SegmentSink(path, "sunk")), directory, "sunk")
    counts: dict[str, int] = {}

    def keep(df: DataFrame, _: int) -> None:
        counts.update({row["key"]: row["count"] for row in df.collect()})

    keys = stream(spark, path).selectExpr("cast(key as string) as key").groupBy("key").count()
    run(keys.writeStream.foreachBatch(keep).outputMode("complete"), directory, "counted")
    assert counts == Counter(str(n % 7) for n in range((step + 1) * ROWS))
    limited = stream(spark, path, maxOffsetsPerTrigger=str(ROWS // 3)).writeStream.format("noop")
    assert run(limited, directory, "limited") == 3
    spark.stop()
    close_logs()

    with sparklog.open(path) as log:
        for topic in ("copy", "sunk"):
            values = Counter(v.as_py() for batch in log.read(topic) for v in batch["value"])
            assert values == Counter(str(n).encode() for n in range((step + 1) * ROWS))
    assert cli(["verify", path]) == 0
    for name in ("copy", "sunk", "counted", "limited"):
        assert (directory / name / "sparklog").is_dir(), "the checkpoint is not log-backed"
        assert cli(["checkpoint", "verify", str(directory / name)]) == 0
    print(step, pyspark.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
