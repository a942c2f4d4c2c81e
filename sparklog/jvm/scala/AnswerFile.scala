package sparklog

import java.io.{FileOutputStream, IOException}
import java.nio.file.{Files, Path}

/**
 * Passes large answers to Python past py4j: in an anonymous file of the calling Python process on
 * the same host. py4j sends an answer of more than 8 KB in several segments, and each waits for the
 * acknowledgement of the one before, which costs 44 ms. See sparklog/jvm/gateway.py.
 */
object AnswerFile {
  private val SmallBytes = 4096 // in base64 it fits one segment

  /**
   * Return `answer` for py4j, or no bytes if it was written to the file.
   *
   * @param into the file's path in /proc, and after a space its expected link target, because the
   *   Python of another host can have the same process id. Empty: no file
   */
  def give(answer: Array[Byte], into: String): Array[Byte] =
    if (answer.length <= SmallBytes || into.isEmpty) answer
    else {
      try {
        val space = into.indexOf(' ')
        val path = into.substring(0, space)
        if (Files.readSymbolicLink(Path.of(path)).toString != into.substring(space + 1)) answer
        else {
          val file = new FileOutputStream(path)
          try file.write(answer)
          finally file.close()
          Array.emptyByteArray
        }
      } catch {
        case _: IOException => answer // a file of another container or user
      }
    }
}
