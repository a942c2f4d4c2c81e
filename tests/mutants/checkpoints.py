"""Bugs in checkpoints: as logs, reset and fork, backups."""

from tests.mutants.mutant import mutant

PARTITION = "checkpoint/log_backed/test_partition.py"
BACKUP = "checkpoint/backup/test_archiving.py"

REPAIR = "checkpoint/test_repair.py"
STORED = "checkpoint/test_stored_files.py"

MUTANTS = (
    mutant(
        "known-epoch-used-again",
        "checkpoint/repair.py",
        "newest = entries[-1][0] + 1 if entries else 0",
        "newest = entries[-1][0] if entries else 0",
        f"{REPAIR}::test_leader_epochs_are_written_again",
    ),
    mutant(
        "other-history-taken-for-a-damaged-marker",
        "checkpoint/files.py",
        "    return not isinstance(_id_of(data), str)",
        "    return isinstance(data, bytes)",
        f"{REPAIR}::test_a_damaged_marker_is_written_again",
    ),
    mutant(
        "fork-without-the-query-id",
        "checkpoint/fork.py",
        "to_end=False, needs_id=True, storage_options",
        "to_end=False, storage_options",
        f"{REPAIR}::test_without_the_querys_id_nothing_is_made_of_a_checkpoint",
    ),
    mutant(
        "checkpoint-record-not-synced",
        "checkpoint/log_backed/partition_writer.py",
        "                    break\n            file.sync()\n",
        "                    break\n",
        "checkpoint/log_backed/test_partition.py::test_a_failed_write_is_undone",
    ),
    mutant(
        "torn-checkpoint-record-not-cut",
        "checkpoint/log_backed/partition_writer.py",
        "    if segment.is_torn:\n",
        "    if segment.is_torn and not segment.end:\n",
        "checkpoint/log_backed/test_partition.py::test_cut_at_every_byte_of_a_write",
    ),
    mutant(
        "cleaning-forgets-the-last-offset",
        "checkpoint/log_backed/partition_writer.py",
        "        spans.add((int(last",
        "        print((int(last",
        (
            "checkpoint/log_backed/test_partition.py::"
            "test_cleaning_keeps_the_live_ones_and_their_offsets"
        ),
    ),
    mutant(
        "damaged-newest-record-skipped",
        "checkpoint/log_backed/partition.py",
        "if after >= place:",
        "if after >= (-1, 0):",
        (
            "checkpoint/log_backed/test_partition.py::"
            "test_a_flipped_bit_is_damage_where_somebody_needs_the_record"
        ),
    ),
    mutant(
        "checkpoint-value-crc-not-checked",
        "checkpoint/log_backed/partition.py",
        "if len(raw) < entry.size or crc32c(memoryview(raw)[CRC_START:]) != crc:",
        "if len(raw) < entry.size or not crc:",
        "checkpoint/log_backed/test_partition.py::test_a_damaged_record_found_when_it_is_read",
    ),
    mutant(
        "reset-keeps-a-batch-too-many",
        "checkpoint/truncation.py",
        "return int(match[2]) > batch",
        "return int(match[2]) > batch + 1",
        "checkpoint/test_reset.py::test_it_goes_back_and_again[hdfs-files]",
    ),
    mutant(
        "reset-keeps-later-state",
        "checkpoint/truncation.py",
        "name.version > batch + 1",
        "name.version > batch + 2",
        "checkpoint/test_fork.py::test_a_fork_to_each_batch[changelog-False]",
    ),
    mutant(
        "reset-does-not-fence",
        "checkpoint/truncation.py",
        "    if is_reset:\n        _fence",
        "    if not is_reset:\n        _fence",
        "checkpoint/test_reset.py::test_tasks_of_runs_before_are_fenced_off",
    ),
    mutant(
        "query-that-goes-on-is-reset",
        "checkpoint/reset.py",
        'check_unchanged(checkpoint, before, "the reset")',
        "checkpoint.refresh()",
        "checkpoint/test_reset.py::test_a_query_that_commits_meanwhile_is_noticed",
    ),
    mutant(
        "backup-file-not-checked",
        "checkpoint/backup/repository.py",
        "if hashlib.sha256(data).digest() != piece.digest:",
        "if len(data) != end - start:",
        "checkpoint/backup/test_archiving.py::TestDamage::test_every_bit_of_a_file_counts",
    ),
    mutant(
        "swapped-checkpoint-partitions-accepted",
        "checkpoint/log_backed/partition.py",
        "        if not len(foreign):\n",
        "        if len(foreign) >= 0:\n",
        "checkpoint/log_backed/test_misplaced_partitions.py::test_the_advice_puts_it_right",
    ),
    mutant(
        "copied-checkpoint-segment-accepted",
        "checkpoint/log_backed/partition.py",
        "first < segment.base or segment.base < end",
        "segment.base < 0",
        (
            "checkpoint/log_backed/test_misplaced_partitions.py::"
            "test_verify_reports_it[duplicated_segment-offsets-0]"
        ),
    ),
    mutant(
        "missing-checkpoint-log-dir-ok",
        "checkpoint/files.py",
        "if not self.partitions and not self.damage:",
        "if self.damage:",
        "checkpoint/log_backed/test_misplaced_partitions.py::test_the_log_dir_is_missing",
    ),
    mutant(
        "missing-commits-ok",
        "checkpoint/verify.py",
        "default=known[0] - 1",
        "default=known[-1]",
        (
            "checkpoint/log_backed/test_misplaced_partitions.py::"
            "test_verify_reports_it[missing-commits-0]"
        ),
    ),
    mutant(
        "file-sink-not-cut",
        "checkpoint/file_sink_cut.py",
        "return None if cut is None or cut.newest == batch else cut",
        "return None if cut is None or cut.newest >= batch else cut",
        "checkpoint/test_query_sink.py::test_the_command_says_it_first",
    ),
    mutant(
        "delta-that-skips-not-refused",
        "checkpoint/query_sink.py",
        "if recorded.kind is SinkKind.DELTA:",
        "if recorded.kind is SinkKind.LOG:",
        "checkpoint/test_query_sink.py::test_known_sinks",
    ),
    mutant(
        "compacted-file-sink-log-not-split",
        "checkpoint/spark_files/file_sink_log.py",
        "return entries[:count]",
        "return entries",
        "checkpoint/spark_files/test_file_sink_log.py::test_entries",
    ),
    mutant(
        "marks-of-directories-are-files",
        "checkpoint/stored_files.py",
        'if not each.name.endswith("/") and not',
        "if not",
        f"{STORED}::test_an_object_that_stands_for_a_directory_is_no_file",
    ),
    mutant(
        "a-bucket-is-listed-once",
        "checkpoint/stored_files.py",
        "self._objects if self._is_new else None",
        "self._objects",
        f"{STORED}::test_a_file_that_a_query_adds_is_seen_by_the_next_listing",
    ),
    mutant(
        "a-file-that-was-removed-is-copied-empty",
        "checkpoint/truncated_copy.py",
        "            fs.unlink(target)\n        return\n",
        "            pass\n        return\n",
        f"{STORED}::test_a_query_removes_files_meanwhile",
    ),
    mutant(
        "files-in-a-bucket-are-fetched-one-by-one",
        "checkpoint/stored_files.py",
        "self._names[at - 1] == self._last",
        "False",
        f"{STORED}::test_files_in_order_are_fetched_together",
    ),
    mutant(
        "a-log-in-a-bucket-is-no-log",
        "checkpoint/files.py",
        "if url is not None and stored.has_log_dir:",
        "if False:",
        f"{STORED}::test_a_copied_log_is_read_on_a_disk",
    ),
)
