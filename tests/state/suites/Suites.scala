package org.apache.spark.sql.execution.streaming

import java.io.FileNotFoundException
import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FSDataInputStream, Path, PathFilter}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

import sparklog.checkpoint.Caller
import sparklog.checkpoint.stored.{StoredCheckpoints, StoredFileManager}

/**
 * The manager as Spark's suites meet it, with a log dir or with runs (the system property
 * `suites.kept`). The suites make state stores in directories that no query has started in, so each
 * directory a manager is asked for becomes a checkpoint of its own. And they look with java.io.File
 * for what was written, so there is a copy of each file, which is never read.
 */
class SuiteManager(path: Path, conf: Configuration) extends CheckpointFileManager {
  private val kept: CheckpointFileManager =
    if (System.getProperty("suites.kept") == "runs") new SuiteRuns(path, conf)
    else new SuiteLog(path, conf)

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    kept.createAtomic(path, overwrite)
  override def open(path: Path): FSDataInputStream = kept.open(path)
  override def list(path: Path, filter: PathFilter): Array[FileStatus] = kept.list(path, filter)
  override def mkdirs(path: Path): Unit = kept.mkdirs(path)
  override def exists(path: Path): Boolean = kept.exists(path)
  override def delete(path: Path): Unit = kept.delete(path)
  override def isLocal: Boolean = kept.isLocal
  override def createCheckpointDirectory(): Path = kept.createCheckpointDirectory()
}

/** A record counts more than a file, and its copy goes with the record. */
private class SuiteLog(path: Path, conf: Configuration)
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
      case record: sparklog.checkpoint.RecordOutput =>
        new Copied(record, path, () => SuiteLog.super.open(path))
      case other => other
    }
}

/**
 * No query has begun a run, so all calls are those of a driver, which sees what is in no entry yet.
 * In runs, a directory exists while it contains files. The suites make empty ones, too.
 */
private class SuiteRuns(path: Path, given: Configuration) extends CheckpointFileManager {
  private val conf = new Configuration(given)
  conf.unset(Caller.RunIdKey)
  private val stored = new StoredFileManager(real(path), conf)
  try StoredCheckpoints.around(real(path), conf)
  catch { case _: FileNotFoundException => StoredCheckpoints.create(real(path), conf) }

  private def real(path: Path) = path.getFileSystem(conf).makeQualified(path)
  private def local(path: Path) = Paths.get(path.toUri.getPath).toFile

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    new Copied(stored.createAtomic(real(path), overwrite), path, () => open(path))

  override def open(path: Path): FSDataInputStream = stored.open(real(path))

  override def list(path: Path, filter: PathFilter): Array[FileStatus] = {
    val found = stored.list(real(path), filter)
    val more = Option(local(path).listFiles).toSeq.flatten
      .filter(d => d.isDirectory && !found.exists(_.getPath.getName == d.getName))
      .map(d => new FileStatus(0, true, 1, 0, d.lastModified, new Path(real(path), d.getName)))
    found ++ more.filter(d => d.getPath.getName != "sparklog" && filter.accept(d.getPath))
  }

  override def mkdirs(path: Path): Unit = Files.createDirectories(local(path).toPath)
  override def exists(path: Path): Boolean = stored.exists(real(path)) || local(path).isDirectory

  override def delete(path: Path): Unit = {
    org.apache.commons.io.FileUtils.deleteQuietly(local(path))
    stored.delete(real(path))
  }

  override def isLocal: Boolean = stored.isLocal
  override def createCheckpointDirectory(): Path = real(path)
}

/** Writes a copy of a file when it is complete. */
private class Copied(output: CancellableFSDataOutputStream, path: Path,
    read: () => FSDataInputStream)
    extends CancellableFSDataOutputStream(output) {
  private var done = false

  override def close(): Unit = if (!done) {
    done = true
    output.close()
    val (in, copy) = (read(), Paths.get(path.toUri.getPath))
    Files.createDirectories(copy.getParent)
    try Files.write(copy, in.readAllBytes())
    finally in.close()
  }

  override def cancel(): Unit = {
    done = true
    output.cancel()
  }
}

class LogCheckpointFileManagerSuite extends CheckpointFileManagerTestsOnLocalFs {
  override def createManager(path: Path): CheckpointFileManager =
    new SuiteManager(path, new Configuration())
}

package state {
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
