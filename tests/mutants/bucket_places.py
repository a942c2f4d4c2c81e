"""Rules of the bucket home that several places implement: each is switched off place by place.

`tests/diskless/model/places.py` finds the places in the source.
"""

from tests.mutants.mutant import mutant

AT_ONCE = (
    "testing/test_home_contracts.py::TestGroupsOfMemoryStore"
    "::test_members_that_commit_at_once_lose_nothing"
)
ERASURE = "diskless/test_erasure.py"
FAULTS = "diskless/test_commit_faults.py"
GARBAGE = "diskless/test_garbage.py"
REPAIR = "service/repair/test_store_repair.py"
TOPICS = "diskless/test_deleted_topics.py"
VIEW = "diskless/test_view.py"

MUTANTS = (
    mutant(
        "an-own-entry-is-anothers",
        "diskless/entry_creation.py",
        "return existing.id == entry.id\n            if refusal",
        "return False\n            if refusal",
        f"{FAULTS}::test_what_was_told_holds_whatever_the_store_does",
    ),
    mutant(
        "an-own-entry-is-anothers-when-giving-up",
        "diskless/entry_creation.py",
        "return existing.id == entry.id\n        answers",
        "return False\n        answers",
        f"{FAULTS}::test_giving_up_finds_the_entry_that_came_first",
    ),
    mutant(
        "any-entry-is-the-no-op",
        "diskless/entry_creation.py",
        "if created or (existing is not None and existing.id == noop.id):",
        "if created or existing is not None:",
        f"{FAULTS}::test_giving_up_finds_the_entry_that_came_first",
    ),
    mutant(
        "entries-are-put",
        "diskless/entry_creation.py",
        "if self._entries.store.create(name, raw):",
        "if self._entries.store.put(name, raw) is None:",
        f"{FAULTS}::test_threads_and_processes_that_race_lose_nothing",
    ),
    mutant(
        "no-ops-are-put",
        "diskless/entry_creation.py",
        "created = self._entries.store.create(name, raw)",
        "created = self._entries.store.put(name, raw) is None",
        f"{FAULTS}::test_giving_up_finds_the_entry_that_came_first",
    ),
    mutant(
        "positions-are-put",
        "diskless/groups.py",
        "if self._store.create(name, raw):",
        "if self._store.put(name, raw) is None:",
        AT_ONCE,
        "diskless/test_groups.py::test_no_acknowledged_position_is_lost_by_answers_that_go_astray",
    ),
    mutant(
        "the-home-object-is-put",
        "diskless/home_object.py",
        "return store.create(HOME, _home_bytes(log_id, clock))",
        "return store.put(HOME, _home_bytes(log_id, clock)) is None",
        "diskless/test_home.py::test_makers_at_the_same_time_make_one_log",
    ),
    mutant(
        "a-claim-of-a-place-is-put",
        "diskless/import_objects.py",
        'self._claimed = store.create(IMPORT, seal("import", {"of": self._origin}))',
        'self._claimed = store.put(IMPORT, seal("import", {"of": self._origin})) is None',
        "diskless/test_tier_import.py::test_of_two_claims_at_once_one_holds",
    ),
    mutant(
        "a-claim-of-the-endpoints-is-put",
        "diskless/lease.py",
        "if not self._store.create(endpoint_name(number), self._content()):",
        "if self._store.put(endpoint_name(number), self._content()):",
        "diskless/test_endpoint_lease.py",
    ),
    mutant(
        "a-segment-that-is-named-goes-with-its-delay",
        "diskless/garbage.py",
        "if e.segment and e.object not in live]",
        "if e.segment]",
        f"{GARBAGE}::test_what_is_named_is_not_deleted_after_its_delay",
    ),
    mutant(
        "segments-that-are-named-are-swept",
        "diskless/garbage.py",
        "if not segment or segment in named or",
        "if not segment or",
        f"{GARBAGE}::test_what_past_services_left_goes_and_nothing_else",
        f"{TOPICS}::test_it_comes_back_whole_whatever_a_service_swept",
    ),
    mutant(
        "staged-objects-that-are-named-are-swept",
        "diskless/garbage.py",
        "if number is None or each.name in live:",
        "if number is None:",
        f"{GARBAGE}::test_staged_objects",
    ),
    mutant(
        "an-erasure-deletes-segments-that-are-named",
        "diskless/erasure.py",
        "                if name not in live\n                and (found in let_go",
        "                if name\n                and (found in let_go",
        ERASURE,
    ),
    mutant(
        "an-erasure-deletes-staged-objects-that-are-named",
        "diskless/erasure.py",
        "if each.name not in live and self._holds(",
        "if self._holds(",
        f"{ERASURE}::test_staged_objects_of_another_topic_stay",
    ),
    mutant(
        "an-erasure-tells-of-segments-that-are-named",
        "diskless/erasure.py",
        "left = [each for each in logs if each.name not in named]",
        "left = [each for each in logs if each.name in named]",
        f"{ERASURE}::test_nothing_is_left",
    ),
    mutant(
        "segments-of-deleted-topics-are-swept",
        "diskless/garbage.py",
        "for extents in state.kept_extents() for e in extents if e.segment}",
        "for extents in state.extents.values() for e in extents if e.segment}",
        f"{TOPICS}::test_it_comes_back_whole_whatever_a_service_swept",
    ),
    mutant(
        "objects-behind-tables-of-deleted-topics-are-swept",
        "diskless/garbage.py",
        "for extents in state.kept_extents() for e in extents if e.pieces}",
        "for extents in state.extents.values() for e in extents if e.pieces}",
        f"{GARBAGE}::test_what_lies_behind_the_table_of_a_deleted_topic_stays",
    ),
    mutant(
        "lost-attempts-beside-the-table-of-a-deleted-topic",
        "diskless/staged_chunks.py",
        "for of_partition in state.kept_extents() for extent in of_partition)",
        "for of_partition in state.extents.values() for extent in of_partition)",
        f"{GARBAGE}::test_what_lies_behind_the_table_of_a_deleted_topic_stays",
    ),
    mutant(
        "objects-of-deleted-topics-are-garbage",
        "diskless/state.py",
        "return {extent.object for extents in self.kept_extents() for extent in extents}",
        "return {extent.object for extents in self.extents.values() for extent in extents}",
        f"{GARBAGE}::test_what_a_deleted_topic_holds_stays",
    ),
    mutant(
        "data-keys-of-deleted-topics-are-forgotten",
        "diskless/state.py",
        "            for extents in self.kept_extents():\n",
        "            for extents in self.extents.values():\n",
        "diskless/test_state.py::test_data_keys_of_a_deleted_topic_stay",
    ),
    mutant(
        "entries-are-deleted-not-cut",
        "diskless/service_log.py",
        "self.store.put(name, stored.raw[: stored.entry.data_at])",
        "self.store.delete([name])",
        f"{GARBAGE}::test_inline_data_are_cut_when_no_extent_lies_in_them",
        f"{ERASURE}::test_without_the_lease_entries_of_merges_are_cut_too",
    ),
    mutant(
        "an-erasure-makes-no-manifests",
        "diskless/erasure.py",
        "                    self._merger.make_manifest(key, extent, state)\n",
        "                    assert state\n",
        f"{ERASURE}::test_without_the_lease_manifests_come_before_deletions",
    ),
    mutant(
        "what-covers-the-replaced-gets-no-manifest",
        "diskless/garbage.py",
        "self._merger.make_manifest(one.key, extent, state)",
        "assert state",
        f"{GARBAGE}::test_what_was_replaced_goes_after_the_manifest_of_what_covers_it",
    ),
    mutant(
        "a-sweep-makes-no-manifests",
        "diskless/garbage.py",
        "            self._merger.make_manifest(key, extent, state)\n        except",
        "            assert state\n        except",
        f"{GARBAGE}::test_missing_manifests_are_made_before_anything_goes",
    ),
    mutant(
        "a-sweep-takes-its-own-merges-for-past",
        "diskless/garbage.py",
        "elif is_past(segment, own):",
        "elif own:",
        f"{GARBAGE}::test_what_past_services_left_goes_and_nothing_else",
    ),
    mutant(
        "an-erasure-takes-the-services-merges-for-past",
        "diskless/erasure.py",
        "or is_past(found, state.term))",
        "or state.term)",
        f"{ERASURE}::test_without_the_lease_a_merge_on_its_way_stays",
    ),
    mutant(
        "a-merge-of-extents-that-are-not-there",
        "diskless/state.py",
        "_expect(at >= 0,",
        "_expect(at >= -1,",
        "diskless/test_state.py::test_a_merge_replaces_what_it_read_and_nothing_else",
    ),
    mutant(
        "segments-of-a-topic-that-was-made-again",
        "diskless/view.py",
        "        if segments.topic_id != place.id:\n            return False\n",
        "",
        f"{VIEW}::test_segments_of_a_topic_that_was_made_again",
    ),
    mutant(
        "a-look-at-a-topic-that-was-made-again",
        "diskless/view.py",
        "return now if now is not None and now.topic_id == place.id else None",
        "return now",
        f"{VIEW}::test_segments_of_a_topic_that_was_made_again",
    ),
    mutant(
        "an-erasure-passes-over-tables",
        "diskless/erasure.py",
        "if each.name in tabled or named.get(",
        "if named.get(",
        ERASURE,
    ),
    mutant(
        "an-erasure-passes-over-deleted-topics",
        "diskless/erasure.py",
        "        for extents in state.kept_extents():\n",
        "        for extents in state.extents.values():\n",
        ERASURE,
    ),
    # --- Object stores that other packages register -----------------------------------------------
    mutant(
        "one-of-two-registered-stores-is-taken",
        "tiered/object_store/registry.py",
        "    if len(registered) > 1:\n",
        "    if len(registered) > 2:\n",
        "tiered/object_store/test_registry.py::test_a_registration_that_is_wrong_is_named",
    ),
    mutant(
        "a-package-that-is-found-twice-is-a-conflict",
        "tiered/object_store/registry.py",
        "{point.value: point for point in",
        "{id(point): point for point in",
    # --- Object stores that other packages register ---
    ),
    mutant(
        "a-store-registered-under-a-foreign-scheme",
        "tiered/object_store/registry.py",
        " or point.name not in loaded.schemes:",
        ":",
        "tiered/object_store/test_registry.py::test_a_registration_that_is_wrong_is_named",
    ),
    mutant(
        "aliases-of-a-store-are-compared-as-spelled",
        "tiered/object_store/registry.py",
        "return store_type(scheme).schemes[0]",
        "return scheme",
        "tiered/object_store/test_registry.py::test_an_alias_names_the_same_log",
    ),
)
