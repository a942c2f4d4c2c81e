package sparklog.checkpoint

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/**
 * RocksDB's snapshots: a zip that Spark writes last, and the SST and log files beside it, which it
 * copies past the checkpoint manager. The query's commit needs them, and is synced: so are they,
 * when the zip is closed.
 */
final class Snapshots(setting: () => Flush) {
  private val synced = new ConcurrentHashMap[Path, Set[Path]]

  /** The output of the zip at `zip`, by way of Spark's own. */
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

  /** What is there and wasn't the last time; all of it the first time: others may have died. */
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
          case _: java.nio.file.NoSuchFileException => // another version's clean-up was quicker
        })
      Durable.sync(directory)
    }
    synced.put(directory, now)
  }
}
