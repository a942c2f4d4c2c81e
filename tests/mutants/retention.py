"""Bugs in what takes records away: retention, group offsets, compaction; and in forks."""

from tests.mutants.mutant import mutant

CLEANER = "logdir/cleaning/test_cleaner.py"


def in_both_homes(test: str) -> tuple[str, ...]:
    """Return a test of the groups' contract in a log dir and in a bucket."""
    homes = ("TestGroupsOfLogDir", "TestGroupsOfMemoryStore")
    return tuple(f"testing/test_home_contracts.py::{home}::{test}" for home in homes)


def in_rounds_of_both_homes(test: str) -> tuple[str, ...]:
    """Return a test of the rounds' contract in a log dir and in a bucket."""
    homes = ("TestRoundsOfLogDir", "TestRoundsOfMemoryStore")
    return tuple(f"service/test_rounds.py::{home}::{test}" for home in homes)


MUTANTS = (
    mutant(
        "retention-bytes-off-by-one",
        "log/due_segments.py",
        "if self.size - max_bytes - self.segments[self.at].size < 0 or",
        "if self.size - max_bytes - self.segments[self.at].size <= 0 or",
        "log/test_due_segments.py::test_size[250-expected2]",
        "tiered/copying/test_plan.py::test_size_is_of_both_tiers[250-expected2]",
    ),
    mutant(
        "retention-ms-off-by-one",
        "log/due_segments.py",
        "if now_ms - newest_ms < expires_ms:",
        "if now_ms - newest_ms < expires_ms - 1:",
        "log/test_due_segments.py::test_age[5000-expected0]",
        "tiered/copying/test_plan.py::test_age[1700000000999-expected0]",
    ),
    mutant(
        "reader-not-waited-for",
        "log/due_segments.py",
        "self.floor is not None and self.ends[at] > self.floor",
        "self.floor is not None and self.ends[at] > self.floor + 10",
        "log/test_due_segments.py::test_registered_readers_hold_back",
        "tiered/copying/test_plan.py::test_registered_readers_hold_copies_back",
    ),
    mutant(
        "copy-not-waited-for",
        "log/due_segments.py",
        "return first >= end or any(low <= first and end <= high",
        "return first >= end or any(low <= first and first <= high",
        "tiered/copying/test_plan.py::test_size_is_of_both_tiers[250-expected2]",
    ),
    mutant(
        "renamed-before-the-start-is-durable",
        "logdir/retention/segment_deletion.py",
        "not the renames.\n        commits.fs.sync_dir(commits.home)",
        "not the renames.\n        pass",
        "crash/test_retention.py::test_retention_by_age[all]",
    ),
    mutant(
        "query-without-its-name",
        "source/group_registration.py",
        "batch=batch, name=query_name(caller.description, caller.query_id),",
        "batch=batch,",
        "source/test_group_registration.py::test_the_name_of_a_query_is_registered",
    ),
    mutant(
        "fastest-reader-counts",
        "storage/groups.py",
        "found[key] = min(at.offset,",
        "found[key] = max(at.offset,",
        "logdir/test_group_offsets.py::test_a_damaged_file_holds_all_back_until_its_reader_commits",
    ),
    mutant(
        "expired-commit-counts",
        "storage/groups.py",
        "return now_ms - time_ms >= retention_ms",
        "return now_ms - time_ms > retention_ms + 1",
        "logdir/test_group_offsets.py::test_a_dead_reader_holds_for_a_week_and_no_longer",
    ),
    mutant(
        "groups-in-no-order",
        "storage/group_store.py",
        "return sorted(readers, key=lambda reader: reader.group)",
        "return readers",
        *in_both_homes("test_groups_are_apart_whatever_they_are_called"),
    ),
    mutant(
        "damaged-group-is-not-reported",
        "storage/group_store.py",
        "for each in stored if each.error is not None}",
        "for each in stored if each.error is None}",
        *in_both_homes("test_a_damaged_group_is_told_until_it_commits_again"),
    ),
    mutant(
        "group-name-is-not-checked",
        "storage/group_store.py",
        "        check_group(group)\n        return self._store.read(group)",
        "        return self._store.read(group)",
        *in_both_homes("test_what_can_be_no_name_is_refused"),
    ),
    mutant(
        "group-of-any-planner",
        "storage/group_store.py",
        "if planner in r.planners)",
        "if r.planners)",
        *in_both_homes("test_a_query_and_its_planner"),
    ),
    mutant(
        "damaged-group-never-commits-again",
        "storage/group_store.py",
        "return self._store.update(group, decide, heal=True)",
        "return self._store.update(group, decide)",
        *in_both_homes("test_a_change_heals_a_damaged_group"),
    ),
    mutant(
        "planner-fails-at-a-damaged-group",
        "storage/group_store.py",
        "except DataCorruptionError:  # the query's next task reports",
        "except UnsupportedVersionError:  # the query's next task reports",
        *in_both_homes("test_a_planner_leaves_a_damaged_group_to_its_tasks"),
    ),
    mutant(
        "expiration-takes-a-commit-made-meanwhile",
        "storage/group_store.py",
        "self._store.update(group, decide, durably=False)",
        "self._store.delete(self._store.key(group), durably=False)",
        *in_both_homes("test_a_commit_while_it_expires_stays"),
    ),
    mutant(
        "expired-commit-takes-its-group-along",
        "storage/group_store.py",
        "return without_expired(known, now_ms, retention_ms)",
        "return without_expired(known, 1 << 62, retention_ms)",
        *in_both_homes("test_old_commits_expire"),
    ),
    mutant(
        "dry-run-expires-commits",
        "storage/group_store.py",
        "if old and not dry_run:",
        "if old:",
        *in_both_homes("test_old_commits_expire"),
    ),
    mutant(
        "dry-run-expires-damaged-groups",
        "storage/group_store.py",
        "if not dry_run:",
        "if damaged:",
        *in_both_homes("test_a_damaged_group_expires_by_its_age"),
    ),
    mutant(
        "damaged-group-expires-at-once",
        "storage/group_store.py",
        "if is_expired(damaged.time_ms, now_ms, retention_ms):",
        "if is_expired(damaged.time_ms, now_ms, 0):",
        *in_both_homes("test_a_damaged_group_expires_by_its_age"),
    ),
    mutant(
        "new-group-not-synced",
        "logdir/group_offsets.py",
        "sync_dir=is_new)",
        "sync_dir=False)",
        "crash/test_readers.py::test_a_change_is_cut_anywhere",
    ),
    mutant(
        "deleted-group-not-synced",
        "logdir/group_offsets.py",
        "if durably:",
        "if not durably:",
        "crash/test_readers.py::test_a_change_is_cut_anywhere",
    ),
    mutant(
        "tombstone-dropped-early",
        "log/record_cleaning.py",
        "verdicts = np.where(expired, 0, int(Verdict.TOMBSTONES))",
        "verdicts = np.where(marked, 0, int(Verdict.TOMBSTONES))",
        "logdir/cleaning/test_cleaner.py::TestRecords::test_tombstones_stay_for_their_retention",
    ),
    mutant(
        "horizon-without-delete-retention",
        "log/record_cleaning.py",
        "horizon=now_ms + delete_retention_ms)",
        "horizon=now_ms)",
        "logdir/cleaning/test_cleaner.py::TestRecords::test_tombstones_stay_for_their_retention",
        "diskless/test_cleaning.py::test_tombstones_stay_for_their_time",
    ),
    mutant(
        "aborted-records-kept",
        "log/cleaned_transactions.py",
        "        ongoing.seen = True\n        return True",
        "        ongoing.seen = True\n        return False",
        "oracle/test_cleaner.py::test_equal_to_kafkas[1]",
    ),
    mutant(
        "marker-dropped-with-data-left",
        "log/cleaned_transactions.py",
        "if ongoing is None or not ongoing.seen:",
        "if ongoing is None or ongoing.seen:",
        "oracle/test_cleaner.py::test_equal_to_kafkas[0]",
    ),
    mutant(
        "cleaned-past-the-stable-offset",
        "log/dirty_ratio.py",
        "bound = min(log.stable, active)",
        "bound = active",
        "logdir/cleaning/test_plan.py::test_dirt[20-27-want3]",
    ),
    mutant(
        "compaction-lag-not-heeded",
        "log/dirty_ratio.py",
        "                bound = segment.base\n",
        "                bound = bound\n",
        "logdir/cleaning/test_cleaner.py::TestCleanable::test_min_compaction_lag",
    ),
    mutant(
        "cleaner-checkpoint-off-by-one",
        "logdir/cleaning/rewrite.py",
        "next_dirty=self.offsets.latest + 1",
        "next_dirty=self.offsets.latest + 2",
        "oracle/test_cleaner.py::test_equal_to_kafkas[0]",
    ),
    mutant(
        "swap-log-gone-before-retired",
        "logdir/partition/segment_swap.py",
        "    fs.sync_dir(directory)\n    fs.unlink(log + SWAP)",
        "    fs.unlink(log + SWAP)",
        "crash/test_swap.py::test_every_cut_of_a_swap",
    ),
    mutant(
        "swap-begun-without-a-sync",
        "logdir/partition/segment_swap.py",
        "    fs.sync_dir(directory)\n    _complete(",
        "    _complete(",
        "crash/test_swap.py::test_every_cut_of_a_swap",
    ),
    mutant(
        "swap-forgotten-before-its-sources-are-durably-gone",
        "logdir/recovery/leftover_files.py",
        "            fs.sync_dir(directory)\n        target =",
        "            pass\n        target =",
        (
            "crash/test_swap.py::"
            "test_recovery_forgets_a_swap_only_after_its_sources_are_durably_gone"
        ),
    ),
    mutant(
        "swap-takes-the-snapshot-at-its-base",
        "logdir/recovery/leftover_files.py",
        "        if name not in kept and base",
        "        if name not in swaps and base",
        (
            "logdir/recovery/test_partition_recovery.py::"
            "test_a_completed_swap_keeps_the_snapshot_at_its_base"
        ),
    ),
    mutant(
        "swap-of-changed-sources",
        "logdir/cleaning/rewrite.py",
        "if fs.identity(path) != source.identity or fs.size(path) != source.size:",
        "if fs.size(path) != source.size:",
        "logdir/cleaning/test_cleaner.py::TestFiles::test_sources_that_changed_meanwhile",
    ),
    mutant(
        "fork-keeps-later-epochs",
        "logdir/forking/partition_fork.py",
        "epochs = clipped(part.epochs, start=part.start, end=part.end)",
        "epochs = clipped(part.epochs, start=part.start)",
        "logdir/forking/test_fork.py::test_later_leader_epochs_stay_behind",
    ),
    mutant(
        "fork-of-a-cleaned-log",
        "logdir/forking/partition_fork.py",
        "dense=end < cleaned,",
        "dense=False,",
        (
            "logdir/forking/test_fork.py::TestCompaction::"
            "test_a_cleaned_part_below_the_end_is_taken_as_it_is"
        ),
    ),
    mutant(
        "first-deletion-not-announced",
        "log/deletion_announcements.py",
        "fresh = {name for name in wanted if ids[name] not in known}",
        "fresh = set[str]()",
        *in_rounds_of_both_homes("test_a_first_deletion_is_announced_a_round_ahead"),
    ),
    mutant(
        "announced-segments-deleted-nevertheless",
        "log/rounds.py",
        "announcing=key.topic in postponed and not known.local",
        "announcing=False",
        *in_rounds_of_both_homes("test_a_first_deletion_is_announced_a_round_ahead"),
    ),
    mutant(
        "requested-deletion-announced",
        "log/rounds.py",
        "        at_once=at_once,\n",
        "",
        *in_rounds_of_both_homes("test_a_deletion_on_request_is_not_announced"),
    ),
    mutant(
        "cleanest-partition-first",
        "log/rounds.py",
        "key=lambda c: -c.dirt.ratio",
        "key=lambda c: c.dirt.ratio",
        *in_rounds_of_both_homes("test_the_dirtiest_partition_is_cleaned_first"),
    ),
    mutant(
        "partition-below-its-ratio-cleaned",
        "log/rounds.py",
        "if (each.wanted or (every and",
        "if (each.dirt.ratio or (every and",
        *in_rounds_of_both_homes("test_a_partition_below_its_ratio_is_cleaned_on_request_only"),
    ),
    mutant(
        "damaged-partition-cleaned-again",
        "log/rounds.py",
        "            and each.key not in self.quarantined\n",
        "",
        *in_rounds_of_both_homes("test_a_damaged_partition_is_skipped_until_its_topic_is_another"),
    ),
    mutant(
        "quarantine-outlives-its-topic",
        "log/rounds.py",
        "self._reasons.pop(key, None)",
        "self._reasons.get(key)",
        *in_rounds_of_both_homes("test_a_damaged_partition_is_skipped_until_its_topic_is_another"),
        "service/tiering/test_remote_log_manager.py"
        "::test_a_damaged_partition_is_skipped_until_its_topic_is_replaced",
    ),
    mutant(
        "any-topic-may-be-compacted",
        "log/admin.py",
        "if not config.compact:",
        "if config is None:",
        *in_rounds_of_both_homes("test_only_compacted_topics_are_compacted"),
    ),
    mutant(
        "readers-that-retention-respects-not-read",
        "log/group_lag.py",
        "if not any(_respects(topic.config)",
        "if any(_respects(topic.config)",
        *in_rounds_of_both_homes("test_retention_waits_for_registered_readers"),
    ),
)
