package sparklog.checkpoint

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/**
 * RocksDB's snapshots: a zip that Spark writes last, and the SST and log files beside it, which
 * Spark copies without the checkpoint manager. The query's commit needs all of them and is synced,
 * so they are synced too, when the zip is closed.
 */
final class Snapshots(setting: () => Flush) {
  private val synced = new ConcurrentHashMap[Path, Set[Path]]

  /** The output stream of the zip at `zip`, which wraps Spark's own. */
  def output(zip: Path, spark: CancellableFSDataOutputStream): CancellableFSDataOutputStream =
    new CancellableFSDataOutputStream(spark) {
      private var done = false

      override def close(): Unit = if (!done) {
        done = true
        spark.close()
        if (setting().syncsFiles) Uninterruptible(sync(zip))
      }

      override def cancel(): Unit = if (!done) {
        done = true
        spark.cancel()
      }
    }

  private def sync(zip: Path): Unit = {
    val shared = Layout.SharedDirectories.map(zip.resolveSibling).filter(Files.isDirectory(_))
    shared.foreach(syncNew)
    Durable.syncWritten(zip)
    Durable.sync(zip.getParent)
  }

  /**
   * Sync the files that are new since the last call; all of them at first, because another process
   * may have crashed.
   */
  private def syncNew(directory: Path): Unit = {
    val found = Set.newBuilder[Path]
    val entries = Files.newDirectoryStream(directory)
    try entries.forEach(p => found += p)
    finally entries.close()
    val now = found.result()
    val fresh = now -- synced.getOrDefault(directory, Set.empty)
    if (fresh.nonEmpty) {
      fresh.foreach(file =>
        try Durable.sync(file)
        catch {
          case _: java.nio.file.NoSuchFileException => // deleted by a clean-up meanwhile
        })
      Durable.sync(directory)
    }
    synced.put(directory, now)
  }
}
