"""Writing from Spark: `SegmentSink` for foreachBatch; `format("sparklog")` uses the same parts.

- `segment_sink`: SegmentSink: a micro-batch's way, small or large; `writers`: the data source's
- `options`, `columns`, `topic_options`: options, columns, options that a topic takes no notice of
- `batch_identity`: writer, number and fingerprint of a micro-batch, by which a replay is known
- `query`: the running query, and all that is asked of Spark's JVM
- `row_staging`: how rows are staged: in Spark's JVM or in Python, in tasks or in the driver;
  `size_estimate`: whether a micro-batch is small
- `jvm_job`, `jvm_plan`: in the JVM: the job, and what its tasks go by
- `task`, `task_messages`: in Python: what a task does, and sends back
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
