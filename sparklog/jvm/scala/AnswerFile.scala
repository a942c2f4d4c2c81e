package sparklog

import java.io.{FileOutputStream, IOException}
import java.nio.file.{Files, Path}

/**
 * Passes large answers to Python through an anonymous file of the calling Python process on the
 * same host, because py4j is slow for them: py4j sends an answer of more than 8 KB in several
 * segments, each of which waits for the acknowledgement of the previous one, which costs 44 ms. See
 * sparklog/jvm/gateway.py.
 */
object AnswerFile {
  private val SmallBytes = 4096 // in base64 it fits one segment

  /**
   * Return `answer` if it is small or can't be written to the file; otherwise write it to the file
   * and return no bytes.
   *
   * @param into the path of the file in /proc, then a space, then the expected link target of that
   *   path; empty if the caller has no file
   */
  def give(answer: Array[Byte], into: String): Array[Byte] =
    if (answer.length <= SmallBytes || into.isEmpty) answer
    else {
      try {
        val space = into.indexOf(' ')
        val path = into.substring(0, space)
        // A Python process on another host can have the same process id and a file with this path.
        if (Files.readSymbolicLink(Path.of(path)).toString != into.substring(space + 1)) answer
        else {
          val file = new FileOutputStream(path)
          try file.write(answer)
          finally file.close()
          Array.emptyByteArray
        }
      } catch {
        case _: IOException => answer // the file belongs to another container or user
      }
    }
}
