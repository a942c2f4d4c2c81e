package sparklog.datasource

import java.util.{Map => JavaMap}

import com.fasterxml.jackson.databind.ObjectMapper

/**
 * Computes how many offsets a query is behind the ends of the log, over all partitions. The metrics
 * have the names of Spark's Kafka source. Source: KafkaMicroBatchStream.metrics (Spark 4.1).
 */
private[datasource] object OffsetsBehind {
  private val Aside = '#' // marks keys of an offset that are not topics
  private val mapper = new ObjectMapper

  /**
   * Add the metrics to `found`, computed from two of the source's offsets (JSON). Adds nothing if
   * there are no partitions.
   */
  def put(found: JavaMap[String, String], latest: String, consumed: String): Unit = {
    val read = mapper.readTree(consumed)
    var count, least, most, sum = 0L
    mapper.readTree(latest).properties.forEach { topic =>
      if (topic.getKey.indexOf(Aside) < 0) topic.getValue.properties.forEach { end =>
        val at = read.path(topic.getKey).path(end.getKey).asLong(0)
        val behind = math.max(end.getValue.asLong - at, 0)
        least = if (count == 0) behind else math.min(least, behind)
        most = math.max(most, behind)
        sum += behind
        count += 1
      }
    }
    if (count > 0) {
      found.put("minOffsetsBehindLatest", least.toString)
      found.put("maxOffsetsBehindLatest", most.toString)
      found.put("avgOffsetsBehindLatest", (sum.toDouble / count).toString)
    }
  }
}
