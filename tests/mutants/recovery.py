"""Bugs in recovery: undo, completion, full recovery, and what a broker left."""

from tests.mutants.mutant import mutant

ONE = "crash/test_every_cut.py::test_one_operation_and_its_recovery"

SEEDS = "crash/test_seeds.py"

MOVES = "logdir/test_partition_move.py"

LEDGER_REPAIR = "service/repair/test_ledger_repair.py"

MUTANTS = (
    mutant(
        "recovery-believes-a-flipped-epoch",
        "logdir/recovery/partition_recovery.py",
        "    for run in credible.runs:",
        "    for run in scanned:",
        "logdir/recovery/test_partition_recovery.py::test_a_flipped_epoch_is_not_believed",
    ),
    mutant(
        "broker-logs-flipped-epoch-believed",
        "logdir/recovery/log_loader.py",
        "        for run in credible.runs:",
        "        for run in found.epochs.runs:",
        "logdir/recovery/test_log_loader.py::test_a_flipped_epoch_is_not_believed",
    ),
    mutant(
        "older-lock-page-believed",
        "logdir/commit_log.py",
        "                self._check_sizes(())  # an outdated page would hide the newest commits\n",
        "",
        "logdir/test_older_files.py::test_an_older_lock_page_hides_no_commit",
    ),
    mutant(
        "older-watermarks-believed",
        "logdir/view.py",
        "            if end < page.ledger_end:",
        "            if end > page.ledger_end:",
        "logdir/test_older_files.py::test_older_watermarks_hide_no_commit",
    ),
    mutant(
        "topics-without-their-file-have-no-configs",
        "logdir/view.py",
        "is not None or not has_ledger(self._fs, self.home) or",
        "is not None or has_ledger(self._fs, self.home) or",
        "logdir/test_older_files.py::test_without_the_topics_file_readers_ask_the_ledger",
    ),
    mutant(
        "segment-cut-for-a-copy-of-it",
        "service/verification/partition.py",
        "if first is not None and first < base and _reaches(",
        "if first is not None and first > base and _reaches(",
        "service/test_log_verification.py::test_a_copy_of_a_segment_under_another_base_offset",
    ),
    mutant(
        "flipped-base-offset-taken-for-a-copy",
        "service/verification/partition.py",
        "    return not walked.damaged and walked.end >= (",
        "    return True or walked.end >= (",
        "service/test_log_verification.py::test_a_flipped_base_offset_makes_no_segment_a_copy",
    ),
    mutant(
        "lost-commit-written-twice",
        "log/commit.py",
        "    if lost is None or not spans or (",
        "    if lost is None or spans or (",
        f"{LEDGER_REPAIR}::test_a_writer_goes_on_once_its_last_batch_is_declared",
    ),
    mutant(
        "log-closed-without-a-copy-of-its-state",
        "logdir/closing.py",
        "    write_state_copy(fs, commits.home, commits.ledger.end, state)\n",
        "",
        f"{LEDGER_REPAIR}::test_nothing_is_lost_of_a_closed_log",
    ),
    mutant(
        "broker-takes-over-without-the-ledger",
        "logdir/opening.py",
        "    elif has_own_files(fs, home):",
        "    elif False:",
        f"{LEDGER_REPAIR}::test_nothing_is_lost_of_a_closed_log",
    ),
    mutant(
        "records-behind-the-damage-not-folded",
        "service/repair/ledger_salvage.py",
        "            if following_batch is None:",
        "            if following_batch or not following_batch:",
        f"{LEDGER_REPAIR}::test_the_state_copy_of_another_ledger_is_older",
    ),
    mutant(
        "found-record-not-made-durable",
        "logdir/recovery/log_recovery.py",
        "        file.pwrite(raw[at : at + size], at)\n        file.sync()",
        "        file.pwrite(raw[at : at + size], at)",
        "crash/test_protocol.py::test_kill_after_ledger_write_then_cut",
    ),
    mutant(
        "lost-ledger-tail-believed",
        "logdir/ledger_end.py",
        "if end < floor:",
        "if end < 1:",
        "logdir/test_opening.py::TestDamagedLedger::test_a_lost_tail_is_refused_and_nothing_is_cut",
    ),
    mutant(
        "unsynced-commit-believed",
        "logdir/recovery/log_recovery.py",
        "if valid_end(manager.fs, path, first) < end:",
        "if valid_end(manager.fs, path, first) < first:",
        "crash/test_protocol.py::test_flush_none_prefix[0]",
    ),
    mutant(
        "epoch-entry-not-undone",
        "storage/leader_epochs.py",
        "entries = [entry for entry in entries if entry[1] < end]",
        "entries = [entry for entry in entries if entry[1] <= end]",
        (
            "logdir/recovery/test_truncation.py::"
            "test_undo_restores_from_every_cut[append_across_rolls-filled-open]"
        ),
    ),
    mutant(
        "indexes-not-written-again-after-a-failed-fsync",
        "logdir/partition/truncation.py",
        "    if len(entries):",
        "    if False:",
        (
            "logdir/recovery/test_truncation.py::"
            "test_an_index_is_whole_on_the_disk_after_an_fsync_of_it_failed"
        ),
    ),
    mutant(
        "undo-lowest-segment-first",
        "logdir/partition/truncation.py",
        "for _, name in sorted(doomed, reverse=True):",
        "for _, name in sorted(doomed):",
        "logdir/recovery/test_truncation.py::test_the_highest_segment_goes_first",
    ),
    mutant(
        "damage-below-the-end-cut",
        "logdir/recovery/partition_recovery.py",
        "    if short:\n",
        "    if not short and found.error:\n",
        "crash/test_corruption.py::test_a_damaged_segment_below_the_end[crashed-first-cut]",
    ),
    mutant(
        "segment-past-the-end-stays",
        "logdir/recovery/partition_recovery.py",
        "not name.endswith(SNAPSHOT) and base > end:",
        "not name.endswith(SNAPSHOT) and base > end + 2:",
        "crash/test_corruption.py::test_rubbish_above_the_end",
    ),
    mutant(
        "foreign-index-believed",
        "logdir/recovery/partition_recovery.py",
        "return plausible_offsets(entries, size=size, span=2**31) == len(entries)",
        "return True",
        "logdir/recovery/test_partition_recovery.py::test_indexes_are_rebuilt[zeros-20]",
    ),
    mutant(
        "strays-deleted",
        "logdir/recovery/redo.py",
        "if dropped or is_empty(fs, path):",
        "if dropped or path:",
        "logdir/test_opening.py::test_what_only_has_a_partitions_name_is_left_alone",
    ),
    mutant(
        "log-starts-not-written",
        "logdir/high_watermarks.py",
        "for (topic, partition), offset in starts.items():",
        "for (topic, partition), offset in ():",
        "logdir/test_high_watermarks.py",
    ),
    mutant(
        "open-transactions-adopted",
        "logdir/adoption.py",
        "    if report.open_transactions:",
        "    if report.open_transactions and not key:",
        "logdir/test_commit_log.py",
    ),
    mutant(
        "short-partition-adopted",
        "logdir/adoption.py",
        "    if end_on_disk < end:",
        "    if end_on_disk < 0:",
        "logdir/test_offline_partitions.py::test_the_active_segment_alone[closed]",
    ),
    mutant(
        "swapped-directories",
        "logdir/offline_partitions.py",
        "    if found.partition in (None, key.partition):",
        "    if found.partition is None or topic_id:",
        (
            "logdir/test_swapped_partitions.py::"
            "test_swapped_directories_are_offline_for_readers_writers_and_the_service[closed]"
        ),
    ),
    mutant(
        "duplicate-behind-the-end-accepted",
        "logdir/partition/segment.py",
        "            known = table if wrong < 0 else table[:wrong]",
        "            known = table",
        "logdir/test_uncommitted_tails.py::test_behind_the_active_segment[last_twice]",
    ),
    mutant(
        "tail-taken-for-a-brokers",
        "logdir/uncommitted_tails.py",
        "(untouched or not _is_continued(",
        "(not _is_continued(",
        "logdir/test_uncommitted_tails.py::test_behind_the_active_segment[one_that_fits]",
    ),
    mutant(
        "brokers-appends-set-aside",
        "logdir/uncommitted_tails.py",
        "    locked_out = all(is_kept_from_brokers(fs, directory) for directory in directories)",
        "    locked_out = bool(directories)",
        "logdir/test_uncommitted_tails.py::test_what_a_broker_may_have_appended_is_taken_over",
    ),
    mutant(
        "ledger-record-behind-the-close-believed",
        "logdir/uncommitted_tails.py",
        "return max(ends) if all(0 < closed < end for closed in ends) else end",
        "return end",
        "logdir/test_uncommitted_tails.py::test_behind_the_ledger[one_that_fits]",
    ),
    mutant(
        "older-watermarks-make-records-uncommitted",
        "logdir/uncommitted_tails.py",
        "return max(ends) if all(0 < closed < end for closed in ends) else end",
        "return min(ends)",
        (
            "logdir/test_uncommitted_tails.py::"
            "test_an_older_checkpoint_file_makes_no_record_uncommitted[sparklog.watermarks]"
        ),
    ),
    mutant(
        "writer-goes-on-in-a-foreign-segment",
        "logdir/partition/partition_log.py",
        "return segment.tail_crc != self.tail_crc",
        "return segment.tail_crc == self.tail_crc + 1",
        (
            "service/verification/test_appends.py::"
            "test_a_writer_does_not_go_on_in_another_partitions_segment[closed]"
        ),
    ),
    mutant(
        "foreign-segment-recovered",
        "logdir/recovery/partition_recovery.py",
        "    if last.tail_crc != tail_crc:",
        "    if last.tail_crc == tail_crc + 1:",
        (
            "service/verification/test_appends.py::"
            "test_a_writer_does_not_go_on_in_another_partitions_segment[crashed]"
        ),
    ),
    mutant(
        "last-batches-left-out-of-snapshots",
        "storage/ledger_records.py",
        "    if record.tails:",
        "    if record.tails and not record.tails:",
        "service/verification/test_appends.py::test_a_snapshot_keeps_what_the_last_batches_are",
    ),
    mutant(
        "adoption-under-the-same-epoch",
        "logdir/adoption.py",
        "epoch = max([state.epoch, *epochs]) + 1",
        "epoch = max([state.epoch, *epochs])",
        "crash/test_protocol_locks.py::test_broker_append_kill_reopen_keeps",
    ),
    mutant(
        "segments-of-a-moved-partition-not-synced",
        "logdir/partition_move.py",
        "path=file.path, position=end)\n        copy.sync()\n",
        "path=file.path, position=end)\n",
        "crash/test_moving.py::test_a_power_cut_right_behind_a_move",
    ),
    mutant(
        "move-beside-another-session",
        "logdir/partition_move.py",
        "        if not commits.lock.is_last():\n",
        "        if commits.lock.is_last() is None:\n",
        f"{MOVES}::test_it_is_refused_while_another_session_has_the_log_open",
    ),
    mutant(
        "copy-of-a-failed-move-stays",
        "logdir/partition_move.py",
        "with commits.step(making=[target]) as step:",
        "with commits.step() as step:",
        f"{MOVES}::test_damage_stops_it",
    ),
    mutant(
        "unfinished-online-move-not-cancelled",
        "logdir/recovery/redo.py",
        "topic.id == topic_id and topic.dirs.get(partition) != number",
        "topic.id == '' and topic.dirs.get(partition) != number",
        f"{MOVES}::test_a_move_that_an_earlier_version_began",
    ),
    mutant(
        "erasure-not-noted-before-it-begins",
        "logdir/erasures_file.py",
        "erasures(fs, home), [*others, begun])",
        "erasures(fs, home), others)",
        SEEDS,
    ),
    mutant(
        "what-an-erasure-left-forgotten",
        "logdir/erasures_file.py",
        "[*others, ended] if ended.left else others)",
        "others)",
        SEEDS,
    ),
    mutant(
        "given-back-whatever-its-topic-id",
        "logdir/recovery/redo.py",
        "return next((topic for topic in found if topic.id == topic_id), None)",
        "return found[0] if topic_id else None",
        SEEDS,
    ),
    mutant(
        "ledger-recovered-from-its-last-segment-on",
        "logdir/recovery/log_recovery.py",
        "return min(base, marks.durable - 1)",
        "return base",
        "crash/test_ledger_rolls.py",
    ),
    mutant(
        "rolled-ledger-segment-left-to-the-dead",
        "logdir/recovery/log_recovery.py",
        "for base in bases[-2:-1]:",
        "for base in bases[-2:-2]:",
        "crash/test_ledger_rolls.py",
    ),
    mutant(
        "copy-of-a-partition-adopted",
        "logdir/opening.py",
        "return why_foreign(stored_metadata(commits.fs, place), key, None) is not None",
        "return False",
        "advice/test_removing.py::test_a_copy_of_a_partition_is_moved_out_of_the_log_dir",
    ),
    mutant(
        "damaged-topics-file-left-to-the-close",
        "logdir/opening.py",
        "        repair_topics_file(commits.manager)\n",
        "",
        (
            "advice/test_removing.py::"
            "test_a_damaged_topics_file_is_written_again_by_an_open_for_writing"
        ),
    ),
    mutant(
        "index-rebuilt-with-another-interval",
        "service/repair/derived_files.py",
        "_DEFAULT_INTERVAL if interval is None else interval",
        "interval or _DEFAULT_INTERVAL",
        "advice/test_cli.py::test_an_index_that_fails_its_sanity_check_is_rebuilt",
    ),
    mutant(
        "damage-since-the-open-is-no-offline-partition",
        "logdir/unclean_election.py",
        "        if not is_partition_whole(commits, *key):",
        "        if False:",
        "tools/test_handover.py::test_a_partition_that_is_not_whole_is_restored_or_given_up",
    ),
    mutant(
        "dry-run-of-giving-up-recovers",
        "logdir/unclean_election.py",
        "            if not dry_run:",
        "            if True:",
        "logdir/test_unclean_election.py::test_a_dry_run_changes_nothing",
    ),
    mutant(
        "dry-run-of-giving-up-writes-what-recovery-writes",
        "logdir/recovery/partition_recovery.py",
        "    if check_only:\n        return report",
        "    if False:\n        return report",
        "logdir/test_unclean_election.py::test_a_dry_run_changes_nothing",
    ),
)
