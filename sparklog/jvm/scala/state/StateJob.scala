package sparklog.state

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

/** The tasks of StateTables. */
private[state] final class StateJob(
    plan: StatePlan,
    conf: StateStoreConf,
    hadoop: SerializableConfiguration,
    replaced: Set[Int])
    extends Serializable {

  /** Write the rows of a partition into empty stores, as version 1. */
  def write(context: TaskContext, rows: Iterator[InternalRow]): WrittenPartition = {
    val partition = context.partitionId()
    val stores = new OpenStores(plan, partition, 0, conf, hadoop.value)
    try {
      val digests = plan.families.map(new Digest(_))
      val opened = plan.families.map(family => stores(plan.stores.find(_.name == family.store).get))
      val unpack = StateRows.unpacking(plan)
      val lists = new Array[UnsafeRow](plan.families.size)
      for (packed <- rows) {
        val row = unpack(packed)
        val family = plan.families(row.family)
        val store = opened(row.family)
        // The values of a list follow each other. Reading a list reads all of its values.
        val goesOn = family.isList && row.key == lists(row.family)
        val checked = family.isList || replaced(row.family)
        val isKnown = goesOn || checked && store.get(row.key, family.name) != null
        if (isKnown && !family.isList) {
          throw StateJob.fault(family, partition, "two rows have the same key")
        }
        if (isKnown) store.merge(row.key, row.value, family.name)
        else store.put(row.key, row.value, family.name)
        if (family.isList && !goesOn) {
          lists(row.family) = row.key.copy()
        }
        digests(row.family).add(row)
      }
      WrittenPartition(stores.commit(), digests)
    } finally stores.close()
  }
}

private[state] final case class WrittenPartition(
    ids: Seq[(String, String)],
    digests: IndexedSeq[Digest]) {
  def toMap: java.util.Map[String, Any] = Map[String, Any](
    "ids" -> ids.toMap.asJava,
    "digests" -> StateJob.numbers(digests)).asJava
}

private[state] object StateJob {
  private type Packed = (Int, InternalRow)
  /** How the error for a row in the wrong partition begins. */
  val Misplaced = "a row belongs to partition"

  /** Return rows of state with their partitions, as the shuffle takes them. */
  def packed(plan: StatePlan, rows: Iterator[StateRow]): Iterator[Packed] = {
    val pack = StateRows.packing()
    val partition = StateRows.partitioning(plan)
    rows.map(row => (partition(row), pack(row)))
  }

  /**
   * Return rows of state after a check that each is in its partition. Spark would not notice rows
   * in other partitions, and would begin their keys again.
   */
  def checked(plan: StatePlan, rows: Iterator[StateRow]): Iterator[StateRow] = {
    val partitionOf = StateRows.partitioning(plan)
    val partition = TaskContext.getPartitionId()
    rows.map { row =>
      check(plan.families(row.family), partition, partitionOf(row))
      row
    }
  }

  /** Return packed rows after a check that each is in its partition. */
  def inPlace(plan: StatePlan, rows: Iterator[Packed]): Iterator[InternalRow] = {
    val partition = TaskContext.getPartitionId()
    rows.map { case (expected, packed) =>
      check(plan.families(packed.getInt(0)), partition, expected)
      packed
    }
  }

  private def check(family: FamilyPlan, partition: Int, expected: Int): Unit =
    if (expected != partition) {
      throw fault(family, partition, s"$Misplaced $expected")
    }

  /** Return the rows of a DataFrame (key, value) as rows of state. */
  def given(plan: StatePlan, index: Int, rows: Iterator[InternalRow]): Iterator[StateRow] = {
    val family = plan.families(index)
    def struct(row: InternalRow, ordinal: Int, name: String, schema: StructType): UnsafeRow =
      if (row.isNullAt(ordinal)) {
        throw fault(family, TaskContext.getPartitionId(), s"the $name of a row is null")
      } else row.getStruct(ordinal, schema.length).asInstanceOf[UnsafeRow]
    rows.map { row =>
      StateRow(
        index,
        struct(row, 0, "key", family.key),
        struct(row, 1, "value", family.value))
    }
  }

  /** Return the digests of a partition, or, if that is wanted, why it can't be read. */
  def digest(plan: StatePlan, tolerant: Boolean)(
      rows: Iterator[StateRow]): Either[String, IndexedSeq[Digest]] = {
    val digests = plan.families.map(new Digest(_))
    try {
      checked(plan, rows).foreach(row => digests(row.family).add(row))
      Right(digests)
    } catch { case NonFatal(error) if tolerant => Left(error.toString) }
  }

  def numbers(digests: IndexedSeq[Digest]): java.util.List[java.util.List[Long]] =
    digests.map(digest => Seq(digest.rows, digest.hash).asJava).asJava

  /** Return the error of a task, which Python finds by its beginning. */
  def fault(family: FamilyPlan, partition: Int, what: String): SparkException =
    new SparkException(s"State of ${family.store}/${family.name}, partition $partition: $what")
}
