package sparklog.sink

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.ISO_8859_1
import java.nio.file.{Files, NoSuchFileException, Path, Paths}

import com.fasterxml.jackson.databind.JsonNode

/**
 * Checks that this process sees the same log dir as the driver, like
 * sparklog/logdir/log_dir_check.py.
 */
private[sink] object LogDirCheck {
  private val PageBytes = 96
  private val InodeAt = 68

  /**
   * Throw a StageError if this process sees another log dir. The message distinguishes a log that
   * was replaced from a directory of another host.
   */
  def check(place: JsonNode): Unit = {
    val identity = place.get("identity")
    val lock = Paths.get(identity.get("lock").asText)
    val boot = identity.get("boot").asText
    val isHere = BootId.get == boot
    val page =
      try {
        if (isHere && isSame(lock, identity)) null else pageOf(lock)
      } catch {
        case _: NoSuchFileException => new Array[Byte](0)
        case e: IOException => throw new Refusals(place)("open", lock.toString, e)
      }
    if (page != null && !isThat(page, boot, identity.get("inode").asLong)) {
      val told = identity.get(if (isHere) "replaced" else "unseen")
      val values = Seq("home", identity.get("home").asText, "host", identity.get("host").asText,
        "here", hostName)
      throw new StageError(told.get(0).asText, Template.filled(told.get(1).asText, values))
    }
  }

  private def isSame(lock: Path, identity: JsonNode): Boolean = {
    val found = Files.readAttributes(lock, "unix:dev,ino")
    found.get("dev") == identity.get("device").asLong &&
    found.get("ino") == identity.get("inode").asLong
  }

  private def pageOf(lock: Path): Array[Byte] = {
    val in = Files.newInputStream(lock)
    try in.readNBytes(PageBytes)
    finally in.close()
  }

  private def isThat(page: Array[Byte], boot: String, inode: Long): Boolean =
    page.length >= InodeAt + 8 && new String(page, ISO_8859_1).contains(boot) &&
      ByteBuffer.wrap(page).order(ByteOrder.BIG_ENDIAN).getLong(InodeAt) == inode

  private def hostName: String =
    Files.readString(Paths.get("/proc/sys/kernel/hostname")).trim
}
