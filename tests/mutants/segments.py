"""Bugs in rules for segments that recovery, verification and repairs of both homes share."""

from tests.mutants.mutant import mutant

RECOVERY = "logdir/recovery/test_partition_recovery.py"
VERIFY = "service/test_log_verification.py"
STORE_VERIFY = "service/verification/test_store_verifier.py"

MUTANTS = (
    mutant(
        "missing-segment-not-noticed",
        "logdir/recovery/partition_recovery.py",
        "        if bases and first <= self.needed:",
        "        if bases:",
        RECOVERY,
        f"{VERIFY}::test_missing_first_segments",
    ),
    mutant(
        "committed-transactions-indexed-as-aborted",
        "log/producer_state.py",
        '        if marker.type is not ControlType.ABORT:\n            return b""\n',
        "",
        f"{VERIFY}::test_golden_logs_have_nothing",
        f"{RECOVERY}::test_transaction_indexes_are_rebuilt",
        (
            "diskless/test_cleaned_transactions.py::"
            "test_merged_segments_keep_their_aborted_transactions"
        ),
    ),
    mutant(
        "gaps-in-a-segment-taken",
        "format/scan.py",
        "    wrong: NDArray[np.bool_] = first != due",
        "    wrong: NDArray[np.bool_] = first < due",
        f"{VERIFY}::test_a_gap_is_legal_only_where_the_cleaner_was",
        f"{RECOVERY}::test_damage_below_the_end_changes_nothing[hole]",
        f"{STORE_VERIFY}::test_offsets_that_no_crc_covers",
    ),
    mutant(
        "rebuilt-time-index-without-its-final-entry",
        "format/index.py",
        "        entry, self._state = final_time_entry(self.base, self._state)\n"
        "        self.timeindex += entry\n",
        "        _, self._state = final_time_entry(self.base, self._state)\n",
        f"{RECOVERY}::test_a_whole_log_is_left_as_it_is",
        f"{STORE_VERIFY}::test_a_healthy_log_is_clean",
    ),
    mutant(
        "time-index-entries-of-other-times-not-found",
        "service/verification/indexes.py",
        'wrong = (table["max_timestamp"][rows] != stamps) | (highest[rows] >= stamps)',
        "wrong = highest[rows] >= stamps",
        f"{VERIFY}::test_a_fault_is_found_and_repaired",
        f"{STORE_VERIFY}::test_a_time_index_that_leads_astray",
    ),
    mutant(
        "time-index-without-a-log-stays",
        "logdir/recovery/leftover_files.py",
        "        if name in (index_name(base), timeindex_name(base), txnindex_name(base)):",
        "        if name in (index_name(base), txnindex_name(base)):",
        "logdir/recovery/test_log_loader.py::test_orphans_and_temporary_files_go",
        f"{VERIFY}::test_missing_first_segments",
    ),
    mutant(
        "small-files-of-manifests-not-checked",
        "tiered/copying/content_check.py",
        "for name in PARTS}",
        "for name in PARTS[:1]}",
        "service/verification/test_tier_verifier.py",
        f"{STORE_VERIFY}::test_a_healthy_log_is_clean",
    ),
    mutant(
        "log-starts-of-a-closed-log-forgotten",
        "logdir/offset_checkpoints.py",
        "    own_starts = {key: starts[key] for key in ends if key in starts}\n",
        "    own_starts: Offsets = {}\n",
        "logdir/test_log_starts.py::test_checkpoints_of_a_closed_log",
        f"{VERIFY}::test_a_fault_is_found_and_repaired[start low]",
    ),
    mutant(
        "first-batch-behind-damage-skipped",
        "service/verification/segment.py",
        "        for hit in _candidates(data, first, limit):",
        "        for hit in _candidates(data, first, limit)[1:]:",
        f"{VERIFY}::test_two_damages_in_one_segment_are_two",
        "service/repair/test_ledger_repair.py",
    ),
)
