package org.apache.spark.sql.execution.streaming

import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager

/**
 * The manager as Spark's suites meet it. They make state stores in directories that no query has
 * started in, so that each directory a manager is asked for becomes a checkpoint of its own.
 */
class SuiteManager(path: Path, conf: Configuration)
    extends sparklog.checkpoint.LogCheckpointFileManager(path, conf) {
  private val scheme = path.toUri.getScheme
  if (scheme == null || scheme == "file") {
    val local = Paths.get(path.toUri.getPath)
    val around = Iterator.iterate(local)(_.getParent).takeWhile(_ != null)
    if (!around.exists(p => Files.exists(p.resolve("sparklog/sparklog.lock")))) {
      val existed = Files.exists(local)
      createCheckpointDirectory()
      assert(existed || Files.exists(local))
    }
  }
}

class LogCheckpointFileManagerSuite extends CheckpointFileManagerTestsOnLocalFs {
  override def createManager(path: Path): CheckpointFileManager =
    new SuiteManager(path, new Configuration())
}

package state {
  import org.apache.hadoop.fs.FSDataInputStream

  /**
   * RocksDBSuite names this class of its own for all its stores. Ours comes first on the class path,
   * and counts the streams that are left open as that one does.
   */
  class OpenStreamCountedTestFileManager(path: Path, conf: Configuration)
      extends SuiteManager(path, conf) {
    override def open(path: Path): FSDataInputStream =
      new OpenNumCountedTestInputStream(super.open(path))
  }
}
