package sparklog.probe

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.util.concurrent.{Executors, Semaphore}

import scala.collection.mutable
import scala.util.Random

import sparklog.checkpoint.Daemons
import sparklog.checkpoint.stored._

/** The ledger of runs, against a store that answers badly. */
object Ledgers extends Operations {
  private val Directory = "sparklog/id"

  override def operations: Map[String, Operation] =
    Map("ledger schedules" -> schedules, "ledger damage" -> damage, "ledger ends" -> ends)

  /** i64 first seed, i32 how many: i64 acknowledged entries, then what was found, if anything */
  private def schedules(in: DataInputStream, out: DataOutputStream): Unit = {
    val (first, count) = (in.readLong(), in.readInt())
    var acknowledged = 0L
    var found = ""
    for (seed <- first until first + count if found.isEmpty) {
      val world = new World(seed)
      try acknowledged += world.play()
      catch { case e: Violation => found = s"seed $seed: ${e.getMessage}" }
      finally world.end()
    }
    out.writeLong(acknowledged)
    out.write(found.getBytes("UTF-8"))
  }

  private final class Violation(message: String) extends RuntimeException(message)
  private final class Killed extends RuntimeException

  /** Objects in memory. */
  private class Memory extends ObjectStore {
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
  private final class Actor(world: World, body: Actor => Unit) {
    private val turn = new Semaphore(0)
    @volatile private var isKilled = false
    @volatile var isDone = false
    threads.submit((() => {
          turn.acquire()
          current.set(this)
          try if (!isKilled) body(this)
          catch { case _: Killed => }
          finally {
            current.remove()
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

    /** Called by the driver before each effect of a request, and before its answer. */
    def pause(): Unit = {
      world.turn.release()
      turn.acquire()
      if (isKilled) throw new Killed
    }
  }

  private val threads = Executors.newCachedThreadPool(Daemons.named("driver"))
  private val current = new ThreadLocal[Actor]

  /**
   * Drivers that start, write, rotate, delete, pause at any request and die, on one checkpoint.
   * Each entry writes the file h/PLACE with its id and removes one of the last places, so the
   * newest files are the newest history. What was acknowledged must stay, in order.
   */
  private final class World(seed: Long) {
    val turn = new Semaphore(0)
    var failed: Option[Violation] = None
    private val random = new Random(seed)
    private val memory = new Memory
    private val late = mutable.ArrayBuffer.empty[() => Unit]
    private val acknowledged = mutable.HashMap.empty[Int, String] // ids by place
    private var drivers = Vector.empty[Actor]
    private var ids = 0

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
      acknowledged.size
    }

    def end(): Unit = {
      failed = None
      drivers.filterNot(_.isDone).foreach(_.kill())
    }

    private def tick(): Unit = if (late.nonEmpty && random.nextDouble() < 0.1) {
      late.remove(random.nextInt(late.size))()
    }

    /** The files that a reader sees who starts now, without being disturbed. */
    private def history(): Map[Int, String] = {
      val ledger = new RunLedger(memory, Directory, LedgerSettings(giveUpMs = 0))
      try {
        ledger.refresh()
        ledger.index.below("h").map { case (path, file) =>
          val content = StoredCheckpoint.fetch(memory, path, file.location)
          path.stripPrefix("h/").toInt -> new String(content)
        }.toMap
      } catch { case e: IOException => throw new Violation(s"can't be read: ${e.getMessage}") }
    }

    private def check(): Unit = {
      val seen = history()
      val end = seen.keys.maxOption.getOrElse(-1)
      if (seen.values.toSet.size < seen.size) throw new Violation("an entry is there twice")
      for ((place, id) <- acknowledged) {
        if (place > end) throw new Violation(s"acknowledged entry $id at $place is gone")
        // Older places are removed again, but for each tenth.
        if (place > end - 6 || place % 10 == 0) {
          if (!seen.get(place).contains(id)) {
            throw new Violation(s"acknowledged entry $id at $place is now ${seen.get(place)}")
          }
        }
      }
    }

    private def guarded[T](body: => T): T =
      try body
      catch {
        case e: Violation =>
          failed = Some(e)
          throw e
      }

    private object store extends ObjectStore {
      private def pause(): Unit = Option(current.get()).foreach(_.pause())
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
        if (current.get() != null && random.nextDouble() < 0.02) noAnswer()
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
        _ =>
          try drive(patience)
          catch { case _: Violation => })
    }

    private def drive(patienceMs: Long): Unit = {
      val settings = LedgerSettings(giveUpMs = patienceMs, pauseMs = 0, moveBytes = 400,
        nowMs = () => 1)
      val ledger = new RunLedger(store, Directory, settings)
      try {
        ledger.begin("{}")
        for (_ <- 0 until random.nextInt(12)) random.nextDouble() match {
          case what if what < 0.6 => append(ledger)
          case what if what < 0.75 => rotate(ledger)
          case _ =>
            try ledger.deleteUnneeded()
            catch { case _: IOException => }
        }
      } catch {
        case _: IOException =>
          if (!ledger.isBroken) throw violation("the ledger is usable after an exception")
          try {
            ledger.append(Nil)
            throw violation("the ledger wrote after an exception")
          } catch { case _: IOException => }
      }
    }

    private def rotate(ledger: RunLedger): Unit = {
      val moved =
        try
          Some(ledger.oldFiles.map { case (path, file) =>
            Change(path, Some(StoredCheckpoint.fetch(memory, path, file.location)), Some(file))
          })
        catch { case _: IOException => None } // another driver began, and deleted an object
      moved.foreach(ledger.rotate)
    }

    private def violation(message: String): Violation = {
      failed = Some(new Violation(message))
      failed.get
    }

    private def append(ledger: RunLedger): Unit = {
      ids += 1
      val id = ids.toString
      val seen = ledger.index.below("h").map(_._1.stripPrefix("h/").toInt)
      val place = seen.lastOption.getOrElse(-1) + 1
      val known = acknowledged.keys.maxOption.getOrElse(-1)
      val old = place - 8
      val dead = if (old % 10 == 0) Nil else Seq(Change(path(old), None, None))
      ledger.append(dead :+ Change(path(place), Some(id.getBytes), None))
      guarded {
        if (place <= known) {
          throw new Violation(s"entry $id takes place $place, and $known was acknowledged before")
        }
        acknowledged(place) = id
        check()
      }
    }

    private def path(place: Int) = f"h/$place%06d"
  }

  /** A ledger with three runs, two indexes and some entries. */
  private def example(settings: LedgerSettings = LedgerSettings(giveUpMs = 0)): Memory = {
    val memory = new Memory
    for (run <- 0 until 3) {
      val ledger = new RunLedger(memory, Directory, settings)
      ledger.begin("{}")
      for (n <- 0 until 3) {
        ledger.append(Seq(Change(s"f/$run-$n", Some(Array.fill(40)(n.toByte)), None)))
      }
    }
    memory
  }

  private def filesOf(memory: Memory): Map[String, Seq[Byte]] = {
    val ledger = new RunLedger(memory, Directory, LedgerSettings(giveUpMs = 0))
    ledger.refresh()
    ledger.index.below("").map { case (path, file) =>
      path -> StoredCheckpoint.fetch(memory, path, file.location).toSeq
    }.toMap
  }

  /**
   * Damages each object of a ledger in each way. A text for each damage that a reader neither
   * reports nor is unaffected by.
   */
  private def damage(in: DataInputStream, out: DataOutputStream): Unit = {
    val whole = example()
    val files = filesOf(whole)
    val names = whole.objects.keys.toSeq
    val last = names.flatMap(n => Names.entry(Directory, n).map(p => (p.run, p.number, n))).max._3
    val found = mutable.ArrayBuffer.empty[String]
    var reported = 0
    def attempt(what: String)(change: Memory => Unit): Unit = {
      val memory = new Memory
      memory.objects ++= whole.objects
      change(memory)
      try if (filesOf(memory) != files) found += what
      catch {
        case e: IOException if e.getMessage.contains(Directory) => reported += 1
        case e: Throwable => found += s"$what: $e"
      }
    }
    for (name <- names; content = whole.objects(name)) {
      for (at <- 0 until content.length by 7) {
        attempt(s"$name: byte $at")(_.objects(name) = content.updated(at, (content(at) ^ 1).toByte))
      }
      for (end <- 0 until content.length by 13) {
        attempt(s"$name: cut at $end")(_.objects(name) = content.take(end))
      }
      // Nothing shows that the last entry was there.
      if (name != last) attempt(s"$name: missing")(_.objects.remove(name))
      attempt(s"$name: longer")(_.objects(name) = content ++ Array[Byte](0, 0, 0))
      for (other <- names if other != name) {
        attempt(s"$name: as $other")(_.objects(name) = whole.objects(other))
      }
    }
    out.writeInt(reported)
    out.write(found.mkString("\n").getBytes("UTF-8"))
  }

  /** i64 runs, i64 age (ms), of which 10 runs and 1,000 ms are kept: the runs that have objects */
  private def ends(in: DataInputStream, out: DataOutputStream): Unit = {
    val (runs, ageMs) = (in.readLong(), in.readLong())
    val memory = new Memory
    val settings = LedgerSettings(giveUpMs = 0, keepRuns = 10, keepMs = 1000, nowMs = () => ageMs)
    for (_ <- 0L until runs) {
      val ledger = new RunLedger(memory, Directory, settings)
      ledger.begin("{}")
      ledger.append(Seq(Change("f", Some(new Array[Byte](10)), None)))
      ledger.deleteUnneeded()
    }
    val kept = memory.objects.keys.flatMap(Names.entry(Directory, _)).groupBy(_.run)
    for ((run, places) <- kept.toSeq.sortBy(_._1)) {
      out.writeLong(run)
      out.writeInt(places.size)
    }
  }
}
