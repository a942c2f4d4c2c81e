"""What takes part: drivers of queries, an appender, an administrator, readers, services.

Each is a function of a `Process` and does with the library what an application does. Its `disk`
outlives it: a query's checkpoint, say. Whatever it is told, it tells the oracle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sparklog.common import TopicPartition
from sparklog.errors import (
    BatchConflictError,
    CommitUnknownError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.log.commit import Identity
from sparklog.log.log import Log, home_of
from sparklog.storage.commits import Chunk, StagingExpiredError, WriterResetError
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Report
from sparklog.storage.upkeep import Request, Upkeep
from sparklog.testing.scheduled_store import NO_ANSWER
from sparklog.testing.schedules import Process
from tests.diskless.model.oracle import PARTITIONS, TOPIC, Call, need
from tests.diskless.model.world import World

T = TypeVar("T")
BATCHES = 8
GROUP = "group"
DAY_MS = 24 * 3600 * 1000


@dataclass(slots=True)
class Query:
    """A checkpoint: the next micro-batch, and its plan's fingerprint. `writer` "": no identity."""

    writer: str
    batch: int = 0
    fingerprint: str = ""
    rewound: int = 0  # how often an administrator set it back


_REFUSED = (
    InvalidRequestError,
    StagingExpiredError,
    StorageUnavailableError,
    TopicReplacedError,
    WriterResetError,
)


def surely(process: Process, request: Callable[[], T]) -> T:
    """Ask until the store answers."""
    while True:
        try:
            return request()
        except CommitUnknownError:
            raise
        except StorageUnavailableError:
            process.sleep(process.rng.randrange(1000))


# --- writers -------------------------------------------------------------------------------------


def writer(world: World, process: Process) -> None:
    """A query's driver, or an appender: it plans, stages and commits micro-batches."""
    log, query = surely(process, lambda: world.open(process)), process.disk
    while query.batch < BATCHES:
        if not query.fingerprint or world.chance(
            0.04
        ):  # a power cut took the plan, other rows come
            query.fingerprint = world.fresh("plan")
        if query.writer or world.chance(0.5):
            surely(process, lambda: world.look(log))
        rewound, number = query.rewound, query.batch
        call = _planned(world, log, query)
        if call is None:
            process.idle(5)
            surely(process, lambda: world.look(log))
            continue
        chunks = surely(process, lambda call=call: world.stage(process, log, call))
        done = _commit(world, process, log, call, chunks)
        if done is None:
            continue
        if done or not call.batch:  # else somebody decides to go on
            world.oracle.told(done, call.id, call.batch)
        if (query.rewound, query.batch) == (rewound, number):
            query.batch, query.fingerprint = number + 1, ""


def _planned(world: World, log: Log, query: Query) -> Call | None:
    """What the next commit is to be, by what this handle knows."""
    topic = world.state(log).log.topics.get(TOPIC)
    if topic is None:
        return None
    name = world.fresh("call")
    partitions = world.rng.choice(((0,), (1,), (0, 1)))
    rows = {
        p: [f"{name}:{p}:{i}".encode() for i in range(world.rng.randint(1, 2))] for p in partitions
    }
    batch = (query.writer, query.batch, query.fingerprint) if query.writer else None
    call = Call(name, topic.id, rows, world.oracle.truth.number, batch)
    world.oracle.plan(call)
    return call


def _commit(
    world: World, process: Process, log: Log, call: Call, chunks: Sequence[Chunk]
) -> bool | None:
    """Tell whether it is committed, as the library says; None: it is to be tried anew."""
    identity = None
    if call.batch is not None:
        name, number, fingerprint = call.batch
        identity = Identity(writer=name, batch=number, fingerprint=fingerprint)
    try:
        log.commit(chunks, identity=identity, app=call.id)
    except CommitUnknownError as error:
        unknown = error
        world.count("unknown")
        if identity is not None:
            return None  # a replay finds out
        process.idle(world.rng.choice((0, 20, 200)))
        return surely(process, lambda: world.outcome(log, unknown))
    except BatchConflictError:
        world.count("conflict")
        return False
    except _REFUSED as error:
        world.count(type(error).__name__)
        return None if identity is not None else False
    return True


# --- an administrator ----------------------------------------------------------------------------


@dataclass(slots=True)
class Chores:
    """What an administrator still has to do."""

    left: int
    queries: list[Query] = field(default_factory=list)


def admin(world: World, process: Process) -> None:
    """Makes and drops the topic, deletes records, sets queries back; leaves the topic there."""
    log, chores = surely(process, lambda: world.open(process)), process.disk
    while True:
        surely(process, lambda: world.look(log))
        if chores.left <= 0 and TOPIC in world.state(log).log.topics:
            return
        try:
            _chore(world, log, chores)
        except (InvalidRequestError, CommitUnknownError, OffsetOutOfRangeError):
            continue
        except StorageUnavailableError:
            process.sleep(500)
            continue
        chores.left -= 1
        process.idle(world.rng.choice((10, 60)))


def _chore(world: World, log: Log, chores: Chores) -> None:
    state = world.state(log).log
    what = world.rng.choice(world.kinds)
    if TOPIC not in state.topics and state.deleted and world.chance(0.7):
        try:
            log.undelete_topic(TOPIC)
            world.count("undeleted")
        except UnknownTopicError:  # it was given up meanwhile
            world.count("given up")
    elif TOPIC not in state.topics:
        log.create_topic(TOPIC, len(PARTITIONS), world.topic_config)
    elif what == "d":
        log.delete_topic(TOPIC)
    elif what == "s":
        p = world.rng.choice(PARTITIONS)
        start, end = world.oracle.truth.starts[p], world.oracle.truth.ends[p]
        log.delete_records(TOPIC, {p: world.rng.randint(start, end)})
    else:
        query = world.rng.choice(chores.queries)
        last = state.writers.get(query.writer)
        batch = max((last.batch if last else 0) - 1, -1)
        if log.reset(query.writer, batch):
            query.batch, query.fingerprint, query.rewound = batch + 1, "", query.rewound + 1


# --- readers -------------------------------------------------------------------------------------


def reader(world: World, process: Process) -> None:
    """A member of a group reads one partition, from where the group is; it tells where it is."""
    log, p = surely(process, lambda: world.open_for_reading(process)), process.disk
    key = TopicPartition(TOPIC, p)
    committed = surely(process, lambda: home_of(log).groups.positions(GROUP)).get(key)
    at = committed.offset if committed else 0
    need(at >= world.oracle.acked[p], "a group's position went back")
    while True:
        try:
            at = _read_on(world, process, log, p, at)
            if world.chance(0.7):
                log.commit_offsets(GROUP, {TOPIC: {p: at}})
                world.oracle.acked[p] = at
        except (UnknownTopicError, TopicReplacedError, StorageUnavailableError) as error:
            world.count(type(error).__name__)
            process.sleep(500)
        except OffsetOutOfRangeError as error:
            need(at < error.start, f"offset {at} of {p} was refused: {error}")
        process.idle(world.rng.choice((0, 3, 30)))


def _read_on(world: World, process: Process, log: Log, p: int, at: int) -> int:
    """Read to the end, from `at` on; returns the end."""
    least = world.oracle.truth.ends[p]
    start, end = log.offsets(TOPIC)[p]
    need(end >= least, f"the end {end} of {p} was given, and {least} was there before")
    at = max(at, start)
    need(at <= end, "a reader is past the end")
    columns = ["value", "offset"]
    found = log.read(TOPIC, [p], start={p: at}, end={p: end}, columns=columns)
    process.idle(world.rng.choice((0, 0, 1, 30)))
    for batch in found:
        offsets, values = batch["offset"].to_pylist(), batch["value"].to_pylist()
        world.oracle.given_out(p, at, offsets[-1] + 1, dict(zip(offsets, values, strict=True)))
        at = offsets[-1] + 1
        process.idle(world.rng.choice((0, 0, 1, 30)))
    world.oracle.given_out(p, at, end, {})
    return end


# --- services ------------------------------------------------------------------------------------


def service(world: World, process: Process) -> None:
    """Waits for the lease, then does all kinds of work in any order, as long as it has it."""
    upkeep = surely(process, lambda: world.open_upkeep(process))
    if process.disk:
        process.start_thread(partial(_side_work, world, upkeep))
    while True:
        try:
            if upkeep.lease.held:
                _work(world, process, upkeep)
            elif upkeep.lease.acquire():
                upkeep.take_up(process.clock())
                world.count("took the lease")
            else:
                process.idle(world.rng.choice((3, 30, 100)))
        except LeaseLostError:
            world.count("lost the lease")
        except StorageUnavailableError:
            process.sleep(500)


def _side_work(world: World, upkeep: Upkeep, process: Process) -> None:
    """The second thread of a service."""
    while True:
        process.idle(world.rng.choice((3, 30)))
        try:
            if upkeep.lease.held:
                _work(world, process, upkeep)
        except (LeaseLostError, StorageUnavailableError):
            process.sleep(500)


def _work(world: World, process: Process, upkeep: Upkeep) -> None:
    report = Report(path="", time_ms=process.clock())
    work = world.rng.choice(("merge", "merge", "merge", "retain", "clean"))
    upkeep.work(work, report, Request(every=True))
    need_no_damage(report)
    if world.chance(0.5):
        upkeep.purge(report)
    process.idle(world.rng.choice((3, 20, 60)))


def need_no_damage(report: Report) -> None:
    """What a round puts down as an error is a store that didn't answer, and nothing else."""
    need(all(NO_ANSWER in each for each in report.errors), f"{report.errors}")


def last_service(world: World, process: Process) -> None:
    """Works alone, on a store that is well, until all delays are over several times."""
    upkeep = world.open_upkeep(process)
    while not upkeep.lease.acquire():
        process.sleep(60_000)
    upkeep.take_up(process.clock())
    for _ in range(4):
        process.sleep(DAY_MS)
        report = Report(path="", time_ms=process.clock())
        for work in upkeep.works:
            upkeep.work(work, report, Request(every=True))
        upkeep.purge(report)
        need(not report.errors, f"{report.errors}")
