"""Bugs in the rules of checkpoints: what a batch needs, who may change one, what an archive keeps.

Each breaks a sentence of sparklog/checkpoint/log_backed/PROTOCOL.md or of docs/replay.md.
"""

from tests.mutants.mutant import mutant

ARCHIVING = "checkpoint/backup/test_archiving.py"
CONVERT = "checkpoint/test_convert.py"
DAMAGED = "checkpoint/log_backed/test_damaged_records.py"
FORK = "checkpoint/test_fork.py"
HISTORY = "checkpoint/test_history.py"
PARTITION = "checkpoint/log_backed/test_partition.py"
PROTOCOL = "checkpoint/backup/test_protocol.py"
QUERY_SINK = "checkpoint/test_query_sink.py"
REPAIR = "checkpoint/test_repair.py"
RESET = "checkpoint/test_reset.py"

MUTANTS = (
    # --- Records ----------------------------------------------------------------------------------
    mutant(
        "cleaning-below-64-kib",
        "checkpoint/log_backed/partition_writer.py",
        "    if total - alive <= alive + DEAD_BYTES_MIN:\n",
        "    if total - alive <= alive:\n",
        f"{PARTITION}::test_little_is_not_cleaned",
    ),
    mutant(
        "cleaned-segment-renamed-before-it-is-durable",
        "checkpoint/log_backed/partition_writer.py",
        "        output.close()\n        fs.rename(path + CLEANED, path)\n",
        "        fs.rename(path + CLEANED, path)\n",
        f"{PARTITION}::test_killed_at_every_call[clean]",
    ),
    mutant(
        "failed-write-stays-in-the-segment",
        "checkpoint/log_backed/partition_writer.py",
        "                file.truncate(segment.end)\n            raise\n",
        "                file.size()\n            raise\n",
        f"{PARTITION}::test_a_failed_write_is_undone",
    ),
    mutant(
        "checkpoint-segment-never-rolls",
        "checkpoint/log_backed/partition_writer.py",
        "    if not partition.segments or partition.segments[-1].end >= segment_bytes:\n",
        "    if not partition.segments:\n",
        f"{PARTITION}::test_segments_roll",
    ),
    mutant(
        "rewritten-segment-on-the-old-inode",
        "checkpoint/log_backed/partition.py",
        "        return found == _OVERHEAD.pack(",
        "        return len(found) >= 0 or found == _OVERHEAD.pack(",
        f"{PARTITION}::test_a_segment_that_was_rewritten_under_its_inode",
    ),
    mutant(
        "deletion-of-a-later-segment-is-read-without-its-file",
        "checkpoint/log_backed/partition.py",
        "if all(self.fs.identity(self.path(s)) == s.identity for s in self.segments):",
        "if self.segments is not None:",
        f"{PARTITION}::test_a_cleaning_between_two_segments_brings_nothing_back",
    ),
    mutant(
        "batch-of-several-records-is-taken",
        "checkpoint/log_backed/partition.py",
        'np.flatnonzero((table["count"] != 1) | (table["magic"] != MAGIC))',
        'np.flatnonzero(table["magic"] != MAGIC)',
        f"{PARTITION}::test_records_of_somebody_else",
    ),
    mutant(
        "record-with-headers-is-taken",
        "checkpoint/log_backed/partition.py",
        'np.flatnonzero(table["size"] != _batch_bytes(keys, lengths))',
        'np.flatnonzero(table["size"] < _batch_bytes(keys, lengths))',
        f"{PARTITION}::test_records_with_headers",
    ),
    mutant(
        "next-record-under-an-epoch-of-the-fork",
        "checkpoint/log_backed/partition.py",
        "return max(start, self.segments[-1].next_offset if self.segments else 0)",
        "return self.segments[-1].next_offset if self.segments else 0",
        f"{PARTITION}::test_a_new_leader_epoch_may_begin_behind_the_last_record",
    ),
    mutant(
        "whole-batch-behind-a-torn-one-is-cut-off",
        "checkpoint/log_backed/partition.py",
        "return cls(short, found)",
        "return cls(short, None)",
        f"{PARTITION}::test_a_flipped_bit_is_damage_where_somebody_needs_the_record",
    ),
    mutant(
        "damaged-deletion-brings-its-file-back",
        "checkpoint/log_backed/partition.py",
        "            if each.key is not None and each.is_deletion:\n",
        "            if each.key is None and each.is_deletion:\n",
        f"{PARTITION}::test_dead_records_may_be_damaged",
    ),
    mutant(
        "damaged-record-of-another-partition",
        "checkpoint/log_backed/damaged_records.py",
        "and sequence in (-1, tag)",
        "and sequence >= -1",
        f"{DAMAGED}::test_the_tag_of_another_partition_hides_it",
    ),
    # --- What a batch needs -----------------------------------------------------------------------
    mutant(
        "back-to-a-batch-without-the-plan-before-it",
        "checkpoint/batches.py",
        "        if batch and self.previous_plan(batch) is None:\n",
        "        if batch < 0 and self.previous_plan(batch) is None:\n",
        f"{HISTORY}::test_what_can_be_gone_back_to",
    ),
    mutant(
        "back-to-a-batch-without-its-state",
        "checkpoint/batches.py",
        "                if needed.missing is not None:\n",
        "                if needed.missing is None and not needed:\n",
        f"{HISTORY}::test_lost_state_files",
    ),
    mutant(
        "back-to-a-batch-without-the-file-sources-log",
        "checkpoint/batches.py",
        "                    if missing is not None:\n",
        "                    if missing == name:\n",
        f"{HISTORY}::test_a_file_source_needs_its_own_log",
    ),
    mutant(
        "state-is-that-before-the-batch",
        "checkpoint/batches.py",
        "store.files_of(self.checkpoint, batch + 1, known)",
        "store.files_of(self.checkpoint, batch, known)",
        f"{HISTORY}::test_what_can_be_gone_back_to",
    ),
    mutant(
        "partition-of-a-store-that-is-gone",
        "checkpoint/batches.py",
        "found.setdefault((operator, part, name), VersionFiles([], lost))",
        "found.setdefault((operator, part, name), VersionFiles([], None))",
        f"{HISTORY}::test_a_partition_that_is_gone_as_a_whole",
    ),
    mutant(
        "fork-by-a-time-takes-the-batch-after-it",
        "checkpoint/rollback_request.py",
        "if batches.offsets(b).timestamp_ms <= when_ms]",
        "if batches.offsets(b).timestamp_ms - 1000 <= when_ms]",
        f"{FORK}::test_by_time",
    ),
    mutant(
        "fork-by-offsets-reads-past-them",
        "checkpoint/rollback_request.py",
        "known.get(partition, limit + 1) <= limit for",
        "known.get(partition, limit) <= limit for",
        f"{FORK}::test_by_offsets",
    ),
    mutant(
        "retention-has-passed-the-batch",
        "checkpoint/rollback_request.py",
        "                if offset < start:\n",
        "                if offset < 0:\n",
        f"{FORK}::test_retention_that_has_passed",
    ),
    # --- Fork, reset, import ----------------------------------------------------------------------
    mutant(
        "file-source-skips-files-after-the-batch",
        "checkpoint/truncation.py",
        "            named.update(entries_after(checkpoint, source, log_offset))\n",
        "            entries_after(checkpoint, source, log_offset)\n",
        f"{FORK}::test_a_file_source_sees_later_files_anew",
    ),
    mutant(
        "schemas-at-the-old-place",
        "checkpoint/truncation.py",
        'return file if match is None else f"{root}/{match[1]}"',
        "return file",
        f"{FORK}::test_a_fork_to_each_batch",
    ),
    mutant(
        "fork-keeps-the-runs-of-the-original",
        "checkpoint/files.py",
        "_OURS: Final = frozenset({RUNS, RESET})",
        "_OURS: Final = frozenset({RESET})",
        f"{FORK}::test_runs_of_the_original_are_none_of_the_forks",
    ),
    mutant(
        "checksum-of-a-changed-file-stays",
        "checkpoint/truncation.py",
        "    dropped |= {hadoop_name(path) for path in replaced}\n",
        "",
        f"{FORK}::test_a_fork_to_each_batch",
    ),
    mutant(
        "fork-into-the-checkpoint",
        "checkpoint/fork.py",
        "is_nested(checkpoint.path, target):\n",
        "checkpoint.path == target:\n",
        f"{FORK}::test_refusals",
    ),
    mutant(
        "fork-over-a-directory-that-is-there",
        "checkpoint/fork.py",
        "    if store is None and fs.exists(target):\n",
        "    if not target:\n",
        f"{FORK}::test_refusals",
    ),
    mutant(
        "log-without-its-fork",
        "checkpoint/fork.py",
        "        if (self.log is None) != (self.new_log is None):\n",
        "        if self.log is None and self.new_log is not None:\n",
        f"{FORK}::test_refusals",
    ),
    mutant(
        "reset-of-a-running-query",
        "checkpoint/log_backed/lock.py",
        "            if self._file.try_lock(place, 1, exclusive=True):\n                return\n",
        "            if self._file is not None:\n                return\n",
        f"{RESET}::test_refused_while_the_query_runs",
    ),
    mutant(
        "lock-of-a-checkpoint-that-was-reset",
        "checkpoint/log_backed/lock.py",
        "        if not self._file.is_current():\n",
        "        if self._file is None:\n",
        f"{RESET}::test_who_waited_for_the_lock_of_a_checkpoint_that_was_reset_tries_again",
    ),
    mutant(
        "ordinary-checkpoint-with-a-batch-under-way",
        "checkpoint/running_query.py",
        "    if age_ms < QUIET_MS:\n",
        "    if age_ms < 0:\n",
        f"{RESET}::test_an_ordinary_checkpoint_with_a_batch_under_way",
    ),
    mutant(
        "log-does-not-follow-its-checkpoint",
        "checkpoint/reset.py",
        "            write(fs, staged.directory, note)\n",
        "            pass\n",
        f"{RESET}::test_the_log_takes_the_batches_anew",
    ),
    mutant(
        "reset-of-a-query-that-writes-to-an-unnamed-log",
        "checkpoint/reset.py",
        "if chosen.kind is SinkKind.LOG and not chosen.follows and sink is None:",
        "if chosen.kind is SinkKind.LOG and chosen.follows and sink is None:",
        f"{QUERY_SINK}::test_known_sinks",
    ),
    mutant(
        "file-of-a-deleted-record-is-removed",
        "checkpoint/convert.py",
        "known = {key for key, _ in partition.live()}",
        "known = set(partition.entries)",
        f"{CONVERT}::test_a_deleted_record_does_not_hide_a_file",
    ),
    mutant(
        "file-that-is-older-than-its-record-wins",
        "checkpoint/convert.py",
        "new = [file for file in files if address_of(file).key not in known]",
        "new = [file for file in files if address_of(file).key]",
        f"{CONVERT}::test_a_record_wins_over_a_file_of_before",
    ),
    mutant(
        "imported-files-removed-before-the-records-are-durable",
        "checkpoint/convert.py",
        "        append(partition, records())\n        # Records",
        "        list(records())\n        # Records",
        f"{CONVERT}::test_there_and_back",
    ),
    mutant(
        "export-while-the-query-runs",
        "checkpoint/convert.py",
        '    with keep_stopped(checkpoint, "export it"):\n',
        "    with contextlib.nullcontext():\n",
        f"{CONVERT}::test_refused_while_the_query_runs",
    ),
    # --- Sinks ------------------------------------------------------------------------------------
    mutant(
        "file-sink-without-its-directory",
        "checkpoint/query_sink.py",
        "or (sink is None and log is None and recorded.output is not None):",
        "and recorded.output is not None:",
        f"{QUERY_SINK}::test_contradictions",
    ),
    mutant(
        "directory-of-another-file-sink",
        "checkpoint/query_sink.py",
        "if sink is None and known is not None and os.path.realpath(known)",
        "if sink is not None and known is not None and os.path.realpath(known)",
        f"{QUERY_SINK}::test_contradictions",
    ),
    mutant(
        "output-that-is-not-whole-is-carried-over",
        "checkpoint/file_sink_cut.py",
        "            if not fs.exists(source):\n",
        "            if not source:\n",
        f"{QUERY_SINK}::test_an_output_that_is_not_whole_is_not_carried_over",
    ),
    # --- Archives ---------------------------------------------------------------------------------
    mutant(
        "names-of-encrypted-files-tell-their-content",
        "checkpoint/backup/repository.py",
        'text = (self._derived(b"name", content) if self._key else content).hex()',
        "text = content.hex()",
        f"{ARCHIVING}::TestEncryption::test_nothing_tells_what_is_in_it",
    ),
    mutant(
        "old-files-of-an-archive-are-not-uploaded-again",
        "checkpoint/backup/upload.py",
        "if now_ms - one.time_ms < age_ms}",
        "if now_ms - one.time_ms < 3 * age_ms}",
        f"{PROTOCOL}::test_a_point_has_all_its_files_until_it_expires",
    ),
    mutant(
        "age-of-archived-files-by-a-wrong-clock",
        "checkpoint/backup/upload.py",
        "now_ms = max(self._clock(), *(one.time_ms for one in held), 0)",
        "now_ms = self._clock()",
        f"{PROTOCOL}::test_files_are_uploaded_again_once_they_are_old",
    ),
    mutant(
        "files-that-go-during-a-backup-go-unnoticed",
        "checkpoint/backup/upload.py",
        "        self._check(trees)\n",
        "",
        f"{PROTOCOL}::test_a_file_that_was_there_when_the_backup_began",
    ),
    mutant(
        "other-bytes-are-uploaded-than-were-hashed",
        "checkpoint/backup/upload.py",
        "            if hashlib.sha256(data).digest() != digest:\n",
        "            if len(data) > size:\n",
        f"{ARCHIVING}::test_a_file_that_changes_before_its_upload",
    ),
    mutant(
        "earlier-version-s-block-sizes-are-ignored",
        "checkpoint/backup/snapshots.py",
        "sizes = self.piece_sizes",
        "sizes: tuple[int, ...] = ()",
        "checkpoint/backup/test_earlier_versions.py::test_is_restored",
    ),
    # --- Repair -----------------------------------------------------------------------------------
    mutant(
        "second-repair-overwrites-the-first-original",
        "checkpoint/repair.py",
        "    while fs.exists(aside):\n",
        "    while number > 1 and fs.exists(aside):\n",
        f"{REPAIR}::test_a_second_repair_keeps_the_first_original",
    ),
    mutant(
        "running-query-is-repaired",
        "checkpoint/repair.py",
        '        lock.take_running("repair it")\n',
        "",
        f"{REPAIR}::test_a_running_query_is_not_repaired",
    ),
    mutant(
        "known-record-is-left-out-by-a-repair",
        "checkpoint/repair.py",
        "            if each.corrected is not None:\n",
        "            if each.corrected is not None and each.is_deletion:\n",
        f"{REPAIR}::test_what_is_known_in_spite_of_the_damage_is_mended",
    ),
)
