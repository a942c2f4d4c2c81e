"""One schedule, from its seed to its end."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sparklog.errors import SparklogError
from sparklog.testing.scheduled_store import StoreFlaw
from sparklog.testing.schedules import FaultRates, Process, Role
from tests.diskless.model.oracle import PARTITIONS, Violation
from tests.diskless.model.processes import (
    Chores,
    Query,
    admin,
    last_service,
    reader,
    service,
    writer,
)
from tests.diskless.model.virtual import taken_over
from tests.diskless.model.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who takes part, and how rough it is: of several choices the seed takes one.

    `kinds`: what an administrator does at random: drop, undelete (or make it anew, where it is
    gone), raise a log start, reset. `lost_plans`: how often a power cut takes the plan of a
    micro-batch. `delays_ms`: for how long a deleted topic can be given back.
    """

    writers: tuple[str, ...] = ("a", "b", "c", "")
    admin: bool = True
    readers: bool = True
    services: bool = True
    chores: tuple[int, ...] = (1, 5)
    kinds: str = "dsrr"
    lost_plans: float = 0.04
    delays_ms: tuple[int, ...] = (0,)
    steps: tuple[int, ...] = (1500, 4000, 8000)
    writes: tuple[float, ...] = (0.01, 0.05, 0.2, 0.5)
    reads: tuple[float, ...] = (0, 0.05, 0.3)
    kills: tuple[float, ...] = (0, 0.005, 0.02)
    naps: tuple[float, ...] = (0, 0.003, 0.01, 0.05)
    skews_ms: tuple[int, ...] = (0, 0, 0, -3_600_000, 86_400_000)


ALL = Cast()
DELETIONS = Cast(
    kinds="dddsr", chores=(12,), delays_ms=(5_000, 60_000, 600_000), steps=(2500,),
    skews_ms=(0, -3_600_000, 86_400_000),
)  # fmt: skip
"""A topic comes and goes, and is given back or made anew."""
COMPACTED: dict[str, object] = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": 0.01,
    "min.compaction.lag.ms": 0,
}


def simulate(
    seed: int, cast: Cast = ALL, flaws: frozenset[StoreFlaw] = frozenset()
) -> Counter[str]:
    """Play it; returns what happened, counted.

    Raises: Violation, with the last requests.
    """
    dice = random.Random(seed)
    fault_rates = FaultRates(
        writes=dice.choice(cast.writes),
        reads=dice.choice(cast.reads),
        kills=dice.choice(cast.kills),
        naps=dice.choice(cast.naps),
    )
    world = World.of(seed, fault_rates, flaws)
    world.kinds, world.lost_plans = cast.kinds, cast.lost_plans
    world.topic_config = {
        "segment.ms": dice.choice((1, 5_000, 604_800_000)),
        "retention.bytes": dice.choice((-1, 1500)),
        "retention.ms": -1,
        "file.delete.delay.ms": cast.delays_ms[seed % len(cast.delays_ms)],
        **dice.choice(({}, COMPACTED)),
    }
    with taken_over(world.schedule):
        try:
            _play(world, cast)
        except (Violation, SparklogError) as violation:
            trace = world.bucket.format_trace(60)
            raise Violation(f"seed {seed}: {violation}\n{trace}") from violation
        finally:
            world.schedule.clear()
    return world.schedule.stats


def _play(world: World, cast: Cast) -> None:
    schedule, rng = world.schedule, world.rng
    queries = [Query(writer) for writer in cast.writers]

    def spawn(
        role: Callable[[World, Process], None], disk: object, *, zombies: bool = True
    ) -> None:
        skew_ms = rng.choice(cast.skews_ms)
        schedule.spawn(_of(world, role), disk, name=role.__name__, skew_ms=skew_ms, zombies=zombies)

    for query in queries:
        spawn(writer, query)
    if cast.admin:
        spawn(admin, Chores(rng.choice(cast.chores), [q for q in queries if q.writer]))
    if cast.readers:
        for partition in PARTITIONS:  # one that goes on beside its successor may set it back
            spawn(reader, partition, zombies=False)
    if cast.services:
        for has_two_threads in (True, False):
            spawn(service, has_two_threads)
    schedule.before_step.append(world.maybe_put_a_foreign_state)
    schedule.run(rng.choice(cast.steps))
    schedule.before_step.remove(world.maybe_put_a_foreign_state)
    schedule.fault_rates = FaultRates()
    schedule.wake_all()
    world.bucket.land(0.8)
    schedule.run(3000 if cast.services or cast.readers else 1000)
    schedule.clear()
    world.bucket.land()
    world.oracle.takes_for_head(world.oracle.folded_anew(), world.oracle.truth.number)
    if cast.services:
        schedule.run_alone(_of(world, last_service))
        world.oracle.check_end()


def _of(world: World, role: Callable[[World, Process], None]) -> Role:
    return partial(role, world)
