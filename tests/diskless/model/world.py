"""A bucket with a log in it, the schedule of those who use it, and the oracle that judges them."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sparklog.config import LogOptions
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entry_creation import Patience
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.names import new_staged_name
from sparklog.diskless.state import DisklessState
from sparklog.errors import CommitUnknownError, StorageUnavailableError
from sparklog.format.batch import encode_one
from sparklog.log.log import Log
from sparklog.storage.commits import Chunk
from sparklog.testing.scheduled_store import Lie, ScheduledBucket, ScheduledStore
from sparklog.testing.schedules import BEGAN_MS, Process, Schedule, Weather
from tests.diskless.model.oracle import TOPIC, Call, Oracle

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
    def of(cls, seed: int, weather: Weather, lies: frozenset[Lie] = frozenset()) -> "World":
        schedule = Schedule(seed, weather)
        bucket = ScheduledBucket(schedule, lies)
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

    # --- the library ---------------------------------------------------------------------------

    def open(self, process: Process) -> Log:
        """Open the log for writing, as a process does when it begins."""
        least = self.oracle.truth.number
        patience = Patience(
            timeout_ms=self.rng.choice((0, 500, 5000)),
            sleep=process.sleep,
            draw=self.rng.random,
            timer=process.monotonic_ms,
        )
        home = BareHome(self.bucket.store(process), process, patience)
        home.commits.catch_up()
        log = Log(home, options=LogOptions(), clock=process.clock)
        self.oracle.takes_for_head(self.state(log), least)
        return log

    def look(self, log: Log) -> None:
        """Fold what is new."""
        least = self.oracle.truth.number
        log.home.commits.catch_up()
        self.oracle.takes_for_head(self.state(log), least)

    def state(self, log: Log) -> DisklessState:
        """What this handle knows."""
        return log.home.commits.known

    def stage(self, process: Process, log: Log, call: Call) -> list[Chunk]:
        """Make the chunks of a call, in memory or staged."""
        store, head = self.bucket.store(process), self.state(log).number
        name = new_staged_name(LOG_ID, max(head, 0), "task") if self.chance(0.5) else None
        found, whole = [], b""
        for p, rows in call.rows.items():
            data = b""
            for i, row in enumerate(rows):
                batch = encode_one(None, row, timestamp=BEGAN_MS)
                batch[:8] = i.to_bytes(8, "big")
                data += bytes(batch)
            found.append(
                Chunk(
                    topic=TOPIC, partition=p, topic_id=call.topic_id, path=name,
                    data=None if name else data, position=len(whole), size_bytes=len(data),
                    records=len(rows), min_timestamp=BEGAN_MS, max_timestamp=BEGAN_MS,
                )
            )  # fmt: skip
            whole += data
        while name:
            try:
                store.put(name, whole)
                break
            except StorageUnavailableError:
                process.sleep(100)
        return found

    def outcome(self, log: Log, unknown: CommitUnknownError) -> bool:
        return log.home.commits.outcome(unknown.position, unknown.attempt) is not None


class BareHome:
    """The home of a log, as far as commits ask for one."""

    path = "bare"

    def __init__(self, store: ScheduledStore, process: Process, patience: Patience) -> None:
        head = Head(EntryReader(store, LOG_ID))
        self.commits = DisklessCommits(store.url, head, LogOptions(), process.clock, patience)
        self.ledger = self.commits
        self.view = self

    def forget(self) -> None:
        """As a view does."""

    def describe(self, name: str, topic: object) -> None:
        """As a home does."""
