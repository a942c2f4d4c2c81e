"""Kafka's own code loads a log of which keys were erased: all else is as it was, record by record.

Random logs with every codec, transactions, idempotent producers, tombstones; compacted or not.
"""

import random

import pytest

from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.erasure import KeyPredicate
from sparklog.log.record_erasure import erase_records
from sparklog.logdir.cleaning.erasure import ErasableSegments
from sparklog.logdir.home import commits_of
from sparklog.service import Severity, verify
from sparklog.storage.erasure_report import PartitionErasure
from tests import depth
from tests.oracle.random_logs import TOPIC, Writer, config, opened

KEY = TopicPartition(TOPIC, 0)
KEPT = ("base", "last", "codec", "timestamp_type", "horizon", "leader_epoch", "producer_id",
        "producer_epoch", "base_sequence", "last_sequence", "transactional", "control")  # fmt: skip


def erase(log, keys, *, null_key):
    predicate = KeyPredicate(keys, null_key=null_key)
    report = PartitionErasure(topic=TOPIC, partition=0, end=log.offsets(TOPIC)[0][1])
    erase_records(ErasableSegments(commits_of(log), report), predicate)
    return report


@pytest.mark.parametrize("seed", range(depth.ERASED_SEEDS))
def test_all_else_is_as_it_was(oracle, tmp_path, seed):
    rng, clock = random.Random(seed), ManualClock()
    topic = config(rng) | ({"cleanup.policy": "delete"} if seed % 2 else {})
    directory = tmp_path / f"{TOPIC}-0"
    with opened(tmp_path, clock) as log:
        log.create_topic(TOPIC, config=topic)
        Writer(commits_of(log), clock, rng).write(rng.randint(2, 8))
        before = oracle.open(directory, records=True, config=topic, now_ms=clock())
        keys = {b"key-0", b"key-1"}
        null_key = bool(rng.randrange(2))
        report = erase(log, keys, null_key=null_key)
        after = oracle.open(directory, records=True, config=topic, now_ms=clock())
        gone = {o for first, end in report.offsets.ranges for o in range(first, end)}
        wanted = keys | ({None} if null_key else set())
        assert gone == {r.offset for r in before.records if r.key in wanted}  # seed 7: none
        assert after.records == [r for r in before.records if r.offset not in gone]
        assert not [r for r in after.records if r.key in keys]
        assert [b["base"] for b in after.batches] == [b["base"] for b in before.batches]
        assert [b["last"] for b in after.batches] == [b["last"] for b in before.batches]
        left = {b["base"] for b in after.batches if b["count"]}
        for old, new in zip(before.batches, after.batches, strict=True):
            if new["base"] in left:
                assert {n: old[n] for n in KEPT} == {n: new[n] for n in KEPT}
            else:  # its header alone: the codec and the delete horizon tell of records
                names = set(KEPT) - {"codec", "horizon"}
                assert {n: old[n] for n in names} == {n: new[n] for n in names}
        assert after.aborted == before.aborted
        assert after.producers == before.producers
        assert after.epochs == before.epochs
        assert (after.start, after.end, after.lso) == (before.start, before.end, before.lso)
        rebuilt = oracle.open(directory, clean=False, config=topic, now_ms=clock())
        assert not [n for n in rebuilt.changed if n.endswith((".index", ".timeindex"))]
        assert not erase(log, keys, null_key=False).offsets.ranges
    found = verify(tmp_path)
    assert not [f for f in found.findings if f.severity is not Severity.WARNING], found
    with opened(tmp_path, clock) as log:
        Writer(commits_of(log), clock, rng).write(1)  # producers go on where they were
