package sparklog.checkpoint

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

import sparklog.checkpoint.SparkFiles._

/** A file or directory of the log-backed checkpoint at `root`. */
final class CheckpointFile(logDir: LogDir, root: Path, val local: Path) {
  /** The path relative to the checkpoint's directory; "" is that directory itself. */
  val name: String = root.relativize(local).toString

  private val address = Layout.address(name)
  val partition: Partition = logDir.partition(address.partition)
  val key: String = address.key

  /** Whether the path exists as a file or directory that Spark's own checkpoint manager wrote. */
  def isFile: Boolean = Files.exists(local) && !isMarker

  /** Whether this is the metadata marker, which is not a file of the checkpoint. */
  def isMarker: Boolean = name == MetadataMarker.File && MetadataMarker.isAt(local)

  /** Whether sparklog wrote `child` of this directory, not Spark. */
  def isOurs(child: String): Boolean = name.isEmpty &&
    (child == Layout.LogDirName ||
      child == MetadataMarker.File && MetadataMarker.isAt(local.resolve(child)))

  /** Return the content of the file's record, or None if the file has no record. */
  def read(): Option[ByteBuffer] = {
    val content = partition.read(key)
    if (content.isEmpty && isMarker) throw MetadataMarker.lost(local)
    content
  }

  def syncedSnapshot(out: CancellableFSDataOutputStream): CancellableFSDataOutputStream =
    logDir.snapshots.output(local, out)

  /** The live records of files directly in this directory, by name. */
  def records: Seq[(String, Entry)] = for {
    partition <- Layout.partitionsOf(name)
    inside = Layout.directory(partition)
    (key, entry) <- logDir.partition(partition).entries()
    path = if (inside.isEmpty) key else s"$inside/$key"
    if key != Runs.Key && parent(path) == name
  } yield path.substring(path.lastIndexOf('/') + 1) -> entry

  /**
   * Make the caller's run the owner of the checkpoint if the caller is this checkpoint's query and
   * lists the directory `offsets`. Other callers that list the directory change nothing.
   */
  def beginIfOwn(caller: Caller): Unit =
    // A query lists the planned batches before it computes anything, so earlier runs are refused
    // before this run repeats their last batch.
    if (name == CheckpointFile.PlansDirectory && caller.query.exists(isOfQuery)) {
      logDir.runs.begin(caller)
    }

  private def isOfQuery(id: String): Boolean = {
    val file = logDir.checkpoint.resolve(MetadataMarker.File)
    val text = logDir.partition(Layout.Metadata).read(MetadataMarker.File)
      .map(UTF_8.decode(_).toString)
      .orElse(if (Files.exists(file)) Some(Files.readString(file)) else None)
    text.exists(_.contains(id))
  }

  def write(content: Array[Byte], length: Int, overwrite: Boolean, caller: Caller): Unit = {
    // A query may plan a batch without having listed the directory in this process.
    if (address.partition == CheckpointFile.Plans) logDir.runs.begin(caller)
    logDir.runs.check(caller)
    partition.put(key, content, length, overwrite)
  }

  /** Delete the record of this file, or those of all files below this directory. */
  def deleteRecords(): Unit = {
    partition.delete(Seq(key))
    val below = if (name.isEmpty) "" else s"$name/"
    for (partition <- logDir.names()) {
      val inside = Layout.directory(partition)
      val whole = inside.nonEmpty && s"$inside/".startsWith(below)
      if (whole || (inside.isEmpty && below.nonEmpty)) {
        val keys = logDir.partition(partition).entries().map(_._1)
        logDir.partition(partition).delete(keys.filter(whole || _.startsWith(below)))
      }
    }
  }

  private def parent(path: String): String = path.substring(0, path.lastIndexOf('/').max(0))
}

object CheckpointFile {
  private val Plans = "offsets-0"
  private val PlansDirectory = "offsets"
}
