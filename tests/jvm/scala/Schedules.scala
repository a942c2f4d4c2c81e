package sparklog.probe

import java.io.IOException
import java.util.concurrent.{Executors, Semaphore}

import scala.collection.mutable
import scala.util.Random
import scala.util.control.ControlThrowable

import sparklog.checkpoint.Daemons
import sparklog.checkpoint.stored._

final class Violation(message: String) extends RuntimeException(message)

/** Not an Exception, which the code under test may catch. */
private[probe] final class Killed extends ControlThrowable

/** Objects in memory. */
class Memory extends ObjectStore {
  val objects = mutable.TreeMap.empty[String, Array[Byte]]

  override def create(name: String, content: Array[Byte]): Boolean = synchronized {
    val isNew = !objects.contains(name)
    if (isNew) objects(name) = content
    isNew
  }
  override def put(name: String, content: Array[Byte]): Unit =
    synchronized(objects(name) = content)
  override def get(name: String): Option[Array[Byte]] = synchronized(objects.get(name))
  override def get(name: String, position: Long, bytes: Int): Option[Array[Byte]] =
    get(name).map(_.slice(position.toInt, position.toInt + bytes))
  override def list(directory: String): Seq[ObjectInfo] = synchronized {
    objects.toSeq.collect {
      case (name, content) if name.startsWith(s"$directory/") =>
        ObjectInfo(name, content.length, 0)
    }
  }
  override def delete(names: Seq[String]): Unit = synchronized(names.foreach(objects.remove))
}

/** A driver in a thread, which runs only between two of its requests at a time. */
final class Actor(world: Schedule, body: Actor => Unit) {
  private val turn = new Semaphore(0)
  @volatile private var isKilled = false
  @volatile private var thread: Thread = _
  @volatile var isDone = false
  Schedules.threads.submit((() => {
        turn.acquire()
        thread = Thread.currentThread()
        try if (!isKilled) body(this)
        catch { case _: Killed => }
        finally {
          isDone = true
          world.turn.release()
        }
      }): Runnable)

  /** Let the driver run up to its next request. */
  def step(): Unit = if (!isDone) {
    turn.release()
    world.turn.acquire()
    world.failed.foreach(throw _)
  }

  def kill(): Unit = {
    isKilled = true
    step()
  }

  /**
   * Called before each effect of a request, and before its answer. Only one thread of the driver
   * pauses: its own, or the one for which it waits because that must not be interrupted.
   */
  def pause(): Unit = if (isScheduled) {
    world.turn.release()
    turn.acquire()
    if (isKilled) throw new Killed
  }

  def isScheduled: Boolean = {
    val caller = Thread.currentThread()
    !isDone && (caller == thread || caller.getName == "sparklog-checkpoint")
  }
}

/**
 * Drivers on one checkpoint that run in a random order, one request at a time: they pause at any
 * request and die, and the store loses, delays and repeats requests and answers.
 */
abstract class Schedule(seed: Long) {
  val turn = new Semaphore(0)
  var failed: Option[Violation] = None
  protected val random = new Random(seed)
  protected val memory = new Memory
  private val late = mutable.ArrayBuffer.empty[() => Unit]
  private var drivers = Vector.empty[Actor]

  /** What a driver does, which repeats requests for this time. */
  protected def drive(store: ObjectStore, patienceMs: Long): Unit

  /** Throw a Violation if the objects are not what they have to be. */
  protected def check(): Unit

  protected def acknowledgedCount: Int

  /** Return how many writes were acknowledged. */
  def play(): Int = {
    drivers = Vector.fill(2)(start())
    for (_ <- 0 until 40 + random.nextInt(360)) {
      tick()
      if (random.nextDouble() < 0.03 || drivers.isEmpty) drivers :+= start()
      val driver = drivers(random.nextInt(drivers.size))
      if (random.nextDouble() < 0.01) driver.kill()
      else for (_ <- 0 until Seq(1, 1, 2, 5, 20)(random.nextInt(5))) driver.step()
      drivers = drivers.filterNot(_.isDone)
    }
    while (late.nonEmpty) tick()
    check()
    acknowledgedCount
  }

  def end(): Unit = {
    failed = None
    drivers.filterNot(_.isDone).foreach(_.kill())
  }

  private def tick(): Unit = if (late.nonEmpty && random.nextDouble() < 0.1) {
    late.remove(random.nextInt(late.size))()
  }

  protected def guarded[T](body: => T): T =
    try body
    catch {
      case e: Violation =>
        failed = Some(e)
        throw e
    }

  protected def violation(message: String): Violation = {
    failed = Some(new Violation(message))
    failed.get
  }

  /** The store, as one of the drivers sees it. */
  private final class BadStore(driver: Actor) extends ObjectStore {
    private def pause(): Unit = driver.pause()
    private def noAnswer() = throw new IOException("no answer")

    override def create(name: String, content: Array[Byte]): Boolean = {
      pause()
      val fate = random.nextDouble()
      def effect(): Boolean = {
        val done = memory.create(name, content)
        if (done && name.endsWith("/0000000000")) guarded(check())
        done
      }
      if (fate < 0.06) noAnswer() // lost
      if (fate < 0.12) {
        late += (() => effect())
        noAnswer()
      }
      val done = effect()
      if (fate < 0.18) late += (() => effect())
      pause()
      if (fate > 0.9) noAnswer()
      done
    }
    override def put(name: String, content: Array[Byte]): Unit = {
      pause()
      if (random.nextDouble() < 0.03) noAnswer()
      memory.put(name, content)
    }
    override def get(name: String): Option[Array[Byte]] = {
      pause()
      if (driver.isScheduled && random.nextDouble() < 0.02) noAnswer()
      val found = memory.get(name)
      pause()
      found
    }
    override def get(name: String, position: Long, bytes: Int): Option[Array[Byte]] =
      memory.get(name, position, bytes)
    override def list(directory: String): Seq[ObjectInfo] = {
      pause()
      val found = memory.list(directory)
      pause()
      found
    }
    override def delete(names: Seq[String]): Unit = for (name <- names) {
      pause()
      val fate = random.nextDouble()
      if (fate < 0.2) late += (() => memory.delete(Seq(name)))
      if (fate > 0.1) memory.delete(Seq(name))
    }
  }

  private def start(): Actor = {
    // Some drivers give up at the first lost answer. Their entries may still arrive.
    val patience = if (random.nextDouble() < 0.2) 0 else 1000000
    new Actor(this,
      driver =>
        try drive(new BadStore(driver), patience)
        catch { case _: Violation => })
  }
}

object Schedules extends Operations {
  override def operations: Map[String, Operation] = Map.empty // those of Ledgers and Rides play

  private[probe] val threads = Executors.newCachedThreadPool(Daemons.named("driver"))

  /** Play the schedules of `count` seeds; return what was acknowledged, and what was found. */
  def playAll(first: Long, count: Int)(schedule: Long => Schedule): (Long, String) = {
    var acknowledged = 0L
    var found = ""
    for (seed <- first until first + count if found.isEmpty) {
      val world = schedule(seed)
      try acknowledged += world.play()
      catch { case e: Violation => found = s"seed $seed: ${e.getMessage}" }
      finally world.end()
    }
    acknowledged -> found
  }
}
