"""A bucket with a log in it, the schedule of those who use it, and the oracle that judges them."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.names import HOME, new_staged_name, state_name
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import encode_state
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.errors import CommitUnknownError
from sparklog.log.log import Log, home_of
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import INLINE_BYTES, Framing
from sparklog.storage.stored_json import seal
from sparklog.testing.scheduled_store import ScheduledBucket, StoreFlaw, Write
from sparklog.testing.schedules import BEGAN_MS, FaultRates, Process, Schedule
from sparklog.tiered.reading.options import RemoteOptions
from tests.diskless.model.oracle import TOPIC, Call, Oracle

AGE_MS: Final = 6_000
"""What was staged so long ago isn't committed any more."""
NO_INLINE_TASK: Final = 32 * INLINE_BYTES
"""Of so many tasks none may send anything to the driver."""
LOG_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(slots=True)
class World:
    """One schedule. Whatever the processes ask of the library goes through here."""

    schedule: Schedule
    bucket: ScheduledBucket
    oracle: Oracle
    kinds: str = ""
    lost_plans: float = 0
    topic_config: dict[str, object] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def of(
        cls, seed: int, fault_rates: FaultRates, flaws: frozenset[StoreFlaw] = frozenset()
    ) -> "World":
        schedule = Schedule(seed, fault_rates)
        bucket = ScheduledBucket(schedule, flaws)
        bucket.objects[HOME] = seal("home", {"log_id": LOG_ID, "made": BEGAN_MS}), BEGAN_MS
        return cls(schedule, bucket, Oracle(bucket, LOG_ID))

    @property
    def rng(self) -> random.Random:
        return self.schedule.rng

    def chance(self, p: float) -> bool:
        return self.schedule.chance(p)

    def count(self, what: str) -> None:
        self.schedule.stats[what] += 1

    def fresh(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def maybe_put_a_foreign_state(self) -> None:
        """A state of another history: of a copy, a backup, a bug."""
        number = self.oracle.truth.number
        if not self.chance(0.001) or number < 0:
            return
        name = state_name(LOG_ID, number)
        if name not in self.bucket.objects:
            state = self.oracle.folded_anew()
            state.entry_id = self.fresh("foreign")
            state.log.ends = {key: end + 3 for key, end in state.log.ends.items()}
            self.bucket.objects[name] = encode_state(state), self.schedule.now_ms()

    # --- the library ---------------------------------------------------------------------------

    def open(self, process: Process) -> Log:
        """Open the log for writing, as a process does when it begins."""
        least = self.oracle.truth.number
        retry_policy = RetryPolicy(
            timeout_ms=self.rng.choice((0, 500, 5000)),
            sleep=process.sleep,
            draw=self.rng.random,
            timer=process.monotonic_ms,
        )
        log = open_log(
            self.bucket.url,
            mode="rw",
            remote=RemoteOptions(
                remote_patience_ms=self.rng.choice((0, 2000)), remote_fetch_threads=1
            ),
            clock=process.clock,
            store=self.bucket.store(process),
            retry_policy=retry_policy,
            background=False,
        )
        self.oracle.takes_for_head(self.state(log), least)
        return log

    def open_for_reading(self, process: Process) -> Log:
        """Open the log for reading."""
        log = open_log(
            self.bucket.url,
            mode="r",
            remote=RemoteOptions(
                remote_patience_ms=self.rng.choice((0, 2000, 60_000)), remote_fetch_threads=1
            ),
            clock=process.clock,
            store=self.bucket.store(process),
            background=False,
        )
        return log

    def open_upkeep(self, process: Process) -> DisklessUpkeep:
        """Open the log for its background work."""
        home = self._home(self.open(process))
        options = UpkeepOptions(
            merge_interval_ms=self.rng.choice((0, 5_000)),
            merge_max_extents=self.rng.choice((2, 4)),
            stage_retention_ms=AGE_MS,
            delete_delay_ms=self.rng.choice((0, 0, 2_000)),
            sweep_interval_ms=self.rng.choice((0, 10_000)),
            lease_timeout_ms=self.rng.choice((3_000, 30_000)),
            threads=1,
        )
        return DisklessUpkeep(
            home.commits, lambda: home.groups, options, timer=process.monotonic_ms
        )

    def look(self, log: Log) -> None:
        """Fold what is new."""
        least = self.oracle.truth.number
        self._home(log).commits.catch_up()
        self.oracle.takes_for_head(self.state(log), least)

    def _home(self, log: Log) -> DisklessHome:
        home = home_of(log)
        assert isinstance(home, DisklessHome)
        return home

    def state(self, log: Log) -> DisklessState:
        """What this handle knows."""
        return self._home(log).head.state

    def stage(self, process: Process, log: Log, call: Call) -> Sequence[Chunk]:
        """Stage the rows of a call as a task does, in memory or in an object."""
        home = self._home(log)
        staging = home.staging()
        if self.chance(0.2):  # a speculative attempt that nobody names goes on uploading
            head = self.state(log).number
            name = new_staged_name(LOG_ID, max(head, 0), "speculative")
            steps = self.rng.choice((5, 50, 500))
            self.bucket.send_later(steps, Write("put", name, b"whatever"))
        task = NO_INLINE_TASK if self.chance(0.5) else 0
        stager = staging.stager(Framing(), label="task", task=task)
        info = home.known_topics()[TOPIC]
        for p, rows in call.rows.items():
            keys = [row.rpartition(b":")[2] for row in rows]
            stager.add(info, pa.record_batch({"key": keys, "value": rows}), partition=p)
        chunks = stager.finish()
        process.idle(self.rng.choice((0, 0, 3, 30)))
        return chunks

    def outcome(self, log: Log, unknown: CommitUnknownError) -> bool:
        """Tell whether it was committed after all."""
        return log.outcome(unknown) is not None
