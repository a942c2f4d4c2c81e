"""A round of the service with remote storage, cut at every effect on the disk and in the bucket.

Whatever a crash leaves: no committed record is unreadable, neither before anybody takes over nor
after; a second service brings bucket and metadata together, and nothing is left over.
"""

from __future__ import annotations

import copy as copying
import hashlib
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.service import Service, verify
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.tiered.copying.orphans import UPLOAD_MS
from tests import depth
from tests.crash.explore import digest
from tests.tiered.archives import Records, objects_wanted, readable
from tests.tiered.logs import filled, grow

ROOT = "/log"
OPTIONS = {
    "remote.log.manager.copier.thread.pool.size": "1",
    "num.recovery.threads.per.data.dir": "1",
    "lock.timeout.ms": "2000",
}


@dataclass(slots=True)
class Machine:
    """A log dir and a bucket, at some moment."""

    fs: CrashFS
    bucket: Bucket
    clock: ManualClock

    def store(self) -> FaultStore:
        return FaultStore(self.bucket, self.clock, part_bytes=256)

    def service(self, store: FaultStore) -> Service:
        return Service(
            ROOT, remote="fault://bucket", options=OPTIONS, fs=self.fs, clock=self.clock,
            opening=lambda url, options: store,
        )  # fmt: skip

    def open(self) -> sparklog.Log:
        return sparklog.open(ROOT, "rw", fs=self.fs, clock=self.clock)


@dataclass(slots=True)
class Image:
    how: str
    machine: Machine


def cuts(machine: Machine, act: Callable[[FaultStore], object], seed: int) -> list[Image]:
    """Run `act` once and return the different machines that a crash in it may leave."""
    store, rng, images = machine.store(), random.Random(seed), []
    seen: set[bytes] = set()

    def cut(where: object) -> None:
        for how, fs in (
            ("kill", machine.fs.kill_clone()),
            ("power cut, strict", machine.fs.crash_clone(mode="strict")),
            ("power cut, random", machine.fs.crash_clone(rng)),
        ):
            bucket = copying.deepcopy(machine.bucket)
            names = repr((sorted(bucket.objects), sorted(bucket.uploads)))
            key = hashlib.blake2b(digest(fs) + names.encode()).digest()
            if key not in seen:
                seen.add(key)
                clock = ManualClock(machine.clock())
                fs.disk.clock = clock
                images.append(Image(f"{how} at {where}", Machine(fs, bucket, clock)))

    done = store.requests.done

    def after(effect: str, error: Any) -> None:
        done(effect, error)
        if effect and error is None:
            cut(f"behind {effect}")

    store.requests.done = after  # type: ignore[method-assign]
    machine.fs.on_call = cut
    act(store)
    machine.fs.on_call = None
    return images


def judge(image: Image, whole: dict[tuple[str, int], Records]) -> None:
    machine = image.machine
    try:
        with machine.open() as log:
            check(readable(log, machine.clock, machine.store()), whole)
        for _ in range(3):  # a day later, for leftovers must be old before they go
            machine.clock.advance(UPLOAD_MS // 2 + 1)
            report = machine.service(machine.store()).run_once()
            assert not report.errors, report.errors
        with machine.open() as log:
            check(readable(log, machine.clock, machine.store()), whole)
            assert set(machine.bucket.names()) == objects_wanted(log, machine.clock)
            assert not machine.bucket.uploads
        assert verify(ROOT, fs=machine.fs, clock=machine.clock).ok
    except BaseException as error:
        error.add_note(image.how)
        raise


def check(found: dict[tuple[str, int], Records], whole: dict[tuple[str, int], Records]) -> None:
    """What is left is the end of what was there: only what retention may take is missing."""
    for key, left in found.items():
        assert left.items() <= whole[key].items()
        if whole[key]:
            assert (
                set(range(min(left, default=max(whole[key])), max(whole[key]) + 1))
                - {max(whole[key])}
                <= left.keys()
            )


def prepared(rounds: int = 0, **config: str) -> tuple[Machine, dict[tuple[str, int], Records]]:
    clock = ManualClock()
    machine = Machine(CrashFS(clock=clock), Bucket(), clock)
    with filled(ROOT, clock, 14, partitions=2, fs=machine.fs, **config) as log:
        for _ in range(rounds):
            machine.service(machine.store()).run_once()
            grow(log, clock, 10)
        whole = readable(log, clock, machine.store())
    return machine, whole


def explore(
    name: str, machine: Machine, whole: Any, act: Callable[[FaultStore], object], most: int
) -> None:
    seed = zlib.crc32(name.encode())
    images = cuts(machine, act, seed)
    chosen = images if most < 0 else random.Random(seed).sample(images, min(most, len(images)))
    print(f"{name}: {len(images)} different machines, {len(chosen)} judged")
    assert len(images) > 50
    for image in chosen:
        judge(image, whole)


def scenarios() -> dict[str, tuple[int, dict[str, str]]]:
    return {
        "copy": (0, {}),
        "copy, local retention": (1, {"local_retention_bytes": "400"}),
        "both retentions": (2, {"local_retention_bytes": "400", "retention_bytes": "1500"}),
    }


def run(name: str, most: int) -> None:
    rounds, config = scenarios()[name]
    machine, whole = prepared(rounds, **config)
    explore(name, machine, whole, lambda store: machine.service(store).run_once(), most)


@pytest.mark.parametrize("name", scenarios())
def test_a_round_is_cut_anywhere(name: str) -> None:
    run(name, depth.TIERING_CUTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", scenarios())
def test_a_round_is_cut_everywhere(name: str) -> None:
    run(name, -1)


def test_the_end_of_a_topic_is_cut_anywhere() -> None:
    machine, whole = prepared(1)

    def act(store: FaultStore) -> None:
        with machine.open() as log:
            log.delete_topic("t")
        machine.service(store).run_once()
        machine.clock.advance(60_000)  # file.delete.delay.ms
        for _ in range(2):  # the topic, then its copies
            machine.service(store).run_once()

    explore("delete the topic", machine, whole, act, depth.TIERING_CUTS)


def test_a_resumed_round_is_cut_anywhere() -> None:
    """Begun, crashed, taken over, crashed again."""
    machine, whole = prepared(0)
    images = cuts(machine, lambda store: machine.service(store).run_once(), 1)
    half = [i for i in images if "behind put" in i.how and i.how.startswith("kill")]
    second = half[len(half) // 2].machine
    most = depth.TIERING_CUTS
    explore("resume", second, whole, lambda store: second.service(store).run_once(), most)
