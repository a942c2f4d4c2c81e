"""Write from Spark: `SegmentSink` for foreachBatch, and the writers of `format("sparklog")`.

- `segment_sink`: SegmentSink writes a micro-batch; `writers`: the data source's writers
- `options`, `columns`, `topic_options`: options, columns, options that existing topics ignore
- `batch_identity`: writer, number and fingerprint of a micro-batch, which identify a replay
- `query`: the running query, and all requests to Spark's JVM
- `row_staging`: stages rows in Spark's JVM or in Python, in tasks or in the driver;
  `size_estimate`: estimates whether a micro-batch is small
- `jvm_job`, `jvm_plan`: the job in Spark's JVM, and the plan for its tasks
- `task`: the tasks in Python, and the answers of all tasks to the driver
- `open_logs`: logs that this process has open for writing
- `progress`: metrics of queries; `service_tasks`: runs the cleaner's work as Spark tasks
"""

from sparklog.extras import needed
from sparklog.spark_support import SINK_ONLY, check_spark

with needed():
    import pyspark

check_spark(pyspark.__version__, "sparklog.sink", oldest=SINK_ONLY)

with needed():
    from sparklog.sink.open_logs import close
    from sparklog.sink.progress import QueryMetrics, offsets_behind_latest, watch_queries
    from sparklog.sink.segment_sink import SegmentSink
    from sparklog.sink.service_tasks import spark_map

__all__ = [
    "QueryMetrics",
    "SegmentSink",
    "close",
    "offsets_behind_latest",
    "spark_map",
    "watch_queries",
]
