package sparklog.probe

import java.io.{DataInputStream, DataOutputStream, IOException}

import scala.collection.mutable

import sparklog.checkpoint.stored._

/** The ledger of runs, against a store that answers badly. */
object Ledgers extends Operations {
  private val Directory = "sparklog/id"

  override def operations: Map[String, Operation] =
    Map("ledger schedules" -> schedules, "ledger damage" -> damage, "ledger ends" -> ends)

  /** i64 first seed, i32 how many: i64 acknowledged entries, then what was found, if anything */
  private def schedules(in: DataInputStream, out: DataOutputStream): Unit = {
    val (acknowledged, found) = Schedules.playAll(in.readLong(), in.readInt())(new World(_))
    out.writeLong(acknowledged)
    out.write(found.getBytes("UTF-8"))
  }

  /**
   * Drivers that start, write, rotate, delete, pause at any request and die, on one checkpoint.
   * Each entry writes the file h/PLACE with its id and removes one of the last places, so the
   * newest files are the newest history. What was acknowledged must stay, in order.
   */
  private final class World(seed: Long) extends Schedule(seed) {
    private val acknowledged = mutable.HashMap.empty[Int, String] // ids by place
    private var ids = 0

    override protected def acknowledgedCount: Int = acknowledged.size

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

    override protected def check(): Unit = {
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

    override protected def drive(store: ObjectStore, patienceMs: Long): Unit = {
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
