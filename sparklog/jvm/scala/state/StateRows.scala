package sparklog.state

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  BoundReference, Expression, GenericInternalRow, GetStructField, UnsafeProjection, UnsafeRow, XXH64
}
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.sql.types.{BinaryType, DataType, IntegerType, StructType}
import org.apache.spark.util.SerializableConfiguration

/** A key and a value of a column family. */
private[state] final case class StateRow(family: Int, key: UnsafeRow, value: UnsafeRow)

/**
 * Rows of the chosen families of an operator's state, a task for each state partition. The values
 * of a list follow each other in order.
 */
private[state] final class StateRows(
    context: SparkContext,
    plan: StatePlan,
    chosen: Set[Int],
    conf: StateStoreConf,
    hadoop: SerializableConfiguration)
    extends RDD[StateRow](context, Nil) {

  override protected def getPartitions: Array[Partition] =
    Array.tabulate(plan.partitions)(number => new Partition { override val index: Int = number })

  override def compute(split: Partition, context: TaskContext): Iterator[StateRow] = {
    val stores = new OpenStores(plan, split.index, plan.version, conf, hadoop.value)
    context.addTaskCompletionListener[Unit](_ => stores.close())
    for {
      store <- plan.stores.iterator
      family <- store.families.iterator
      index = plan.indexOf(store.name, family.name)
      if chosen(index)
      opened = stores(store)
      pair <- opened.iterator(family.name)
      value <-
        if (family.isList) opened.valuesIterator(pair.key, family.name)
        else Iterator.single(pair.value)
    } yield StateRow(index, pair.key, value)
  }
}

private[state] object StateRows {
  private val types = Array[DataType](IntegerType, BinaryType, BinaryType)

  /** Return a function that makes an UnsafeRow (family, key, value) of a row. Reuses the result. */
  def packing(): StateRow => UnsafeRow = {
    val project = UnsafeProjection.create(types)
    row =>
      project(new GenericInternalRow(Array[Any](row.family, row.key.getBytes, row.value.getBytes)))
  }

  /** Return the inverse of `packing`. The rows are valid until the next call. */
  def unpacking(plan: StatePlan): InternalRow => StateRow = packed => {
    val family = packed.getInt(0)
    def row(ordinal: Int, schema: StructType): UnsafeRow = {
      val bytes = packed.getBinary(ordinal)
      val found = new UnsafeRow(schema.length)
      found.pointTo(bytes, bytes.length)
      found
    }
    StateRow(family, row(1, plan.families(family).key), row(2, plan.families(family).value))
  }

  /** Return a function that gives the state partition of a row, as Spark's shuffle does. */
  def partitioning(plan: StatePlan): StateRow => Int = {
    val projections = plan.families.map { family =>
      val expressions = partitionKey(family)
      if (expressions.isEmpty) None
      else {
        val hash = HashPartitioning(expressions, plan.partitions).partitionIdExpression
        Some(UnsafeProjection.create(Seq(hash)))
      }
    }
    row => projections(row.family).fold(0)(_(row.key).getInt(0))
  }

  private def partitionKey(family: FamilyPlan): Seq[Expression] = {
    val (path, columns) = family.partitionKey
    val fields = family.key.fields.indices.map { i =>
      (family.key.fields(i).name, bound(family.key, i))
    }
    path
      .foldLeft(fields) { (inside, name) =>
        val (_, struct) = inside.find(_._1 == name).get
        struct.dataType match {
          case found: StructType => found.fields.indices.map { i =>
              (found.fields(i).name, GetStructField(struct, i): Expression)
            }
          case _ => IndexedSeq((name, struct))
        }
      }
      .take(columns)
      .map(_._2)
  }

  private def bound(schema: StructType, ordinal: Int): Expression =
    BoundReference(ordinal, schema(ordinal).dataType, schema(ordinal).nullable)
}

/** The number of rows, and a sum of their hashes that does not depend on their order. */
private[state] final class Digest(family: FamilyPlan) extends Serializable {
  private val seed = s"${family.store}/${family.name}".hashCode.toLong
  var rows = 0L
  var hash = 0L

  def add(row: StateRow): Unit = {
    rows += 1
    hash += Digest.hash(row.value, Digest.hash(row.key, seed))
  }
}

private[state] object Digest {
  private def hash(row: UnsafeRow, seed: Long): Long =
    XXH64.hashUnsafeBytes(row.getBaseObject, row.getBaseOffset, row.getSizeInBytes, seed)
}
