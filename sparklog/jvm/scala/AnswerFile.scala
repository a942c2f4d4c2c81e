package sparklog

import java.io.{FileOutputStream, IOException}
import java.nio.file.{Files, Path}

/**
 * Hands bytes to Python past py4j: into an anonymous file of the Python process that asks, on the
 * same host. An answer of more than 8 KB goes out by py4j in several pieces, where each waits for
 * the acknowledgement of the one before it: 44 ms. See sparklog/jvm/answer_file.py.
 */
object AnswerFile {
  private val SmallBytes = 4096 // in base64 it is one piece

  /**
   * Return `answer`, for py4j; nothing where it lies in the file by now.
   *
   * @param into the file, by /proc, and after a space what its link must say: another host's Python
   *   may have the same process number. Empty: there is none
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
        case _: IOException => answer // another container's, or another user's
      }
    }
}
