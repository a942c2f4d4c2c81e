"""Write a topic of a log in a bucket, copy it to another topic, and count both: batch and stream.

    spark-submit application.py URL CHECKPOINT

The driver alone stores the checkpoint, because the query has no state. Endpoint and credentials of
the bucket come from the environment of driver and executors (AWS_ENDPOINT_URL, ...).
"""

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ORDERS = 1000


def read(reader: Any, url: str, topic: str) -> DataFrame:
    options = {"path": url, "subscribe": topic, "startingOffsets": "earliest"}
    frame: DataFrame = reader.format("sparklog").options(**options).load()
    return frame


def main(url: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("orders").getOrCreate()
    orders = spark.range(ORDERS).selectExpr("cast(id as string) value")
    writer = orders.write.format("sparklog").mode("append")
    writer.option("path", url).option("topic", "orders").save()
    copies = read(spark.readStream, url, "orders").select("value").writeStream.format("sparklog")
    copies = copies.option("path", url).option("topic", "copies").trigger(availableNow=True)
    copies.option("checkpointLocation", f"file://{checkpoint}").start().awaitTermination()
    for topic in ("orders", "copies"):
        print(topic, read(spark.read, url, topic).count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
