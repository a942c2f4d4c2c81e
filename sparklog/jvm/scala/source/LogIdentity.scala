package sparklog.source

import java.io.Closeable
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{DirectoryStream, Files, NoSuchFileException, Path}
import java.nio.file.attribute.BasicFileAttributes

/**
 * Checks, while a piece is read, that its log and topic are still the planned ones. The check
 * follows each read of bytes and precedes the return of their records, as in Python
 * (read_retry.py).
 *
 * A replaced log may have the same names and contents, but it has other inodes.
 */
private[source] final class LogIdentity(standing: Array[Standing], files: PieceFiles)
    extends Closeable {
  import LogIdentity._

  // An open directory keeps its inode from being reused. The lock file must not be opened: POSIX
  // releases this JVM's own locks on a file when any descriptor of that file is closed.
  private val held: DirectoryStream[Path] = Files.newDirectoryStream(files.directory)
  private val keys: Array[AnyRef] = new Array(standing.length)
  private val directoryKey: AnyRef =
    try {
      var n = 0
      while (n < keys.length) {
        val found = Files.readAttributes(standing(n).path, "unix:ino,fileKey")
        // Hosts that share a file system agree on inodes, not on devices.
        if (found.get("ino") != standing(n).inode) throw replaced(standing(n).path)
        keys(n) = found.get("fileKey")
        n += 1
      }
      keyOf(files.directory)
    } catch { case e: Throwable => held.close(); throw e }

  /**
   * Throw a PlanMismatch if the log, the topic or the directory was replaced. Cost: a stat each,
   * and reading a small file.
   */
  def check(): Unit = {
    var n = 0
    while (n < keys.length) {
      if (keyOf(standing(n).path) != keys(n)) throw replaced(standing(n).path)
      n += 1
    }
    if (keyOf(files.directory) != directoryKey) throw replaced(files.directory)
    if (files.topicId != null) {
      val found = topicId(Files.readAllBytes(files.directory.resolve(MetadataName)))
      if (found != files.topicId) throw new PlanMismatch(
        s"${files.directory} belongs to topic id $found, but the plan is for ${files.topicId}")
    }
  }

  override def close(): Unit = held.close()
}

private object LogIdentity {
  private val MetadataName = "partition.metadata"
  private val TopicId = "topic_id: "

  private def keyOf(path: Path): AnyRef =
    try {
      Files.readAttributes(path, classOf[BasicFileAttributes]).fileKey
    } catch { case _: NoSuchFileException => throw replaced(path) }

  private def replaced(path: Path): PlanMismatch =
    new PlanMismatch(s"$path was replaced after the read was planned")

  /** Return the topic id in a partition.metadata file; null if the file has none. */
  private def topicId(metadata: Array[Byte]): String =
    new String(metadata, UTF_8).linesIterator.find(_.startsWith(TopicId))
      .map(_.substring(TopicId.length).trim).orNull
}
