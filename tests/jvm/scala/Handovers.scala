package sparklog.probe

import java.nio.charset.StandardCharsets.UTF_8

import sparklog.AnswerFile

/** Bytes handed over past py4j. */
object Handovers extends Operations {
  override def operations: Map[String, Operation] = Map(
    // bytes of the place, bytes of the answer: what py4j would bring
    "answer_file" -> { (in, out) =>
      val into = new String(bytesFrom(in), UTF_8)
      out.write(AnswerFile.give(bytesFrom(in), into))
    }
  )
}
