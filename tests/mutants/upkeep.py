"""Bugs in the background work on a log in a store: merges, garbage, the lease."""

from tests.mutants.mutant import mutant

GARBAGE = "diskless/test_garbage.py"
HEALING = "diskless/test_segment_healing.py"
MERGING = "diskless/test_merging.py"


def in_both_homes(test: str) -> tuple[str, ...]:
    """Return a test of the leases' contract for a log dir and for a bucket."""
    homes = "logdir/test_lease.py::TestLogDir", "diskless/test_lease.py::TestContract"
    return tuple(f"{home}::{test}" for home in homes)


MUTANTS = (
    mutant(
        "lost-attempts-of-a-later-plan",
        "diskless/staged_chunks.py",
        "number is not None and number <= newest:",
        "number is not None:",
        "sink/test_store_homes.py::test_what_is_staged_after_the_commit_stays",
    ),
    mutant(
        "lost-attempts-that-are-of-the-log",
        "diskless/staged_chunks.py",
        "[] if stored.name in live or stored.name in kept else",
        "[] if stored.name in kept else",
        "sink/test_store_homes.py::test_records_of_before_a_reset_of_the_writer_stay",
    ),
    mutant(
        "sources-deleted-beside-damage",
        "diskless/garbage.py",
        "                if not looked[extent.object]:\n                    return False\n",
        "",
        "diskless/test_segment_healing.py"
        "::test_inline_data_stay_until_their_segment_is_written_again",
        "diskless/test_segment_healing.py"
        "::test_sources_of_a_segment_that_cannot_be_written_again_are_kept",
    ),
    mutant(
        "a-new-topic-expires-after-a-week",
        "config.py",
        "topics=replace(NEW_TOPICS, **topic)",
        "topics=TopicConfig(**topic)",
        "log/test_log.py::test_a_new_topic_keeps_its_records_unless_asked",
    ),
    mutant(
        "reset-retention-is-a-week",
        "log/admin.py",
        "if value is None and key in reset}",
        "if key is None}",
        "log/test_log.py::test_a_new_topic_keeps_its_records_unless_asked",
    ),
    mutant(
        "first-deletion-not-told",
        "service/metrics/observed.py",
        "2 * size > sizes.get(topic, 0) > 0",
        "size > sizes.get(topic, 0) > 0",
        "service/health/test_examine.py::test_a_first_deletion_is_told_before_a_service_runs",
    ),
    mutant(
        "emptied-segment-as-old-as-its-cleaning",
        "diskless/retention.py",
        "return min(own, extents[filled[following]].max_timestamp)",
        "return own",
        "service/test_store_upkeep.py::test_segments_that_compaction_has_emptied_expire",
    ),
    mutant(
        "one-batch-rewrites-the-epochs",
        "logdir/partition/batch_epochs.py",
        "if not lonely or checkpoint_fault(entries, others, start, end) is not None:",
        "if lonely is not None:",
        "service/verification/test_leader_epochs.py",
    ),
    mutant(
        "the-first-epochs-win-not-the-most",
        "logdir/partition/batch_epochs.py",
        "2 * run.count + same for run",
        "1 + same for run",
        "service/verification/test_leader_epochs.py",
    ),
    mutant(
        "sources-go-before-their-segment-is-healed",
        "diskless/garbage.py",
        "if self._heal(state, listed, report):",
        "if report.dry_run:",
        f"{HEALING}::test_a_sweep_heals_a_missing_segment_before_its_sources_go",
    ),
    mutant(
        "healed-from-whatever-the-sources-hold",
        "diskless/merging.py",
        "if crc is not None and [log.crc32c for log in made] != [crc]:",
        "if crc is None and not made:",
        "service/repair/test_store_segments.py::test_old_sources_of_other_bytes_are_refused",
    ),
    mutant(
        "compaction-undone-by-a-repair",
        "diskless/segment_healing.py",
        "if record.gaps:",
        "if record.gaps is None:",
        "service/repair/test_store_segments.py",
    ),
    mutant(
        "missing-objects-of-records-are-green",
        "service/metrics/store_observer.py",
        "if not self._unreadable:",
        "if self._unreadable:",
        "service/health/test_inputs.py",
    ),
    mutant(
        "merge-of-other-extents",
        "diskless/merging.py",
        "topic.id != merge.topic_id or find(known, record.sources) < 0",
        "topic.id != merge.topic_id",
        f"{MERGING}::test_void_if_its_extents_changed",
    ),
    mutant(
        "manifest-with-the-time-of-its-put",
        "diskless/merging.py",
        "self.put_manifest(log, entry.record.time_ms)",
        "self.put_manifest(log, self._log.clock())",
        f"{GARBAGE}::test_a_manifest_that_is_made_later_is_the_same",
    ),
    mutant(
        "offsets-of-a-piece-not-checked",
        "diskless/merge_source.py",
        "if extent.base + after != part.end:",
        "if False:",
        f"{MERGING}::test_an_extent_that_says_other_offsets_than_its_batches",
    ),
    mutant(
        "bytes-of-another-commit-merged",
        "diskless/merge_source.py",
        "        part.total.take(data, start, path=self._where(extent))\n",
        "",
        "diskless/test_checksums.py::test_a_merge_never_takes_what_was_not_committed",
    ),
    mutant(
        "rewritten-again-and-again",
        "diskless/merge_plan.py",
        "return Level.SEGMENTS if small and is_first else None",
        "return Level.SEGMENTS if small else None",
        f"{MERGING}::test_small_segments_are_merged_by_segment_ms",
    ),
    mutant(
        "own-segments-are-past",
        "diskless/garbage.py",
        "return term < own or",
        "return term <= own or",
        f"{GARBAGE}::test_what_past_services_left_goes_and_nothing_else",
    ),
    mutant(
        "inline-data-cut-while-named",
        "diskless/garbage.py",
        "if n not in inline and n not in self._cut",
        "if n not in self._cut",
        f"{GARBAGE}::test_inline_data_are_cut_when_no_extent_lies_in_them",
    ),
    mutant(
        "log-deleted-before-its-manifest",
        "diskless/garbage.py",
        "for names in (manifests, others):",
        "for names in (others, manifests):",
        f"{GARBAGE}::test_a_manifest_goes_before_its_log",
    ),
    mutant(
        "lease-by-the-first-look",
        "diskless/lease.py",
        "self._seen, self._seen_at = content, now",
        'self._seen, self._seen_at = content, float("-inf")',
        "diskless/test_lease.py::test_who_looks_for_the_first_time_waits_a_minute",
        "diskless/test_endpoint_lease.py",
    ),
    mutant(
        "lease-of-another-is-used",
        "storage/lease.py",
        "            if not self._is_current():\n",
        "            if not self.held:\n",
        *in_both_homes("test_who_lost_it_is_told_before_the_next_step"),
    ),
    mutant(
        "lease-that-is-lost-is-held",
        "storage/lease.py",
        "                self._drop()\n",
        "",
        *in_both_homes("test_who_lost_it_is_told_before_the_next_step"),
    ),
    mutant(
        "lender-keeps-the-lease",
        "storage/lease.py",
        "if self.lends and self.is_requested():",
        "if not self.held and self.is_requested():",
        *in_both_homes("test_who_lends_it_is_asked_and_gives_it_back"),
    ),
    mutant(
        "work-without-a-lease",
        "storage/lease.py",
        "        if not self.held:\n",
        "        if self.held is None:\n",
        *in_both_homes("test_nobody_has_it_at_first"),
    ),
    mutant(
        "holder-has-no-host",
        "storage/lease.py",
        'holder.get("pid", "?"), holder.get("host", "?")',
        'holder.get("pid", "?"), holder.get("hostname", "?")',
        *in_both_homes("test_the_holder_is_named"),
    ),
    mutant(
        "appends-not-compared",
        "storage/committed_appends.py",
        "return self.crc(rows) == crc",
        "return self.crc(rows) == crc or rows.start < rows.stop",
        "service/verification/test_appends.py::test_swapped_segments[active-segment-closed]",
    ),
    mutant(
        "foreign-segments-indexed-anew",
        "service/verification/partition.py",
        "        if self._is_foreign:",
        "        if self._is_foreign and not self._out.found:",
        "service/verification/test_appends.py::test_swapped_segments[closed-log-closed]",
    ),
    mutant(
        "rewritten-batches-compared",
        "storage/committed_appends.py",
        "and not self._is_rewritten[rows].any()",
        "and rows.start < rows.stop",
        (
            "service/verification/test_appends.py::"
            "test_what_compaction_and_erasure_rewrote_is_not_compared"
        ),
    ),
    # --- Erasures, in each home -------------------------------------------------------------------
    mutant(
        "an-erasure-above-its-bound",
        "storage/upkeep.py",
        "return end if self.before is None else min(end, self.before)",
        "return end",
        "log/test_erasure.py::test_records_below_the_bound_alone",
    ),
    mutant(
        "an-erasure-goes-on-to-the-present-end",
        "log/erasure.py",
        "end=request.bounded(state.ends[TopicPartition(request.topic, partition)]),",
        "end=request.bounded(1 << 62),",
        "log/test_erasure.py::test_records_that_are_written_meanwhile_stay",
    ),
    mutant(
        "an-erasure-that-is-not-listed-when-it-begins",
        "log/erasure.py",
        "            begun = home.begin(begun)\n",
        "            assert begun\n",
        "log/test_erasure.py::test_an_erasure_is_listed_until_it_is_complete",
    ),
    mutant(
        "a-failed-erasure-that-is-not-ended",
        "log/erasure.py",
        "            report.errors.append(f\"the erasure did not finish: {error!r}\")\n",
        "            assert error\n",
        "log/test_erasure.py::test_an_erasure_is_listed_until_it_is_complete",
    ),
    mutant(
        "a-dry-run-is-listed",
        "log/erasure.py",
        "            if request.dry_run:\n                self._erase(topic, begun)\n",
        "            if not home:\n                self._erase(topic, begun)\n",
        "log/test_erasure.py::test_an_erasure_is_listed_until_it_is_complete",
    ),
    mutant(
        "an-erasure-is-complete-beside-a-topic-that-can-be-restored",
        "log/erasure.py",
        "            report.pending += restorable\n",
        "",
        "log/test_erasure.py::test_a_deleted_topic_that_can_be_restored",
    ),
    mutant(
        "an-erasure-of-records-above-its-bound",
        "log/record_erasure.py",
        "return WindowEraser(self._predicate, end=end, check=self._check)",
        "return WindowEraser(self._predicate, check=self._check)",
        "log/test_erasure.py::test_records_below_the_bound_alone",
    ),
    mutant(
        "a-dry-run-that-erases",
        "log/record_erasure.py",
        "            if self._dry_run:\n",
        "            if not self._store:\n",
        "log/test_erasure.py::test_old_bytes_are_deleted",
    ),
    mutant(
        "an-erasure-that-leaves-old-bytes",
        "log/record_erasure.py",
        "            return store.finish(dry_run=dry_run)\n",
        "            return []\n",
        "service/test_erasure.py::test_leftovers",
        "diskless/test_erasure.py::test_an_entry_that_a_deleted_topic_shares_is_told",
    ),
    mutant(
        "an-erasure-that-another-process-overtakes-gives-up",
        "log/record_erasure.py",
        "_TRIES: Final = 8",
        "_TRIES: Final = 1",
        "log/test_erasure.py::test_segments_that_are_deleted_meanwhile",
    ),
    mutant(
        "erased-records-that-are-not-reported",
        "log/record_erasure.py",
        "            self.report.offsets.merge(tally.offsets)\n",
        "            assert tally\n",
        "log/test_erasure.py::test_old_bytes_are_deleted",
    ),
)
