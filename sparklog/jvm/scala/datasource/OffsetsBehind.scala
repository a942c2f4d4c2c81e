package sparklog.datasource

import java.util.{Map => JavaMap}

import com.fasterxml.jackson.databind.ObjectMapper

/**
 * How many offsets a query is behind the log's ends, over all partitions, with the names of Spark's
 * Kafka source. Source: KafkaMicroBatchStream.metrics (Spark 4.1).
 */
private[datasource] object OffsetsBehind {
  private val Aside = '#' // marks names beside the topics that store more about offsets
  private val mapper = new ObjectMapper

  /** Add the metrics from two of the source's offsets (JSON); nothing without partitions. */
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
