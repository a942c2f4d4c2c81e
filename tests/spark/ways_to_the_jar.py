"""An application whose executors are processes of their own; prints what it finds, as JSON.

python ways_to_the_jar.py WAY DIRECTORY
"""

import json
import os
import sys
from pathlib import Path
from threading import Thread

from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.jvm.gateway import NO_JAR, find_gateway, gateway
from sparklog.jvm.jar import JAR_VARIABLE, jar, write_jar
from sparklog.jvm.plans import PLAN_VERSION
from sparklog.spark_support import jar_version
from tests.spark.jvm import quick


def builder(**conf: str) -> SparkSession.Builder:
    """A session's, with two executors."""
    made = SparkSession.builder.master("local-cluster[2,1,1024]")
    given = {
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": quick(),
        "spark.sql.shuffle.partitions": "2",
        **conf,
    }
    for key, value in given.items():
        made = made.config(key, value)
    return made


def session(way: str, directory: str) -> SparkSession:
    """A session that has the jar, in the way of that name."""
    match way:
        case "jars":
            return builder(**{"spark.jars": write_jar(directory)}).getOrCreate()
        case "class path":
            places = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
            return builder(**dict.fromkeys(places, jar())).getOrCreate()
        case "enable":
            quoted = Path(directory, "it's 100% h#re, ok")
            quoted.mkdir()
            os.environ[JAR_VARIABLE] = write_jar(f"{quoted}/any name.jar")
            spark = builder().getOrCreate()
        case "second context":  # spark.jars come to the class path when the JVM starts, or never
            builder().getOrCreate().stop()
            spark = builder(**{"spark.jars": jar()}).getOrCreate()
        case "add jar":
            spark = builder().getOrCreate()
        case _:
            raise ValueError(way)
    found.append(find_gateway(spark))
    assert found == [NO_JAR]
    if way == "add jar":
        assert find_gateway(spark) is NO_JAR  # remembered, until another jar comes
        spark.sql(f"ADD JAR '{jar()}'")
    else:
        sparklog.enable(spark)
    return spark


found: list[object] = []


def moved(spark: SparkSession, directory: str) -> str:
    """Rows into a log, from it into another, and back: who read, who wrote, and how many."""
    rows = spark.range(100).selectExpr("cast(id as string) value")
    rows.write.format("sparklog").mode("append").options(path=f"{directory}/a", topic="t").save()
    given = {"subscribe": "t", "startingOffsets": "earliest"}
    source = spark.readStream.format("sparklog").options(path=f"{directory}/a", **given).load()
    writer = source.select("value").writeStream.format("sparklog").trigger(availableNow=True)
    writer = writer.options(path=f"{directory}/b", topic="t")
    query = writer.option("checkpointLocation", f"{directory}/moves").start()
    query.awaitTermination()
    told = query.lastProgress
    assert told is not None
    count = spark.read.format("sparklog").options(path=f"{directory}/b", **given).load().count()
    return f"{told['sources'][0]['metrics']['reader']} {told['sink']['metrics']['writer']} {count}"


def main(way: str, directory: str) -> None:
    spark = session(way, directory)
    found.extend([find_gateway(spark), find_gateway(spark.newSession())])
    seen: list[object] = []

    def batch(df: DataFrame, _: int) -> None:
        seen.append(find_gateway(df.sparkSession))
        df.collect()

    def run(checkpoint: str) -> None:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        counts = rows.groupBy("value").count()
        writer = counts.writeStream.foreachBatch(batch).outputMode("complete")
        writer = writer.option("checkpointLocation", f"{directory}/{checkpoint}")
        writer.trigger(availableNow=True).start().awaitTermination()

    sparklog.enable(spark)  # executors load its checkpoint manager from the jar, for the state
    others = () if way == "add jar" else ("one", "two")  # Spark has it for one thread only
    threads = [Thread(target=run, args=(name,)) for name in others]
    run("this thread's")
    for thread in threads:  # each has a JVM thread of its own, with a class loader of its own
        thread.start()
    for thread in threads:
        thread.join()
    jvm = gateway(spark)
    assert jvm is not None
    said = [jvm.call("sparklog.Version", name) for name in ("plans", "sparklog", "spark")]
    assert said[:2] == [PLAN_VERSION, sparklog.__version__]
    assert jar_version(said[2]) == jar_version(spark.version)
    found.extend(seen)
    names = [getattr(one, "reason", type(one).__name__) for one in found]
    print(json.dumps([*names, moved(spark, directory)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
