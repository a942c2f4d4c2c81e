"""Bugs in reading: look-ups, isolation, histories, and the format."""

from tests.mutants.mutant import mutant


def in_both_homes(test: str) -> tuple[str, ...]:
    """Return a test of the homes' contract for a log dir and for a bucket."""
    homes = ("TestLogDir", "TestMemoryStore")
    return tuple(f"testing/test_home_contracts.py::{home}::{test}" for home in homes)


MUTANTS = (
    mutant(
        "read-below-the-log-start-is-tried-again",
        "log/read_retry.py",
        "        if self.start < start:\n",
        "        if self.start < 0:\n",
        "diskless/test_view.py::test_a_log_start_that_rises_under_a_reader",
        "logdir/test_housekeeping.py::TestLedger"
        "::test_a_table_of_commits_that_expire_on_the_way[1]",
    ),
    mutant(
        "a-new-topic-is-unknown-to-readers",
        "log/listed_view.py",
        "            self.refresh()\n            numbers = self._numbers(topic)\n",
        "            pass\n",
        *in_both_homes("test_readers_see_topics_that_others_create"),
    ),
    mutant(
        "a-new-partition-is-unknown-to-readers",
        "log/listed_view.py",
        "            self.refresh()\n            place = self._find(key)\n",
        "            pass\n",
        *in_both_homes("test_readers_see_topics_that_others_create"),
    ),
    mutant(
        "segments-of-any-topic-of-the-name",
        "log/listed_view.py",
        "            or topic_id not in (None, cached.segments.topic_id)\n",
        "",
        *(
            f"{file}::test_what_is_made_of_a_partition_is_kept"
            for file in (
                "testing/test_reading_contracts.py::TestLogDir",
                "testing/test_reading_contracts.py::TestBucketAlone",
                "diskless/test_segments.py::TestView",
            )
        ),
    ),
    mutant(
        "segments-of-a-partition-that-was-replaced-stay",
        "log/listed_view.py",
        "            if not is_same(key, cached.segments):\n",
        "            if key is None:\n",
        "testing/test_home_contracts.py::TestLogDir::"
        "test_readers_see_a_topic_that_others_create_again",
    ),
    mutant(
        "cached-segments-are-not-updated",
        "log/listed_view.py",
        "            or not self._update(key, cached.segments, place)\n",
        "",
        "testing/test_home_contracts.py::TestMemoryStore::"
        "test_readers_see_a_topic_that_others_create_again",
        "tiered/archive/test_archive.py::test_a_copy_that_was_deleted_is_not_read_from_the_cache",
    ),
    mutant(
        "any-name-of-an-object",
        "diskless/names.py",
        'any(part in ("", ".", "..") for part in name.split("/"))',
        "False",
        "diskless/test_hostile_objects.py::test_an_entry_with_such_names_is_damage",
    ),
    mutant(
        "entry-of-any-size",
        "diskless/ledger.py",
        "self.store.get(entry_name(self.log_id, number), limit=ENTRY_BYTES_MAX)",
        "self.store.get(entry_name(self.log_id, number))",
        "diskless/test_hostile_objects.py::test_an_entry_is_fetched_up_to_its_largest_size",
    ),
    mutant(
        "bytes-of-another-commit-read",
        "diskless/checksums.py",
        "if end == extent.size and crc != extent.crc:",
        "if False:",
        "diskless/test_checksums.py::test_a_reader_refuses_what_was_not_committed",
    ),
    mutant(
        "inline-data-of-another-entry-read",
        "diskless/entry_cache.py",
        "if raw and number != parse_entry(name):",
        "if False:",
        "diskless/test_checksums.py::test_a_reader_of_inline_data_asks_for_its_own_entry",
    ),
    mutant(
        "read-past-the-end",
        "log/partition_reader.py",
        "first=first, end=end, path=path",
        "first=first, end=end + 1, path=path",
        "log/test_partition_reader.py",
    ),
    mutant(
        "batch-in-the-wrong-place-read",
        "log/partition_reader.py",
        "        if wrong.any():",
        "        if wrong.all() and len(wrong) > 1000:",
        "log/test_partition_reader.py::test_a_batch_whose_base_offset_is_another_one_is_noticed",
    ),
    mutant(
        "gap-between-segments-read",
        "log/partition_reader.py",
        "if following < at or (following > at and not",
        "if following < at or (following < at and not",
        "log/test_partition_reader.py::TestRead::test_a_missing_segment_is_stale_first",
    ),
    mutant(
        "segment-that-reaches-into-the-next-read",
        "log/partition_reader.py",
        "            if first < following:\n                return table, None",
        "            if first >= 0:\n                return table, None",
        (
            "log/test_partition_reader.py::TestRead::"
            "test_a_segment_must_end_where_the_next_one_begins[6]"
        ),
    ),
    mutant(
        "wrong-index-believed",
        "log/partition_reader.py",
        'return int(found.table["base_offset"][0]) <= at',
        "return True",
        "crash/test_corruption.py::test_every_bit_of_an_index[r-closed-index]",
    ),
    mutant(
        "max-bytes-not-heeded",
        "log/partition_reader.py",
        'searchsorted(self.left_bytes, side="right")',
        'searchsorted(2 * self.left_bytes, side="right")',
        "log/test_partition_reader.py::TestRead::test_limits",
    ),
    mutant(
        "aborted-records-read",
        "log/aborted_transactions.py",
        'self._waiting[0][0] <= int(row["last_offset"])',
        'self._waiting[0][0] < int(row["base_offset"])',
        "log/test_aborted_transactions.py::test_what_is_kept[True]",
    ),
    mutant(
        "time-found-one-too-late",
        "log/time_lookup.py",
        "if self.largest_timestamp(base, end) >= timestamp:",
        "if self.largest_timestamp(base, end) > timestamp:",
        "log/test_partition_reader.py::TestLies::test_bit_flips[0]",
    ),
    mutant(
        "time-of-a-closed-segment-off-by-one",
        "log/time_lookup.py",
        "at = bisect.bisect_left(self._running, timestamp, 0, skip)",
        "at = bisect.bisect_right(self._running, timestamp, 0, skip)",
        "log/test_partition_reader.py::TestLies::test_bit_flips[0]",
    ),
    mutant(
        "segment-of-an-offset-off-by-one",
        "log/offset_lookup.py",
        "at = bisect.bisect_right(self.bases, offset) - 1",
        "at = bisect.bisect_left(self.bases, offset) - 1",
        "log/test_partition_reader.py::TestRead::test_any_range",
    ),
    mutant(
        "another-history-not-noticed",
        "log/truncation_detection.py",
        "    if offset <= min(common, end):",
        "    if offset <= max(common, end):",
        "log/test_truncation_detection.py::test_where_histories_part[entries5-10-origin5-20-6]",
    ),
    mutant(
        "crc-not-checked",
        "format/scan.py",
        "if crc32c(view[start:end]) != crc:",
        "if not crc:",
        "format/test_scan.py::test_the_first_damage_ends_the_scan",
    ),
    mutant(
        "torn-batch-taken",
        "format/scan.py",
        "if left < LOG_OVERHEAD + length:",
        "if left < length:",
        "format/test_batch.py::test_torn_tail_is_no_error[78]",
    ),
    mutant(
        "legacy-crc-not-checked",
        "format/legacy.py",
        "if actual != crc:",
        "if not actual:",
        "format/test_legacy.py::test_crc",
    ),
    mutant(
        "time-entry-for-each-batch",
        "format/index.py",
        "times[:1] > state.last_timestamp, times[1:] > times[:-1]",
        "times[:1] > state.last_timestamp, times[1:] >= times[:-1]",
        "format/test_index.py::test_the_rule_in_any_grouping",
    ),
    mutant(
        "final-time-entry-left-out",
        "format/index.py",
        "if state.max_timestamp <= state.last_timestamp:",
        "if state.max_timestamp:",
        "format/test_index.py::test_final_time_entry",
    ),
    mutant(
        "compacted-batch-with-its-old-count",
        "format/compaction.py",
        "count=kernel.kept,",
        "count=header.count,",
        "format/test_compaction.py::TestRecordFilter::test_what_survives[1]",
    ),
    mutant(
        "second-delete-horizon",
        "format/compaction.py",
        "marks = not marked and bool(",
        "marks = bool(",
        "oracle/test_cleaner.py::test_equal_to_kafkas[1]",
    ),
    mutant(
        "topics-that-are-waited-for-begin-one-by-one",
        "source/stream.py",
        "snapshot = log.snapshot()",
        "snapshot = log.snapshot(lenient=True)",
        "source/test_topic_wait.py::test_all_that_is_named_is_waited_for",
    ),
    mutant(
        "end-of-a-wait-that-is-read",
        "source/stream.py",
        "if is_waiting(start) or is_waiting(end):",
        "if is_waiting(end):",
        "source/test_topic_wait.py::test_a_micro_batch_that_ends_the_wait_is_repeated",
    ),
    mutant(
        "wait-that-ends-after-available-now",
        "source/stream.py",
        "return None if is_late else snapshot",
        "return snapshot",
        "source/test_topic_wait.py::test_what_comes_after_available_now_was_triggered_waits",
    ),
    mutant(
        "errors-behind-sparks-stack",
        "spark_errors.py",
        'os.environ[_HIDE] = "true"',
        "pass",
        "test_spark_errors.py",
    ),
    mutant(
        "errors-of-foreach-batch-without-their-cause",
        "spark_errors.py",
        "    return copy.copy(error)",
        "    return None",
        "test_spark_errors.py",
    ),
    mutant(
        "stack-left-out-of-every-error",
        "spark_errors.py",
        """            result = function(*args, **kwargs)
        except SparklogError as error:""",
        """            result = function(*args, **kwargs)
        except Exception as error:""",
        "test_spark_errors.py",
    ),
    mutant(
        "coordinator-not-among-the-brokers",
        "kafka/metadata.py",
        "        if other is not None:\n            nodes.append(other)\n",
        "",
        (
            "kafka/groups/test_coordinator.py::"
            "test_each_node_that_clients_are_sent_to_is_among_the_brokers"
        ),
    ),
    mutant(
        "worker-without-sparklog-unnamed",
        "spark_errors.py",
        "        cls.__reduce_ex__ = reduce_ex  # type",
        "        reduce_ex  # type",
        "test_worker_package.py::test_a_python_without_sparklog_is_named_with_its_host[read]",
    ),
)
