package org.apache.spark.sparklog

import java.util.{ArrayList => JList}
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.atomic.AtomicReference
import java.util.function.{Function => JFunction}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.{SparkEnv, SparkException}
import org.apache.spark.rpc.{IsolatedRpcEndpoint, RpcCallContext, RpcEnv}
import org.apache.spark.util.RpcUtils

import sparklog.checkpoint.JvmWide

/**
 * Requests from executors to the driver. In a package of Spark because its RPC is private to it.
 * Messages consist of classes of the JDK, because the class loader that reads them may not know
 * the classes of this jar.
 */
object CheckpointRpc {
  /** Answers a request with an array of one element, or with null if it concerns somebody else. */
  type Answer = JFunction[JList[AnyRef], Array[AnyRef]]

  private val Name = "sparklog-checkpoint"
  private var isServing = false

  /** Answer the requests of executors of this application; called in the driver. */
  def serve(answer: Answer): Unit = answers.synchronized {
    if (!isServing) answers.add(answer)
    isServing = true
    val env = SparkEnv.get
    // Each class loader with this jar has answers, and the application has one endpoint.
    if (env != null && (served.get ne env)) {
      env.rpcEnv.setupEndpoint(Name, new Endpoint(env.rpcEnv, answers))
      served.set(env)
    }
  }

  private lazy val answers =
    JvmWide("sparklog.checkpoint.answers")(new CopyOnWriteArrayList[Answer])

  /** The environment of the application whose executors are answered. */
  private lazy val served =
    JvmWide("sparklog.checkpoint.served")(new AtomicReference[SparkEnv])

  /** Whether this JVM is the driver, or has no Spark application. */
  def isDriver: Boolean = {
    val env = SparkEnv.get
    env == null || env.executorId == "driver"
  }

  /** Return the address of this driver's host, as Spark knows it. */
  def host: String = Option(SparkEnv.get).flatMap(e => Option(e.rpcEnv.address)).fold("")(_.host)

  /** Ask the driver. Throws what the driver threw. */
  def ask(message: JList[AnyRef]): AnyRef = {
    val env = SparkEnv.get
    val driver = RpcUtils.makeDriverRef(Name, env.conf, env.rpcEnv)
    try driver.askSync[AnyRef](message)
    catch {
      case e: SparkException if e.getCause.isInstanceOf[java.io.IOException] => throw e.getCause
    }
  }

  /**
   * Answers several requests at once, so not a ThreadSafeRpcEndpoint; on threads of its own,
   * because an answer may wait for the store.
   */
  private final class Endpoint(
      override val rpcEnv: RpcEnv, answers: CopyOnWriteArrayList[Answer])
      extends IsolatedRpcEndpoint {
    override def threadCount(): Int = 8

    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
      case message: JList[_] =>
        val request = message.asInstanceOf[JList[AnyRef]]
        try
          answers.iterator().asScala.map(_.apply(request)).find(_ != null) match {
            case Some(answer) => context.reply(answer(0))
            case None => context.sendFailure(new java.io.IOException(
                  s"the driver has no checkpoint at ${request.get(1)}: the query has ended, and " +
                    "nothing of the checkpoint is lost"))
          }
        catch { case NonFatal(e) => context.sendFailure(e) }
    }
  }
}
