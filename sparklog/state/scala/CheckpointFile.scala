package sparklog.checkpoint

import java.nio.file.Path

/** A file or directory of a checkpoint, as its log dir knows it. */
final class CheckpointFile(logDir: LogDir, val local: Path) {
  /** Its path in the checkpoint; "" is the checkpoint itself. */
  val name: String = logDir.checkpoint.relativize(local).toString

  private val place = Layout.place(name)
  val partition: Partition = logDir.partition(place.partition)
  val key: String = place.key

  /** Whether `child` of this directory is the log dir. */
  def isLogDir(child: String): Boolean = name.isEmpty && child == Layout.LogDirName

  /** The live records of files that lie right in this directory, by their names. */
  def records: Seq[(String, Entry)] = for {
    partition <- Layout.partitionsOf(name)
    inside = Layout.directory(partition)
    (key, entry) <- logDir.partition(partition).entries()
    path = if (inside.isEmpty) key else s"$inside/$key"
    if key != Runs.Key && parent(path) == name
  } yield path.substring(path.lastIndexOf('/') + 1) -> entry

  /** A directory is about to be listed. */
  def enter(caller: Caller): Unit =
    if (Layout.place(s"$name/x").partition == CheckpointFile.Plans) logDir.runs.enter(caller)

  def write(content: Array[Byte], length: Int, overwrite: Boolean, caller: Caller): Unit = {
    if (place.partition == CheckpointFile.Plans) logDir.runs.begin(caller)
    logDir.runs.check(caller)
    partition.put(key, content, length, overwrite)
  }

  /** Delete the record of this file, and those of all files below this directory. */
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
}
