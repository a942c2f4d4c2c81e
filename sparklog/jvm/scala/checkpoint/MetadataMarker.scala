package sparklog.checkpoint

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

/**
 * The metadata marker: the file `metadata` of a log-backed checkpoint. Spark's own manager can't
 * parse a query id from the marker, and its error message shows the marker's text, so a session
 * without sparklog's manager fails instead of starting again at batch 0. sparklog's manager treats
 * the marker as missing. sparklog/checkpoint/log_backed/metadata_marker.py writes the same file.
 */
object MetadataMarker {
  val File = "metadata"
  private val Begin = "{\"id\":[\"sparklog "
  val Text: String =
    Begin + "keeps this checkpoint as a log, which Spark's own checkpoint manager " +
      "can't read. Start the query with sparklog's checkpoint manager, on a local disk: use " +
      "sparklog.enable(spark), sparklog.spark_conf() or spark-submit " +
      "$(sparklog doctor --spark-conf --args). Or convert the checkpoint to files: " +
      "sparklog checkpoint export CHECKPOINT\"]}\n"

  /** The marker of a checkpoint that is kept in runs, in an object store. */
  val TextOfRuns: String =
    Begin + "keeps this checkpoint in runs, which Spark's own checkpoint manager can't read. " +
      "Start the query with sparklog's checkpoint manager: use sparklog.enable(spark) or " +
      "sparklog.spark_conf(), without spark.sparklog.checkpoint.store=disk. Or convert the " +
      "checkpoint to files: sparklog checkpoint export CHECKPOINT\"]}\n"

  private val Id = "(?s).*\"id\"\\s*:\\s*\"([^\"]+)\".*".r
  private val Number = "[0-9]+"
  private val MaxBytes = 4096L

  /** Whether the file at `path` is the marker. */
  def isAt(path: Path): Boolean =
    Files.isRegularFile(path) && Files.size(path) <= MaxBytes &&
      isText(Files.readString(path))

  /** Whether this is the content of a marker. */
  def isText(content: String): Boolean = content.startsWith(Begin)

  /**
   * Write the marker, after storing the `metadata` file of Spark's own manager as a record, so that
   * a checkpoint which that manager began is continued. Throws an IOException if a session without
   * sparklog's manager ran after the checkpoint had become a log.
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
      // The record is written first: a marker without a record has lost the query id.
      if (metadata.get(File).isDefined) {
        // Hadoop would report a checksum error if the checksum of the old file remained.
        Files.deleteIfExists(file.resolveSibling(s".$File.crc"))
        Durable.write(file, Text.getBytes(UTF_8), file.resolveSibling(s".$File.tmp"))
      }
    }
  }

  /** Return the error for a checkpoint whose log dir lost the query id. */
  def lost(path: Path): IOException = new IOException(
    s"${path.getParent} is a log-backed checkpoint, but its log dir `${Layout.LogDirName}` has " +
      "lost the query id. Restore the checkpoint from a copy, or start the query with a new " +
      "checkpoint directory")

  /**
   * Throw an IOException if the files in `offsets` and `commits` show that a session without
   * sparklog's manager used the checkpoint. Files that are older than the log, or equal to its
   * records (after an import), are allowed.
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
      val own = (kept -- files).map(BigInt(_)).minOption // the first batch without a file
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
    s"${logDir.checkpoint} has two histories: the log's, and that of the file $file, which a " +
      "session without sparklog's checkpoint manager wrote. Nothing was changed. To list the " +
      s"differences, run: sparklog checkpoint verify ${logDir.checkpoint}. To continue the log's " +
      "history, move the files metadata, offsets and commits of the other session away; the rows " +
      "that the other session wrote to its sink remain there")
}
