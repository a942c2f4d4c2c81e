"""file:// through kills and power cuts: an object shows whole or not at all, and stays."""

import errno
import os
import random
import shutil
import time

import pytest

from sparklog.clock import system_clock
from sparklog.errors import StorageUnavailableError
from sparklog.fs.files import translate_os_errors
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store

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


@pytest.mark.parametrize(("fault", "least"), [(Fault.KILL, 6), (Fault.TORN_KILL, 1)])
def test_at_every_cut_a_created_object_is_whole_or_not_there(fault, least):
    rng, struck = random.Random(1), 0
    for number in range(1, 25):
        fs = CrashFS()
        store_on(fs).put("other", b"x")
        fs.fail_at(number, fault)
        done = False
        try:
            done = store_on(fs).create("d/a", NEW)
        except SimulatedKill:
            struck += 1
        for after in (fs.kill_clone(), fs.crash_clone(rng), fs.crash_clone(mode="strict")):
            store = store_on(after)
            found = store.get_many(["d/a"])[0]
            assert found == NEW or (not done and isinstance(found, FileNotFoundError))
            assert {one.name for one in store.list()} <= {"d/a", "other"}
            store.sweep_uploads(1 << 60)
            assert store.create("d/a", OLD) is isinstance(found, FileNotFoundError)
            assert store.get_many(["d/a"])[0] in (NEW, OLD)
            assert not [name for name in after.listdir("/target/d") if name.endswith(".partial")]
    assert struck >= least


def test_what_is_said_to_be_there_survives_a_power_cut():
    """Its maker was killed before it synced the directory; who is refused builds on it."""
    fs = CrashFS()
    fs.mkdir("/target")
    fs.sync_dir("/")
    fs.mkdir("/target/d")
    fs.sync_dir("/target")
    with fs.open("/target/d/x.partial", create=True) as file:
        file.pwrite(NEW, 0)
        file.sync()
    fs.link("/target/d/x.partial", "/target/d/a")
    assert not store_on(fs).create("d/a", OLD)
    assert store_on(fs.crash_clone(mode="strict")).get("d/a") == NEW


def test_creators_in_eight_processes(tmp_path):
    """Forked ones: each name has one winner, and everyone reads the same of it."""
    rounds, children = 50, []
    for who in range(8):
        child = os.fork()
        if child == 0:
            ended = 1
            try:
                store = open_store(f"file://{tmp_path}/home")
                while not (tmp_path / "go").exists():
                    time.sleep(0.001)
                won = []
                for turn in range(rounds):
                    if store.create(f"n/{turn}", bytes([who]) * 3000):
                        won.append(turn)
                    assert len(set(store.get(f"n/{turn}"))) == 1
                (tmp_path / f"won-{who}").write_text(" ".join(map(str, won)))
                ended = 0
            finally:
                os._exit(ended)
        children.append(child)
    (tmp_path / "go").touch()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    store = open_store(f"file://{tmp_path}/home")
    won = {who: (tmp_path / f"won-{who}").read_text().split() for who in range(8)}
    assert sorted(int(turn) for turns in won.values() for turn in turns) == list(range(rounds))
    for who, turns in won.items():
        assert all(store.get(f"n/{turn}") == bytes([who]) * 3000 for turn in turns)
    assert len(list((tmp_path / "home" / "n").iterdir())) == rounds


def test_a_full_disk_leaves_nothing_half():
    fs = CrashFS()
    store = store_on(fs)
    store.put("d/other", b"x")
    fs.fail_at(2, Fault.NO_SPACE)
    with pytest.raises(StorageUnavailableError, match="No space left"):
        store.create("d/a", NEW)
    fs.heal()
    assert [one.name for one in store.list()] == ["d/other"]
    assert store.create("d/a", NEW)


def test_a_file_system_without_hard_links_is_named():
    class NoLinks(CrashFS):
        def link(self, src, dst):
            with translate_os_errors("link", src):
                raise PermissionError(errno.EPERM, "Operation not permitted", src)

    with pytest.raises(StorageUnavailableError, match=r"no hard links.*another file system"):
        store_on(NoLinks()).create("d/a", NEW)


def test_a_copy_is_young(tmp_path):
    """Its time is not the source's: what is old and named by nobody is swept."""
    store = open_store(f"file://{tmp_path}")
    store.put("a", b"content")
    os.utime(tmp_path / "a", (1, 1))
    store.copy(store, "a", "b")
    old, young = store.list()
    assert (old.time_ms, old.size, young.size) == (1000, 7, 7)
    assert abs(young.time_ms - system_clock()) < 60_000


def test_a_directory_that_somebody_deleted_is_made_again(tmp_path):
    store = open_store(f"file://{tmp_path}/home")
    assert store.create("d/a", b"x")
    shutil.rmtree(tmp_path / "home")
    assert store.list() == []
    assert store.create("d/a", b"y")
    shutil.rmtree(tmp_path / "home")
    store.put("d/b", b"z")
    assert [one.name for one in store.list()] == ["d/b"]
