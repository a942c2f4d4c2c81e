"""Bugs in checkpoints that are kept in runs, in an object store."""

from tests.mutants.mutant import Mutant, mutant

SCHEDULES = "jvm/test_ledger.py::test_schedules"
DAMAGE = "jvm/test_ledger.py::test_damage"
ENDS = "jvm/test_ledger.py::test_ends_of_old_runs_are_kept"
RACE = "jvm/test_stored_checkpoint.py::test_one_of_many_creators_wins"
READING = "checkpoint/test_stored_runs.py"
WRITING = "checkpoint/test_stored_copies.py"


def _scala(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return mutant(f"stored-{name}", f"jvm/scala/checkpoint/stored/{file}", old, new, *tests)


def _scenario(name: str) -> str:
    return f"jvm/test_stored_checkpoint.py::test_scenarios[{name}]"


MUTANTS = (
    # --- The ledger of runs -----------------------------------------------------------------------
    _scala(
        "an-own-entry-is-taken-for-anothers",
        "RunLedger.scala",
        "Some(if (found.attempt == entry.attempt) Right(placed) else Left(found))",
        "Some(Left(found))",
        _scenario("a lost answer does not end a run"),
    ),
    _scala(
        "an-entry-without-an-answer-counts",
        "RunLedger.scala",
        "if (created.contains(true)) outcome",
        "if (!created.contains(false)) outcome",
        SCHEDULES,
    ),
    _scala(
        "a-run-begins-without-a-seal",
        "RunLedger.scala",
        "if (run == RunLedger.NoRun) None else Some(sealNewest())",
        "if (run == RunLedger.NoRun) None else Some(Place(run, next))",
        SCHEDULES,
    ),
    _scala(
        "an-entry-at-the-seals-place-is-not-read",
        "RunLedger.scala",
        "case Left(other) => take(other)",
        "case Left(_) => next += 1",
        SCHEDULES,
    ),
    _scala(
        "seals-are-deleted",
        "Deletions.scala",
        "entries.filter { case (p, _) => sealNumber.exists(p.number != _) }",
        "entries",
        SCHEDULES,
    ),
    _scala(
        "an-old-listing-is-used-for-deletion",
        "RunLedger.scala",
        "lastListing = None",
        "()",
        _scenario("a long run is ended, and its entries are deleted"),
    ),
    _scala(
        "first-entries-are-deleted",
        "Deletions.scala",
        "unneeded.filter(_._1.number != 0)",
        "unneeded",
        ENDS,
    ),
    _scala(
        "a-driver-goes-on-in-anothers-run",
        "RunLedger.scala",
        "beginAfter(sealPlace, smallFiles).isRight",
        "{ beginAfter(sealPlace, smallFiles); true }",
        SCHEDULES,
    ),
    _scala(
        "a-ledger-is-used-after-a-failure",
        "RunLedger.scala",
        "        broken = Some(e)\n",
        "",
        SCHEDULES,
    ),
    _scala(
        "a-swapped-entry-is-read",
        "LedgerEntry.scala",
        "if (found != place) {",
        "if (found.run < 0) {",
        DAMAGE,
    ),
    _scala(
        "a-swapped-index-is-read",
        "RunLedger.scala",
        "if (name != obj) throw",
        "if (name.isEmpty) throw",
        DAMAGE,
    ),
    _scala(
        "ends-of-runs-are-kept-for-a-time-only",
        "Deletions.scala",
        "val isOld = old < run - settings.keepRuns &&",
        "val isOld = old < run &&",
        ENDS,
    ),
    _scala(
        "ends-of-runs-are-kept-for-a-number-only",
        "Deletions.scala",
        "objects.forall(_._2.timeMs < settings.nowMs() - settings.keepMs)",
        "objects.nonEmpty",
        ENDS,
    ),
    # --- The driver -------------------------------------------------------------------------------
    _scala(
        "a-late-task-changes-a-batch-that-is-being-committed",
        "StoredCheckpoint.scala",
        "if file.isChange && file.id.isEmpty && file.version <= closing",
        "if file.isChange && file.id.isEmpty && file.version <= committed",
        _scenario("a late task writes nothing while its batch is being committed"),
    ),
    _scala(
        "a-snapshot-does-not-wait-for-its-batch",
        "PendingFiles.scala",
        "file.version <= committed && (",
        "(",
        _scenario("a snapshot waits for its batch"),
    ),
    _scala(
        "files-of-all-attempts-are-kept",
        "PendingFiles.scala",
        "ids.get(version).flatten.forall(_.get(operator).forall(_.contains(id)))",
        "true || id.isEmpty || operator.isEmpty || version < 0",
        _scenario("only attempts that a commit names count"),
    ),
    _scala(
        "executors-see-files-of-an-uncommitted-batch",
        "StoredCheckpoint.scala",
        "pending.get(path).orElse(inFlight.get(path)).filter(c => isDriver || c.isDeletion)",
        "pending.get(path).orElse(inFlight.get(path)).filter(c => isDriver || c.path.nonEmpty)",
        _scenario("a batch is durable with its commit"),
    ),
    _scala(
        "packs-that-were-not-reported-are-deleted",
        "Deletions.scala",
        "exists(_ < firstRun || dropped(name))",
        "isDefined",
        _scenario("a pack that was not reported yet is kept"),
    ),
    _scala(
        "a-late-snapshot-replaces-the-committed-one",
        "StoredCheckpoint.scala",
        "if (!isLateSnapshot(change.path)) pending.put(change)",
        "pending.put(change)",
        _scenario("a late snapshot does not replace the committed one"),
    ),
    _scala(
        "an-entry-is-written-without-a-run",
        "RunLedger.scala",
        "def append(changes: Seq[Change]): Unit = settled {\n    checkOwn()\n",
        "def append(changes: Seq[Change]): Unit = settled {\n",
        _scenario("nothing is written without a run"),
    ),
    _scala(
        "an-old-run-writes",
        "StoredCheckpoint.scala",
        "    def checkAll(): Unit = {\n      check(ofRun)\n",
        "    def checkAll(): Unit = {\n",
        _scenario("an old run writes nothing"),
    ),
    _scala(
        "the-query-id-is-replaced",
        "StoredCheckpoint.scala",
        'keepsMetadata = ledger.index.get(MetadataMarker.File).isEmpty',
        "keepsMetadata = true",
        _scenario("a beginning that fails changes nothing"),
    ),
    _scala(
        "the-last-snapshots-are-lost",
        "StoredCheckpoint.scala",
        "if (!ledger.isBroken) flushPending()",
        "",
        _scenario("snapshots are stored when the query ends"),
    ),
    _scala(
        "a-rotation-that-cant-read-fails-the-query",
        "StoredCheckpoint.scala",
        "case e: IOException if !ledger.isBroken =>",
        "case e: IOException if ledger.isBroken && ledger.firstRun < -1 =>",
        _scenario("a rotation that can't read its files is postponed"),
    ),
    _scala(
        "pool-threads-of-an-old-run-write",
        "CheckpointFiles.scala",
        "if (found.exists(_._1.beginIfOwn(caller))) ofQuery = caller.run",
        "found.foreach(_._1.beginIfOwn(caller))",
        _scenario("pool threads of an old run write nothing"),
    ),
    _scala(
        "a-checkpoint-without-its-home-begins-anew",
        "StoredCheckpoints.scala",
        "    CheckpointHome.checkNotLost(root.toString, store)\n",
        "",
        _scenario("a checkpoint that lost its home does not begin anew"),
    ),
    _scala(
        "incomplete-objects-remain",
        "Deletions.scala",
        " ++ found.filter(isLeft).map(_.name)",
        "",
        _scenario("incomplete objects of killed drivers are deleted after a day"),
    ),
    _scala(
        "several-creators-win",
        "HadoopStore.scala",
        "Files.createLink(target, aside)",
        "Files.copy(aside, target, java.nio.file.StandardCopyOption.REPLACE_EXISTING)",
        RACE,
    ),
    # --- Reading in Python ------------------------------------------------------------------------
    mutant(
        "a-reader-of-runs-lists-once",
        "checkpoint/stored_runs.py",
        "if not is_last and any(",
        "if is_last and any(",
        f"{READING}::test_a_driver_ends_the_run_meanwhile",
    ),
    mutant(
        "a-moved-file-is-missing",
        "checkpoint/stored_runs.py",
        "            file = moved\n",
        "",
        f"{READING}::test_a_file_that_the_end_of_a_run_moved",
    ),
    mutant(
        "a-lost-pack-is-a-removed-file",
        "checkpoint/stored_runs.py",
        "        raise self._missing(file.object)\n",
        '        raise FileNotFoundError(2, "the file was removed", name)\n',
        f"{READING}::test_a_file_that_the_end_of_a_run_moved",
    ),
    mutant(
        "a-run-without-its-first-entry-is-not-seen",
        "checkpoint/stored_runs.py",
        "        newest, is_sealed, number = places[-1][0], False, 0\n",
        "        newest, is_sealed, number = max(r for r, n in places if n == 0), False, 0\n",
        f"{READING}::test_a_run_without_its_first_entry",
    ),
    _scala(
        "a-run-without-its-first-entry-is-not-read",
        "RunLedger.scala",
        "places.map(_.run).maxOption match",
        "places.filter(_.number == 0).map(_.run).maxOption match",
        DAMAGE,
    ),
    mutant(
        "a-swapped-pack-is-read",
        "checkpoint/stored_runs.py",
        "if more or record.path != name or record.kind != CONTENT:",
        "if more:",
        f"{READING}::test_damage",
    ),
    _scala(
        "a-start-leaves-small-files-where-they-are",
        "RunLedger.scala",
        "beginAfter(sealPlace, smallFiles).isRight",
        "beginAfter(sealPlace, Nil).isRight",
        _scenario("a start finds small files in the index"),
    ),
    _scala(
        "the-note-of-a-reset-is-deleted-later",
        "StoredCheckpoint.scala",
        "if (path == ResetNote.Name) committing",
        "if (path.isEmpty) committing",
        _scenario("the note of a reset is deleted at once"),
    ),
    _scala(
        "a-copied-log-is-an-empty-place",
        "CheckpointHome.scala",
        "left.find(_.startsWith(s",
        "left.find(_.endsWith(s",
        _scenario("the log of a local disk is not taken for an empty place"),
    ),
    mutant(
        "an-export-beside-a-query",
        "checkpoint/stored_conversion.py",
        "    if runs.end != RunEnd(writer.run, 1, is_sealed=False):\n",
        "    if runs.end is None:\n",
        f"{WRITING}::test_a_query_that_starts_during_an_export",
    ),
    mutant(
        "a-sink-is-reset-before-the-seal",
        "checkpoint/stored_copies.py",
        "    run.seal()  # or",
        "    # or",
        f"{WRITING}::test_a_reset_is_completed_after_the_seal",
    ),
    _scala(
        "a-pack-replaces-a-later-file",
        "StoredCheckpoint.scala",
        "if pending.get(old.path).exists(_ eq old)",
        "if pending.contains(old.path)",
        _scenario("a file that is written again while it is packed"),
    ),
    _scala(
        "files-ride-without-a-limit",
        "StoredCheckpoint.scala",
        "    if (isFull) packPending()\n",
        "",
        _scenario("files beyond an entry's limit share objects of their own"),
    ),
    mutant(
        "a-run-begins-where-the-query-goes-on",
        "checkpoint/run_writer.py",
        'if not self._create_entry(self._end.run, self._end.number, {"kind": "seal"}):',
        'if self._create_entry(self._end.run, self._end.number, {"kind": "seal"}) is None:',
        f"{WRITING}::test_a_query_that_writes_meanwhile",
    ),
    mutant(
        "an-own-entry-of-python-is-anothers",
        "checkpoint/run_writer.py",
        "return self._store.get(name) == data",
        "return False",
        f"{WRITING}::test_a_change_through_a_bad_network",
    ),
    mutant(
        "a-copy-is-visible-before-its-files",
        "checkpoint/stored_copies.py",
        "        size = 0\n        for path in checkpoint.paths():\n",
        "        size = 0\n        self.publish()\n        for path in checkpoint.paths():\n",
        f"{WRITING}::test_a_change_that_is_killed",
    ),
    mutant(
        "an-import-without-a-marker",
        "checkpoint/stored_conversion.py",
        "    store.put(METADATA_FILE, MARKER_OF_RUNS)\n",
        "",
        f"{WRITING}::test_import_and_export",
    ),
    mutant(
        "an-import-of-a-running-query",
        "checkpoint/stored_conversion.py",
        "        if plans_of(checkpoint) != before:\n",
        "        if not before:\n",
        f"{WRITING}::test_a_query_that_runs_on_during_an_import",
    ),
    mutant(
        "a-conversion-of-two-histories",
        "checkpoint/stored_conversion.py",
        "        if beside and beside[-1] > newest:\n",
        "        if False:\n",
        f"{WRITING}::test_two_histories",
    ),
    mutant(
        "a-repair-without-an-index",
        "checkpoint/repair.py",
        "    if is_index or not checkpoint.exists(METADATA_FILE):\n",
        "    if not checkpoint.paths():\n",
        f"{WRITING}::test_a_damaged_index_is_not_repaired",
    ),
    mutant(
        "a-repair-keeps-what-cannot-be-read",
        "checkpoint/repair.py",
        "            lost[path] = error\n",
        "            pass\n",
        f"{WRITING}::test_a_repair",
    ),
    mutant(
        "a-reset-in-runs-forgets-its-log",
        "checkpoint/reset.py",
        "{RESET: note.encode()} if note else {}",
        "{}",
        f"{WRITING}::test_a_reset_with_its_log",
    ),
    mutant(
        "an-entry-of-another-place-is-read",
        "checkpoint/stored_runs.py",
        'if (header.get("run"), header.get("number")) != (run, number):',
        'if header.get("run") is None:',
        f"{READING}::test_damage",
    ),
)
