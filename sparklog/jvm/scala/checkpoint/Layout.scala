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
  /**
   * The partition that a log has and a checkpoint does not have: the ledger
   * (sparklog.logdir.ledger).
   */
  val Ledger = "__sparklog_commits-0"

  private val Name = "[a-zA-Z0-9][a-zA-Z0-9._-]*"
  private val BatchFile = "(offsets|commits)/([^/]+)".r
  private val DefaultStore = "state/([0-9]+)/([0-9]+)/([^/]+)".r
  private val NamedStore = s"state/([0-9]+)/([0-9]+)/($Name)/([^/]+)".r
  private val StatePartition = s"state\\.([0-9]+)\\.($Name)-([0-9]+)".r

  /**
   * Return the address of a file. `path` is relative to the checkpoint and uses "/" as separator.
   */
  def address(path: String): RecordAddress = path match {
    case BatchFile(log, file) => RecordAddress(s"$log-0", file)
    case DefaultStore(op, part, file) => RecordAddress(s"state.$op.default-$part", file)
    case NamedStore(op, part, store, file) if store != "default" =>
      RecordAddress(s"state.$op.$store-$part", file)
    case _ => RecordAddress(Metadata, path)
  }

  /**
   * Return the partition's tag, which is written as base sequence of its batches and shows in which
   * partition a batch belongs: 30 bits of the CRC-32C of the partition's name. Batches of older
   * versions have -1 instead.
   */
  def tag(partition: String): Int = {
    val crc = new CRC32C
    crc.update(partition.getBytes(UTF_8))
    // 30 bits, because base sequences are never negative and lock positions are derived from it.
    (crc.getValue & 0x3fffffffL).toInt
  }

  /**
   * Return the directory of a partition's files, relative to the checkpoint; "" is the checkpoint
   * itself.
   */
  def directory(partition: String): String = partition match {
    case "offsets-0" => "offsets"
    case "commits-0" => "commits"
    case StatePartition(op, "default", part) => s"state/$op/$part"
    case StatePartition(op, store, part) => s"state/$op/$part/$store"
    case _ => ""
  }

  /** Return the partitions that may contain records of files in this directory. */
  def partitionsOf(directory: String): Seq[String] = {
    val own = address(if (directory.isEmpty) "x" else s"$directory/x").partition
    Seq(own, Metadata).distinct
  }

  /**
   * Return whether Spark reads or writes this file without its checkpoint manager, so that the file
   * can't be a record. This concerns RocksDB's snapshots, and the SST and log files beside them
   * (RocksDBFileManager.copyFromLocalFile, Utils.unzipFilesFromFile).
   */
  def staysFile(path: String): Boolean = {
    val names = path.stripSuffix(".crc").split('/')
    names.last.endsWith(".zip") || names.dropRight(1).exists(SharedDirectories.contains)
  }

  /** Directories of files that several RocksDB snapshots share. */
  val SharedDirectories: Seq[String] = Seq("SSTs", "logs")
}
