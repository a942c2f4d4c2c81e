"""Seeded lives of a tiered log: a bad network, crashes of the service, power cuts, an hour down.

After each step everything committed from the log start on is readable, in local files or in
finished copies; at the end a service on a good network leaves nothing over. A seed that fails is
printed and replays: pytest tests/crash/test_tiering_seeds.py -k 'seed17'.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.service import Service, verify
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import SOME_FAULTS, Bucket, Faults, FaultStore
from sparklog.tiered.copying.orphans import UPLOAD_MS
from tests import depth
from tests.crash.harness import drawn_by
from tests.tiered.archives import archived, copies_of, objects_wanted, readable, through_tiers
from tests.tiered.logs import TIERED, grow, rows, value

ROOT = "/log"
OPTIONS = {
    "remote.log.manager.copier.thread.pool.size": "1",
    "num.recovery.threads.per.data.dir": "1",
    "lock.timeout.ms": "2000",
}
HOUR = 3_600_000
NOISE = Faults(reset=0.1, busy=0.1, short=0.1)  # what readers get over
CONFIGS: list[dict[str, str]] = [
    {"local.retention.bytes": "400"},
    {"local.retention.bytes": "0", "retention.bytes": "1500"},
    {"local.retention.bytes": "600", "retention.bytes": "1000"},
    {"local.retention.ms": "8000", "retention.ms": "40000"},
    {"retention.ms": "30000"},
]


class Life:
    """One log, its bucket, and what was committed to it: {(topic id, partition): values}."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.fs = CrashFS(clock=self.clock)
        self.bucket = Bucket()
        self.store = self.reopened()
        self.log = self.opened()
        self.wrote: dict[tuple[str, int], list[bytes]] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.bases: dict[tuple[str, int], int] = {}
        self.history: list[str] = []
        self.create("t")

    def reopened(self) -> FaultStore:
        faults = SOME_FAULTS if self.rng.random() < 0.8 else None
        given: dict[str, Any] = {} if faults is None else {"faults": faults}
        seed = self.rng.randrange(2**30)
        return FaultStore(
            self.bucket, self.clock, seed=seed, part_bytes=256,
            attempts=self.rng.choice([2, 6]), **given,
        )  # fmt: skip

    def opened(self) -> sparklog.Log:
        return sparklog.open(ROOT, "rw", fs=self.fs, clock=self.clock, options=OPTIONS_LOG)

    def service(self, store: FaultStore) -> Service:
        seldom = {"service.remote.sweep.interval.ms": "-1"} if self.rng.random() < 0.7 else {}
        return Service(
            ROOT, remote="fault://bucket", options=OPTIONS | seldom, fs=self.fs, clock=self.clock,
            opening=lambda url, options: store,
        )  # fmt: skip

    # --- steps --------------------------------------------------------------------------------

    def step(self) -> None:
        act = self.rng.choices(
            [self.append, self.round, self.crash, self.down, self.wait, self.cut_start,
             self.remake, self.configure, self.close],
            [40, 25, 18, 3, 4, 3, 0.3, 3, 3],
        )[0]  # fmt: skip
        self.history.append(act.__name__)
        act()
        self.check()

    def append(self) -> None:
        topic = self.topic()
        for _ in range(self.rng.randint(1, 8)):
            p = self.rng.randrange(2)
            key = self.log.topic(topic).id, p
            number = self.rng.randrange(10_000)
            self.log.append(topic, rows([number], self.clock()), partition=p)
            self.wrote[key].append(value(number))
            self.clock.advance(1000)

    def round(self) -> None:
        self.service(self.store).run_once()  # a bad network is in its report

    def crash(self) -> None:
        """Kill the service at some effect, of its own or of the bucket; or cut the power there."""
        machine, number = self.fs, self.rng.randint(1, 120)
        if self.rng.random() < 0.4:
            self.store.crash_at(self.rng.randint(1, 12), after=self.rng.random() < 0.5)
            number = 10**9
        other = self.fs

        def strike(call: Any) -> None:
            nonlocal number
            number -= 1
            if not number:
                machine.kill()
                machine.check_alive()

        other.on_call = strike
        with contextlib.suppress(SimulatedKill):
            self.service(self.store).run_once()
        other.on_call = None
        if self.rng.random() < 0.5:
            self.fs = machine.kill_clone()
        else:
            self.fs = machine.crash_clone(self.rng)
        self.fs.disk.clock = self.clock
        self.store = self.reopened()
        self.log = self.opened()

    def down(self) -> None:
        self.store.down(self.rng.choice([1000, 60_000, HOUR]), self.rng.randint(0, 1000))

    def wait(self) -> None:
        self.clock.advance(self.rng.choice([1000, 10_000, 60_000, 2 * HOUR]))

    def cut_start(self) -> None:
        topic = self.topic()
        p = self.rng.randrange(2)
        start, end = self.log.offsets(topic)[p]
        self.log.delete_records(topic, {p: self.rng.randint(start, end)})

    def remake(self) -> None:
        topic = self.topic()
        self.log.delete_topic(topic)
        self.create(topic)

    def configure(self) -> None:
        config: dict[str, Any] = dict.fromkeys(
            ("local.retention.bytes", "local.retention.ms", "retention.bytes")
        )
        config |= {"retention.ms": "-1"} | self.rng.choice(CONFIGS)
        self.log.alter_topic(self.topic(), config=config)

    def close(self) -> None:
        self.log.close()
        assert verify(ROOT, fs=self.fs, clock=self.clock).ok
        self.log = self.opened()

    # --- what must hold -------------------------------------------------------------------------

    def topic(self) -> str:
        return self.rng.choice(sorted(self.log.topics()))

    def create(self, name: str) -> None:
        made = self.log.create_topic(name, 2, config=TIERED | self.rng.choice(CONFIGS))
        for p, (start, _) in self.log.offsets(name).items():
            self.wrote[made.id, p], self.bases[made.id, p] = [], start

    def check(self, *, quiet: bool = True) -> None:
        good = FaultStore(self.bucket, self.clock)  # a look at what is there, without a network
        ids = {name: info.id for name, info in self.log.topics().items()}
        for (topic, p), found in readable(self.log, self.clock, good).items():
            key = ids[topic], p
            base, wrote = self.bases[key], self.wrote[key]
            start, end = self.log.offsets(topic)[p]
            assert end == base + len(wrote)
            assert start >= self.starts.get(key, 0)
            self.starts[key] = start
            assert found == {n: wrote[n - base] for n in range(start, end)}

    def check_archive(self, store: FaultStore) -> None:
        """The bucket alone holds what was written, from the log start to the last copy's end."""
        ids = {name: info.id for name, info in self.log.topics().items()}
        for (topic, p), found in archived(store).items():
            key = ids[topic], p
            base, start = self.bases[key], self.starts[key]
            ends = [s.end for s in copies_of(self.log, self.clock) if s.key == key]
            expected = range(start, max([start, *ends]))
            assert found == {n: self.wrote[key][n - base] for n in expected}, (topic, p)

    def finish(self) -> None:
        """A good network, and time: nothing is left over, and the log closes clean."""
        self.history.append("finish")
        good = FaultStore(self.bucket, self.clock)
        for _ in range(3):
            self.clock.advance(UPLOAD_MS // 2 + 1)
            report = Service(
                ROOT, options=OPTIONS, fs=self.fs, clock=self.clock,
                opening=lambda url, options: good,
            ).run_once()  # fmt: skip
            assert not report.errors, report.errors
        self.check()
        assert set(self.bucket.names()) == objects_wanted(self.log, self.clock)
        assert not self.bucket.uploads
        self.check_archive(good)
        # An attempt fails with a probability of 0.3: six in a row, the default, do in some lives.
        bad = FaultStore(
            self.bucket, self.clock, seed=self.rng.randrange(2**30), faults=NOISE, attempts=16
        )
        assert through_tiers(self.log, self.clock, bad) == through_tiers(self.log, self.clock, good)
        grow(self.log, self.clock, 1)
        self.log.close()
        assert verify(ROOT, fs=self.fs, clock=self.clock).ok


OPTIONS_LOG = {k: v for k, v in OPTIONS.items() if not k.startswith("remote.")}


def live(seed: int, steps: int) -> None:
    with drawn_by(seed):
        _live(seed, steps)


def _live(seed: int, steps: int) -> None:
    life = Life(seed)
    try:
        for _ in range(steps):
            life.step()
        life.finish()
    except (Exception, StorageUnavailableError) as error:
        error.add_note(f"seed {seed}, after {life.history}")
        raise


@pytest.mark.parametrize("seed", range(depth.TIERING_LIVES), ids=lambda n: f"seed{n}")
def test_a_life(seed: int) -> None:
    live(seed, 40)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20), ids=lambda n: f"block{n}")
def test_many_lives(block: int) -> None:
    first = 1000 + block * 25
    for seed in range(first, first + depth.SLOW_TIERING_LIVES):
        live(seed, 60)
