"""Reading from Spark: what `spark.read` and `spark.readStream` with format("sparklog") run.

- `stream`, `batch`: Spark's readers: which offsets a micro-batch or a query has;
  `refused_stream`: the reader of a streaming request that is refused
- `options`, `schema`, `offsets`, `patterns`: options, columns, offsets as JSON, subscribePattern
- `metadata_snapshot`: what the log holds of the selected partitions; `open_homes`: how it is opened
- `topic_wait`: waitForTopics
- `offset_bounds`, `filters`: where reading starts and ends: offsets, timestamps, pushed filters
- `admission`, `byte_offsets`: the limits of a micro-batch (maxOffsetsPerTrigger and the like)
- `input_partitions`: offset ranges become tasks; `read_task`: what a task does
- `jvm_plan`: tasks that the JVM reads by itself; `jvm_caller`: what it says of itself
- `data_loss`: failOnDataLoss
- `group_registration`: the query as a registered reader
- `state`, `state_options`: the state of another query's checkpoint as a source
"""
