"""Seeded bugs that the small suite must catch: what `make test-mutants` puts in, one by one.

Each is one a person could write: a sync that was left out, a bound that is off by one, a
fingerprint that isn't compared. Whoever cuts tests, or lowers a count in tests/depth.py, runs
them; whoever mends a bug that the suite let through adds it here.

    commits      commit, ledger, lock file, producers
    recovery     undo, quick and full recovery, adoption
    segments     rules for segments that recovery, verify and repairs of both homes share
    retention    retention, group offsets, compaction, forks
    reading      look-ups, reads, transactions, the format
    tiering      copies, their metadata, deletion, remote reads, the service's lease
    checkpoints  checkpoints as logs, reset, backups
    state               functions that change, compare and begin state
    stored_checkpoints  checkpoints in runs: the ledger, its driver, reading in Python
    upkeep       merges, garbage and the lease of a log in a store
    histories    lost entries, roll-backs and groups' positions of a log in a store
    kernel       syncs of the real file system, by Python and by Spark's JVM; network mounts
    bucket_...   the rules of sparklog/diskless/PROTOCOL.md, sentence by sentence
    checkpoint_rules  what a batch needs, who may change one, archives, repair
    sink         Spark's sinks: identity, staging, columns, open logs, metrics of queries
    source       Spark's sources: bounds, admission, loss, waiting, groups, filters
    jvm          batches that Spark's JVM reads and stages, and the plans and jars that it is given
    kafka_...    the endpoint for Kafka's clients: what it serves, takes, coordinates, and to whom
"""

from tests.mutants import (
    bucket_commits,
    bucket_copies,
    bucket_places,
    bucket_reading,
    bucket_upkeep,
    checkpoint_rules,
    checkpoints,
    commits,
    histories,
    jvm,
    kafka_access,
    kafka_admin,
    kafka_groups,
    kafka_producing,
    kafka_reading,
    kernel,
    reading,
    recovery,
    retention,
    segments,
    sink,
    source,
    state,
    stored_checkpoints,
    tiering,
    upkeep,
)
from tests.mutants.mutant import Mutant

MUTANTS = (
    *commits.MUTANTS,
    *recovery.MUTANTS,
    *segments.MUTANTS,
    *retention.MUTANTS,
    *reading.MUTANTS,
    *tiering.MUTANTS,
    *checkpoints.MUTANTS,
    *state.MUTANTS,
    *stored_checkpoints.MUTANTS,
    *upkeep.MUTANTS,
    *histories.MUTANTS,
    *kernel.MUTANTS,
    *bucket_commits.MUTANTS,
    *bucket_reading.MUTANTS,
    *bucket_upkeep.MUTANTS,
    *bucket_copies.MUTANTS,
    *bucket_places.MUTANTS,
    *kafka_reading.MUTANTS,
    *kafka_producing.MUTANTS,
    *kafka_groups.MUTANTS,
    *kafka_admin.MUTANTS,
    *kafka_access.MUTANTS,
    *checkpoint_rules.MUTANTS,
    *sink.MUTANTS,
    *source.MUTANTS,
    *jvm.MUTANTS,
)

__all__ = ["MUTANTS", "Mutant"]
