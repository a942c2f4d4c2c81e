"""Blocks are kept within bounds, found again after a kill, and never wrong."""

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from sparklog.tiered.reading.block_cache import BlockCache


def on_disk(directory: Path, disk_bytes: int = 1 << 20, **more) -> BlockCache:
    return BlockCache(0, str(directory), disk_bytes, **more)


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_memory_keeps_the_last_used():
    cache = BlockCache(30)
    for number in range(3):
        cache.put("a", number, bytes(10))
    assert cache.get("a", 0) == bytes(10)
    cache.put("a", 3, b"x" * 10)
    assert cache.get("a", 1) is None
    assert [cache.get("a", number) is not None for number in (0, 2, 3)] == [True] * 3
    assert (cache.counts.memory_hits, cache.counts.misses) == (4, 1)


def test_a_block_put_again_counts_once():
    cache = BlockCache(30)
    for _ in range(5):
        cache.put("a", 0, bytes(10))
    cache.put("a", 1, bytes(10))
    cache.put("a", 2, bytes(10))
    assert cache.get("a", 0) == bytes(10)


def test_what_is_larger_than_the_bound_is_not_kept(tmp_path):
    cache = BlockCache(9, str(tmp_path), 20)
    cache.put("a", 0, bytes(10))
    assert cache.get("a", 0) is None
    assert files(tmp_path) == []
    assert BlockCache(0).get("a", 0) is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [((-1,), "memory_bytes=-1"), ((0, "d", -1), "disk_bytes=-1"), ((0, None, 5), "set directory")],
)
def test_wrong_bounds(arguments, why):
    with pytest.raises(InvalidRequestError, match=why):
        BlockCache(*arguments)


def test_disk_blocks_outlive_the_process(tmp_path):
    directory = tmp_path / "made" / "later"
    on_disk(directory).put("t-0-x/1.log", 7, b"block")
    cache = BlockCache(100, str(directory), 1 << 20)
    assert cache.get("t-0-x/1.log", 7) == b"block"
    assert cache.get("t-0-x/1.log", 7) == b"block"
    assert (cache.counts.disk_hits, cache.counts.memory_hits) == (1, 1)
    assert cache.get("t-0-x/1.log", 8) is None
    assert cache.get("t-0-x/2.log", 7) is None


def test_every_damage_is_a_miss(tmp_path):
    cache = on_disk(tmp_path)
    cache.put("name", 3, b"the block's bytes")
    (path,) = files(tmp_path)
    sound = path.read_bytes()
    damaged = [sound[:cut] for cut in range(len(sound))] + [sound + b"x", b""]
    for at in range(len(sound)):
        bad = bytearray(sound)
        bad[at] ^= 0x10
        damaged.append(bytes(bad))
    for bad in damaged:
        path.write_bytes(bad)
        assert cache.get("name", 3) is None
        assert files(tmp_path) == []  # and it is gone
    path.write_bytes(sound)
    assert cache.get("name", 3) == b"the block's bytes"


def test_a_file_under_another_blocks_name_is_a_miss(tmp_path):
    cache = on_disk(tmp_path)
    cache.put("name", 3, b"three")
    (path,) = files(tmp_path)
    path.rename(path.with_name(path.name.replace("-3.", "-4.")))
    assert cache.get("name", 4) is None


def test_the_disk_is_bounded_and_keeps_the_last_used(tmp_path):
    clock = ManualClock()
    cache = on_disk(tmp_path, 100_000, clock=clock)
    for number in range(60):
        clock.advance(1000)
        cache.put("a", number, bytes(5000))
        assert cache.get("a", 0) is not None  # used all the time
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 100_000
    assert cache.get("a", 59) is not None
    assert cache.get("a", 1) is None


def test_two_processes_share_a_directory_and_stay_near_its_bound(tmp_path):
    clock = ManualClock()
    caches = [on_disk(tmp_path, 100_000, clock=clock) for _ in range(2)]
    for number in range(80):
        clock.advance(1)
        caches[number % 2].put("a", number, bytes(2000))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 100_000 * (1 + 2 / 16)
    assert caches[0].get("a", 79) == bytes(2000)


def test_stale_temporaries_are_swept_and_young_ones_are_not(tmp_path):
    clock = ManualClock()
    for name, age_ms in (("old.block.1-a.tmp", 11 * 60_000), ("young.block.1-b.tmp", 60_000)):
        (tmp_path / name).write_bytes(b"half")
        LOCAL.set_mtime_ms(str(tmp_path / name), clock() - age_ms)
    (tmp_path / "somebody's").write_bytes(b"file")
    on_disk(tmp_path, clock=clock)
    assert [path.name for path in files(tmp_path)] == ["somebody's", "young.block.1-b.tmp"]


def test_a_full_disk_is_no_caching_until_there_is_room():
    fs, clock = CrashFS(), ManualClock()
    fs.mkdir("/c")
    cache = BlockCache(0, "/c", 1 << 20, fs=fs, clock=clock)
    cache.put("a", 0, b"before")
    fs.fail_at(1, Fault.NO_SPACE, times=1000)
    cache.put("a", 1, b"while it is full")
    assert cache.get("a", 1) is None
    assert cache.get("a", 0) == b"before"
    fs.heal()
    cache.put("a", 1, b"a moment later")
    assert cache.get("a", 1) is None  # it isn't tried for every block
    clock.advance(60_000)
    cache.put("a", 1, b"there is room")
    assert cache.get("a", 1) == b"there is room"
    assert not [name for name in fs.listdir("/c") if name.endswith(".tmp")]


def test_a_directory_that_cannot_be_made_is_no_caching(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    cache = on_disk(tmp_path / "file" / "below")
    cache.put("a", 0, b"x")
    assert cache.get("a", 0) is None


def test_a_directory_that_somebody_removes_is_no_error(tmp_path):
    directory = tmp_path / "c"
    cache = on_disk(directory)
    cache.put("a", 0, b"x")
    for path in files(directory):
        path.unlink()
    directory.rmdir()
    assert cache.get("a", 0) is None
    cache.put("a", 0, b"x")
    cache.forget("a", 0)


def test_what_is_forgotten_is_gone(tmp_path):
    cache = BlockCache(100, str(tmp_path), 1 << 20)
    cache.put("a", 0, b"old")
    cache.forget("a", 0)
    cache.forget("a", 1)
    assert cache.get("a", 0) is None
    assert files(tmp_path) == []


def test_threads_never_see_another_block(tmp_path):
    cache = BlockCache(5000, str(tmp_path), 20_000)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(150):
            number = rng.randrange(40)
            content = f"{number}-".encode() * 100
            if rng.random() < 0.3:
                cache.put("a", number, content)
            elif rng.random() < 0.1:
                cache.forget("a", number)
            else:
                assert cache.get("a", number) in (None, content)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_a_forked_child_does_not_wait_for_a_lock_of_its_parents_thread(tmp_path):
    cache = BlockCache(1000, str(tmp_path), 1 << 20)
    cache.put("a", 0, b"kept")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cache._lock:
            held.set()
            done.wait(240)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(240)
    child = os.fork()
    if child == 0:
        os._exit(0 if cache.get("a", 0) == b"kept" else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", [Fault.KILL, Fault.TORN_KILL])
def test_a_kill_or_a_power_cut_at_any_call_leaves_no_wrong_block(fault, seed):
    rng, struck = random.Random(seed), 0
    for number in range(1, 12):
        fs = CrashFS()
        fs.mkdir("/c")
        fs.sync_dir("/c")
        cache = BlockCache(0, "/c", 1 << 20, fs=fs)
        fs.fail_at(number, fault)
        try:
            for block in range(3):
                cache.put("a", block, f"block {block}".encode() * 400)
        except SimulatedKill:
            struck += 1
        for after in (fs.kill_clone(), fs.crash_clone(rng)):
            if after.exists("/c"):
                again = BlockCache(0, "/c", 1 << 20, fs=after)
                for block in range(3):
                    assert again.get("a", block) in (None, f"block {block}".encode() * 400)
                again.put("a", 0, b"anew")
                assert again.get("a", 0) == b"anew"
    assert struck >= 3
