"""Writing from Spark: `SegmentSink` for foreachBatch; `format("sparklog")` uses the same parts."""

from sparklog.extras import needed

with needed():
    from sparklog.sink.open_logs import close
    from sparklog.sink.progress import QueryMetrics, offsets_behind_latest, watch_queries
    from sparklog.sink.segment_sink import SegmentSink
    from sparklog.sink.spark_tasks import spark_map

__all__ = [
    "QueryMetrics",
    "SegmentSink",
    "close",
    "offsets_behind_latest",
    "spark_map",
    "watch_queries",
]
