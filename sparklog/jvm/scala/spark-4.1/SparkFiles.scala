package sparklog.checkpoint

import org.apache.spark.sql.execution.streaming.checkpointing

/** Spark's own checkpoint managers. The package is new in Spark 4.1. */
object SparkFiles {
  type CheckpointFileManager = checkpointing.CheckpointFileManager
  type CancellableFSDataOutputStream =
    checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
  type FileContextBasedCheckpointFileManager =
    checkpointing.FileContextBasedCheckpointFileManager
  type FileSystemBasedCheckpointFileManager =
    checkpointing.FileSystemBasedCheckpointFileManager
}
