"""Bugs in commits: durability, identity of micro-batches, locks, producers."""

from tests.mutants.mutant import mutant

ONE = "crash/test_every_cut.py::test_one_operation_and_its_recovery"

MUTANTS = (
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
        "manager.writer(*key).sync()",
        "manager.writer(*key)",
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
        "if fingerprint == identity.fingerprint:",
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
        "tools/test_placing.py::test_no_two_records_at_one_offset",
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
        "crash/test_every_cut.py::test_one_operation_and_its_recovery[append]",
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
        "time_ms = max(self.clock(), self.state.time_ms, record.time_ms)",
        "time_ms = self.clock()",
        "logdir/test_commit_log.py",
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
        "return offsets if seal == _crc(offsets) else None",
        "return offsets if seal else None",
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
        "is_current():\n                    return\n                self.check_there()",
        "identity():\n                    return\n                self.check_there()",
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
