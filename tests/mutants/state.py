"""Bugs in functions that change and compare state."""

from tests.mutants.mutant import mutant

REWRITE = "state/test_rewrite.py"

MUTANTS = (
    mutant(
        "state-rows-of-the-source-are-not-checked",
        "jvm/scala/state/StateTables.scala",
        "val checked = if (staysWhole) rows else StateJob.checked(from, rows)",
        "val checked = rows",
        f"{REWRITE}::test_a_wrong_number_of_partitions",
    ),
    mutant(
        "state-rows-that-stay-are-not-checked",
        "jvm/scala/state/StateJob.scala",
        "check(plan.families(packed.getInt(0)), partition, expected)",
        "",
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
        "state-a-stale-checksum-stays",
        "state/change.py",
        "remove_all(self._fs, self._copy.real(hadoop_name(path)))",
        "pass",
        f"{REWRITE}::test_moved_state",
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
        "state-a-function-of-a-join-runs-again",
        "state/functions.py",
        'f"the {side} side").localCheckpoint()',
        'f"the {side} side")',
        f"{REWRITE}::test_the_rows_of_a_join",
    ),
    mutant(
        "state-nullable-columns-of-any-type",
        "state/functions.py",
        "if found != as_text:",
        "if False:",
        f"{REWRITE}::test_what_is_refused[type]",
    ),
    mutant(
        "state-differences-are-not-counted",
        "state/diff.py",
        "if here != there\n",
        "if here.rows != there.rows\n",
        f"{REWRITE}::test_equal_rows_with_other_values",
    ),
)
