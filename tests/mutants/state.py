"""Bugs in functions that change, compare and begin state."""

from tests.mutants.mutant import mutant

REWRITE = "state/test_rewrite.py"
VARIABLES = "state/test_rewrite_variables.py"
REBUILD = "state/test_rebuild.py"
BOOTSTRAP = "state/test_bootstrap.py"
FOLLOWING = f"{VARIABLES}::test_families_that_follow_from_a_variable"

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
        "state/plain_copy.py",
        "remove_all(copy.fs, copy.real(hadoop_name(path)))",
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
        "state-a-value-has-no-index-by-expiration",
        "state/variables.py",
        '(False, True): {"$ttl_": _TTL},',
        "(False, True): {},",
        f"{FOLLOWING}[value_ttl]",
    ),
    mutant(
        "state-a-list-has-no-counter",
        "state/variables.py",
        '(True, False): {"$rowCounter_": _COUNT},',
        "(True, False): {},",
        f"{FOLLOWING}[list]",
    ),
    mutant(
        "state-a-list-that-expires-has-no-index",
        "state/variables.py",
        '(True, True): {"$ttl_": _TTL, ',
        "(True, True): {",
        f"{FOLLOWING}[list_ttl]",
    ),
    mutant(
        "state-a-list-has-no-least-expiration",
        "state/variables.py",
        '"$min_": _MIN, ',
        "",
        f"{FOLLOWING}[list_ttl]",
    ),
    mutant(
        "state-a-list-that-expires-has-no-count",
        "state/variables.py",
        ', "$count_": _COUNT}',
        "}",
        f"{FOLLOWING}[list_ttl]",
    ),
    mutant(
        "state-a-list-expires-with-its-last-value",
        "state/variables.py",
        '"array_min(entries',
        '"array_max(entries',
        f"{FOLLOWING}[list_ttl]",
    ),
    mutant(
        "state-timers-have-no-index-by-time",
        "state/variables.py",
        "if is_timer:",
        "if False:",
        f"{FOLLOWING}[timers]",
    ),
    mutant(
        "state-a-missing-part-of-a-key-is-accepted",
        "state/variables.py",
        "if is_timer or name in operator.maps:",
        "if False:",
        f"{FOLLOWING}[map]",
    ),
    mutant(
        "state-a-missing-expiration-is-accepted",
        "state/variables.py",
        "elif expires:",
        "elif False:",
        f"{FOLLOWING}[value_ttl]",
    ),
    mutant(
        "state-a-missing-expiration-in-a-list-is-accepted",
        "state/variables.py",
        'F.transform("value", _whole_value)',
        'F.col("value")',
        f"{FOLLOWING}[list_ttl]",
    ),
    mutant(
        "state-a-null-list-is-dropped",
        "state/variables.py",
        '"entries IS NULL OR size(entries) > 0"',
        '"size(entries) > 0"',
        f"{FOLLOWING}[list]",
    ),
    mutant(
        "state-an-empty-list-is-counted",
        "state/variables.py",
        'rows.where("size(entries) > 0").select',
        "rows.select",
        f"{FOLLOWING}[list]",
    ),
    mutant(
        "state-values-of-a-list-are-in-another-order",
        "state/variables.py",
        'left["at"] < right["at"]',
        'left["at"] > right["at"]',
        f"{VARIABLES}::test_the_values_of_a_list_are_an_array_in_their_order",
    ),
    mutant(
        "state-a-function-of-a-variable-runs-again",
        "state/variables.py",
        'rows.withColumn("entries", entries).localCheckpoint()',
        'rows.withColumn("entries", entries)',
        f"{VARIABLES}::test_families_follow_from_the_same_rows",
    ),
    mutant(
        "state-a-function-of-a-join-runs-again",
        "state/functions.py",
        'f"the {side} side").localCheckpoint()',
        'f"the {side} side")',
        f"{REWRITE}::test_the_rows_of_a_join",
    ),
    mutant(
        "state-a-list-is-taken-for-a-value",
        "state/tables.py",
        "{'list of ' if name in lists else ''}",
        "",
        f"{VARIABLES}::test_a_list_and_a_value_are_different",
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
    mutant(
        "state-a-rebuilt-state-that-differs-is-taken",
        "state/rebuild.py",
        "if wrong or len(old) != len(new):",
        "if len(old) != len(new):",
        f"{REBUILD}::test_what_is_refused",
    ),
    mutant(
        "state-nothing-is-lost-and-all-is-rebuilt",
        "state/rebuild.py",
        "    if not found:",
        "    if found is None:",
        f"{REBUILD}::test_what_is_refused",
    ),
    mutant(
        "state-another-query-rebuilds",
        "state/rebuild.py",
        "if again.operators != plain.operators:",
        "if len(again.operators) > len(plain.operators):",
        f"{REBUILD}::test_what_is_refused",
    ),
    mutant(
        "state-a-lost-schema-stays-lost",
        "state/rebuild.py",
        'and path.endswith("/_metadata/schema")',
        "and False",
        f"{REBUILD}::test_damage[remove_the_schema-lost1-1]",
    ),
    mutant(
        "state-a-damaged-partition-ends-the-comparison",
        "jvm/scala/state/StateJob.scala",
        "case NonFatal(error) if tolerant =>",
        "case NonFatal(error) if !tolerant =>",
        f"{REBUILD}::test_damage[truncate-lost0-1]",
    ),
    mutant(
        "state-rebuilt-rows-have-the-version-of-the-replay",
        "state/change.py",
        "version = self._batch + 1",
        "version = old.version",
        f"{REBUILD}::test_damage[truncate-lost0-1]",
    ),
    mutant(
        "bootstrap-a-query-runs-before-its-target-is-checked",
        "state/bootstrap.py",
        "    check_free(target, fs, options)\n",
        "",
        f"{BOOTSTRAP}::test_a_target_that_exists",
    ),
    mutant(
        "bootstrap-sources-get-the-historys-offsets",
        "state/bootstrap.py",
        "edit_metadata_log(copy, path, without_offsets)",
        "pass",
        f"{BOOTSTRAP}::test_the_history_of_a_table",
    ),
    mutant(
        "bootstrap-sources-get-the-historys-files",
        "state/bootstrap.py",
        'remove_all(copy.fs, copy.real("sources"))',
        "pass",
        f"{BOOTSTRAP}::test_sources_of_the_history_are_forgotten",
    ),
    mutant(
        "bootstrap-the-watermark-of-the-last-rows-removes-nothing",
        "jvm/scala/state/HistorySource.scala",
        "parameters: Parameters): Source = new OneBatch(HistorySource.frame(parameters))",
        """parameters: Parameters): Source = {
    val all = new OneBatch(HistorySource.frame(parameters))
    new Source {
      override def schema: StructType = all.schema
      override def getOffset: Option[Offset] = all.getOffset
      override def stop(): Unit = {}
      override def getBatch(start: Option[Offset], end: Offset): DataFrame =
        all.getBatch(start, end)
    }
  }""",
        f"{BOOTSTRAP}::test_the_history_of_a_table",
    ),
    # Only Spark 4.0 to 4.2 compare what the plan infers from the rows: no test here sees that
    # `InternalFrames.microBatch` takes its columns for nullable.
    mutant(
        "bootstrap-columns-of-the-history-are-never-null",
        "jvm/scala/state/HistorySource.scala",
        "(name, InternalFrames.nullable(HistorySource.frame(parameters).schema))",
        "(name, HistorySource.frame(parameters).schema)",
        f"{BOOTSTRAP}::test_columns_of_the_history_may_be_null",
    ),
    mutant(
        "bootstrap-timers-of-processing-time-go-on",
        "state/bootstrap.py",
        "not running.awaitTermination(_POLL_S) and not _has_read_all(running)",
        "not running.awaitTermination(_POLL_S)",
        f"{BOOTSTRAP}::test_timers_of_processing_time",
    ),
    mutant(
        "bootstrap-a-function-returns-anything",
        "state/bootstrap.py",
        "if not isinstance(found, DataFrame) or not found.isStreaming:",
        "if False:",
        f"{BOOTSTRAP}::test_what_is_refused[nothing]",
    ),
    mutant(
        "bootstrap-a-function-returns-a-table",
        "state/bootstrap.py",
        "if not isinstance(found, DataFrame) or not found.isStreaming:",
        "if not isinstance(found, DataFrame):",
        f"{BOOTSTRAP}::test_what_is_refused[another]",
    ),
    mutant(
        "bootstrap-a-log-backed-checkpoint-becomes-files",
        "state/plain_copy.py",
        "is_log_backed = source.checkpoint.is_log_backed",
        "is_log_backed = False",
        f"{BOOTSTRAP}::test_the_history_of_a_table",
    ),
)
