package sparklog.datasource

import net.razorvine.pickle.{IObjectConstructor, PickleException, Unpickler}

import org.apache.spark.sql.connector.write.LogicalWriteInfo

/**
 * A write that Python has planned. `what`: the target of the write; `factory`: None if Python
 * writes the rows.
 */
private[datasource] final class PlannedWrite(
    val what: String, val dataPath: DataPath.Choice, val factory: Option[StagedWriterFactory])

private[datasource] object PlannedWrite {
  private val InStore = "the log is in a store"

  Unpickler.registerConstructor("sparklog.sink.writers", "restored", new RestoredConstructor)

  /** Return the plan in the pickle of the Python writer that belongs to `write`. */
  def of(write: AnyRef, info: LogicalWriteInfo): PlannedWrite = {
    val (dataPath, factory) = restored(write) match {
      case None =>
        (DataPath.Python(Option(CallerOptions.whyPython(info.options)).getOrElse(InStore)), None)
      case Some(writer) if PlanVersion.of(writer.plan) != PlanVersion.own =>
        val mismatch = PlanVersion.mismatch(PlanVersion.of(writer.plan))
        (DataPath.Python(mismatch, isFault = true), None)
      case Some(writer) =>
        (DataPath.Jvm, Some(new StagedWriterFactory(writer.plan, writer.staging, info.schema)))
    }
    new PlannedWrite(s"writes ${CallerOptions.written(info.options)}", dataPath, factory)
  }

  /** Unpickle the Python writer; None if its tasks write in Python. */
  private def restored(write: AnyRef): Option[RestoredWriter] = {
    val pickle = write.getClass.getDeclaredMethod("pythonDataSourceWriter")
    // Spark's implementation of a Python write does not expose its pickle.
    pickle.setAccessible(true)
    try Some(new Unpickler().loads(pickle.invoke(write).asInstanceOf[Array[Byte]])).collect {
        case writer: RestoredWriter => writer
      }
    catch {
      // Python pickles a writer for its own workers with a function, which an Unpickler can't load.
      case _: PickleException => None
    }
  }
}

/** The arguments of `restored` (sparklog/sink/writers.py) that the JVM uses. */
private[datasource] final class RestoredWriter(val plan: Array[Byte], val staging: Array[Byte])

private[datasource] final class RestoredConstructor extends IObjectConstructor {
  override def construct(arguments: Array[Object]): Object = arguments match {
    case Array(plan: Array[Byte], staging: Array[Byte], _*) => new RestoredWriter(plan, staging)
    case _ =>
      throw new PickleException("another version of sparklog calls `restored` with other arguments")
  }
}
