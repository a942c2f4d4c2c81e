"""A broker's transactions in a compacted log in a store: what its cleaner leaves is what a log
dir's cleaner leaves."""

import random
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.fs import LOCAL
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.cleaning.cleaner import clean_partition, plan_job
from sparklog.logdir.home import commits_of
from sparklog.logdir.partition.partition_segments import LogDirSegments
from tests import depth
from tests.diskless.compacted import imported, visible
from tests.oracle.random_logs import DELETE_RETENTION_MS, TOPIC, Writer, config, opened

ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.mark.parametrize("seed", range(depth.CLEANED_TRANSACTIONS))
def test_as_the_log_dirs_cleaner_leaves_it(tmp_path: Path, seed: int) -> None:
    """Round after round, of the same segments; read at every offset that a log may end at."""
    rng, clock = random.Random(seed), ManualClock()
    topic = config(rng)
    directory = tmp_path / f"{TOPIC}-0"
    with opened(tmp_path, clock) as log:
        log.create_topic(TOPIC, config=topic)
        writer = Writer(commits_of(log), clock, rng)
        for _ in range(3):
            writer.write(rng.randint(1, 4))
            job = plan_job(commits_of(log), TOPIC, 0)
            home = imported(directory, clock, topic)
            before = {
                (isolation, end): visible(home.reader(), isolation, end)
                for isolation in ISOLATIONS for end in (job.end // 2, job.end)
            }  # fmt: skip
            cleaned = home.clean_from(job.dirt.first_dirty)
            report = clean_partition(commits_of(log), TOPIC, 0)
            assert cleaned.next_dirty == report.next_dirty
            assert cleaned.records_kept == report.records_kept
            theirs = PartitionReader(LogDirSegments(LOCAL, str(directory), gaps=True))
            for isolation, end in before:
                ours = visible(home.reader(), isolation, end)
                assert ours == visible(theirs, isolation, end)
                whole = visible(home.reader(), isolation, job.end)
                kept = [row for row in before[isolation, end] if row in whole]
                assert [row for row in ours if row in kept] == kept
            assert home.reader().last_stable_offset(job.end) == job.end
            clock.advance(rng.choice([0, DELETE_RETENTION_MS - 1, 5 * DELETE_RETENTION_MS]))
