"""How much each kind of test does, by depth; the one place where the suite's length is set.

SPARKLOG_TEST_DEPTH is one of

  small  `make test`: the fewest seeds, kills and providers that still catch each mutant of
         tests/mutants; without the tests marked `deep` or `slow`
  ci     `.ci/run`: more of each, and `deep`, without NIGHT
  all    `make test DEPTH=all`, a night: thousands of seeds, `deep`, `slow` and NIGHT

`make test-all` runs the tests marked `slow` alone, at the counts of `ci` (tests/slow_tests.py).

A test whose count matters takes it from here; one that is a case of its own but costs seconds
and whose like the small suite has is marked `deep`, one that takes minutes `slow`.
"""

import os
from typing import Final, TypeVar

T = TypeVar("T")

DEPTHS: Final = ("small", "ci", "all")
DEPTH: Final = os.environ.get("SPARKLOG_TEST_DEPTH") or "small"
if DEPTH not in DEPTHS:
    raise SystemExit(f"SPARKLOG_TEST_DEPTH={DEPTH}: say one of {', '.join(DEPTHS)}")

LEFT_OUT_OF_SMALL: Final = {"deep", "slow"}
LEFT_OUT: Final = {"small": LEFT_OUT_OF_SMALL, "ci": {"slow"}, "all": set[str]()}[DEPTH]
"""Marks of tests that don't run at this depth."""


NIGHT: Final = (
    "tests/kafka/clients/test_migration.py", "tests/kafka/test_handover.py::test_there_and_back",
    "tests/kafka/test_handover.py::test_what_was_restored_and_exported",
    "tests/spark/test_applications.py::test_spark_submit_on_a_cluster_beside",
    "tests/spark/test_applications.py::test_a_table_of_the_catalog_says_why",
    "tests/spark/test_connect.py::test_a_server_is_started_with_the_settings",
    "tests/spark/test_declarative_pipelines.py",
    "tests/spark/test_deployments.py::test_a_package_that_a_running_session_ships",
    "tests/spark/test_deployments.py::test_an_archive_is_unpacked",
    "tests/spark/test_deployments.py::test_py_files",
    "tests/spark/test_deployments.py::test_scala_in_a_spark_shell",
    "tests/spark/test_deployments.py::test_workers_with_another_python",
    "tests/spark/test_gateway.py::test_each_way_that_a_jar_comes[second context]",
    "tests/state/test_file_sink.py::test_reset[files-12-False]",
    "tests/state/test_file_sink.py::test_reset[files-5-False]",
    "tests/state/test_file_sink.py::test_reset[files-9-True]",
    "tests/state/test_file_sink.py::test_reset[log-12-False]",
    "tests/state/test_file_sink.py::test_reset[log-5-False]",
    "tests/state/test_file_sink.py::test_reset[log-9-True]",
    "tests/state/test_rewrite.py::test_in_place[transform_with_state",
    "tests/state/test_rewrite_joins.py::test_a_key_with_all_rows",
    "tests/state/test_rewrite_variables.py::test_a_changed_query_with_other_expirations",
    "tests/state/test_rewrite_variables.py::test_a_list_that_becomes_a_value",
    "tests/state/test_s3.py::test_a_query_begins_with_the_state_of_a_history",
    "tests/state/test_s3.py::test_a_query_goes_on_with_a_copy",
    "tests/state/test_stored_gs.py::test_killed_drivers",
    "tests/state/test_stored_hdfs.py::test_same_output", "tests/tiered/test_docker_topology.py",
)  # fmt: skip
"""What the names of tests begin with that CI leaves out too, so that it ends within the hour."""
LEFT_OUT_BY_NAME: Final = NIGHT if DEPTH == "ci" else ()


def by_depth(*, small: T, ci: T, all: T) -> T:
    """Return the one for this run's depth."""
    return {"small": small, "ci": ci, "all": all}[DEPTH]


# Whether the tests' files lie in memory, on a tmpfs, where there is room.
IN_MEMORY: Final = by_depth(small=True, ci=False, all=False)
# Random histories of a log on a disk that crashes: about 1 s each.
CRASH_SEEDS: Final = by_depth(small=16, ci=16, all=10_000)
CRASH_SEEDS_A_TEST: Final = by_depth(small=4, ci=8, all=250)
# Schedules of a log in a store, of the protocol as it stands: some 0.4 s each.
MODEL_SEEDS: Final = by_depth(small=12, ci=12, all=5000)
MODEL_SEEDS_A_TEST: Final = by_depth(small=4, ci=12, all=250)
# The same, of a topic that is deleted and given back.
DELETION_SEEDS: Final = by_depth(small=4, ci=10, all=1000)
PLACING_SEEDS: Final = by_depth(small=2, ci=4, all=4)
# Of the crashes in a move of a partition every such one is judged.
MOVE_CUTS: Final = by_depth(small=12, ci=4, all=1)
# Counts of tests marked `slow`, so that `make test-all` takes an hour or two on two cores; `all`
# has what a night has time for. Histories of a copied log, of each of ten tests: some 1.5 s each.
SLOW_PLACING_SEEDS: Final = by_depth(small=20, ci=20, all=100)
# Crashed machines whose recovery is cut, of each scenario of a swap.
SLOW_SWAP_RECOVERIES: Final = by_depth(small=50, ci=50, all=200)
# Random lives of a tiered log, of each of twenty tests: some 2 s each.
SLOW_TIERING_LIVES: Final = by_depth(small=5, ci=5, all=25)
# Random batches to go back to, of each operator, provider and manager: a Spark query each.
SLOW_REWIND_SEEDS: Final = by_depth(small=(2,), ci=(2,), all=(2, 3))
# Drivers of a stateful query killed one after the other, of each operator and provider.
SLOW_STATE_KILLS: Final = by_depth(small=4, ci=4, all=10)
# Processes that move partitions and delete topics, each killed after some turns; 1 s each.
MOVER_KILLS: Final = by_depth(small=1, ci=4, all=40)
# Crashes amid a service's round of a tiered log, of each kind of round.
TIERING_CUTS: Final = by_depth(small=10, ci=15, all=25)
# Random lives of a tiered log, some 2 s each.
TIERING_LIVES: Final = by_depth(small=4, ci=6, all=16)
# Where a test goes through all crashes of an operation, every such one is judged.
CUT_EVERY: Final = by_depth(small=4, ci=4, all=1)
# The same of three operations after each other; shorter sequences are judged by the line above.
CUT_EVERY_OF_THREE: Final = by_depth(small=3, ci=6, all=1)
# Power cuts of one moment, each of which keeps another part of what wasn't synced.
POWER_CUTS: Final = by_depth(small=2, ci=3, all=5)
# Crashes amid a swap whose recovery is crashed, too.
SWAP_RECOVERIES: Final = by_depth(small=4, ci=6, all=8)
# Every `deep`th crash has its recovery crashed at every call, too.
RECRASH_EVERY: Final = by_depth(small=64, ci=36, all=6)
# Bits flipped in each file, evenly spread.
FLIPS: Final = by_depth(small=12, ci=24, all=60)
# Of the calls of a ledger's repair every such one is cut.
REPAIR_CUT_STEP: Final = by_depth(small=23, ci=14, all=1)
# Schedules of a ledger of runs: 0.1 s each.
LEDGER_SEEDS: Final = by_depth(small=100, ci=100, all=30_000)
LEDGER_SEEDS_A_TEST: Final = by_depth(small=50, ci=50, all=500)
# Schedules of the tools for checkpoints in runs beside drivers: 0.3 s each.
TOOL_SEEDS: Final = by_depth(small=20, ci=40, all=5000)
TOOL_SEEDS_A_TEST: Final = by_depth(small=20, ci=20, all=250)
# Logs that our cleaners, of a log dir and of a store, and Kafka's clean.
CLEANER_SEEDS: Final = by_depth(small=6, ci=10, all=300)
# The same in a store beside a log dir, without Kafka: 0.2 s each.
CLEANED_TRANSACTIONS: Final = by_depth(small=2, ci=10, all=300)
# Random logs of which keys are erased, then loaded by Kafka's code.
ERASED_SEEDS: Final = by_depth(small=3, ci=10, all=200)
# Machines that crashed amid an erasure and recover, of each case.
ERASED_CRASHES: Final = by_depth(small=24, ci=30, all=10_000)
# Drivers of an application that are killed one after the other; a JVM start each.
DRIVER_KILLS: Final = by_depth(small=1, ci=1, all=5)
# Processes that rewrite state or create it from a history, and are killed; a JVM start each.
REWRITE_KILLS: Final = by_depth(small=1, ci=1, all=30)
# A service at work that is killed when so many objects are in the bucket.
SERVICE_KILLS_AT: Final = by_depth(small=(22,), ci=(1, 40), all=(1, 10, 22, 40))
# A service under load whose driver is killed about every 4 s; `deep`.
SOAK_SECONDS: Final = 30
# Random foreign logs that the JVM and Python both read: 0.5 s each.
JVM_LOGS: Final = by_depth(small=6, ci=8, all=1000)
# Of the tests of Spark whose bytes the JVM moves, every such one runs in Python as well.
IN_PYTHON_EVERY: Final = by_depth(small=6, ci=4, all=1)
# Cases that hypothesis tries where a test names no number of its own.
EXAMPLES: Final = by_depth(small=50, ci=50, all=500)
# Of the rows of each table of damages (tests/damage) every such one is judged: 0.15 s each.
DAMAGES_EVERY: Final = by_depth(small=10, ci=6, all=1)
# Of the same rows every such one is damaged, advised about and restored: 0.15 s each.
RESTORED_EVERY: Final = by_depth(small=17, ci=12, all=1)
# Of the queries whose state is moved, begun or rebuilt every such one is run: 20 s each.
STATE_EVERY: Final = by_depth(small=2, ci=2, all=1)
