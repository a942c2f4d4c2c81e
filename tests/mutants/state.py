"""Bugs in functions that change and compare state."""

from tests.mutants.mutant import mutant

REWRITE = "state/test_rewrite.py"

MUTANTS = (
    mutant(
        "state-rows-of-the-source-are-not-checked",
        "jvm/scala/state/StateTables.scala",
        "val checked = StateJob.checked(from, rows)",
        "val checked = rows",
        f"{REWRITE}::test_a_wrong_number_of_partitions",
    ),
    mutant(
        "state-equal-keys-are-accepted",
        "jvm/scala/state/StateJob.scala",
        "if (isKnown && !family.isList) {",
        "if (false) {",
        f"{REWRITE}::test_what_is_refused[duplicate]",
    ),
    mutant(
        "state-moved-keys-stay-in-their-partition",
        "jvm/scala/state/StateTables.scala",
        "case e: SparkException if String.valueOf(e.getMessage).contains(StateJob.Misplaced) =>",
        "case e: SparkException if e == null =>",
        f"{REWRITE}::test_keys_that_move",
    ),
    mutant(
        "state-the-original-is-changed",
        "state/change.py",
        "self._fs.unlink(self._copy.real(name))",
        "pass",
        f"{REWRITE}::test_a_dry_run",
    ),
    mutant(
        "state-the-plan-keeps-its-partitions",
        "state/change.py",
        'self._edit(f"offsets/{self._batch}", self._edit_plan)',
        "pass",
        f"{REWRITE}::test_moved_state",
    ),
    mutant(
        "state-a-dry-run-publishes",
        "state/rewrite.py",
        "if not dry_run:",
        "if True:",
        f"{REWRITE}::test_a_dry_run",
    ),
    mutant(
        "state-the-index-of-a-join-is-kept",
        "state/functions.py",
        "found[counts, DEFAULT_STORE] = (",
        "_unused = (",
        f"{REWRITE}::test_the_rows_of_a_join",
    ),
    mutant(
        "state-nullable-columns-of-any-type",
        "state/functions.py",
        "if _types(found) != _types(expected):",
        "if False:",
        f"{REWRITE}::test_what_is_refused[type]",
    ),
    mutant(
        "state-differences-are-not-counted",
        "state/diff.py",
        "if here != there:",
        "if here.rows != there.rows:",
        f"{REWRITE}::test_equal_rows_with_other_values",
    ),
)
