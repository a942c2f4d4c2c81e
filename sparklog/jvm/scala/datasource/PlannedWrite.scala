package sparklog.datasource

import com.fasterxml.jackson.databind.ObjectMapper
import net.razorvine.pickle.{IObjectConstructor, PickleException, Unpickler}

import org.apache.spark.sql.connector.write.LogicalWriteInfo

/**
 * A write that Python has planned. `what`: the target of the write; `factory`: None if Python
 * writes the rows.
 */
private[datasource] final class PlannedWrite(
    val what: String, val dataPath: DataPath.Choice, val factory: Option[StagedWriterFactory])

private[datasource] object PlannedWrite {
  private val NoPlan = "the Python source made no plan for the JVM"
  private val mapper = new ObjectMapper

  Unpickler.registerConstructor("sparklog.sink.writers", "restored", new RestoredConstructor)

  /** Return the plan in the pickle of the Python writer that belongs to `write`. */
  def of(write: AnyRef, info: LogicalWriteInfo): PlannedWrite = {
    val writer = restored(write)
    val (dataPath, factory) =
      if (writer == null || writer.plan.isEmpty) (DataPath.Python(NoPlan), None)
      else if (PlanVersion.of(writer.plan) != PlanVersion.own) {
        val mismatch = PlanVersion.mismatch(PlanVersion.of(writer.plan))
        (DataPath.Python(mismatch, isFault = true), None)
      } else mapper.readTree(writer.plan).get("python") match {
        case null =>
          (DataPath.Jvm, Some(new StagedWriterFactory(writer.plan, writer.staging, info.schema)))
        case why => (DataPath.Python(why.asText), None)
      }
    new PlannedWrite(s"writes ${CallerOptions.written(info.options)}", dataPath, factory)
  }

  /** Unpickle the Python writer; null if `write` has none of sparklog. */
  private def restored(write: AnyRef): RestoredWriter =
    try {
      val pickle = write.getClass.getDeclaredMethod("pythonDataSourceWriter")
      // Spark's implementation of a Python write does not expose its pickle.
      pickle.setAccessible(true)
      new Unpickler().loads(pickle.invoke(write).asInstanceOf[Array[Byte]]) match {
        case found: RestoredWriter => found
        case _ => null
      }
    } catch {
      case _: NoSuchMethodException => null
      case _: PickleException => null
    }
}

/** The arguments of `restored` (sparklog/sink/writers.py) that the JVM uses. */
private[datasource] final class RestoredWriter(val plan: Array[Byte], val staging: Array[Byte])

private[datasource] final class RestoredConstructor extends IObjectConstructor {
  override def construct(arguments: Array[Object]): Object = arguments match {
    case Array(plan: Array[Byte], staging: Array[Byte], _) => new RestoredWriter(plan, staging)
    case _ =>
      throw new PickleException("another version of sparklog calls `restored` with other arguments")
  }
}
