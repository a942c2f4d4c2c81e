package sparklog.datasource

import java.util.HashMap

import net.razorvine.pickle.{IObjectConstructor, PickleException, Unpickler}

/** Reads and writes pickled partitions of the Python source; see sparklog/source/jvm_plan.py. */
private[datasource] object PartitionPickle {
  /** The value of a partition. `plan` is null if only Python reads the partition. */
  final class Value(val plan: Array[Byte], val task: Array[Byte])

  private val Module = "pyspark.sql.datasource"
  private val Name = "InputPartition"
  private val PythonsAlone = new Value(null, null)

  Unpickler.registerConstructor(Module, Name, new UnpickledConstructor)

  /**
   * Return the value in the pickle of an InputPartition; null if the value is None, or the
   * partition itself (Spark 4.0 and 4.1), because there is nothing to read.
   */
  def value(pickle: Array[Byte]): Value =
    try {
      new Unpickler().loads(pickle) match {
        case found: UnpickledPartition => found.value match {
            case null => null
            case Array(plan: Array[Byte], task: Array[Byte]) => new Value(plan, task)
            case _ => PythonsAlone
          }
        case null => null
        case _ => PythonsAlone
      }
    } catch {
      case _: PickleException => PythonsAlone
    } // the pickle contains classes that the JVM does not know

  /** Return the pickle of InputPartition((plan, task)). */
  def of(plan: Array[Byte], task: Array[Byte]): Array[Byte] = {
    val out = new PickleWriter
    out.call(Module, Name)(out.tuple { out.bytes(plan); out.bytes(task) })
    out.finish()
  }

  /** Return the pickle of InputPartition((plan, task, piece, at)). */
  def of(plan: Array[Byte], task: Array[Byte], piece: Int, at: Long): Array[Byte] = {
    val out = new PickleWriter
    out.call(Module, Name)(out.tuple {
      out.bytes(plan)
      out.bytes(task)
      out.number(piece)
      out.number(at)
    })
    out.finish()
  }
}

/** An InputPartition for the unpickler, which calls `__setstate__`. */
final class UnpickledPartition {
  var value: Any = _

  def __setstate__(state: HashMap[String, Object]): Unit = value = state.get("value")
}

private[datasource] final class UnpickledConstructor extends IObjectConstructor {
  override def construct(arguments: Array[Object]): Object = new UnpickledPartition
}
