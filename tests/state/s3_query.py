"""A stateful query whose checkpoint is anywhere, for tests in a process of its own.

    python -m tests.state.s3_query SETTINGS SOURCE SINK CHECKPOINT

`SETTINGS` is a file with Spark's settings, as JSON. The query counts the records of topic `in` of
the log SOURCE by key, 100 per micro-batch. It appends the counts to topic `totals` of the log SINK.
"""

import json
import sys
from pathlib import Path

from sparklog.sink import SegmentSink
from tests.spark.conftest import build_session


def main(settings: str, log: str, sink: str, checkpoint: str) -> None:
    spark = build_session(**json.loads(Path(settings).read_text()))
    rows = (
        spark.readStream.format("sparklog")
        .options(path=log, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="100")
        .load()
    )
    totals = rows.groupBy("key").count().selectExpr("key", "string(count) value")
    query = (
        totals.writeStream.outputMode("update")
        .foreachBatch(SegmentSink(sink, "totals"))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
