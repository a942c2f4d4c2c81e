"""Bugs in what keeps the history of a log in a store: lost entries, roll-backs, positions."""

from tests.mutants.mutant import mutant

FAULTS = "diskless/test_commit_faults.py"
ORDERS = "diskless/model/test_orders.py"
REPAIR = "service/repair/test_store_repair.py"

MUTANTS = (
    mutant(
        "a-deleted-state-ends-the-look-for-lost-entries",
        "diskless/ledger_repair.py",
        "except (DataCorruptionError, FileNotFoundError):",
        "except DataCorruptionError:",
        f"{REPAIR}::test_a_state_that_is_deleted_after_it_was_listed_proves_nothing",
    ),
    mutant(
        "a-state-proves-nothing",
        "diskless/state_objects.py",
        "if is_lost and is_strict:",
        "if is_lost and not is_strict:",
        "diskless/test_state_objects.py::test_a_state_proves_that_its_entry_existed",
    ),
    mutant(
        "a-replaced-entry-is-not-noticed",
        "diskless/commit_log.py",
        "if entry is None or entry.id != entry_id:",
        "if entry is None:",
        f"{FAULTS}::test_a_writer_that_meets_another_history_is_told",
    ),
    mutant(
        "a-roll-back-is-not-looked-for",
        "diskless/commit_log.py",
        "if now - self._followed_ms >= HISTORY_MS:",
        "if now < self._followed_ms:",
        f"{FAULTS}::test_a_writer_notices_a_roll_back_before_it_acknowledges",
    ),
    mutant(
        "only-the-newest-entry-is-looked-for",
        "diskless/commit_log.py",
        "dict.fromkeys((self._checked or newest, newest))",
        "(newest,)",
        f"{FAULTS}::test_a_writer_that_commits_all_the_time_notices_a_roll_back",
    ),
    mutant(
        "a-lost-ledger-is-a-new-log",
        "diskless/ledger.py",
        "retry.call(self._check_new)",
        "pass",
        f"{REPAIR}::test_a_lost_ledger_is_no_new_log",
    ),
    mutant(
        "no-answer-is-a-missing-object",
        "diskless/home_object.py",
        "if isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):",
        "if raw is None:",
        f"{ORDERS}::test_without_an_answer_evidence_does_not_make_an_entry_missing",
    ),
    mutant(
        "an-entry-is-its-own-evidence",
        "diskless/home_object.py",
        "elif name != own and entry_number_of(log_id, name) is not None:",
        "elif entry_number_of(log_id, name) is not None:",
        f"{ORDERS}::test_the_object_of_an_entry_is_no_evidence_for_it",
    ),
    mutant(
        "a-damaged-entry-in-the-window-loses-those-before",
        "diskless/ledger_repair.py",
        "state, why = _last_readable(head), str(error)",
        "state, why = head.state, str(error)",
        f"{REPAIR}::test_lost_entries_are_given_up",
    ),
    mutant(
        "lost-terms-are-taken-again",
        "diskless/ledger_repair.py",
        "max(state.term, lost.term) + 1",
        "state.term + 1",
        f"{REPAIR}::test_a_service_of_the_lost_entries_is_fenced",
    ),
    mutant(
        "a-position-under-another-number-is-taken",
        "diskless/groups.py",
        'if document.get("number", number) != number:',
        'if document.get("number", number) is None:',
        "diskless/test_groups.py::test_a_group_continues_at_its_older_position",
    ),
    mutant(
        "only-one-position-is-kept",
        "diskless/groups.py",
        "{number + 1, position.readable}",
        "{number + 1}",
        "diskless/test_groups.py::test_a_group_continues_at_its_older_position",
    ),
)
