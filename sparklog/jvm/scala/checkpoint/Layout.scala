package sparklog.checkpoint

import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32C

/** The location of a checkpoint file: a partition of the checkpoint's log dir, and a key. */
final case class RecordAddress(partition: String, key: String)

object Layout {
  /** The log dir within a checkpoint, which marks a log-backed checkpoint. */
  val LogDirName = "sparklog"
  val LockName = "sparklog.lock"

  val Metadata = "metadata-0"
  /** A log has this partition, a checkpoint does not: sparklog.logdir.ledger. */
  val Ledger = "__sparklog_commits-0"

  private val Name = "[a-zA-Z0-9][a-zA-Z0-9._-]*"
  private val BatchFile = "(offsets|commits)/([^/]+)".r
  private val DefaultStore = "state/([0-9]+)/([0-9]+)/([^/]+)".r
  private val NamedStore = s"state/([0-9]+)/([0-9]+)/($Name)/([^/]+)".r
  private val StatePartition = s"state\\.([0-9]+)\\.($Name)-([0-9]+)".r

  /** The address of a file. `path` is relative to the checkpoint, with "/" between its names. */
  def address(path: String): RecordAddress = path match {
    case BatchFile(log, file) => RecordAddress(s"$log-0", file)
    case DefaultStore(op, part, file) => RecordAddress(s"state.$op.default-$part", file)
    case NamedStore(op, part, store, file) if store != "default" =>
      RecordAddress(s"state.$op.$store-$part", file)
    case _ => RecordAddress(Metadata, path)
  }

  /**
   * The base sequence of a partition's batches, which identifies the partition: 30 bits of the
   * CRC-32C of the partition's name. Batches of older versions have -1.
   */
  def tag(partition: String): Int = {
    val crc = new CRC32C
    crc.update(partition.getBytes(UTF_8))
    (crc.getValue & 0x3fffffffL).toInt
  }

  /** The directory of the files in a partition, relative to the checkpoint; "" is its root. */
  def directory(partition: String): String = partition match {
    case "offsets-0" => "offsets"
    case "commits-0" => "commits"
    case StatePartition(op, "default", part) => s"state/$op/$part"
    case StatePartition(op, store, part) => s"state/$op/$part/$store"
    case _ => ""
  }

  /** The partitions that may contain files of this directory. */
  def partitionsOf(directory: String): Seq[String] = {
    val own = address(if (directory.isEmpty) "x" else s"$directory/x").partition
    Seq(own, Metadata).distinct
  }

  /**
   * Whether Spark reads or writes this file without its checkpoint manager, so that it must stay a
   * file: RocksDB's snapshots, and the SST and log files beside them
   * (RocksDBFileManager.copyFromLocalFile, Utils.unzipFilesFromFile).
   */
  def staysFile(path: String): Boolean = {
    val names = path.stripSuffix(".crc").split('/')
    names.last.endsWith(".zip") || names.dropRight(1).exists(SharedDirectories.contains)
  }

  /** Directories of files that several RocksDB snapshots share. */
  val SharedDirectories: Seq[String] = Seq("SSTs", "logs")
}
