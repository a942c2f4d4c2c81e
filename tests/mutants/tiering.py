"""Bugs in tiering: copying, metadata, deletion, reading back; and the service's lease."""

from tests.mutants.mutant import mutant

TIERING = "service/tiering/test_remote_log_manager.py"

DAMAGED = "service/tiering/test_damaged_copies.py"

MUTANTS = (
    mutant(
        "archive-stores-readers",
        "tiered/archive/home.py",
        "are_waited_for: Final = False",
        "are_waited_for: Final = True",
        "tiered/archive/test_home.py::test_it_stores_no_groups",
    ),
    mutant(
        "lost-url-not-reported",
        "service/verification/remote_storage.py",
        "        out.add(Severity.DAMAGE, error.path, error.reason)\n",
        "        pass\n",
        "service/verification/test_remote_storage.py::test_the_url_is_lost",
    ),
    mutant(
        "second-file-of-the-url-not-read",
        "tiered/settings.py",
        "return _spare(fs, home) if settings is None else settings",
        "return settings",
        "service/verification/test_remote_storage.py::test_one_of_two_files",
    ),
    mutant(
        "damaged-log-of-a-copy-relied-on",
        "tiered/copying/content_check.py",
        "if crc != manifest.stored_crc32c:",
        "if not crc:",
        DAMAGED + "::test_local_retention_never_takes_the_last_good_copy",
    ),
    mutant(
        "damaged-copy-not-recorded",
        "service/verification/tier_verifier.py",
        "            note_damaged(self._fs, self._home, copy.id, what)\n",
        "",
        DAMAGED,
    ),
    mutant(
        "manifest-of-another-segment-accepted",
        "tiered/copying/content_check.py",
        "if _identity(manifest.segment) != _identity(copy):",
        "if not copy:",
        DAMAGED,
    ),
    mutant(
        "copy-deleted-before-its-manifest",
        "tiered/copying/remote_storage_manager.py",
        "delete([manifest_object(s) for s in segments])",
        "delete([log_object(s) for s in segments])",
        "service/tiering/test_remote_log.py",
        "crash/test_tiering.py",
    ),
    mutant(
        "deletion-not-recorded-first",
        "service/tiering/remote_log.py",
        "        if fresh:\n            publish(commits, clock, fresh)\n",
        "",
        "service/tiering/test_remote_log.py",
    ),
    mutant(
        "unstable-segment-copied",
        "tiered/copying/plan.py",
        "if end > stable:",
        "if held.base > stable:",
        "tiered/copying/test_plan.py::test_candidates_end_at_the_last_stable_offset[29-expected2]",
    ),
    mutant(
        "grown-segment-not-copied-again",
        "tiered/copying/plan.py",
        "copy.base == held.base and (copy.end < end or rewritten)",
        "copy.base == held.base and (copy.end > end or rewritten)",
        "tiered/copying/test_plan.py::test_nothing_is_copied_over_another_copy",
    ),
    mutant(
        "compacted-segments-leave-the-disk",
        "tiered/copying/plan.py",
        "if not config.remote_storage_enable or config.compact:",
        "if not config.remote_storage_enable:",
        "tiered/copying/test_plan.py::test_segments_of_a_compacted_topic_stay_local",
    ),
    mutant(
        "copies-expire-past-a-hole",
        "tiered/copying/plan.py",
        "if c.base > starts[at]), len(live))",
        "if c.base < starts[at]), len(live))",
        "tiered/copying/test_plan.py::test_nothing_expires_past_a_hole",
    ),
    mutant(
        "only-copy-is-surplus",
        "tiered/copying/plan.py",
        "and held.holds(max(s.base, log_start), s.end)",
        "and held.holds(max(s.base, log_start), s.base)",
        "tiered/copying/test_plan.py::test_surplus",
    ),
    mutant(
        "copy-of-another-history-read",
        "tiered/remote_log_metadata/metadata_cache.py",
        "if later and ends > min(later):",
        "if later and ends > max(later):",
        "tiered/remote_log_metadata/test_metadata_cache.py",
    ),
    mutant(
        "older-copy-counts",
        "tiered/remote_log_metadata/metadata_cache.py",
        "s.time_ms, s.id), reverse=True",
        "-s.time_ms, s.id), reverse=True",
        "service/tiering/test_compacted_topics.py::test_a_cleaned_segment_takes_its_sources_place",
    ),
    mutant(
        "manifest-part-not-checked",
        "tiered/layout/manifest.py",
        "or crc32c.crc32c(data) != crc:",
        "or not data:",
        "service/verification/test_tier_verifier.py::test_what_was_cut_and_what_was_changed",
    ),
    mutant(
        "short-object-read",
        "tiered/reading/remote_objects.py",
        "if len(data) != end - start:",
        "if len(data) > end - start:",
        "tiered/test_trouble.py::test_an_object_that_was_cut_is_damage_with_its_range",
    ),
    mutant(
        "another-store-is-a-loss",
        "tiered/reading/remote_objects.py",
        "    if not known:\n",
        "    if not known and not store:\n",
        "tiered/reading/test_tiered_segments.py",
    ),
    mutant(
        "unknown-deletion-state-escapes-as-another-error",
        "tiered/remote_log_metadata/records.py",
        "state=PartitionDeleteState(state),",
        "state={one.value: one for one in PartitionDeleteState}[state],",
        "tiered/remote_log_metadata/test_records.py",
    ),
    mutant(
        "negative-deletion-state-taken-from-the-end",
        "tiered/remote_log_metadata/records.py",
        "state=PartitionDeleteState(state),",
        "state=list(PartitionDeleteState)[state],",
        "tiered/remote_log_metadata/test_records.py::test_a_field_that_kafka_does_not_write",
    ),
    mutant(
        "remote-metadata-of-a-topic-without-a-name",
        "tiered/remote_log_metadata/records.py",
        'raise ValueError("the topic\'s name is null")',
        'return ""',
        "tiered/remote_log_metadata/test_records.py::test_a_field_that_kafka_does_not_write",
    ),
    mutant(
        "remote-metadata-varint-of-six-bytes",
        "tiered/remote_log_metadata/records.py",
        "if shift > 28:",
        "if shift > 35:",
        "tiered/remote_log_metadata/test_records.py::test_a_field_that_kafka_does_not_write",
    ),
    mutant(
        "remote-metadata-name-of-other-bytes-taken",
        "tiered/remote_log_metadata/records.py",
        "return raw.decode()",
        'return raw.decode(errors="replace")',
        "tiered/remote_log_metadata/test_records.py::test_a_field_that_kafka_does_not_write",
    ),
    mutant(
        "two-metrics-of-one-name",
        "service/metrics/names.py",
        '"uncleanable-bytes",',
        '"uncleanable-partitions-count",',
        "service/test_metrics.py::test_every_metric_is_defined_once_and_described",
    ),
    mutant(
        "local-segments-stay-in-silence",
        "service/tiering/copy_confirmation.py",
        'self._report.errors.append(f"local segments stay: {error}")',
        "pass",
        "service/tiering/test_copy_confirmation.py::test_a_store_that_does_not_answer",
    ),
    mutant(
        "local-segments-stay-once-per-partition",
        "service/tiering/copy_confirmation.py",
        "            if self._answers:\n                self._answers = False",
        "            if True:\n                self._answers = False",
        "service/tiering/test_copy_confirmation.py::"
        "test_a_store_that_fails_several_threads_is_told_once",
    ),
    mutant(
        "copy-of-another-size-relied-on",
        "service/tiering/copy_confirmation.py",
        "elif listed.get(log_object(copy)) not in sizes:",
        "elif log_object(copy) not in listed:",
        "service/tiering/test_copy_confirmation.py::test_a_dry_round_heeds_sizes",
    ),
    mutant(
        "source-changed-while-copied",
        "tiered/copying/segment_objects.py",
        "if self._put.data.version() != self._version:",
        "if not self._put.data.version():",
        (
            "tiered/copying/test_remote_storage_manager.py::"
            "test_a_segment_that_changes_gets_no_copy[replaced-reading]"
        ),
    ),
    mutant(
        "manifest-put-without-the-lease",
        "tiered/copying/remote_storage_manager.py",
        "        check()\n        self._store.put(manifest.name",
        "        self._store.put(manifest.name",
        "testing/test_segment_store_contract.py",
    ),
    mutant(
        "young-orphans-deleted",
        "tiered/copying/orphans.py",
        "if now_ms - stored.time_ms >= grace_ms:",
        "if now_ms - stored.time_ms >= 0:",
        "service/tiering/test_remote_log_manager.py::test_leftovers_go_once_they_are_old",
    ),
    mutant(
        "lost-copy-not-noticed",
        "tiered/copying/orphans.py",
        "if finished and not objects_of(segment) <= names and is_lost(store, segment):",
        "if finished and not objects_of(segment) & names and is_lost(store, segment):",
        (
            "service/tiering/test_remote_log_manager.py::"
            "test_lost_objects_are_copied_again_while_they_can_be"
        ),
    ),
    mutant(
        "foreign-topic-taken",
        "tiered/layout/topic_owners.py",
        "if owner.log_id == log_id:",
        "if owner.log_id:",
        "service/tiering/test_remote_log_manager.py::test_damaged_settings",
    ),
    mutant(
        "copied-log-dir-not-told-apart",
        "tiered/layout/topic_owners.py",
        "            return False\n        if self._mine is None:",
        "            return False\n        return True\n        if self._mine is None:",
        (
            "service/tiering/test_remote_log_manager.py::"
            "test_what_a_restored_log_does_not_know_stays_in_the_bucket"
        ),
    ),
    mutant(
        "lent-lease-makes-a-stranger",
        "tiered/layout/topic_owners.py",
        "if owner.token not in _from(self._mine.token, settings.tokens):",
        "if owner.token != self._mine.token:",
        "service/test_erasure.py::test_a_service_knows_its_copies_again",
    ),
    mutant(
        "erasure-goes-by-its-first-listing",
        "service/tiering/erasure_task.py",
        "            if copy.id in erasure.clean:\n                continue\n",
        "            if copy.id in erasure.clean | erasure.reported:\n                continue\n",
        "service/test_erasure_pieces.py::test_what_a_service_makes_meanwhile_is_looked_at",
    ),
    mutant(
        "lease-is-not-given-back",
        "service/leadership.py",
        "            self._lease.release()\n        self._held.close()",
        "            pass\n        self._held.close()",
        "service/test_leadership.py",
    ),
    mutant(
        "lease-not-checked",
        "logdir/lease.py",
        'return self._file.is_current() and self.holder().get("token") == self._token',
        "return self._file.is_current()",
        "logdir/test_lease.py",
    ),
    mutant(
        "deletes-without-a-lease",
        "tiered/copying/remote_storage_manager.py",
        "        check()\n        self._store.delete([log_object(s)",
        "        self._store.delete([log_object(s)",
        "service/tiering/test_remote_log.py",
    ),
    mutant(
        "manifest-of-another-copy-believed",
        "tiered/layout/manifest.py",
        "if held.id != segment.id:",
        "if held.id != segment.id and not held.id:",
        "tiered/reading/test_tiered_segments.py::test_a_manifest_of_another_copy_is_refused",
    ),
    mutant(
        "segment-without-its-last-batch-copied",
        "tiered/copying/segment_objects.py",
        "if at != segment.size or end > segment.end or not self._reaches(end):",
        "if at != segment.size or end > segment.end:",
        "service/tiering/test_damaged_copies.py"
        "::test_a_local_segment_that_lost_batches_replaces_no_copy",
    ),
    mutant(
        "segment-of-another-partition-copied",
        "tiered/copying/segment_objects.py",
        "        self._compare(appended)\n",
        "",
        "service/tiering/test_foreign_segments.py",
    ),
    mutant(
        "append-of-several-segments-not-compared",
        "storage/committed_appends.py",
        "return is_committed and same",
        "return True",
        "service/tiering/test_foreign_segments.py::test_appends_of_several_segments",
    ),
    mutant(
        "an-erasure-leaves-unfinished-uploads",
        "service/tiering/erasure_task.py",
        "        self._store.sweep_uploads("
        "_ANY_TIME_MS, Directory(*key, tiered.topic_id).prefix)\n",
        "",
        "service/test_erasure_handover.py::test_an_upload_that_a_killed_service_left_is_given_up",
    ),
    mutant(
        "an-erasure-gives-up-the-uploads-of-others",
        "service/tiering/erasure_task.py",
        "sweep_uploads(_ANY_TIME_MS, Directory(*key, tiered.topic_id).prefix)",
        "sweep_uploads(_ANY_TIME_MS)",
        "service/test_erasure_handover.py::test_an_upload_that_a_killed_service_left_is_given_up",
    ),
    mutant(
        "a-damaged-partition-is-copied-in-each-round",
        "service/tiering/copy_task.py",
        "        if key in self._quarantined:\n            return []\n",
        "",
        "service/tiering/test_remote_log_manager.py"
        "::test_a_damaged_partition_is_skipped_until_its_topic_is_replaced",
    ),
)
