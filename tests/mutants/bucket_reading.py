"""Bugs in what readers of a log in a store compare, and in where groups continue."""

from tests.mutants.mutant import mutant

AT_ONCE = (
    "testing/test_home_contracts.py::TestGroupsOfMemoryStore"
    "::test_members_that_commit_at_once_lose_nothing"
)
CHECKSUMS = "diskless/test_checksums.py"
ENTRIES = "diskless/test_entry_cache.py"
GROUPS = "diskless/test_groups.py"
TABLES = "diskless/test_extent_tables.py"
VIEW = "diskless/test_view.py"

MUTANTS = (
    mutant(
        "bytes-returned-before-they-are-compared",
        "diskless/checksums.py",
        "if self._extent.size <= WHOLE_BYTES:",
        "if self._extent.size <= 0:",
        f"{CHECKSUMS}::test_a_small_extent_is_compared_before_any_byte_of_it_is_returned",
    ),
    mutant(
        "long-extents-are-not-compared",
        "diskless/checksums.py",
        "        self._sum.take(data, at, path=self._object)\n        return data",
        "        return data",
        f"{CHECKSUMS}::test_a_large_extent_is_compared_at_its_end",
    ),
    mutant(
        "any-batch-that-fails-hides-other-bytes",
        "diskless/checksums.py",
        "is_same and scan(whole, path=\"\").error is not None",
        "scan(whole, path=\"\").error is not None",
        f"{CHECKSUMS}::test_a_damaged_batch_excuses_no_other_bytes",
    ),
    mutant(
        "a-block-that-the-entry-did-not-record-is-taken",
        "diskless/extent_tables.py",
        "if not crc == extent.crc == _CRC.unpack(block[-_CRC.size :])[0]:",
        "if crc != _CRC.unpack(block[-_CRC.size :])[0]:",
        f"{TABLES}::test_a_block_that_the_entry_did_not_record",
    ),
    mutant(
        "rows-of-a-table-that-were-changed",
        "diskless/extent_tables.py",
        "if _CRC.unpack_from(block, rows_size)[0] != crc:",
        "if len(block) < rows_size:",
        f"{TABLES}::test_every_changed_byte_is_found",
    ),
    mutant(
        "rows-of-other-offsets",
        "diskless/extent_tables.py",
        "or int(ends[-1]) != extent.end:",
        "or int(ends[-1]) < extent.base:",
        f"{TABLES}::test_rows_of_another_extent",
    ),
    mutant(
        "an-object-that-ends-too-early-is-read",
        "diskless/extent_objects.py",
        "if len(data) != end - start:",
        "if len(data) > end - start:",
        f"{VIEW}::test_an_object_that_was_merged_away_under_a_reader",
        f"{VIEW}::test_an_object_that_is_lost_is_told_by_its_name",
    ),
    mutant(
        "another-store-has-lost-its-objects",
        "diskless/extent_objects.py",
        "        if not is_home:\n            return UndeterminedLossError(",
        "        if not is_home:\n            return FileNotFoundError(",
        f"{VIEW}::test_only_a_definite_absence_is_a_loss",
    ),
    mutant(
        "cached-blocks-of-another-history",
        "diskless/extent_objects.py",
        '@{first}-{end}#{self.content}"',
        '@{first}-{end}"',
        "diskless/test_cached_blocks.py::test_a_copy_of_the_prefix",
        "diskless/test_cached_blocks.py::test_a_prefix_that_was_rolled_back",
    ),
    mutant(
        "a-roll-back-under-a-reader",
        "diskless/view.py",
        "if not all(each in raw for each, raw in zip(ids, raws, strict=False)):",
        "if ids[0] not in raws[0]:",
        f"{VIEW}::test_a_reader_notices_a_roll_back",
    ),
    mutant(
        "an-entry-per-partition",
        "diskless/entry_cache.py",
        "                with self._lock:\n                    self._put(name, raw, newest=True)\n",
        "",
        f"{ENTRIES}::test_each_entry_is_fetched_once_for_all_partitions",
    ),
    mutant(
        "an-entry-per-thread",
        "diskless/entry_cache.py",
        "            raw = self.find(name, end)\n            if raw is None:\n",
        "            raw = None\n            if raw is None:\n",
        f"{ENTRIES}::test_threads_fetch_an_entry_once",
    ),
    mutant(
        "kept-entries-by-the-fetcher",
        "diskless/extent_objects.py",
        "        if kept is not None:\n            return kept\n        fetcher =",
        "        fetcher =",
        f"{ENTRIES}::test_kept_entries_are_read_without_locks_and_threads",
    ),
    mutant(
        "kept-entries-are-fetched-ahead",
        "diskless/extent_objects.py",
        "if self._kept(0, self.stored_size) is not None:",
        "if self._kept(0, self.stored_size) == b'':",
        f"{ENTRIES}::test_kept_entries_are_read_without_locks_and_threads",
    ),
    mutant(
        "entries-without-bound",
        "diskless/entry_cache.py",
        "while self._kept and self._size + len(raw) > self._kept_bytes:",
        "while self._kept and len(raw) > self._kept_bytes:",
        f"{ENTRIES}::test_what_is_kept_is_bounded_and_of_use",
    ),
    mutant(
        "the-next-entry-goes-first",
        "diskless/entry_cache.py",
        "last = newest and self._evictions % _OLDEST_EACH != 0",
        "last = False",
        f"{ENTRIES}::test_what_is_kept_is_bounded_and_of_use",
    ),
    mutant(
        "old-entries-stay-for-ever",
        "diskless/entry_cache.py",
        "last = newest and self._evictions % _OLDEST_EACH != 0",
        "last = newest",
        f"{ENTRIES}::test_what_is_kept_is_bounded_and_of_use",
    ),
    mutant(
        "kept-entries-that-were-cut-off",
        "diskless/entry_cache.py",
        "return None if raw is None or len(raw) < end else raw",
        "return raw",
        f"{ENTRIES}::test_an_entry_that_was_cut_off_is_fetched_again",
    ),
    mutant(
        "another-entry-is-taken",
        "diskless/entry_cache.py",
        "                check_number(raw, name, store.url)\n",
        "",
        f"{ENTRIES}::test_another_entry_is_not_taken",
    ),
    mutant(
        "kept-entries-of-another-history",
        "diskless/view.py",
        "                self.objects.entries.clear()\n",
        "",
        f"{VIEW}::test_a_reader_notices_a_roll_back",
    ),
    mutant(
        "a-plan-with-a-hole",
        "diskless/view.py",
        "if not extents or extents[0].base > start or extents[-1].end < end:",
        "if not extents:",
        f"{VIEW}::test_no_plan_for_offsets_that_no_extent_has",
    ),
    mutant(
        "members-of-a-group-overwrite-one-another",
        "diskless/groups.py",
        "if max(names, default=0) <= number + 1:",
        "if max(names, default=0) >= number:",
        AT_ONCE,
    ),
    mutant(
        "anothers-position-is-ours",
        "diskless/groups.py",
        "return self._store.get(name) == raw",
        "return self._store.get(name) != b''",
        AT_ONCE,
        f"{GROUPS}::test_no_acknowledged_position_is_lost_by_answers_that_go_astray",
    ),
    mutant(
        "a-deleted-group-comes-back",
        "diskless/groups.py",
        "kept = {number + 1} if is_deleted else",
        "kept = {number + 1, number} if is_deleted else",
        f"{GROUPS}::test_a_deleted_group_leaves_no_older_position",
    ),
    mutant(
        "a-position-of-another-group",
        "diskless/groups.py",
        "if reader is not None and readers_prefix(reader.group) != prefix:",
        "if reader is not None and not reader.group:",
        f"{GROUPS}::test_a_position_of_another_group_is_not_taken",
    ),
    mutant(
        "positions-by-a-listing-that-lags",
        "diskless/groups.py",
        "            while isinstance(raws[-1], bytes | DataCorruptionError):\n",
        "            while isinstance(raws[-1], DataCorruptionError):\n",
        AT_ONCE,
    ),
    mutant(
        "groups-named-by-dots",
        "diskless/names.py",
        'if not quoted.strip("."):',
        "if not quoted:",
        f"{GROUPS}::test_any_group_has_names_that_a_file_can_have",
    ),
)
