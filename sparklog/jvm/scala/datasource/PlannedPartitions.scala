package sparklog.datasource

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonInputPartition, PythonStreamingInputPartition
}
import org.apache.spark.sql.types.StructType

import sparklog.source.{PythonPartitions, ReadPlan}

/** The partitions of a read as they are sent to the tasks, and the data path of the read. */
private[datasource] final class PlannedPartitions(
    val partitions: Array[InputPartition], val dataPath: DataPath.Choice)

private[datasource] object PlannedPartitions {
  private val NoPlan = "the Python source made no plan for the JVM"

  /**
   * Return the partitions of the Python source, with those that this JVM can read as
   * LogInputPartition. `why`: the reason why only Python can read, or null.
   */
  def of(python: Array[InputPartition], why: String): PlannedPartitions = {
    val noPlan = if (why == null) NoPlan else why
    val unpacked = python.map(unpack(_, noPlan)).filter(_ != null)
    val jvm = unpacked.count(_.isJvm)
    val reasons = unpacked.iterator.filter(_.why != null)
    val dataPath =
      if (!reasons.hasNext) DataPath.Jvm
      else {
        val first = reasons.next()
        if (jvm > 0) DataPath.Both(first.why) else DataPath.Python(first.why, first.isFault)
      }
    new PlannedPartitions(unpacked.map(_.partition), dataPath)
  }

  /**
   * A partition and its data path. `isJvm`: the JVM reads at least a part of the partition. `why`:
   * the reason why Python reads a part of the partition, or null.
   */
  private final class Unpacked(
      val partition: InputPartition,
      val isJvm: Boolean,
      val why: String,
      val isFault: Boolean = false)

  /**
   * Return the partition and its data path; null for an empty partition, which Spark creates if the
   * source has none.
   */
  private def unpack(partition: InputPartition, noPlan: String): Unpacked = partition match {
    case PythonInputPartition(index, pickle) =>
      unpack(partition, pickle, noPlan, new LogInputPartition(index, _, _, isStreaming = false))
    case PythonStreamingInputPartition(index, pickle, None) =>
      unpack(partition, pickle, noPlan, new LogInputPartition(index, _, _, isStreaming = true))
    case other => new Unpacked(other, false, noPlan)
  }

  private def unpack(
      python: InputPartition,
      pickle: Array[Byte],
      noPlan: String,
      made: (Array[Byte], Array[Byte]) => LogInputPartition): Unpacked = {
    val value = PartitionPickle.value(pickle)
    if (value == null) null
    else if (value.plan == null) new Unpacked(python, false, noPlan)
    else {
      val version = PlanVersion.of(value.plan)
      if (version != PlanVersion.own) {
        new Unpacked(python, false, PlanVersion.mismatch(version), isFault = true)
      } else {
        val pieces = ReadPlan.parse(value.plan).pieces
        val isJvm = pieces.exists(_.files != null)
        val why = pieces.find(_.files == null).fold(null: String)(_.python)
        new Unpacked(if (isJvm) made(value.plan, value.task) else python, isJvm, why)
      }
    }
  }
}

/**
 * A partition that the JVM reads with `plan` (JSON). `task`: the pickle with which Python can read
 * the partition.
 */
private[datasource] final class LogInputPartition(
    index: Int, val plan: Array[Byte], task: Array[Byte], isStreaming: Boolean)
    extends InputPartition {
  /** Return the partition as the Python source created it. */
  def whole: InputPartition = python(PartitionPickle.of(plan, task))

  /** Return the rest of the partition after `piece` of its plan was read up to offset `at`. */
  def rest(piece: Int, at: Long): InputPartition =
    python(PartitionPickle.of(plan, task, piece, at))

  private def python(pickle: Array[Byte]): InputPartition =
    if (isStreaming) PythonStreamingInputPartition(index, pickle, None)
    else PythonInputPartition(index, pickle)
}

/**
 * Reads partitions with the Python source in the tasks. `python` returns rows with the columns of
 * `given`; this class returns rows with the columns of `wanted`.
 */
private[datasource] final class UnpackedPartitions(
    python: PartitionReaderFactory, given: StructType, wanted: StructType)
    extends PythonPartitions {
  private val columns = ReadColumns.references(given, wanted)

  override def plan(partition: InputPartition): Array[Byte] = partition match {
    case log: LogInputPartition => log.plan
    case _ => null
  }

  override def reader(partition: InputPartition): PartitionReader[InternalRow] = partition match {
    case log: LogInputPartition => read(log.whole)
    case other => read(other)
  }

  override def reader(
      partition: InputPartition, piece: Int, at: Long): PartitionReader[InternalRow] =
    read(partition.asInstanceOf[LogInputPartition].rest(piece, at))

  private def read(partition: InputPartition): PartitionReader[InternalRow] = {
    val reader = python.createReader(partition)
    if (columns == null) reader else new ProjectedReader(reader, columns)
  }
}
