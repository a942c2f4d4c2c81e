"""Writing from Spark: `SegmentSink` for foreachBatch; `format("sparklog")` uses the same parts.

- `segment_sink`: SegmentSink: a micro-batch's way, small or large; `writers`: the data source's
- `options`, `columns`, `topic_options`: options, columns, options that a topic takes no notice of
- `batch_identity`: writer, number and fingerprint of a micro-batch, by which a replay is known
- `query`: the running query, and all that is asked of Spark's JVM
- `size_estimate`: whether a micro-batch takes the small path (rows to the driver)
- `task`, `task_messages`: the large path: rows staged in tasks, what they send back
- `open_logs`: logs that this process has open for writing
- `progress`: queries' metrics; `spark_tasks`: the cleaner's work as Spark tasks
"""

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
