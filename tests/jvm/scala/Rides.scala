package sparklog.probe

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.util.concurrent.CountDownLatch

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import sparklog.checkpoint.Caller
import sparklog.checkpoint.stored._

/** Queries whose commits ride with the next plan, against a store that answers badly. */
object Rides extends Operations {
  override def operations: Map[String, Operation] = Map("ride schedules" -> schedules)

  private val Query = "11111111-2222-3333-4444-555555555555"
  private val Retained = 8

  /** i64 first seed, i32 how many: i64 acknowledged batches, then what was found, if anything */
  private def schedules(in: DataInputStream, out: DataOutputStream): Unit = {
    val (acknowledged, found) = Schedules.playAll(in.readLong(), in.readInt())(new World(_))
    out.writeLong(acknowledged)
    out.write(found.getBytes("UTF-8"))
  }

  /**
   * Drivers that run the micro-batches of a query as Spark does: a driver repeats a batch that has
   * a plan and no commit. The state of version N + 1 is the name of the attempt that computed it,
   * and of the attempt whose state it read; the commit of batch N names the attempt as well.
   */
  private final class World(seed: Long) extends Schedule(seed) {
    private val acknowledged = mutable.HashMap.empty[Int, String] // attempts by batch
    private val ended = new CountDownLatch(1)
    private val keeper = new Thread((() => ended.await()): Runnable)
    private var names = 0

    keeper.setDaemon(true)
    keeper.start()
    memory.create(CheckpointHome.Name, CheckpointHome.encode("id"))

    override protected def acknowledgedCount: Int = acknowledged.size

    override def end(): Unit = {
      super.end()
      ended.countDown()
    }

    private def newName(): String = {
      names += 1
      s"n$names"
    }

    private def delta(version: Int) = s"state/0/0/$version.delta"

    private def conf(patienceMs: Long): Configuration = {
      val made = new Configuration(false)
      made.set(StoredCheckpoint.CommitKey, "ride")
      made.setLong(StoredCheckpoint.TimeoutKey, patienceMs)
      made.setInt(StoredCheckpoint.RunEntriesKey, 6)
      made
    }

    private def files(): Map[String, String] = {
      val ledger = new RunLedger(memory, "sparklog/id", LedgerSettings(giveUpMs = 0))
      try {
        ledger.refresh()
        ledger.index.below("").map { case (path, file) =>
          path -> new String(StoredCheckpoint.fetch(memory, path, file.location))
        }.toMap
      } catch { case e: IOException => throw new Violation(s"can't be read: ${e.getMessage}") }
    }

    /** A query that starts now continues after the newest commit, from one history. */
    override protected def check(): Unit = {
      val found = files()
      def batches(directory: String) = found.keys.collect {
        case path if path.startsWith(s"$directory/") => path.substring(directory.length + 1).toInt
      }.toSet
      val (plans, commits) = (batches("offsets"), batches("commits"))
      val end = plans.maxOption.getOrElse(-1)
      if (commits.maxOption.getOrElse(-1) < end - 1) {
        throw new Violation(s"plan $end, and the newest commit is ${commits.maxOption}")
      }
      for ((batch, attempt) <- acknowledged) {
        if (batch >= end) throw new Violation(s"the plan after batch $batch is gone")
        if (isRecent(batch, end) && !found.get(s"commits/$batch").exists(isOf(attempt))) {
          throw new Violation(s"batch $batch was of $attempt: ${found.get(s"commits/$batch")}")
        }
      }
      // Deletions of an older batch may be lost with their driver, one by one.
      for (batch <- commits if isRecent(batch, end)) {
        val state = found.getOrElse(delta(batch + 1), "none at all").split(' ')
        if (!isOf(state(0))(found(s"commits/$batch"))) {
          throw new Violation(s"the state of batch $batch is of the attempt ${state(0)}")
        }
        for (before <- found.get(s"commits/${batch - 1}") if !isOf(state(1))(before)) {
          throw new Violation(s"batch $batch has read the state of the attempt ${state(1)}")
        }
      }
    }

    private def isRecent(batch: Int, end: Int) = batch > end - Retained + 2

    private def isOf(attempt: String)(commit: String): Boolean =
      commit.endsWith(s"""{"attempt":"$attempt"}""")

    override protected def drive(store: ObjectStore, patienceMs: Long): Unit = {
      val root = new Path(s"file:/ride/$seed/${newName()}")
      try {
        val driver =
          new StoredCheckpoint(root, store, "id", conf(patienceMs), pauseMs = 0)
        for (_ <- 0 to random.nextInt(3)) new Run(driver, newName()).batches()
      } catch { case _: IOException => }
    }

    /** A run of the query, in its driver. */
    private final class Run(driver: StoredCheckpoint, name: String) {
      private def write(path: String, text: String, ofRun: Option[String] = None): Unit =
        driver.write(Change(path, Some(text.getBytes), None), overwrite = ofRun.isDefined, ofRun,
          isDriver = ofRun.isEmpty)

      private def newest(directory: String): Int =
        driver.list(directory, isDriver = true).map(_.path.substring(directory.length + 1).toInt)
          .maxOption.getOrElse(-1)

      def batches(): Unit = {
        if (driver.status("metadata", isDriver = true).isEmpty) {
          write("metadata", s"""{"id":"$Query"}""")
        }
        driver.beginIfOwn(Caller(Some(name), Some(Query), keeper))
        var (plan, committed) = (newest("offsets"), newest("commits"))
        if (committed < plan - 1) throw violation(s"plan $plan comes after commit $committed")
        for (_ <- 0 until random.nextInt(12)) {
          if (plan == committed) {
            plan += 1
            write(s"offsets/$plan", "plan")
            acknowledge(plan - 1)
            clean(plan - Retained)
          }
          compute(plan)
          committed = plan
        }
      }

      /** The plan of the next batch was stored, and so was the commit of this one. */
      private def acknowledge(batch: Int): Unit = if (batch >= 0) guarded {
        val commit = new String(driver.open(s"commits/$batch", isDriver = true))
        acknowledged.getOrElseUpdate(batch, commit.split('"')(3))
        check()
      }

      private def clean(batch: Int): Unit =
        for (path <- Seq(s"offsets/$batch", s"commits/$batch", delta(batch)) if batch >= 0) {
          driver.delete(path, None)
        }

      private def compute(batch: Int): Unit = {
        val before = if (batch == 0) "nothing" else stateOf(batch)
        var attempt = newName()
        for (_ <- 0 to random.nextInt(2)) {
          attempt = newName()
          write(delta(batch + 1), s"$attempt $before", Some(name))
        }
        write(s"commits/$batch", s"""v1\n{"attempt":"$attempt"}""")
        if (random.nextBoolean()) {
          try {
            write(delta(batch + 1), s"late $before", Some(name))
            throw violation(s"a task that ended late has changed the state of batch $batch")
          } catch { case _: IOException => }
        }
      }

      /** Return the attempt that made the state which a task reads. */
      private def stateOf(version: Int): String =
        driver.find(delta(version), isDriver = false) match {
          case Found(null, null) => throw violation(s"a task finds no state of version $version")
          case Found(null, at) =>
            new String(StoredCheckpoint.fetch(memory, delta(version), at)).split(' ')(0)
          case Found(content, _) => new String(content).split(' ')(0)
        }
    }
  }
}
