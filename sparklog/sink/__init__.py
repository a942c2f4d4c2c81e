"""Writing from Spark: `SegmentSink` for foreachBatch; `format("sparklog")` uses the same parts."""

from sparklog.extras import needed

with needed():
    from sparklog.sink.progress import QueryMetrics, watch_queries
    from sparklog.sink.segment_sink import SegmentSink
    from sparklog.sink.sessions import close
    from sparklog.sink.spread import spark_map

__all__ = ["QueryMetrics", "SegmentSink", "close", "spark_map", "watch_queries"]
