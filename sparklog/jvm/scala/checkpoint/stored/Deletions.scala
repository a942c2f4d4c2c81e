package sparklog.checkpoint.stored

/**
 * Decides which objects of a ledger are deleted.
 *
 * @param firstRun the first run of this driver: packs of earlier runs are needed now or never
 * @param previous the seal of the run before `run`
 * @param dropped objects whose last file was deleted since the last deletion
 */
private[stored] final case class Deletions(
    directory: String, run: Long, firstRun: Long, previous: Option[Place],
    indexObject: Option[String], index: FileIndex, dropped: Set[String],
    settings: LedgerSettings) {

  /**
   * Return the names of the objects that no file and no driver needs. `sealOf` returns the number
   * of the seal of an older run.
   */
  def of(found: Seq[ObjectInfo], sealOf: Long => Option[Long]): Seq[String] = {
    val older = found.flatMap(o => Names.entry(directory, o.name).map(_ -> o))
      .filter(_._1.run < run).groupBy(_._1.run).toSeq.sortBy(_._1)
    older.flatMap { case (old, objects) => ofRun(old, objects, sealOf) } ++
      found.map(_.name).filter(isUnneeded) ++ found.filter(isLeft).map(_.name)
  }

  /** Whether a killed driver has left an object incomplete. */
  private def isLeft(o: ObjectInfo): Boolean =
    Names.isIncomplete(o.name) && o.timeMs < settings.nowMs() - Deletions.DayMs

  /**
   * First entries and seals of old runs stay for a long time: they stop the drivers of these runs
   * when they wake up.
   */
  private def ofRun(
      old: Long, objects: Seq[(Place, ObjectInfo)],
      sealOf: Long => Option[Long]): Seq[String] = {
    val isOld = old < run - settings.keepRuns &&
      objects.forall(_._2.timeMs < settings.nowMs() - settings.keepMs)
    val unneeded = objects.filterNot { case (_, o) => index.needs(o.name) }
    val found =
      if (isOld && unneeded.size == objects.size) objects
      else {
        val entries = unneeded.filter(_._1.number != 0)
        // Without its number nothing is deleted, because one of the entries is the seal.
        val sealNumber =
          if (previous.exists(_.run == old)) previous.map(_.number)
          else if (entries.size > 1) sealOf(old)
          else None
        entries.filter { case (p, _) => sealNumber.exists(p.number != _) }
      }
    found.map(_._2.name)
  }

  private def isUnneeded(name: String): Boolean = !index.needs(name) && (
    Names.index(directory, name) match {
      case Some(of) => of < run && !indexObject.contains(name)
      // A pack of this driver may be one that a task has written and not reported yet.
      case None => Names.pack(directory, name).exists(_ < firstRun || dropped(name))
    })
}

private object Deletions {
  private val DayMs = 24L * 3600 * 1000
}
