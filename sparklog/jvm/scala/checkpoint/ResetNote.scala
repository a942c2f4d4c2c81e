package sparklog.checkpoint

import java.io.IOException

/**
 * The file `sparklog.reset`: the sink of the query still has to follow a reset of the checkpoint.
 * sparklog/checkpoint/unfinished_reset.py writes it.
 */
object ResetNote {
  val Name = "sparklog.reset"
  private val OutputField = "\"output\""

  /** Throw an IOException if the sink is a file sink, which does not do the rest by itself. */
  def check(checkpoint: String, text: String): Unit =
    if (text.contains(OutputField)) throw new IOException(
      s"$checkpoint was reset, but the reset of its file sink's _spark_metadata is not finished " +
        s"(see its file $Name). With the query stopped, run the same `sparklog checkpoint reset` " +
        "again")
}
