package sparklog.source

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}

/** The metrics of a read task, which Spark's UI shows for the scan. */
private[source] final class ReadMetrics {
  import ReadMetrics._

  var jvmPieces = 0L
  var pythonPieces = 0L

  private var said: Array[CustomTaskMetric] = Array.empty
  private var saidPieces = -1L
  private var saidBytes = -1L

  /** Return the present values. */
  def values(bytesRead: Long): Array[CustomTaskMetric] = {
    // Spark calls this every 100 rows, so unchanged values are returned again.
    if (saidBytes != bytesRead || saidPieces != jvmPieces + pythonPieces) {
      saidBytes = bytesRead
      saidPieces = jvmPieces + pythonPieces
      said = Array(
        new Count(JvmPieces.Name, jvmPieces),
        new Count(PythonPieces.Name, pythonPieces),
        new Count(BytesRead.Name, bytesRead))
    }
    said
  }
}

object ReadMetrics {
  /** Return the metrics for `supportedCustomMetrics` of a scan. */
  def supported: Array[CustomMetric] = Array(new JvmPieces, new PythonPieces, new BytesRead)

  private final class Count(override val name: String, override val value: Long)
      extends CustomTaskMetric
}

final class JvmPieces extends CustomSumMetric {
  override def name: String = JvmPieces.Name
  override def description: String = "partition ranges read in the JVM"
}

object JvmPieces {
  val Name = "sparklogJvmPieces"
}

final class PythonPieces extends CustomSumMetric {
  override def name: String = PythonPieces.Name
  override def description: String = "partition ranges read in Python"
}

object PythonPieces {
  val Name = "sparklogPythonPieces"
}

final class BytesRead extends CustomSumMetric {
  override def name: String = BytesRead.Name
  override def description: String = "bytes of segments read in the JVM"
}

object BytesRead {
  val Name = "sparklogBytesRead"
}
