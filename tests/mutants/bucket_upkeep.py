"""Bugs in the background work on a log in a store that no merge shows: fences, delays, erasure."""

from tests.mutants.mutant import mutant

CLEANING = "diskless/test_cleaning.py"
ERASURE = "diskless/test_erasure.py"
GARBAGE = "diskless/test_garbage.py"
LEASE = "diskless/test_lease.py"
PRESSURE = "diskless/test_backpressure.py"
TOPICS = "diskless/test_deleted_topics.py"

MUTANTS = (
    mutant(
        "tombstones-go-at-once",
        "diskless/cleaning.py",
        "horizon_ms=self._now_ms + config.delete_retention_ms,",
        "horizon_ms=self._now_ms,",
        f"{CLEANING}::test_tombstones_stay_for_their_time",
    ),
    mutant(
        "cleaned-partitions-without-gaps",
        "diskless/cleaning.py",
        "self._merger.swap(merge, [log], term=term, gaps=True)",
        "self._merger.swap(merge, [log], term=term)",
        f"{CLEANING}::test_of_each_key_the_newest_stays",
    ),
    mutant(
        "a-torn-batch-ends-a-cleaning",
        "diskless/cleaning.py",
        "if at != extent.size:",
        "if at > extent.size:",
        f"{CLEANING}::test_a_segment_that_ends_within_a_batch_is_left_alone",
    ),
    mutant(
        "producers-are-compacted-away",
        "diskless/cleaning.py",
        "producers=self._producers,",
        "producers={},",
        f"{CLEANING}::test_the_last_batch_of_a_producer_stays",
    ),
    mutant(
        "retention-of-a-past-term",
        "diskless/retention.py",
        "if now.term != term:",
        "if now.term < term:",
        f"{GARBAGE}::test_nothing_is_decided_under_a_past_term",
    ),
    mutant(
        "retention-of-a-topic-that-was-made-again",
        "diskless/retention.py",
        "            and topic.id == ids.get(key.topic)\n",
        "",
        f"{GARBAGE}::test_retention_of_a_topic_that_was_made_again",
    ),
    mutant(
        "a-log-start-that-falls",
        "diskless/retention.py",
        "and now.log.starts.get(key, 0) < start <= now.log.ends[key]",
        "and start <= now.log.ends[key]",
        f"{GARBAGE}::test_records_that_were_deleted",
    ),
    mutant(
        "a-floor-of-a-lost-lease",
        "diskless/garbage.py",
        "    def _create_floor(self, floor: int, term: int) -> None:\n"
        "        def decide(now: DisklessState) -> NewEntry:\n"
        "            if now.term != term:",
        "    def _create_floor(self, floor: int, term: int) -> None:\n"
        "        def decide(now: DisklessState) -> NewEntry:\n"
        "            if now.term < term:",
        f"{GARBAGE}::test_nothing_is_decided_under_a_past_term",
    ),
    mutant(
        "topics-given-up-by-a-lost-lease",
        "diskless/garbage.py",
        "    def _create_purge(self, ids: Sequence[str], term: int) -> None:\n"
        "        def decide(now: DisklessState) -> NewEntry:\n"
        "            if now.term != term:",
        "    def _create_purge(self, ids: Sequence[str], term: int) -> None:\n"
        "        def decide(now: DisklessState) -> NewEntry:\n"
        "            if now.term < term:",
        f"{GARBAGE}::test_nothing_is_decided_under_a_past_term",
    ),
    mutant(
        "a-topic-that-was-given-back-is-given-up",
        "diskless/garbage.py",
        "left = tuple(one for one in ids if one in now.deleted)",
        "left = tuple(ids)",
        f"{GARBAGE}::test_a_topic_that_is_given_back_while_it_is_given_up",
    ),
    mutant(
        "what-can-still-be-committed-is-swept",
        "diskless/garbage.py",
        "if number < state.floor or each.name in let_go:",
        "if number <= state.floor or each.name in let_go:",
        f"{GARBAGE}::test_the_floor_is_the_first_number_that_is_kept",
    ),
    mutant(
        "a-floor-that-is-too-young",
        "diskless/garbage.py",
        "        return low\n",
        "        return low + 1\n",
        f"{GARBAGE}::test_the_floor_is_by_the_stores_own_times",
    ),
    mutant(
        "a-floor-by-the-services-clock",
        "diskless/garbage.py",
        "before_ms = found[0].time_ms - self._options.stage_retention_ms",
        "before_ms = report.time_ms - self._options.stage_retention_ms",
        f"{GARBAGE}::test_a_service_with_a_wrong_clock_raises_no_floor",
    ),
    mutant(
        "one-state-is-enough",
        "diskless/garbage.py",
        "states[:-STATES_KEPT]",
        "states[:-1]",
        f"{GARBAGE}::test_of_states_the_newest_two_stay",
    ),
    mutant(
        "one-position-is-enough",
        "diskless/garbage.py",
        "sorted(positions, key=lambda one: one[0])[:-2]",
        "sorted(positions, key=lambda one: one[0])[:-1]",
        f"{GARBAGE}::test_of_a_groups_positions_the_two_highest_stay",
    ),
    mutant(
        "replaced-before-a-manifest-covers-it",
        "diskless/garbage.py",
        "                    self._cover(state, one)\n",
        "",
        f"{GARBAGE}::test_what_was_replaced_goes_after_the_manifest_of_what_covers_it",
    ),
    mutant(
        "inline-data-cut-under-a-plan",
        "diskless/garbage.py",
        "due = [n for n, at in since.items() if report.time_ms - at >= delay_ms]",
        "due = list(since)",
        f"{GARBAGE}::test_inline_data_wait_for_readers_that_plan_with_them",
    ),
    mutant(
        "what-a-past-service-let-go-of-goes-at-once",
        "diskless/garbage.py",
        "if not found or found in named or not noted.get(found, True):",
        "if not found or found in named:",
        f"{GARBAGE}::test_what_a_past_service_replaced_waits_its_time_too",
    ),
    mutant(
        "a-sweep-without-a-lease",
        "diskless/garbage.py",
        "if not own and not report.dry_run:",
        "if own < 0:",
        f"{GARBAGE}::test_who_has_no_lease_sweeps_nothing",
    ),
    mutant(
        "a-table-that-is-missing-names-nothing",
        "diskless/garbage.py",
        "frozenset({extent.object, *head.names})",
        "frozenset({extent.object})",
        "diskless/test_merging.py::test_what_an_extent_table_names",
    ),
    mutant(
        "topics-given-up-before-their-delay",
        "diskless/garbage.py",
        "return bool(entry) and (\n",
        "return bool(entry) or (\n",
        f"{TOPICS}::test_it_comes_back_whole_whatever_a_service_swept",
    ),
    mutant(
        "a-lease-that-is-taken-from-the-living",
        "diskless/lease.py",
        "if state.term and not self._is_over(state.term, sign):",
        "if state.term < 0:",
        f"{LEASE}::test_another_takes_over_when_the_sign_of_life_stood_still",
    ),
    mutant(
        "a-term-that-another-took-meanwhile",
        "diskless/lease.py",
        "            if now.term != before:\n",
        "            if now.term < before:\n",
        f"{LEASE}::test_a_term_that_another_takes_meanwhile",
    ),
    mutant(
        "the-dead-are-heard-for-ever",
        "diskless/lease.py",
        "self._wanted = now - self._heard_at < self._timeout_ms",
        "self._wanted = now >= self._heard_at",
        f"{LEASE}::test_who_died_while_it_asked_is_heard_a_minute_longer",
    ),
    mutant(
        "a-service-that-does-not-notice-its-successor",
        "diskless/lease.py",
        "if not self.held or self._log.state.term != self.term:",
        "if not self.held:",
        f"{LEASE}::test_another_takes_over_when_the_sign_of_life_stood_still",
    ),
    mutant(
        "a-forked-child-has-its-parents-term",
        "diskless/lease.py",
        "last.term, last.log_id, last.pid\n",
        "last.term, last.log_id, os.getpid()\n",
        f"{LEASE}::test_a_forked_child_takes_a_term_of_its_own",
    ),
    mutant(
        "a-writers-merge-under-any-term",
        "diskless/merging.py",
        "            if now.term != term:\n",
        "            if now.term < term:\n",
        f"{PRESSURE}::test_a_service_that_takes_over_meanwhile_makes_it_void",
        "diskless/test_merging.py::test_another_term_fences_it",
    ),
    mutant(
        "a-merge-that-fails-fails-the-commit",
        "diskless/backpressure.py",
        "except (SparklogError, OSError) as error:",
        "except OSError as error:",
        f"{PRESSURE}::test_a_merge_that_fails_leaves_the_commit",
    ),
    mutant(
        "pieces-without-bound",
        "diskless/backpressure.py",
        "if count <= self._max or",
        "if count >= 0 or",
        f"{PRESSURE}::test_many_small_commits_without_a_service",
    ),
    mutant(
        "an-erasure-of-the-objects-of-a-deleted-topic",
        "diskless/erasure.py",
        "stay = found.objects & self._garbage.live(state)",
        "stay = found.objects & state.extents.keys()",
        f"{ERASURE}::test_an_entry_that_a_deleted_topic_shares_is_told",
    ),
    mutant(
        "merged-records-left-in-a-shared-object",
        "diskless/erasure.py",
        "if part.object not in found.objects and self._holds(part, state):",
        "if part.object in found.objects:",
        f"{ERASURE}::test_what_was_merged_out_of_a_shared_object_lies_there_still",
    ),
    mutant(
        "an-erasure-cuts-data-that-are-named",
        "diskless/erasure.py",
        "if number in inline or not data:",
        "if not data:",
        f"{ERASURE}::test_without_the_lease_inline_data_that_are_named_stay",
    ),
    mutant(
        "an-erasure-deletes-what-is-on-its-way",
        "diskless/erasure.py",
        "return found & set(held)",
        "return set(held)",
        f"{ERASURE}::test_staged_and_not_committed_is_told",
    ),
    mutant(
        "an-erasure-above-its-offset",
        "diskless/erasure.py",
        "eraser = WindowEraser(self._predicate, end=end)",
        "eraser = WindowEraser(self._predicate)",
        f"{ERASURE}::test_an_offset_within_an_extent",
    ),
)
