package sparklog.probe

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.util.concurrent.{Callable, Executors}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}

import sparklog.checkpoint.{Caller, Daemons, MetadataMarker}
import sparklog.checkpoint.stored.{StoredCheckpoints => Open, _}

/** Checkpoints in object stores, without Spark: the store is a directory. */
object StoredCheckpoints extends Operations {
  override def operations: Map[String, Operation] =
    Map(
      "stored checkpoint" -> scenario,
      "objects created at once" -> race,
      "interrupted creations" -> interrupted,
      "files in runs" -> filesInRuns,
      "files of runs" -> filesOfRuns,
      "many partitions" -> manyPartitions
    )

  /** root directory, name of the scenario: nothing, or it throws */
  private def scenario(in: DataInputStream, out: DataOutputStream): Unit = {
    val root = new Path(s"file:${textFrom(in)}")
    scenarios(textFrom(in))(new Example(root))
  }

  /** root's URL, i32 threads, i32 names: i32 how many creations of each name succeeded */
  private def race(in: DataInputStream, out: DataOutputStream): Unit = {
    val store = HadoopStore.at(new Path(textFrom(in)), new Configuration)
    val (threads, names) = (in.readInt(), in.readInt())
    val pool = Executors.newFixedThreadPool(threads + 1, Daemons.named("race"))
    val isDone = new java.util.concurrent.atomic.AtomicBoolean
    // Files beside the objects come and go while they are listed.
    val listing = pool.submit((() => while (!isDone.get) store.list("a")): Runnable)
    for (name <- 0 until names) {
      val tasks = (0 until threads).map { n =>
        (() => store.create(s"a/$name", Array.fill(1000)(n.toByte))): Callable[Boolean]
      }
      val created = pool.invokeAll(tasks.asJava).asScala.map(_.get())
      val content = store.get(s"a/$name").get
      assert(content.length == 1000 && content.forall(_ == content(0)), "a mixed object")
      assert(created(content(0)), "the content is that of an attempt that failed")
      out.writeInt(created.count(identity))
    }
    isDone.set(true)
    listing.get()
    pool.shutdown()
    assert(store.list("a").size == names, "objects beside the created ones")
  }

  /** root's URL, i32 names: nothing. Spark interrupts the thread of a query that it stops. */
  private def interrupted(in: DataInputStream, out: DataOutputStream): Unit = {
    val store = HadoopStore.at(new Path(textFrom(in)), new Configuration)
    val content = Array.fill(100000)(1.toByte)
    store.create("a/first", content)
    for (name <- 0 until in.readInt()) {
      val create: Runnable = () =>
        try store.create(s"a/$name", content)
        catch { case _: IOException => }
      val thread = new Thread(create)
      thread.start()
      Thread.sleep(name % 40)
      thread.interrupt()
      thread.join()
    }
    val left = store.list("a").filter { each =>
      Names.isIncomplete(each.name) || each.bytes != content.length
    }
    assert(left.isEmpty, left.map(_.name))
  }

  /**
   * root directory, (path, content)*: a checkpoint with these files, in several runs, with large
   * files in packs, files that were written twice, and one that was deleted
   */
  private def filesInRuns(in: DataInputStream, out: DataOutputStream): Unit = {
    val root = new Path(s"file:${textFrom(in)}")
    Open.create(root, new Configuration)
    val store = HadoopStore.at(root, new Configuration)
    val id = CheckpointHome.idOf(root.toString, store.get(CheckpointHome.Name).get)
    val directory = s"sparklog/$id"
    val ledger = new RunLedger(store, directory, LedgerSettings(giveUpMs = 0, moveBytes = 100000))
    ledger.begin("{}")
    var changes = 0
    while (in.available > 0) {
      val (path, content) = (textFrom(in), bytesFrom(in))
      val change =
        if (content.length < 20000) Change(path, Some(content), None)
        else {
          CheckpointFiles.packed(store, Names.newPack(directory, ledger.firstRun), path, content)
        }
      val deleted =
        Change("offsets/999", if (changes % 2 == 0) Some(Array[Byte](1)) else None, None)
      ledger.append(Seq(Change(path, Some("older".getBytes), None), deleted))
      ledger.append(Seq(change))
      changes += 1
      if (changes % 7 == 0) {
        ledger.rotate(ledger.oldFiles.map { case (path, file) =>
          Change(path, Some(StoredCheckpoint.fetch(store, path, file.location)), Some(file))
        })
        ledger.deleteUnneeded()
      }
    }
    ledger.append(Seq(Change("offsets/999", None, None)))
  }

  /**
   * root directory, i32 partitions, i32 micro-batches: the bytes of the driver's memory and the
   * files of a checkpoint whose state stores keep the changes of 100 micro-batches (i64, i64)
   */
  private def manyPartitions(in: DataInputStream, out: DataOutputStream): Unit = {
    val example = new Example(new Path(s"file:${textFrom(in)}"))
    val (partitions, batches) = (in.readInt(), in.readInt())
    def used: Long = {
      System.gc()
      val runtime = Runtime.getRuntime
      runtime.totalMemory - runtime.freeMemory
    }
    val before = used
    val (driver, run) = example.begin()
    val changes = "x" * 200
    for (batch <- 0 until batches) {
      for (partition <- 0 until partitions) {
        put(driver, s"state/0/$partition/${batch + 1}.delta", changes, run)
        if (batch >= 100) driver.delete(s"state/0/$partition/${batch - 99}.delta", run)
      }
      commit(driver, batch)
    }
    out.writeLong(used - before)
    val files = (0 until partitions).map(n => driver.list(s"state/0/$n", isDriver = true).size)
    out.writeLong(files.map(_.toLong).sum)
    val reader = example.open()
    assert(text(reader, s"state/0/${partitions - 1}/$batches.delta") == changes)
  }

  /**
   * root directory: (path, content)* of a checkpoint in runs, after a run began that changes one
   */
  private def filesOfRuns(in: DataInputStream, out: DataOutputStream): Unit = {
    val root = new Path(s"file:${textFrom(in)}")
    val store = HadoopStore.at(root, new Configuration)
    val id = CheckpointHome.idOf(root.toString, store.get(CheckpointHome.Name).get)
    val ledger = new RunLedger(store, s"sparklog/$id", LedgerSettings(giveUpMs = 0))
    ledger.begin("{}")
    ledger.deleteUnneeded()
    for ((path, file) <- ledger.index.below("")) {
      for (bytes <- Seq(path.getBytes, StoredCheckpoint.fetch(store, path, file.location))) {
        bytesTo(out, bytes, 0, bytes.length)
      }
    }
  }

  /** A store that calls `before` with the kind and the name of each request. */
  private class Hooked(store: ObjectStore) extends ObjectStore {
    var before: (String, String) => Unit = (_, _) => ()
    var after: (String, String) => Unit = (_, _) => ()
    override def create(name: String, content: Array[Byte]): Boolean = {
      before("create", name)
      val isNew = store.create(name, content)
      after("create", name)
      isNew
    }
    override def put(name: String, content: Array[Byte]): Unit = {
      before("put", name)
      store.put(name, content)
    }
    override def get(name: String): Option[Array[Byte]] = {
      before("get", name)
      store.get(name)
    }
    override def get(listed: ObjectInfo): Option[Array[Byte]] = {
      before("get", listed.name)
      store.get(listed)
    }
    override def get(name: String, position: Long, bytes: Int): Option[Array[Byte]] = {
      before("get", name)
      store.get(name, position, bytes)
    }
    override def list(directory: String): Seq[ObjectInfo] = {
      before("list", directory)
      store.list(directory)
    }
    override def delete(names: Seq[String]): Unit = {
      before("delete", names.mkString(" "))
      store.delete(names)
    }
  }

  /** A query with the checkpoint at `root`, and its runs. */
  private final class Example(val root: Path) {
    val conf = new Configuration
    val hooked = new Hooked(HadoopStore.at(root, conf))
    conf.set("spark.sparklog.checkpoint.request.timeout.ms", "0")
    val query = "11111111-2222-3333-4444-555555555555"
    private var runs = 0

    private lazy val hasHome =
      HadoopStore.at(root, conf).create(CheckpointHome.Name, CheckpointHome.encode("id"))
    def open(): StoredCheckpoint = {
      hasHome
      new StoredCheckpoint(root, hooked, "id", conf)
    }
    def store: ObjectStore = HadoopStore.at(root, conf)

    /** Run `body` on a thread with the name that Spark gives to the thread of a query's run. */
    def onQueryThread(number: Int, ofQuery: String = query)(body: => Unit): Thread = {
      var thrown: Option[Throwable] = None
      val run = f"$number%08d-2222-3333-4444-555555555555"
      val thread = new Thread(
        (() =>
              try body
              catch { case e: Throwable => thrown = Some(e) }): Runnable,
        s"stream execution thread for a query [id = $ofQuery, runId = $run]")
      thread.start()
      thread.join()
      thrown.foreach(throw _)
      thread
    }

    /** Create the checkpoint as a session does, with the query's metadata; return its path. */
    def create(): Path = {
      val path = new Path(root, "query")
      Open.create(path, conf)
      files().write(new Path(path, "metadata"), s"""{"id":"$query"}""".getBytes, overwrite = false)
      path
    }

    def files(): CheckpointFiles = CheckpointFiles.of(conf)

    /** Begin a run in a new driver; return it with the run's id. */
    def begin(checkpoint: StoredCheckpoint = open(), thread: Thread = Thread.currentThread())
        : (StoredCheckpoint, Option[String]) = {
      runs += 1
      val run = s"run-$runs"
      if (checkpoint.status("metadata", isDriver = true).isEmpty) {
        put(checkpoint, "metadata", s"""{"id":"$query"}""", None)
      }
      checkpoint.beginIfOwn(Caller(Some(run), Some(query), thread))
      (checkpoint, Some(run))
    }
  }

  private def put(
      checkpoint: StoredCheckpoint, path: String, text: String, run: Option[String],
      overwrite: Boolean = true): Unit =
    checkpoint.write(Change(path, Some(text.getBytes), None), overwrite, run, run.isEmpty)

  private def text(checkpoint: StoredCheckpoint, path: String, isDriver: Boolean = true) =
    if (checkpoint.status(path, isDriver).isEmpty) ""
    else new String(checkpoint.open(path, isDriver))

  private def isRefused(body: => Unit): Boolean =
    try {
      body
      false
    } catch { case _: IOException => true }

  private def commit(checkpoint: StoredCheckpoint, batch: Int, more: String = ""): Unit = {
    put(checkpoint, s"offsets/$batch", s"v1\n{}\n$batch", None, overwrite = false)
    put(checkpoint, s"commits/$batch", s"""v1\n{"nextBatchWatermarkMs":0$more}""", None,
      overwrite = false)
  }

  private def delta(version: Int, id: String = "") = s"state/0/0/$version$id.delta"

  private val scenarios: Map[String, Example => Unit] = Map(
    "a batch is durable with its commit" -> { example =>
      val (driver, run) = example.begin()
      put(driver, "offsets/0", "plan", None)
      put(driver, delta(1), "one", run)
      assert(text(driver, delta(1)) == "one" && text(driver, delta(1), isDriver = false) == "")
      assert(text(example.open(), "offsets/0") == "plan")
      assert(text(example.open(), delta(1)) == "")
      put(driver, "commits/0", "v1\n{}", None)
      assert(text(driver, delta(1), isDriver = false) == "one")
      assert(text(example.open(), delta(1)) == "one")
    },
    "an uncommitted batch leaves nothing" -> { example =>
      val (driver, run) = example.begin()
      commit(driver, 0)
      put(driver, "offsets/1", "plan", None)
      put(driver, delta(2), "first try", run)
      val (again, other) = example.begin(driver)
      assert(text(again, delta(2)) == "" && text(again, "offsets/1") == "plan")
      put(again, delta(2), "second try", other)
      put(again, "commits/1", "v1\n{}", None)
      assert(text(example.open(), delta(2)) == "second try")
    },
    "the last attempt before a commit counts" -> { example =>
      val (driver, run) = example.begin()
      put(driver, delta(1), "first", run)
      put(driver, delta(1), "second", run)
      commit(driver, 0)
      assert(text(example.open(), delta(1)) == "second")
    },
    "a task that ends late changes nothing" -> { example =>
      val (driver, run) = example.begin()
      put(driver, delta(1), "one", run)
      commit(driver, 0)
      assert(isRefused(put(driver, delta(1), "late", run)))
      assert(isRefused(put(driver, "state/0/0/left-keys/1.changelog", "late", run)))
      put(driver, "state/0/0/1.snapshot", "all", run)
      commit(driver, 1)
      assert(text(example.open(), delta(1)) == "one")
      assert(text(example.open(), "state/0/0/1.snapshot") == "all")
    },
    "only attempts that a commit names count" -> { example =>
      val (driver, run) = example.begin()
      for (id <- Seq("_good", "_bad", "_worse")) put(driver, delta(1, id), id, run)
      put(driver, "state/1/0/1_bad.delta", "of another operator", run)
      commit(driver, 0, ""","stateUniqueIds":{"0":[["good"]],"1":[["bad"]]}""")
      put(driver, "state/0/0/1_bad.zip", "a late snapshot of another attempt", run)
      put(driver, "state/0/0/1_good.zip", "a late snapshot", run)
      commit(driver, 1)
      val paths = example.open().list("state/0/0", isDriver = true).map(_.path).toSet
      assert(paths == Set(delta(1, "_good"), "state/0/0/1_good.zip"), paths)
      assert(text(example.open(), "state/1/0/1_bad.delta") != "")
    },
    "a snapshot waits for its batch" -> { example =>
      val (driver, run) = example.begin()
      commit(driver, 0)
      put(driver, "state/0/0/2.snapshot", "of batch 1", run)
      put(driver, "offsets/1", "plan", None)
      assert(text(example.open(), "state/0/0/2.snapshot") == "")
      put(driver, "commits/1", "v1\n{}", None)
      assert(text(example.open(), "state/0/0/2.snapshot") == "of batch 1")
    },
    "a commit rides with the next plan" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      val (driver, run) = example.begin()
      put(driver, "offsets/0", "plan", None)
      put(driver, delta(1), "one", run)
      put(driver, "state/0/0/1.zip", "all", run)
      put(driver, delta(2), "of the next batch", run)
      put(driver, "commits/0", "v1\n{}", None)
      val reader = example.open()
      assert(text(reader, "offsets/0") != "" && text(reader, "commits/0") == "")
      assert(text(driver, "commits/0") != "" && text(driver, delta(1)) == "one")
      assert(text(driver, delta(1), isDriver = false) == "")
      assert(isRefused(put(driver, "commits/0", "v1\n{}", None, overwrite = false)))
      assert(isRefused(put(driver, delta(1), "late", run)))
      put(driver, "state/0/0/1.zip", "a late snapshot", run)
      put(driver, "offsets/1", "plan", None)
      assert(text(driver, delta(1), isDriver = false) == "one")
      val paths = Seq("commits/0", delta(1), "state/0/0/1.zip", "offsets/1", delta(2))
      assert(paths.map(text(example.open(), _)) == Seq("v1\n{}", "one", "all", "plan", ""))
      val entries = example.store.list("sparklog/id").flatMap(o =>
        Names.entry("sparklog/id", o.name))
      assert(entries.size == 3, entries)
    },
    "a commit that rides is lost with its driver" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      val (killed, run) = example.begin()
      put(killed, delta(1), "first", run)
      commit(killed, 0)
      val (driver, other) = example.begin()
      assert(text(driver, "offsets/0") != "" && text(driver, "commits/0") == "")
      put(driver, delta(1), "second", other)
      put(driver, "commits/0", "v1\n{}", None)
      put(driver, "offsets/1", "plan", None)
      assert(isRefused(put(killed, "offsets/1", "plan", None)))
      killed.flush()
      assert(text(example.open(), delta(1)) == "second")
    },
    "a commit that rides is stored when its run ends" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      val stop = new java.util.concurrent.CountDownLatch(1)
      val thread = new Thread((() => stop.await()): Runnable)
      thread.start()
      val (driver, run) = example.begin(thread = thread)
      put(driver, delta(1), "one", run)
      commit(driver, 0)
      driver.flush() // as the JVM does when it exits
      assert(text(example.open(), "commits/0") != "" && text(example.open(), delta(1)) == "one")
      commit(driver, 1)
      stop.countDown()
      while (driver.isCurrent(run.get)) Thread.sleep(1)
      assert(text(example.open(), "commits/1") != "")
      val (again, _) = example.begin()
      commit(again, 2)
      // Before the end of the thread is noticed.
      example.begin(again)
      assert(text(again, "commits/2") != "" && text(example.open(), "commits/2") != "")
    },
    "only attempts that a riding commit names count" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      val (driver, run) = example.begin()
      for (id <- Seq("_good", "_bad")) put(driver, delta(1, id), id, run)
      commit(driver, 0, ""","stateUniqueIds":{"0":[["good"]]}""")
      put(driver, "state/0/0/1_bad.zip", "a late snapshot of another attempt", run)
      put(driver, "state/0/0/1_good.zip", "a late snapshot", run)
      put(driver, "offsets/1", "plan", None)
      val paths = example.open().list("state/0/0", isDriver = true).map(_.path).toSet
      assert(paths == Set(delta(1, "_good"), "state/0/0/1_good.zip"), paths)
    },
    "a file that is deleted while its commit rides" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      val (driver, run) = example.begin()
      for (path <- Seq(delta(1), "state/0/1/1.delta")) put(driver, path, "one", run)
      commit(driver, 0)
      driver.delete(delta(1), run)
      assert(text(driver, delta(1)) == "")
      put(driver, "offsets/1", "plan", None)
      assert(text(example.open(), delta(1)) == "" && text(example.open(),
        "state/0/1/1.delta") != "")
    },
    "a query that is stopped loses no commit that rides" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      val (driver, _) = example.begin()
      commit(driver, 0)
      val isWriting = new java.util.concurrent.CountDownLatch(1)
      example.hooked.before = (kind, _) =>
        if (kind == "create") {
          isWriting.countDown()
          try Thread.sleep(200)
          catch { case _: InterruptedException => throw new java.io.InterruptedIOException }
        }
      val query = new Thread((() => put(driver, "offsets/1", "plan", None)): Runnable)
      query.start()
      isWriting.await()
      query.interrupt()
      query.join()
      assert(text(example.open(), "commits/0") != "" && text(example.open(), "offsets/1") != "")
    },
    "a large commit does not ride" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "ride")
      example.conf.set("spark.sparklog.checkpoint.internal.entry.bytes", "1000")
      val (driver, run) = example.begin()
      put(driver, delta(1), "x" * 600, run)
      commit(driver, 0)
      assert(text(example.open(), "commits/0") != "")
      commit(driver, 1)
      assert(text(example.open(), "commits/1") == "")
    },
    "commits are put or ride" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.commit", "later")
      val message =
        try {
          example.open()
          ""
        } catch { case e: IllegalArgumentException => e.getMessage }
      assert(message.contains("must be put") && message.endsWith("got later"), message)
    },
    "a file that exists is not overwritten unasked" -> { example =>
      val (driver, _) = example.begin()
      commit(driver, 0)
      for (path <- Seq("offsets/0", "commits/0", "metadata")) {
        try {
          put(driver, path, "other", None, overwrite = false)
          assert(false, path)
        } catch { case _: FileAlreadyExistsException => }
      }
    },
    "deleted files are gone after the next commit" -> { example =>
      val (driver, run) = example.begin()
      put(driver, delta(1), "one", run)
      put(driver, "state/0/0/SSTs/a.sst", "sst", run)
      commit(driver, 0)
      driver.delete(delta(1), run)
      driver.delete("state/0/0/SSTs", run)
      assert(driver.list("state/0/0", isDriver = false).isEmpty)
      assert(text(example.open(), delta(1)) == "one")
      put(driver, "offsets/1", "plan", None)
      assert(example.open().list("state/0/0", isDriver = true).isEmpty)
      put(driver, delta(2), "never", run)
      driver.delete(delta(2), run)
      put(driver, "commits/1", "v1\n{}", None)
      assert(example.open().list("state/0/0", isDriver = true).isEmpty)
    },
    "an old run writes nothing" -> { example =>
      val (driver, run) = example.begin()
      commit(driver, 0)
      example.begin(driver)
      assert(isRefused(put(driver, delta(2), "late", run)))
      assert(isRefused(driver.delete("commits/0", run)))
      assert(isRefused(driver.newPack(run)))
    },
    "another driver takes over" -> { example =>
      val (old, run) = example.begin()
      put(old, "offsets/0", "plan", None)
      put(old, delta(1), "old", run)
      val (driver, other) = example.begin()
      put(driver, delta(1), "new", other)
      put(driver, "commits/0", "v1\n{}", None)
      val message =
        try {
          put(old, "commits/0", "v1\n{}", None)
          ""
        } catch { case e: SupersededException => e.getMessage }
      assert(message.contains("another driver has taken over"), message)
      assert(isRefused(put(old, "offsets/1", "plan", None)))
      assert(text(example.open(), delta(1)) == "new")
      val (again, _) = example.begin(old)
      commit(again, 1)
      assert(text(example.open(), delta(1)) == "new")
    },
    "another query's thread does not begin a run" -> { example =>
      val (driver, run) = example.begin()
      val stranger = Some("99999999-2222-3333-4444-555555555555")
      driver.beginIfOwn(Caller(Some("other"), stranger, Thread.currentThread()))
      put(driver, delta(1), "one", run)
      commit(driver, 0)
      assert(text(example.open(), delta(1)) == "one")
    },
    "snapshots are stored when the query ends" -> { example =>
      val stop = new java.util.concurrent.CountDownLatch(1)
      val thread = new Thread((() => stop.await()): Runnable)
      thread.start()
      val (driver, run) = example.begin(thread = thread)
      commit(driver, 0)
      put(driver, "state/0/0/1.snapshot", "all", run)
      put(driver, "state/0/0/2.snapshot", "of an uncommitted batch", run)
      stop.countDown()
      val end = System.nanoTime() + 60L * 1000 * 1000 * 1000
      while (text(example.open(), "state/0/0/1.snapshot") == "") {
        assert(System.nanoTime() < end, "not stored")
        Thread.sleep(10)
      }
      assert(text(example.open(), "state/0/0/2.snapshot") == "")
    },
    "the note of a reset is deleted at once" -> { example =>
      val (driver, run) = example.begin()
      put(driver, "sparklog.reset", """{"log":"l"}""", run)
      commit(driver, 0)
      assert(text(example.open(), "sparklog.reset") != "")
      driver.delete("sparklog.reset", run)
      assert(text(example.open(), "sparklog.reset") == "")
      assert(text(driver, "sparklog.reset") == "")
      driver.delete("sparklog.reset", run)
    },
    "a query does not start before its file sink was reset" -> { example =>
      val (driver, run) = example.begin()
      put(driver, "sparklog.reset", """{"output":"/data/out"}""", run)
      commit(driver, 0)
      assert(isRefused(example.begin(example.open())))
      driver.delete("sparklog.reset", run)
      example.begin(example.open())
    },
    "the log of a local disk is not taken for an empty place" -> { example =>
      val path = new Path(example.root, "copied")
      val store = HadoopStore.at(path, example.conf)
      store.put("metadata", MetadataMarker.Text.getBytes)
      store.put("sparklog/metadata-0/00000000000000000000.log", Array[Byte](1))
      assert(isRefused(Open.create(path, example.conf)))
      assert(store.get(CheckpointHome.Name).isEmpty)
    },
    "a start finds small files in the index" -> { example =>
      val (driver, run) = example.begin()
      for (batch <- 0 until 5) {
        put(driver, delta(batch + 1), s"delta $batch", run)
        commit(driver, batch)
      }
      val (_, _) = example.begin()
      val entries =
        example.store.list("sparklog/id").flatMap(o => Names.entry("sparklog/id", o.name))
      assert(entries.count(_.run == 0) == 2, entries) // the first entry and the seal
      val (third, _) = example.begin()
      example.hooked.before = (kind, name) =>
        if (kind == "get") throw new IOException(s"$name is not in memory")
      for (batch <- 0 until 5) assert(text(third, delta(batch + 1)) == s"delta $batch")
      example.hooked.before = (_, _) => ()
    },
    "large files are objects of their own until nothing needs them" -> { example =>
      val (driver, run) = example.begin()
      val content = Array.tabulate(2 << 20)(n => (n % 251).toByte)
      def add(path: String): Unit = {
        val change = CheckpointFiles.packed(driver.objects, driver.newPack(run), path, content)
        driver.write(change, overwrite = true, run, isDriver = false)
      }
      def packs = example.store.list("sparklog/id").count(_.name.contains("/pack-"))
      add("state/0/0/SSTs/a.sst")
      add("state/0/0/SSTs/b.sst")
      commit(driver, 0)
      val reader = example.open()
      assert(java.util.Arrays.equals(reader.open("state/0/0/SSTs/a.sst", isDriver = true), content))
      driver.delete("state/0/0/SSTs/a.sst", run)
      commit(driver, 1)
      assert(packs == 2)
      val (again, _) = example.begin()
      assert(packs == 1)
      assert(java.util.Arrays.equals(again.open("state/0/0/SSTs/b.sst", isDriver = true), content))
    },
    "a long run is ended, and its entries are deleted" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.run.entries", "10")
      val (driver, run) = example.begin()
      put(driver, "state/0/_metadata/schema", "for ever", run)
      for (batch <- 0 until 60) {
        put(driver, delta(batch + 1), s"delta $batch", run)
        commit(driver, batch)
        if (batch >= 4) for (old <- Seq(s"offsets/${batch - 4}", s"commits/${batch - 4}",
            delta(batch - 3))) driver.delete(old, None)
      }
      val objects = example.store.list("sparklog/id").map(_.name)
      val runs = objects.flatMap(Names.entry("sparklog/id", _)).groupBy(_.run)
      assert(runs.size >= 5, runs.keys.toSeq.sorted)
      for ((run, places) <- runs if run < runs.keys.max - 1) assert(places.size == 2, places)
      assert(objects.size < 50, objects.size)
      val (again, _) = example.begin()
      assert(text(again, "state/0/_metadata/schema") == "for ever")
      for (batch <- 56 until 60) assert(text(again, delta(batch + 1)) == s"delta $batch")
    },
    "a late task writes nothing while its batch is being committed" -> { example =>
      val (driver, run) = example.begin()
      put(driver, "offsets/0", "plan", None)
      put(driver, delta(1), "one", run)
      var refused = false
      example.hooked.before = (kind, _) =>
        if (kind == "create") refused = isRefused(put(driver, delta(1), "late", run))
      put(driver, "commits/0", "v1\n{}", None)
      example.hooked.before = (_, _) => ()
      assert(refused)
      put(driver, "offsets/1", "plan", None)
      assert(text(example.open(), delta(1)) == "one")
    },
    "a lost answer does not end a run" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.request.timeout.ms", "60000")
      val (driver, run) = example.begin()
      var lost = 0
      example.hooked.after = (_, _) => {
        lost += 1
        if (lost % 2 == 1) throw new IOException("no answer")
      }
      for (batch <- 0 until 3) {
        put(driver, delta(batch + 1), s"delta $batch", run)
        commit(driver, batch)
      }
      assert(lost >= 6)
      for (batch <- 0 until 3) assert(text(example.open(), delta(batch + 1)) == s"delta $batch")
    },
    "a start reads each entry by a single request, and lists them twice" -> { example =>
      val (driver, run) = example.begin()
      for (batch <- 0 until 3) {
        put(driver, delta(batch + 1), s"delta $batch", run)
        commit(driver, batch)
      }
      // All entries, and the home; then the only entry of a run, its index, and the home.
      for (reads <- Seq(8, 3)) {
        val requests = new java.util.concurrent.ConcurrentLinkedQueue[String]
        object counting extends Hooked(example.store) {
          before = (kind, _) => { requests.add(kind); () }
          override def get(name: String): Option[Array[Byte]] = {
            assert(name == CheckpointHome.Name, s"$name is read without its status")
            super.get(name)
          }
        }
        val (again, _) =
          example.begin(new StoredCheckpoint(example.root, counting, "id", example.conf))
        val counts = requests.asScala.groupMapReduce(identity)(_ => 1)(_ + _)
        val expected =
          Map("list" -> 2, "get" -> reads, "create" -> 2, "put" -> 1, "delete" -> 1)
        assert(counts == expected, counts)
        assert(text(again, delta(3)) == "delta 2")
      }
    },
    "a beginning that fails changes nothing" -> { example =>
      val (driver, _) = example.begin()
      commit(driver, 0)
      for (failing <- Seq("list", "create", "put")) {
        example.hooked.before = (kind, _) => if (kind == failing) throw new IOException("no answer")
        assert(isRefused { example.begin(driver); () }, failing)
        example.hooked.before = (_, _) => ()
        assert(driver.isBroken)
        assert(text(driver, "metadata").contains(example.query), failing)
        put(driver, "metadata", s"""other {"id":"${example.query}"}""", None)
        example.begin(driver)
        assert(text(driver, "metadata") == s"""{"id":"${example.query}"}""", failing)
        assert(text(driver, "offsets/0") != "")
      }
    },
    "a run begins before its query reads anything" -> { example =>
      val path = example.create()
      val source = new Path(path, "sources/0/0")
      example.onQueryThread(1) {
        example.files().write(source, Array[Byte](1), overwrite = false)
        // The first run is still under way: its end would store the file.
        example.onQueryThread(2) {
          assert(example.files().list(new Path(path, "sources/0")).isEmpty)
          assert(example.files().status(source).isEmpty)
        }
      }
    },
    "pool threads of an old run write nothing" -> { example =>
      val path = example.create()
      val (old, now) = (example.files(), example.files())
      example.onQueryThread(1) {
        old.list(new Path(path, "offsets"))
        ()
      }
      example.onQueryThread(2) {
        now.list(new Path(path, "offsets"))
        ()
      }
      assert(isRefused(old.write(new Path(path, "offsets/0"), Array[Byte](1), overwrite = false)))
    },
    "the thread of another query may use the checkpoint" -> { example =>
      val path = example.create()
      example.onQueryThread(9, "99999999-2222-3333-4444-555555555555") {
        example.files().write(new Path(path, "sources/0/0"), Array[Byte](1), overwrite = false)
      }
    },
    "a failed read before a commit loses no file" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.cache.bytes", "0")
      val (driver, run) = example.begin()
      commit(driver, 0, ""","stateUniqueIds":{"0":[["good"]]}""")
      put(driver, "state/0/0/SSTs/a.sst", "sst", run)
      put(driver, "state/0/0/1_good.zip", "all", run)
      example.hooked.before = (kind, _) => if (kind == "get") throw new IOException("no answer")
      assert(isRefused(put(driver, "offsets/1", "plan", None)))
      example.hooked.before = (_, _) => ()
      put(driver, "offsets/1", "plan", None)
      val paths = example.open().list("state/0/0", isDriver = true).map(_.path).toSet
      assert(paths == Set("state/0/0/SSTs", "state/0/0/1_good.zip"), paths)
    },
    "a rotation that can't read its files is postponed" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.run.entries", "6")
      example.conf.set("spark.sparklog.checkpoint.cache.bytes", "0")
      val (driver, run) = example.begin()
      put(driver, "state/0/_metadata/schema", "for ever", run)
      example.hooked.before = (kind, _) => if (kind == "get") throw new IOException("no answer")
      for (batch <- 0 until 5) commit(driver, batch)
      example.hooked.before = (_, _) => ()
      def runs = example.store.list("sparklog/id").flatMap(o => Names.entry("sparklog/id", o.name))
        .map(_.run).max
      assert(runs == 0)
      commit(driver, 5)
      assert(runs == 1)
    },
    "files beyond an entry's limit share objects of their own" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.entry.bytes", "1000")
      val path = example.create()
      def content(n: Int): Array[Byte] = Array.fill(300)(n.toByte)
      example.onQueryThread(1) {
        val files = example.files()
        for (n <- 0 until 10) {
          files.write(new Path(path, s"sources/0/$n"), content(n), overwrite = false)
        }
        files.write(new Path(path, "offsets/0"), new Array[Byte](9000), overwrite = false)
      }
      val objects = HadoopStore.at(path, example.conf).list("sparklog")
      assert(objects.count(_.name.contains("/pack-")) == 2, objects)
      val reader = example.files()
      for (n <- 0 until 10) {
        val found = reader.read(new Path(path, s"sources/0/$n"))
        assert(java.util.Arrays.equals(found, content(n)), s"file $n")
      }
    },
    "many writers at once share objects of their own" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.entry.bytes", "1000")
      val (driver, run) = example.begin()
      val pool = Executors.newFixedThreadPool(8, Daemons.named("writers"))
      def name(n: Int) = s"state/0/$n/1.delta"
      val writes = (0 until 200).map(n => (() => put(driver, name(n), s"first $n", run)): Runnable)
      // Some are written again by a second attempt, while or after the first was packed.
      val again = (0 until 200 by 5).map { n =>
        (() => put(driver, name(n), s"second $n", run)): Runnable
      }
      writes.map(pool.submit(_)).foreach(_.get())
      again.map(pool.submit(_)).foreach(_.get())
      pool.shutdown()
      commit(driver, 0)
      val reader = example.open()
      for (n <- 0 until 200) {
        val expected = if (n % 5 == 0) s"second $n" else s"first $n"
        assert(text(reader, name(n)) == expected, n)
      }
      val packs = example.store.list("sparklog/id").count(_.name.contains("/pack-"))
      assert(packs > 0 && packs <= 4, packs)
    },
    "a file that is written again while it is packed" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.entry.bytes", "10")
      val (driver, run) = example.begin()
      val delta = "state/0/0/1.delta"
      val second = new Thread((() => put(driver, delta, "the second", run)): Runnable)
      example.hooked.before = (kind, _) =>
        if (kind == "put") {
          example.hooked.before = (_, _) => ()
          second.start()
          while (text(driver, delta) != "the second") Thread.sleep(1)
        }
      put(driver, delta, "the first, which is packed", run)
      second.join()
      commit(driver, 0)
      assert(text(example.open(), delta) == "the second")
    },
    "a pack that can't be written fails its writer only" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.entry.bytes", "10")
      val (driver, run) = example.begin()
      example.hooked.before = (kind, _) => if (kind == "put") throw new IOException("no answer")
      assert(isRefused(put(driver, "state/0/0/1.delta", "a long content", run)))
      example.hooked.before = (_, _) => ()
      put(driver, "state/0/0/1.delta", "a second attempt", run)
      commit(driver, 0)
      assert(text(example.open(), "state/0/0/1.delta") == "a second attempt")
    },
    "names have the digits 0 to 9 in any locale" -> { _ =>
      val locale = java.util.Locale.getDefault
      java.util.Locale.setDefault(java.util.Locale.forLanguageTag("ar-EG-u-nu-arab"))
      try assert(Names.of("d", Place(12, 3)) == "d/run-0000000012/0000000003")
      finally java.util.Locale.setDefault(locale)
    },
    "a pack that was not reported yet is kept" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.run.entries", "4")
      val (driver, run) = example.begin()
      val content = new Array[Byte](2 << 20)
      val change = CheckpointFiles.packed(
        driver.objects, driver.newPack(run), "state/0/0/SSTs/a.sst", content)
      for (batch <- 0 until 6) commit(driver, batch)
      driver.write(change, overwrite = true, run, isDriver = false)
      for (batch <- 6 until 12) commit(driver, batch)
      assert(example.open().open("state/0/0/SSTs/a.sst", isDriver = true).length == 2 << 20)
    },
    "a late snapshot does not replace the committed one" -> { example =>
      val (driver, run) = example.begin()
      put(driver, "state/0/0/1.zip", "one", run)
      commit(driver, 0)
      put(driver, "state/0/0/1.zip", "late", run)
      put(driver, "state/0/0/1.snapshot", "a first snapshot", run)
      commit(driver, 1)
      assert(text(example.open(), "state/0/0/1.zip") == "one")
      assert(text(example.open(), "state/0/0/1.snapshot") == "a first snapshot")
    },
    "files are seen while the end of a query stores them" -> { example =>
      val stop = new java.util.concurrent.CountDownLatch(1)
      val thread = new Thread((() => stop.await()): Runnable)
      thread.start()
      val (driver, _) = example.begin(thread = thread)
      val (stored, seen) = (new java.util.concurrent.CountDownLatch(1),
        new java.util.concurrent.atomic.AtomicReference[String])
      example.hooked.before = (kind, _) =>
        if (kind == "create") {
          seen.set(text(driver, "metadata"))
          stored.countDown()
        }
      stop.countDown()
      stored.await()
      assert(seen.get.contains(example.query))
    },
    "nothing is written without a run" -> { example =>
      val (driver, _) = example.begin()
      commit(driver, 0)
      val other = example.open()
      assert(isRefused(put(other, "offsets/1", "plan", None)))
      commit(driver, 1)
    },
    "a file that a rotation moved is read again" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.run.entries", "6")
      example.conf.set("spark.sparklog.checkpoint.cache.bytes", "0")
      val (driver, run) = example.begin()
      put(driver, "state/0/_metadata/schema", "for ever", run)
      commit(driver, 0)
      var isMoved = false
      example.hooked.before = (kind, name) =>
        if (kind == "get" && name.contains("/run-") && !isMoved) {
          isMoved = true
          for (batch <- 1 until 8) commit(driver, batch)
        }
      assert(text(driver, "state/0/_metadata/schema") == "for ever")
      assert(isMoved)
    },
    "incomplete objects of killed drivers are deleted after a day" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.internal.run.entries", "6")
      val (driver, _) = example.begin()
      commit(driver, 0)
      val entry = example.store.list("sparklog").map(_.name).find(_.contains("/run-")).get
      val directory = s"${example.root.toUri.getPath}/${entry.substring(0, entry.lastIndexOf('/'))}"
      val old = new java.io.File(s"$directory/.sparklog-a")
      val recent = new java.io.File(s"$directory/.sparklog-b")
      for (file <- Seq(old, recent)) assert(file.createNewFile())
      assert(old.setLastModified(System.currentTimeMillis() - 25L * 3600 * 1000))
      for (batch <- 1 until 8) commit(driver, batch)
      assert(!old.exists() && recent.exists())
    },
    "contents beyond the memory's limit are read from their objects" -> { example =>
      example.conf.set("spark.sparklog.checkpoint.cache.bytes", "1000")
      val (driver, run) = example.begin()
      for (n <- 0 until 30) put(driver, s"state/0/$n/1.delta", s"$n" * 100, run)
      commit(driver, 0)
      for (n <- 0 until 30) assert(text(driver, s"state/0/$n/1.delta") == s"$n" * 100)
    },
    "a location is tried, marked and opened" -> { example =>
      val root = new Path("file:" + example.open().root.toUri.getPath + "/new")
      val made = Open.create(root, example.conf).toOption.get
      assert(new String(HadoopStore.at(root, example.conf).get("metadata").get).contains(
          "sparklog"))
      val names = HadoopStore.at(root, example.conf).list("sparklog").map(_.name)
      assert(names == Seq("sparklog/home"), names)
      assert(Open.create(root, example.conf).toOption.contains(made))
      val (again, name) = Open.around(new Path(root, "state/0/1/2.delta"), example.conf)
      assert((again eq made) && name == "state/0/1/2.delta")
    },
    "a checkpoint that lost its home does not begin anew" -> { example =>
      val path = example.create()
      example.onQueryThread(1) {
        example.files().write(new Path(path, "offsets/0"), Array[Byte](1), overwrite = false)
      }
      val store = HadoopStore.at(path, example.conf)
      val home = store.get(CheckpointHome.Name).get
      store.delete(Seq(CheckpointHome.Name))
      val message =
        try {
          Open.create(path, example.conf)
          ""
        } catch { case e: IOException => e.getMessage }
      assert(message.contains("Restore the object from a copy"), message)
      store.put(CheckpointHome.Name, home)
      assert(text(Open.create(path, example.conf).toOption.get, "offsets/0") != "")
      store.delete(Seq(CheckpointHome.Name))
      for (bad <- Seq(home.updated(90, (home(90) ^ 1).toByte), home.take(70), Array.empty[Byte])) {
        store.put(CheckpointHome.Name, bad)
        assert(isRefused { Open.create(path, example.conf); () })
      }
    },
    "a run that begins after an export or a deletion writes nothing" -> { example =>
      val (first, run) = example.begin()
      commit(first, 0)
      val home = example.store.get(CheckpointHome.Name).get
      val other = CheckpointHome.encode("other")
      for (left <- Seq(None, Some(other))) {
        val driver = example.open()
        example.hooked.before = (kind, name) =>
          if (kind == "create" && name.contains("/run-")) {
            example.store.delete(Seq(CheckpointHome.Name))
            left.foreach(example.store.put(CheckpointHome.Name, _))
          }
        val message =
          try {
            example.begin(driver)
            ""
          } catch { case e: IOException => e.getMessage }
        example.hooked.before = (_, _) => ()
        assert(message.contains("was exported or deleted while the query was starting"), message)
        assert(isRefused(commit(driver, 1)))
        example.store.put(CheckpointHome.Name, home)
        // As the message advises.
        val (again, _) = example.begin(driver)
        assert(text(again, "commits/0") != "")
        assert(text(again, "commits/1") == "")
      }
      assert(isRefused(put(first, "offsets/1", "late", run)))
    },
    "a checkpoint of Spark itself is left to Spark" -> { example =>
      val store = example.store
      store.put("metadata", """{"id":"11111111-2222-3333-4444-555555555555"}""".getBytes)
      assert(Open.create(example.root, example.conf).isLeft)
      store.delete(Seq("metadata"))
      store.put("offsets/0", "plan".getBytes)
      assert(Open.create(example.root, example.conf).isLeft)
    },
    "a store without atomic creation is refused" -> { example =>
      val store = example.store
      object careless extends Hooked(store) {
        override def create(name: String, content: Array[Byte]): Boolean = {
          store.put(name, content)
          true
        }
      }
      assert(ObjectStore.fault(store, "trial").isEmpty)
      object repeating extends Hooked(store) {
        override def create(name: String, content: Array[Byte]): Boolean = {
          store.create(name, content)
          store.create(name, content)
        }
      }
      assert(ObjectStore.fault(repeating, "trial").isEmpty)
      assert(ObjectStore.fault(careless, "trial").isDefined)
      assert(store.get("trial").isEmpty)
      val message =
        try {
          example.conf.set("fs.viewfs.mounttable.default.link./a", example.root.toString)
          Open.create(new Path("viewfs:/a/checkpoint"), example.conf)
          ""
        } catch { case e: IOException => e.getMessage }
      assert(message.contains("it is on the file system viewfs"), message)
    }
  )
}
