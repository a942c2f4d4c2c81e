package sparklog.checkpoint

import java.io.InputStream
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.hadoop.fs.Path

/**
 * Refuses Spark's offline state repartition of checkpoints that Spark can't repartition. Spark
 * itself throws UNSUPPORTED_PROVIDER only after it has planned a batch, and from then on it refuses
 * to start the query (OfflineStateRepartitionRunner, Spark 4.2 and 4.3).
 */
private[checkpoint] object OfflineRepartition {
  private val Runner =
    "org.apache.spark.sql.execution.streaming.state.OfflineStateRepartitionRunner"
  private val Provider = "spark.sql.streaming.stateStore.providerClass"
  private val Supported = "RocksDBStateStoreProvider"
  private val mapper = new ObjectMapper

  /**
   * Return whether the repartition is listing `directory`. It lists the commits in the caller's
   * thread before it writes anything.
   */
  def isListing(directory: Path, caller: Caller): Boolean =
    directory.getName == "commits" && caller.query.isEmpty &&
      StackWalker.getInstance().walk[java.lang.Boolean](_.anyMatch(_.getClassName == Runner))

  /**
   * Throw an IllegalArgumentException if the state is not stored in RocksDB. `plan`: the content of
   * the newest file in the directory `offsets`.
   */
  def check(checkpoint: String, plan: InputStream): Unit = {
    val lines = new String(plan.readAllBytes(), UTF_8).linesIterator
    val conf = lines.drop(1).nextOption().map(mapper.readTree(_).path("conf").path(Provider))
    for (provider <- conf.map(_.asText) if provider.nonEmpty && !provider.endsWith(Supported)) {
      throw new IllegalArgumentException(
        s"$checkpoint: Spark can repartition only state in RocksDB; this query's state store is " +
          s"$provider. Nothing was written. To change the number of state partitions, start the " +
          "query with a new checkpoint and with another spark.sql.shuffle.partitions. If " +
          s"$Provider is then set to Spark's RocksDBStateStoreProvider, Spark can repartition it")
    }
  }
}
