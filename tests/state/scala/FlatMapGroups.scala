package sparklog.probe

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode}

/** A query with flatMapGroupsWithState, which exists in Scala and Java only. */
object FlatMapGroups {

  /** Count the rows of each key; a key that gets none for 6 seconds of event time ends. */
  def counted(rows: DataFrame): DataFrame = {
    import rows.sparkSession.implicits._
    rows
      .select("k", "timestamp", "value")
      .as[(Long, Timestamp, Long)]
      .groupByKey(row => s"key-${row._1}")
      .flatMapGroupsWithState(OutputMode.Append, GroupStateTimeout.EventTimeTimeout)(count)
      .toDF("k", "rows", "sum", "ended")
  }

  private def count(
      key: String,
      rows: Iterator[(Long, Timestamp, Long)],
      state: GroupState[(Long, Long)]): Iterator[(String, Long, Long, Boolean)] =
    if (state.hasTimedOut) {
      val (count, sum) = state.get
      state.remove()
      Iterator((key, count, sum, true))
    } else {
      var (count, sum) = state.getOption.getOrElse((0L, 0L))
      var last = state.getCurrentWatermarkMs()
      for ((_, time, value) <- rows) {
        count += 1
        sum += value
        last = last.max(time.getTime)
      }
      state.update((count, sum))
      state.setTimeoutTimestamp(last + 6000)
      Iterator((key, count, sum, false))
    }
}
