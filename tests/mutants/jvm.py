"""Bugs in what runs in Spark's JVM, and in the Python that hands work to it.

A mutant of Scala costs half a minute: the jar is compiled anew.
"""

from tests.mutants.mutant import Mutant, mutant

DECOMPRESSION = "jvm/test_decompression.py"
JAR = "jvm/test_jar.py"
JVM_PLAN = "source/test_jvm_plan.py"
PRIMITIVES = "jvm/test_primitives.py"
READING = "jvm/test_reading.py"
SEGMENTS = "jvm/test_segments.py"
STAGING = "jvm/test_staging.py"
WRITING = "jvm/test_writing.py"


def _scala(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return mutant(f"jvm-{name}", f"jvm/scala/{file}", old, new, *tests)


MUTANTS = (
    # --- Batches and records ----------------------------------------------------------------------
    _scala(
        "crc-of-a-batch-not-checked",
        "format/BatchHeader.scala",
        "    else if (!hasGoodCrc(bytes, at, sizeBytes)) BadCrc\n",
        "",
        f"{PRIMITIVES}::test_every_cut_and_flip_of_a_batch_is_the_same_fault",
    ),
    _scala(
        "more-records-than-offsets",
        "format/BatchHeader.scala",
        " || count > lastOffsetDelta + 1L",
        "",
        f"{PRIMITIVES}::test_any_fields",
    ),
    _scala(
        "records-end-before-their-batch",
        "format/RecordCursor.scala",
        "    if (status == BatchHeader.Sound && !isPast && from != stop) status = BytesLeft\n",
        "",
        f"{READING}::test_odd_records",
    ),
    _scala(
        "offsets-in-a-batch-go-back",
        "format/RecordCursor.scala",
        "if (offsetDelta <= previous || offsetDelta > lastDelta)",
        "if (offsetDelta > lastDelta)",
        f"{READING}::test_odd_records",
    ),
    _scala(
        "batch-decompresses-beyond-its-bound",
        "format/PlainBytes.scala",
        "    if (wanted > maxBytes) throw new TooLarge(maxBytes)\n",
        "    if (wanted > Int.MaxValue) throw new TooLarge(maxBytes)\n",
        f"{DECOMPRESSION}::test_output_ends_at_the_bound",
    ),
    _scala(
        "memory-for-what-a-snappy-block-claims",
        "format/SnappyReader.scala",
        "    if (size > RatioMax * (stop - at)) throw",
        "    if (size > Int.MaxValue) throw",
        f"{DECOMPRESSION}::test_memory_is_what_comes_out_and_not_what_is_claimed",
    ),
    _scala(
        "lz4-header-checksum-not-checked",
        "format/Lz4Reader.scala",
        "    if (bytes(at) != expected.toByte) throw",
        "    if (at < 0) throw",
        f"{DECOMPRESSION}::test_every_flip_and_cut_of_some_framings",
    ),
    _scala(
        "what-a-codec-makes-larger-passes-max-message-bytes",
        "format/BatchBuilder.scala",
        "      if (stop <= maxMessageBytes) {\n",
        "      if (stop <= maxMessageBytes || count > 1) {\n",
        f"{WRITING}::test_what_a_codec_makes_larger_goes_in_several_batches",
    ),
    # --- Reading segments -------------------------------------------------------------------------
    _scala(
        "batch-above-32-mib-is-read",
        "source/SegmentReader.scala",
        "    if (wanted > HugeBytes) throw",
        "    if (wanted < 0) throw",
        f"{SEGMENTS}::TestKinds::test_large_records",
    ),
    _scala(
        "log-replaced-while-it-is-read",
        "source/SegmentReader.scala",
        "    Interrupts.check()\n    standing.check()\n",
        "    Interrupts.check()\n",
        f"{SEGMENTS}::TestChanges::test_while_it_is_read",
    ),
    _scala(
        "topic-of-another-id-is-read",
        "source/LogStanding.scala",
        "      if (found != files.topicId) throw",
        "      if (found == null) throw",
        f"{SEGMENTS}::TestChanges",
    ),
    _scala(
        "log-replaced-before-it-is-read",
        "source/LogStanding.scala",
        '        if (found.get("ino") != standing(n).inode) throw replaced(standing(n).path)\n',
        "",
        f"{SEGMENTS}::TestChanges",
    ),
    _scala(
        "records-of-aborted-transactions-are-given-out",
        "source/PieceReader.scala",
        "    !isAborted && !header.isControl\n",
        "    !header.isControl\n",
        f"{SEGMENTS}::TestSame::test_foreign_logs",
    ),
    # --- Staging rows -----------------------------------------------------------------------------
    # --- The Python that meets it -----------------------------------------------------------------
    mutant(
        "jar-of-other-plans-is-used",
        "jvm/jar_file.py",
        "        if self.plans != PLAN_VERSION:\n",
        "        if self.plans < 0:\n",
        f"{JAR}::test_a_given_one_is_taken_or_refused",
    ),
    mutant(
        "jar-of-another-spark-is-used",
        "jvm/jar_file.py",
        "if spark is not None and minor(self.spark) != minor(spark):",
        "if spark is not None and not self.spark:",
        f"{JAR}::test_a_given_one_is_taken_or_refused",
    ),
    mutant(
        "damaged-jar-is-used",
        "jvm/jar_file.py",
        ' != "sparklog" or jar.testzip() is not None:',
        ' != "sparklog":',
        f"{JAR}::test_a_damaged_one_is_compiled_anew",
    ),
    mutant(
        "python-goes-on-in-another-log-than-the-jvm",
        "source/jvm_plan.py",
        '        _check_standing(plan["standing"], fs)\n',
        "        pass\n",
        f"{JVM_PLAN}::test_two_histories_are_not_mixed",
    ),
    mutant(
        "python-reads-again-what-the-jvm-gave-out",
        "source/jvm_plan.py",
        "return (_part(pieces[piece], at, pieces[piece].end), *(",
        "return (pieces[piece], *(",
        f"{JVM_PLAN}::test_python_goes_on_where_the_jvm_left",
    ),
    mutant(
        "python-goes-on-into-the-jvms-next-piece",
        "source/jvm_plan.py",
        'takewhile(lambda each: "python" in kinds[each], range(',
        "takewhile(lambda each: each in range(len(kinds)), range(",
        f"{JVM_PLAN}::test_python_goes_on_up_to_the_next_piece_of_the_jvms",
    ),
    mutant(
        "remote-segments-are-the-jvms",
        "source/jvm_plan.py",
        "        if piece.start < first:\n",
        "        if piece.start < 0:\n",
        f"{JVM_PLAN}::test_segments_that_are_not_local_are_pythons",
    ),
    mutant(
        "plan-of-the-jvm-lacks-aborted-transactions",
        "source/jvm_plan.py",
        "        if self._is_committed:\n",
        "        if self._is_committed is None:\n",
        f"{JVM_PLAN}::test_a_plan_says_what_is_left_out",
    ),
    mutant(
        "plan-of-the-jvm-lacks-what-is-left-out",
        "source/jvm_plan.py",
        '"without": clipped(piece.without, piece.start, piece.end),',
        '"without": [],',
        f"{JVM_PLAN}::test_a_plan_says_what_is_left_out",
    ),
    mutant(
        "tasks-of-the-jvm-frame-for-missing-partitions",
        "sink/jvm_plan.py",
        "        if numbers != list(range(topic.partitions)):\n",
        "        if not numbers:\n",
        f"{STAGING}::test_partitions_that_are_missing_and_log_dirs_of_their_own",
    ),
    mutant(
        "tasks-of-the-jvm-write-to-offline-partitions",
        "sink/jvm_plan.py",
        "        if topic.offline:\n",
        "        if topic.offline is None:\n",
        f"{STAGING}::test_bad_rows_are_the_same_errors",
    ),
    mutant(
        "answers-past-py4j-keep-their-memory",
        "jvm/handover.py",
        "            os.close(self._file)\n",
        "            pass\n",
        "jvm/test_handover.py::test_many_of_them_hold_nothing",
    ),
)
