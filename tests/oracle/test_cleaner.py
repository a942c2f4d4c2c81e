"""Our cleaner leaves what Kafka's leaves, batch by batch, round after round; in a log dir and in a
store, to which the same segments are brought before each round."""

import random

import pytest

from sparklog.clock import ManualClock
from sparklog.logdir.cleaning.cleaner import clean_partition, plan_job
from sparklog.logdir.home import commits_of
from tests import depth
from tests.diskless.compacted import imported
from tests.oracle.random_logs import DELETE_RETENTION_MS, TOPIC, Writer, config, opened

PLACES = ("position", "size")  # our codecs' output is as large as Kafka's only by chance


def batches(found):
    """What must be equal of each batch."""
    return [
        {k: v for k, v in b.items() if b["codec"] == "none" or k not in PLACES}
        | ({"position": 0} if any(c["codec"] != "none" for c in found.batches) else {})
        for b in found.batches
    ]


def check_equal(ours, theirs, next_dirty):
    assert ours.segments == theirs.segments
    assert batches(ours) == batches(theirs)
    assert ours.records == theirs.records
    assert ours.aborted == theirs.aborted
    assert ours.producers == theirs.producers
    assert ours.epochs == theirs.epochs
    assert ours.lso == theirs.lso
    assert next_dirty == theirs.next_dirty
    assert not [n for n in ours.changed + ours.created if "index" in n]


def one_round(oracle, log, directory, clock, topic, copy):
    """Clean with all three; return what is left. `copy`: a directory for what the store holds."""
    job = plan_job(commits_of(log), TOPIC, 0)
    assert job.dirt.first_uncleanable == job.bases[-1]
    theirs = oracle.clean(directory, now_ms=clock(), first_dirty=job.dirt.first_dirty, config=topic)
    home = imported(directory, clock, topic)
    report = clean_partition(commits_of(log), TOPIC, 0)
    ours = oracle.open(directory, records=True, config=topic, now_ms=clock())
    check_equal(ours, theirs, report.next_dirty)
    cleaned = home.clean_from(job.dirt.first_dirty)
    home.write_partition(copy)
    stored = oracle.open(copy, records=True, config=topic, now_ms=clock())
    check_equal(stored, theirs, cleaned.next_dirty)
    return ours


def run(oracle, path, seed):
    rng, clock = random.Random(seed), ManualClock()
    topic = config(rng)
    with opened(path, clock) as log:
        log.create_topic(TOPIC, config=topic)
        writer = Writer(commits_of(log), clock, rng)
        directory = path / f"{TOPIC}-0"
        for number in range(rng.randint(2, 4)):
            writer.write(rng.randint(1, 6))
            copy = path / "stored" / f"{number}" / f"{TOPIC}-0"
            ours = one_round(oracle, log, directory, clock, topic, copy)
            seen = log.read(TOPIC).read_all()
            visible = {b["base"]: b for b in ours.batches if not b["control"]}
            assert visible or not seen.num_rows
            clock.advance(rng.choice([0, DELETE_RETENTION_MS - 1, 5 * DELETE_RETENTION_MS]))
            if number % 2:
                rebuilt = oracle.open(directory, clean=False, config=topic, now_ms=clock())
                assert not [n for n in rebuilt.changed if n.endswith((".index", ".timeindex"))]


@pytest.mark.parametrize("seed", range(depth.CLEANER_SEEDS))
def test_equal_to_kafkas(oracle, tmp_path, seed):
    run(oracle, tmp_path, seed)
