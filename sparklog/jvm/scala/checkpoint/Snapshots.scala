package sparklog.checkpoint

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import sparklog.checkpoint.SparkFiles._

/**
 * Syncs RocksDB's snapshots. A snapshot is a zip file, which Spark writes last, and the SST and log
 * files beside it, which Spark copies without the checkpoint manager. The query's commit needs all
 * of these files and is synced, so they must be synced before: when the zip is closed.
 */
final class Snapshots(setting: () => Flush) {
  private val synced = new ConcurrentHashMap[Path, Set[Path]]

  /** Return the output stream of the file `zip`, which wraps the stream of Spark's own manager. */
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

  /** Sync the files that are new since the last call. */
  private def syncNew(directory: Path): Unit = {
    val found = Set.newBuilder[Path]
    val entries = Files.newDirectoryStream(directory)
    try entries.forEach(p => found += p)
    finally entries.close()
    val now = found.result()
    // At the first call all files: another process may have crashed before it synced them.
    val fresh = now -- synced.getOrDefault(directory, Set.empty)
    if (fresh.nonEmpty) {
      fresh.foreach(file =>
        try Durable.sync(file)
        catch {
          case _: java.nio.file.NoSuchFileException => // Spark deleted the old file meanwhile
        })
      Durable.sync(directory)
    }
    synced.put(directory, now)
  }
}
