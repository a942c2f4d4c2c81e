"""Bugs in commits: durability, identity of micro-batches, locks, producers."""

from tests.mutants.mutant import mutant

ONE = "crash/test_every_cut.py::test_one_operation_and_its_recovery"

MUTANTS = (
    mutant(
        "a-log-without-its-ledger-is-an-archive",
        "diskless/home_object.py",
        "next((one.name for one in store.list(SERVICE)), None)",
        "None",
        (
            "diskless/test_home.py::"
            "test_a_log_without_home_object_and_ledger_is_no_archive[r]"
        ),
    ),
    mutant(
        "whole-gets-without-a-bound",
        "tiered/object_store/object_store.py",
        "        stop = start + limit + 1 if end is None else end\n",
        "        stop = 1 << 60 if end is None else end\n",
        "diskless/test_hostile_objects.py::test_no_object_is_fetched_whole_beyond_a_bound",
    ),
    mutant(
        "directories-of-no-topic",
        "tiered/layout/object_names.py",
        "        check_topic(match[1])\n",
        "        assert match[1]\n",
        "diskless/test_hostile_objects.py::test_a_manifest_of_a_copy_elsewhere_is_damage",
    ),
    mutant(
        "refusal-of-a-second-request",
        "diskless/entry_creation.py",
        "is_refused(error) and (self._entries.store.sends_once or not self._allowed)",
        "is_refused(error)",
        "diskless/test_commit_faults.py"
        "::test_a_client_that_sent_twice_and_was_refused_the_second_time",
    ),
    mutant(
        "refused-entry-is-unknown",
        "tiered/object_store/failures.py",
        "    if failure in _REFUSALS:\n        return True\n",
        "",
        "diskless/test_commit_faults.py::test_a_refused_entry_is_a_definite_failure",
    ),
    mutant(
        "unnamed-log-dir-not-noticed",
        "logdir/log_manager.py",
        "        self._check_all_named()\n",
        "",
        "logdir/test_partition_move.py::test_a_partition_in_a_log_dir_that_others_were_not_given",
    ),
    mutant(
        "checkpoint-taken-over",
        "logdir/opening.py",
        "if is_checkpoint_log(fs, directories[0]):",
        "if is_checkpoint_log(fs, directories[-1] + '/none'):",
        "checkpoint/test_convert.py::test_its_log_is_not_opened_for_writing",
    ),
    mutant(
        "ledger-not-synced",
        "logdir/ledger.py",
        "        if sync:\n            self.log.sync()",
        "        if not sync:\n            self.log.sync()",
        "crash/test_every_cut.py::test_one_operation_and_its_recovery[append]",
    ),
    mutant(
        "data-not-synced",
        "logdir/chunk_appends.py",
        "        log.sync()\n",
        "        assert log\n",
        "crash/test_every_cut.py::test_one_operation_and_its_recovery[commit]",
    ),
    mutant(
        "names-not-synced",
        "logdir/partition/partition_log.py",
        "if self.names:",
        "if not self.names:",
        "crash/test_every_cut.py::test_one_operation_and_its_recovery[roll]",
    ),
    mutant(
        "fingerprint-not-compared",
        "log/commit.py",
        "if fingerprint in (identity.fingerprint, COMMITTED_BEFORE):",
        "if fingerprint:",
        "log/test_reset.py::test_batches_after_it_are_appended_anew_and_once",
    ),
    mutant(
        "replay-not-noticed",
        "log/commit.py",
        "if last is None or identity.batch > last.batch:",
        "if last is None or identity.batch >= last.batch:",
        "crash/test_every_cut.py::test_one_operation_and_its_recovery[replay]",
    ),
    mutant(
        "old-query-not-known-again",
        "log/commit.py",
        "found = predecessor(state.origins,",
        "found = None and predecessor(state.origins,",
        "storage/test_query_origin.py::test_refused",
    ),
    mutant(
        "expected-position-not-compared",
        "log/commit.py",
        "if end != offset:",
        "if end < offset:",
        "tools/test_preserved_offsets.py::test_no_two_records_at_one_offset",
    ),
    mutant(
        "moved-position-taken",
        "logdir/commit_log.py",
        "if expected != self.position:",
        "if expected > self.position:",
        "logdir/test_commit_log_contract.py",
    ),
    mutant(
        "intent-not-announced",
        "logdir/commit_log.py",
        "page(State.BUSY, intent)\n        step = Step()",
        "page(State.IDLE)\n        step = Step()",
        "logdir/test_commit_log.py::test_a_step_is_announced_in_the_page_of_the_lock",
    ),
    mutant(
        "generation-stays",
        "logdir/log_manager.py",
        "self.generation += 1",
        "self.generation += 0",
        "logdir/test_commit_log.py",
    ),
    mutant(
        "lost-page-not-rewritten",
        "logdir/file_sync.py",
        "if file.path in self._failed:",
        "if not file.path:",
        "logdir/test_file_sync.py",
    ),
    mutant(
        "ledger-time-goes-back",
        "logdir/commit_log.py",
        "time_ms = max(now_ms, self.state.time_ms, record.time_ms)",
        "time_ms = now_ms",
        "log/test_log.py::test_times_of_commits_never_go_back[directory]",
    ),
    mutant(
        "snapshot-forgets-writers",
        "storage/log_state.py",
        "writers=dict(self.writers),",
        "writers={},",
        "logdir/test_opening.py::test_the_ledger_rolls_by_size_and_old_batches_are_still_known",
    ),
    mutant(
        "reset-keeps-the-batch",
        "storage/log_state.py",
        'LastMicroBatch(record.batch - 1, "", record.time_ms)',
        'LastMicroBatch(record.batch, "", record.time_ms)',
        "log/test_reset.py::test_records_of_before_are_still_understood",
    ),
    mutant(
        "watermarks-not-sealed",
        "logdir/high_watermarks.py",
        "if marks.pop(_SEAL, None) != _crc(marks):",
        "if marks.pop(_SEAL, None) is None:",
        "logdir/test_high_watermarks.py::test_a_flipped_bit_is_noticed_wherever_it_is",
    ),
    mutant(
        "lock-page-of-a-copy-believed",
        "logdir/lock.py",
        "boot_id.encode(), *identity):",
        "boot_id.encode(), dev, ino):",
        "log/test_truncation_detection.py",
    ),
    mutant(
        "lock-of-a-replaced-file-kept",
        "logdir/lock.py",
        "is_current():\n                    return\n                self.check_exists()",
        "identity():\n                    return\n                self.check_exists()",
        "logdir/test_log_dir_identity.py",
    ),
    mutant(
        "older-producer-epoch-taken",
        "log/producer_state.py",
        "if epoch < known_epoch:",
        "if epoch < known_epoch - 1:",
        "log/test_producer_state.py::test_epochs",
    ),
    mutant(
        "sequence-gap-taken",
        "log/producer_state.py",
        "if first != last + 1 and not",
        "if first < last + 1 and not",
        "log/test_producer_state.py::test_sequences_follow",
    ),
    mutant(
        "four-batches-of-a-producer-kept",
        "log/producer_state.py",
        "BATCHES_KEPT: Final = 5",
        "BATCHES_KEPT: Final = 4",
        "log/test_producer_state.py::test_snapshots_bring_back_the_newest_batch",
    ),
    mutant(
        "batches-of-one-commit-not-judged-by-one-another",
        "log/producer_state.py",
        "self._pending |= self._followed(",
        "self._followed(",
        "logdir/test_commit_log_contract.py::TestLogDir::test_many_clients_batches_are_one_commit",
    ),
    mutant(
        "producers-of-another-topic-kept",
        "logdir/partition_writers.py",
        "if producers is not None and topic_id == topic.id:",
        "if producers is not None:",
        "logdir/test_commit_log.py::test_five_batches_of_a_producer_are_known_whoever_else_writes",
    ),
    mutant(
        "what-others-wrote-not-taken-in",
        "logdir/partition/producer_state_manager.py",
        "        replay_batches(LogDirSegments(self._fs, self._path), state, end, bases=bases)\n",
        "",
        "logdir/test_commit_log_contract.py::TestLogDir::"
        "test_the_last_five_batches_of_each_producer_are_known",
    ),
    mutant(
        "clients-crc-not-looked-at",
        "log/client_batches.py",
        "if crc != header.crc:",
        "if crc < 0:",
        "log/test_client_batches.py",
    ),
    mutant(
        "timestamp-bound-off-by-one",
        "log/commit.py",
        "late <= chunk.min_timestamp and chunk.max_timestamp <= early",
        "late <= chunk.max_timestamp and chunk.max_timestamp <= early",
        "log/test_log.py::test_timestamps_out_of_bounds_are_refused",
    ),
    mutant(
        "segment-one-byte-too-large",
        "logdir/partition/rolling.py",
        "stop = before > config.roll_bytes - sizes",
        "stop = before > config.roll_bytes - sizes + 1",
        "logdir/partition/test_rolling.py",
    ),
    mutant(
        "roll-without-snapshot",
        "logdir/partition/partition_log.py",
        "active.finish()\n        self._snapshot()\n        self._unflushed",
        "active.finish()\n        self._unflushed",
        (
            "logdir/partition/test_partition_log.py::TestRoll::"
            "test_snapshots_are_written_for_plain_data"
        ),
    ),
)
