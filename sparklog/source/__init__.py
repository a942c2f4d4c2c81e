"""Read from Spark: the readers behind `spark.read` and `spark.readStream.format("sparklog")`.

- `stream`, `batch`: the readers, which decide the offsets of a micro-batch or query; also
  waitForTopics, and the reader that raises the error of an invalid streaming query
- `called_reader`: stream readers in Spark 4.0 and 4.1
- `options`, `schema`, `offsets`, `patterns`: options, columns, offsets as JSON, subscribePattern
- `metadata_snapshot`: offsets of the selected partitions; `open_homes`: opens the log
- `offset_bounds`, `filters`: start and end of a read: offsets, timestamps, pushed filters
- `admission`: limits of a micro-batch (maxOffsetsPerTrigger and others)
- `input_partitions`: splits offset ranges into tasks; `read_task`: the task
- `jvm_plan`: plans for tasks that the JVM reads; `jvm_caller`: options that the JVM passes
- `data_loss`: failOnDataLoss
- `group_registration`: registers the query as a reader
- `state`, `state_options`: the state of a checkpoint as a source
"""
