package sparklog.checkpoint

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

/**
 * The file `metadata` of a log-backed checkpoint, from which Spark's own manager can't parse a
 * query id. Spark's error then shows the file's text, so that the query does not start from batch
 * 0. For this manager the file does not exist. sparklog/checkpoint/log_backed/metadata_marker.py
 * writes the same file.
 */
object MetadataMarker {
  val File = "metadata"
  private val Begin = "{\"id\":[\"sparklog "
  val Text: String =
    Begin + "keeps this checkpoint as a log, which Spark's own checkpoint manager " +
      "can't read: start the query with sparklog's, on a local disk, by sparklog.enable(spark), " +
      "sparklog.spark_conf() or spark-submit $(sparklog spark-conf --args); or make files of it " +
      "again, by: sparklog checkpoint export CHECKPOINT\"]}\n"

  private val Id = "(?s).*\"id\"\\s*:\\s*\"([^\"]+)\".*".r
  private val Number = "[0-9]+"
  private val MaxBytes = 4096L

  /** Whether the file at `path` is the marker. */
  def isAt(path: Path): Boolean =
    Files.isRegularFile(path) && Files.size(path) <= MaxBytes &&
      Files.readString(path).startsWith(Begin)

  /**
   * Write the marker, after storing Spark's own `metadata` as a record: a checkpoint that Spark's
   * manager began is continued. An IOException if a session without this manager ran after the log
   * had begun.
   */
  def settle(logDir: LogDir): Unit = {
    checkOneHistory(logDir)
    val file = logDir.checkpoint.resolve(File)
    val metadata = logDir.partition(Layout.Metadata)
    if (!isAt(file)) {
      if (metadata.get(File).isEmpty && Files.exists(file)) {
        val content = Files.readAllBytes(file)
        metadata.put(File, content, content.length, overwrite = false)
      }
      if (metadata.get(File).isDefined) {
        Files.deleteIfExists(file.resolveSibling(s".$File.crc"))
        Durable.write(file, Text.getBytes(UTF_8), file.resolveSibling(s".$File.tmp"))
      }
    }
  }

  /** The error of a checkpoint whose log dir has lost the query's id. */
  def lost(path: Path): IOException = new IOException(
    s"${path.getParent} was kept as a log, and its log dir `${Layout.LogDirName}` doesn't have " +
      "the query's id any more: restore it from a copy. To begin from nothing use a new directory")

  /**
   * Check that plans and commits in files are older than the log's own, or the same (an import).
   */
  private def checkOneHistory(logDir: LogDir): Unit = {
    val file = logDir.checkpoint.resolve(File)
    val known = logDir.partition(Layout.Metadata).read(File)
    if (known.isDefined && Files.exists(file) && !isAt(file)) {
      if (idOf(Files.readString(file)) != idOf(UTF_8.decode(known.get).toString)) {
        throw mixed(logDir, File)
      }
    }
    for (name <- Seq("offsets", "commits"); directory = logDir.checkpoint.resolve(name)
      if Files.isDirectory(directory)) {
      val partition = logDir.partition(Layout.address(s"$name/0").partition)
      val kept = partition.entries().map(_._1).filter(_.matches(Number)).toSet
      val files = filesIn(directory).filter(_.matches(Number))
      val own = (kept -- files).map(BigInt(_)).minOption // the first that only the log has
      for (batch <- files) {
        val isOther = partition.read(batch) match {
          case Some(text) =>
            !java.util.Arrays.equals(Files.readAllBytes(directory.resolve(batch)), bytesOf(text))
          case None => own.exists(_ < BigInt(batch))
        }
        if (isOther) throw mixed(logDir, s"$name/$batch")
      }
    }
  }

  private def filesIn(directory: Path): Set[String] = {
    val found = Set.newBuilder[String]
    val entries = Files.newDirectoryStream(directory)
    try entries.forEach(p => found += p.getFileName.toString)
    finally entries.close()
    found.result()
  }

  private def bytesOf(text: java.nio.ByteBuffer): Array[Byte] = {
    val bytes = new Array[Byte](text.remaining)
    text.get(bytes)
    bytes
  }

  private def idOf(text: String): Option[String] = text match {
    case Id(id) => Some(id)
    case _ => None
  }

  private def mixed(logDir: LogDir, file: String): IOException = new IOException(
    s"${logDir.checkpoint} has two histories: its log's, and that of the file $file, which a " +
      "session without sparklog's checkpoint manager wrote. Nothing was done. What differs is " +
      s"said by: sparklog checkpoint verify ${logDir.checkpoint}. To go on with the log's, move " +
      "the files of the other one (metadata, offsets, commits) away; what that session wrote to " +
      "its sink stays")
}
