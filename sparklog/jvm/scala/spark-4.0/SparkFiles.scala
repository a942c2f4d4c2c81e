package sparklog.checkpoint

import org.apache.spark.sql.execution.streaming

/** Spark's own checkpoint managers. Spark 4.1 moved them to the package checkpointing. */
object SparkFiles {
  type CheckpointFileManager = streaming.CheckpointFileManager
  type CancellableFSDataOutputStream =
    streaming.CheckpointFileManager.CancellableFSDataOutputStream
  type FileContextBasedCheckpointFileManager =
    streaming.FileContextBasedCheckpointFileManager
  type FileSystemBasedCheckpointFileManager =
    streaming.FileSystemBasedCheckpointFileManager
}
