"""file:// through kills and power cuts: an object shows whole or not at all, and stays."""

import random

import pytest

from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.object_store import ObjectStore

OLD, NEW = b"old" * 700, b"new one" * 400


def store_on(fs: CrashFS) -> ObjectStore:
    return ObjectStore(LocalDriver("/target", fs), part_bytes=1000, parallel=1)


def test_what_was_acknowledged_survives_a_power_cut():
    fs = CrashFS()
    store = store_on(fs)
    store.put("d/e/small", b"small")
    store.put_stream("d/large", [NEW], len(NEW))
    store.put("d/gone", b"x")
    store.delete(["d/gone"])
    after = store_on(fs.crash_clone(mode="strict"))
    assert after.get("d/e/small") == b"small"
    assert after.get("d/large") == NEW
    assert [one.name for one in after.list()] == ["d/e/small", "d/large"]


def test_a_directory_whose_maker_was_killed_is_made_durable():
    fs = CrashFS()
    fs.mkdir("/target")
    fs.sync_dir("/")
    fs.mkdir("/target/d")
    fs.mkdir("/target/d/e")
    store_on(fs).put("d/e/a", b"x")
    assert store_on(fs.crash_clone(mode="strict")).get("d/e/a") == b"x"


@pytest.mark.parametrize("seed", range(3))
def test_at_every_cut_an_object_is_the_old_one_or_the_new_one(seed):
    rng, struck = random.Random(seed), 0
    for number in range(1, 40):
        fs = CrashFS()
        store_on(fs).put_stream("d/a", [OLD], len(OLD))
        fs.fail_at(number, rng.choice((Fault.KILL, Fault.TORN_KILL)))
        done = False
        try:
            store_on(fs).put_stream("d/a", [NEW], len(NEW))
            store_on(fs).put("d/b", b"other")
            done = True
        except SimulatedKill:
            struck += 1
        for after in (fs.kill_clone(), fs.crash_clone(rng)):
            store = store_on(after)
            assert store.get("d/a") in ((NEW,) if done else (OLD, NEW))
            assert {one.name for one in store.list()} <= {"d/a", "d/b"}
            store.sweep_uploads(1 << 60)
            assert not [name for name in after.listdir("/target/d") if name.endswith(".partial")]
    assert struck > 5
