"""A small pipeline to be tested: flights that leave an hour late or more become alerts."""

from typing import Any

LATE_MINUTES = 60


def run(spark: Any, log: str, checkpoint: str) -> None:
    """Bring topic `alerts` up to date with topic `flights`: one alert a late flight."""
    from sparklog.sink import SegmentSink

    rows = spark.readStream.format("sparklog").option("path", log).option("subscribe", "flights")
    flights = rows.option("startingOffsets", "earliest").load()
    delay = "cast(get_json_object(cast(value as string), '$.delay') as int)"
    late = flights.where(f"{delay} >= {LATE_MINUTES}").selectExpr(
        "key", f"concat(cast(key as string), ' is late by ', {delay}, ' min') as value"
    )
    writer = late.writeStream.foreachBatch(SegmentSink(log, "alerts"))
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()
