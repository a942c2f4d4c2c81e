"""Bugs in logs in a store that are made of other ones: forks, and archives that become logs."""

from tests.mutants.mutant import mutant

FORKING = "diskless/test_forking.py"
FORKS = "log/test_forking.py"
IMPORT = "diskless/test_tier_import.py"

MUTANTS = (
    mutant(
        "a-copy-that-shows-before-it-is-whole",
        "diskless/import_objects.py",
        "        self._bring(new.objects, new.size, progress)\n",
        "        self._create_home(self._store, new.log_id)\n"
        "        self._bring(new.objects, new.size, progress)\n",
        f"{IMPORT}::test_cut_anywhere_it_is_nothing_or_whole",
    ),
    mutant(
        "half-a-copy-is-not-copied-again",
        "diskless/import_objects.py",
        "None if self._held.get(new.name) == new.size else",
        "None if new.name in self._held else",
        f"{IMPORT}::test_half_a_copy_is_copied_again",
    ),
    mutant(
        "a-copy-with-missing-records",
        "diskless/import_objects.py",
        "        _check_whole(state, self._store.url)\n",
        "",
        f"{IMPORT}::test_a_copy_with_missing_records_is_no_log",
    ),
    mutant(
        "a-place-that-was-to-become-another-log",
        "diskless/import_objects.py",
        "        if origin != self._origin:\n            raise",
        "        if not origin:\n            raise",
        f"{IMPORT}::test_refusals",
        f"{FORKING}::test_places",
    ),
    mutant(
        "a-log-that-another-call-made",
        "diskless/import_objects.py",
        "if self._create_home(self._store, new.log_id) != new.log_id:",
        'if self._create_home(self._store, new.log_id) == "":',
        f"{IMPORT}::test_two_at_once_make_one_log",
    ),
    mutant(
        "a-fork-in-the-old-leader-epoch",
        "diskless/forking.py",
        "epoch=now.log.epoch + 1,",
        "epoch=now.log.epoch,",
        f"{FORKING}::test_any_commit_is_a_point",
    ),
    mutant(
        "a-fork-with-the-old-topic-ids",
        "diskless/forking.py",
        "name: replace(topic, id=ids[name], dirs=",
        "name: replace(topic, dirs=",
        f"{FORKING}::test_any_commit_is_a_point",
    ),
    mutant(
        "a-fork-of-records-that-retention-deleted",
        "diskless/forking.py",
        "    if start > end:\n        raise records_gone",
        "    if end < 0:\n        raise records_gone",
        f"{FORKS}::TestWhatIsGone::test_an_end_below_the_log_start[memory]",
    ),
    mutant(
        "a-fork-of-a-topic-that-was-made-again",
        "diskless/forking.py",
        "if known is None or known.id != topic_id:",
        "if known is None:",
        f"{FORKS}::test_a_topic_that_was_deleted_since_is_gone[memory-True]",
    ),
    mutant(
        "a-fork-before-a-compaction",
        "diskless/forking.py",
        "if isinstance(entry.record, MergeRecord) and entry.record.gaps",
        "if isinstance(entry.record, MergeRecord) and not entry.record.topic",
        f"{FORKING}::test_compacted_behind_the_point",
    ),
    mutant(
        "a-fork-of-data-that-were-cut",
        "diskless/fork_copies.py",
        "if len(data) != end - first:",
        "if len(data) > end - first:",
        f"{FORKING}::test_an_entry_whose_data_are_gone_is_no_fork",
    ),
    mutant(
        "a-fork-without-data-keys",
        "diskless/fork_copies.py",
        "            self.keys[new] = self._now.keys[name]\n",
        "            self.keys[name] = self._now.keys[name]\n",
        f"{FORKING}::test_any_commit_is_a_point",
    ),
    mutant(
        "a-fork-one-entry-late",
        "diskless/fork_point.py",
        "            return number + 1\n",
        "            return number + 2\n",
        f"{FORKS}::test_it_is_the_log_as_of_any_batch[memory]",
    ),
    mutant(
        "a-log-within-open-transactions",
        "diskless/tier_import.py",
        "    if unfinished:\n",
        "    if len(unfinished) > 9:\n",
        f"{IMPORT}::test_open_transactions_are_left_out",
    ),
    mutant(
        "an-archive-with-a-hole",
        "diskless/tier_import.py",
        "if manifest.segment.base > at:",
        "if manifest.segment.base < 0:",
        f"{IMPORT}::test_a_damaged_tier_is_refused",
    ),
    mutant(
        "a-copy-of-another-size-than-its-manifest-says",
        "diskless/tier_import.py",
        "if manifest.stored_size != segment.size:",
        "if manifest.stored_size < 0:",
        f"{IMPORT}::test_a_damaged_tier_is_refused",
    ),
    mutant(
        "what-was-restored-expires-at-once",
        "diskless/tier_import.py",
        '_KEEP: Final = {"retention.ms": "-1"}',
        "_KEEP: Final = dict[str, str]()",
        f"{IMPORT}::test_all_of_it",
    ),
)
