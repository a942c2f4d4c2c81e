"""Drives a log on a CrashFS beside the model, and judges what a crash left.

A `World` holds one machine, one open log (or a closed one) and the model of what is committed.
An operation is planned first: what the log must hold if it succeeds, the call itself, and the
identity under which it commits, if any. After a crash anywhere in the call the log must hold the
state before or the state after, never a third; `judge` looks at it as users would.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import sparklog
from sparklog import clock
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import BatchConflictError, OffsetOutOfRangeError
from sparklog.format.batch import encode_one
from sparklog.log.commit import Identity
from sparklog.log.due_segments import NO_CONSTRAINTS
from sparklog.logdir.home import commits_of
from sparklog.logdir.retention import partition_retention, segment_deletion
from sparklog.logdir.retention.partition_retention import segments_of
from sparklog.storage.commits import Chunk
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import format_trace
from tests.crash import whereabouts
from tests.crash.model import Model, Part, View, describe, key_of
from tests.diskless.model.virtual import without_threads

ROOT = "/log"
TOPIC = "t"
PLACED = "placed"  # its records keep offsets that they had elsewhere, so some are missing
PARTITIONS = 2
CONFIG = {
    "internal.segment.bytes": "400",  # some three small appends
    "index.interval.bytes": "1",  # an index entry for every batch but the first
    "retention.ms": "1000000",  # the clock never comes so far by itself
}
OPTIONS = {"num.recovery.threads.per.data.dir": "1", "lock.timeout.ms": "2000"}


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Without logs, whose tracebacks cost a quarter, and without a search for garbage in cycles."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


class _Calls:
    """`time` to the library's budgets and time-outs: a millisecond passes whenever it looks."""

    def __init__(self) -> None:
        self._own, self._now = threading.get_ident(), 0.0

    def monotonic(self) -> float:
        if threading.get_ident() != self._own:
            return time.monotonic()
        self._now += 0.001
        return self._now

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._own:
            time.sleep(seconds)
        self._now += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextlib.contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """What the library draws at random is the seed's; its threads' work comes in turn, in no time.

    Else the same seed has another order of files, other sizes of texts, other calls to crash at.
    """
    own, rng, state = threading.get_ident(), random.Random(seed), random.getstate()
    uuid4, urandom = uuid.uuid4, os.urandom

    def new_uuid() -> uuid.UUID:
        is_own = threading.get_ident() == own
        return uuid.UUID(int=rng.getrandbits(128), version=4) if is_own else uuid4()

    def new_bytes(size: int) -> bytes:
        return rng.randbytes(size) if threading.get_ident() == own else urandom(size)

    random.seed(seed)
    try:
        with contextlib.ExitStack() as patches:
            patches.enter_context(patch.object(uuid, "uuid4", new_uuid))
            patches.enter_context(patch.object(os, "urandom", new_bytes))
            patches.enter_context(patch.object(clock, "time", _Calls()))
            without_threads(patches)
            yield
    finally:
        random.setstate(state)


def open_log(
    fs: CrashFS,
    clock: ManualClock,
    mode: str = "rw",
    options: dict[str, str] | None = None,
    path: str = ROOT,
) -> sparklog.Log:
    return sparklog.open(path, mode, fs=fs, clock=clock, options=OPTIONS | (options or {}))


def table(values: list[bytes], *, keyed: bool = False) -> pa.RecordBatch:
    keys = [key_of(value) if keyed else None for value in values]
    columns = [pa.array(rows, pa.binary()) for rows in (keys, values)]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value"])


def chunk(
    topic: str, partition: int, values: list[bytes], now_ms: int, *, keyed: bool = False
) -> Chunk:
    """Frame `values` as a task would: one batch a value, offsets from 0."""
    keys = [key_of(value) if keyed else None for value in values]
    batches = [encode_one(k, v, timestamp=now_ms) for k, v in zip(keys, values, strict=True)]
    for offset, batch in enumerate(batches):
        batch[:8] = offset.to_bytes(8, "big")  # outside of the CRC
    data = b"".join(batches)
    return Chunk(
        topic=topic,
        partition=partition,
        data=data,
        size_bytes=len(data),
        records=len(values),
        min_timestamp=now_ms,
        max_timestamp=now_ms,
    )


def staged(fs: CrashFS, whole: Chunk, name: str) -> Chunk:
    """Put a chunk's bytes into a staged file, synced as the task does it."""
    path = f"{ROOT}/sparklog-chunk-{name}"
    with fs.open(path, create=True) as file:
        assert whole.data is not None
        file.pwrite(whole.data, 0)
        file.sync()
    return Chunk(
        topic=whole.topic,
        partition=whole.partition,
        path=path,
        size_bytes=whole.size_bytes,
        records=whole.records,
        min_timestamp=whole.min_timestamp,
        max_timestamp=whole.max_timestamp,
        synced_boot_id=fs.boot_id(),
    )


@dataclass(slots=True)
class Planned:
    """An operation about to run."""

    name: str
    after: Model
    act: Callable[[], object]
    identity: Identity | None = None
    chunks: list[Chunk] = field(default_factory=list)
    values: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """With these it is a reset, after which `identity` commits them in `chunks`."""
    again: Callable[[sparklog.Log, Model], Model] | None = None
    """What its user does after a crash, given what the log then held; returns what it holds now."""
    midway: list[Model] = field(default_factory=list)
    """What else may be wanted after a crash, or an error, beside `after` and what was before."""
    parts: dict[tuple[str, int], list[Part]] = field(default_factory=dict)
    """What each of these partitions may hold after a crash or an error, whatever the others do."""
    in_steps: bool = False
    """An error may leave some of it done."""


class World:
    """A machine, a log on it, and the model. The same seed gives the same history."""

    def __init__(
        self,
        seed: int = 0,
        *,
        reopen: bool = False,
        page_bytes: int = 512,
        options: dict[str, str] | None = None,
        config: dict[str, str] | None = None,
        path: str = ROOT,
        keyed: bool = False,
    ) -> None:
        self.path, self.keyed = path, keyed
        self.options, self.config = options or {}, CONFIG | (config or {})
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.fs = CrashFS(clock=self.clock, reopen=reopen, page_bytes=page_bytes)
        self.model = Model()
        self.log: sparklog.Log | None = None
        self.history: list[str] = []
        self.views: list[View] = []  # everything that was ever committed, oldest first
        self.ids: dict[int, str] = {}  # the topic id of each life
        self.was_deleted: set[int] = set()  # lives that were, and may be there again
        self.prints: dict[tuple[str, int], str] = {}  # (writer, batch) -> its newest fingerprint
        self.others: list[sparklog.Log] = []  # sessions of other processes, left open
        self._serial = itertools.count()

    @classmethod
    def started(cls, seed: int = 0, **given: Any) -> World:
        """A log with one topic and a few records, some of them in closed segments."""
        world = cls(seed, **given)
        world.open()
        world.run(world.plan_create(TOPIC))
        world.run(world.plan_append((TOPIC, 0), 5))
        world.run(world.plan_commit({(TOPIC, 0): 1, (TOPIC, 1): 2}))
        return world

    def open(self) -> None:
        self.log = open_log(self.fs, self.clock, "rw", self.options, self.path)

    @property
    def opened(self) -> sparklog.Log:
        assert self.log is not None
        return self.log

    def values(self, count: int, size: int = 0) -> list[bytes]:
        return [(b"v%d" % next(self._serial)).ljust(size, b".") for _ in range(count)]

    def table(self, values: list[bytes]) -> pa.RecordBatch:
        return table(values, keyed=self.keyed)

    def settle(self) -> None:
        """Take the lock once: what was committed but not published, for want of disk, shows now."""
        self.opened.committed(Identity(writer="nobody", batch=0, fingerprint=""))

    def run(self, planned: Planned) -> None:
        self.history.append(planned.name)
        self.clock.advance(whereabouts.STEP_MS)
        planned.act()
        self.model = planned.after
        self.views.append(self.model.view())

    # -- operations ----------------------------------------------------------------------------

    def plan_append(self, key: tuple[str, int], count: int, size: int = 0) -> Planned:
        values = self.values(count, size)
        after = self.model.with_values({key: values})
        return Planned(
            f"append {count} to {key}",
            after,
            lambda: self.opened.append(key[0], self.table(values), partition=key[1]),
        )

    def plan_commit(
        self, counts: dict[tuple[str, int], int], *, stage: bool = False, writer: str = "w"
    ) -> Planned:
        batch = self.model.writers.get(writer, (-1, ""))[0] + 1
        identity = Identity(writer=writer, batch=batch, fingerprint=f"fp{next(self._serial)}")
        values = {key: self.values(count) for key, count in counts.items()}
        after = self.model.with_values(values)
        after.writers[writer] = (batch, identity.fingerprint)
        self.prints[writer, batch] = identity.fingerprint
        now, keyed = self.clock(), self.keyed
        chunks = [chunk(*key, some, now, keyed=keyed) for key, some in values.items()]

        def act() -> object:
            names = (f"{writer}-{batch}-{next(self._serial)}" for _ in chunks)
            given = [staged(self.fs, c, next(names)) for c in chunks] if stage else chunks
            return self.opened.commit(given, identity=identity, app="test")

        kind = "adopt" if stage else "commit"
        return Planned(f"{kind} {counts} as {writer}/{batch}", after, act, identity, chunks)

    def plan_replay(self, writer: str = "w") -> Planned:
        """Commit the last batch's identity once more, with other data: it must be dropped."""
        batch, fingerprint = self.model.writers[writer]
        identity = Identity(writer=writer, batch=batch, fingerprint=fingerprint)
        chunks = [chunk(TOPIC, 0, [b"never"], self.clock())]

        def act() -> object:
            result = self.opened.commit(chunks, identity=identity, app="test")
            assert result.replayed
            return result

        return Planned(f"replay {writer}/{batch}", self.model.copy(), act, identity, chunks)

    def plan_reset(self, writer: str = "w") -> Planned:
        """Take the writer's last batch back; it then comes again, planned anew."""
        batch, _ = self.model.writers[writer]
        identity = Identity(writer=writer, batch=batch, fingerprint=f"fp{next(self._serial)}")
        after = self.model.copy()
        del after.writers[writer]
        if batch:
            after.writers[writer] = (batch - 1, self.prints[writer, batch - 1])
        values = {(TOPIC, 0): self.values(2)}
        chunks = [chunk(*key, some, self.clock()) for key, some in values.items()]
        return Planned(
            f"reset {writer} to {batch - 1}",
            after,
            lambda: self.opened.reset(writer, batch - 1),
            identity,
            chunks,
            values,
        )

    def plan_truncate(self, key: tuple[str, int], start: int) -> Planned:
        after = self.model.with_start(key, start)
        return Planned(
            f"delete records of {key} below {start}",
            after,
            lambda: self.opened.delete_records(key[0], {key[1]: start}),
        )

    def plan_retain(self, key: tuple[str, int], now_ms: int) -> Planned:
        """Retention at `now_ms`: what is due is asked first, so the model knows the new start."""
        commits = commits_of(self.opened)
        with commits.exclusive():
            place = partition_retention.retention_by_partition(commits)[TopicPartition(*key)]
        held = segments_of(self.fs, place.directory)
        found = segment_deletion.due_segments_of(
            self.fs, place, held, now_ms=now_ms, terms=NO_CONSTRAINTS
        )
        return Planned(
            f"retention of {key} up to {found.log_start}, {found.rolls=}",
            self.model.with_start(key, found.log_start),
            lambda: segment_deletion.delete_due(
                commits, {TopicPartition(*key): NO_CONSTRAINTS}, now_ms=now_ms, budget_ms=1000
            ),
        )

    def plan_idle_roll(self, key: tuple[str, int]) -> Planned:
        commits = commits_of(self.opened)

        def act() -> None:
            with commits.exclusive():
                segment_deletion.roll(commits, [TopicPartition(*key)])

        return Planned(f"idle roll of {key}", self.model.copy(), act)

    def plan_create(self, topic: str) -> Planned:
        after = self.model.with_topic(topic, PARTITIONS)

        def act() -> object:
            made = self.opened.create_topic(topic, partitions=PARTITIONS, config=self.config)
            assert made.id not in self.ids.values()
            self.ids[after.lives[topic]] = made.id
            for partition, place in made.dirs.items():
                after.parts[topic, partition].place = os.path.dirname(place)
            return made

        return Planned(f"create {topic}", after, act)

    def plan_drop(self, topic: str, *, now: bool = False) -> Planned:
        self.was_deleted.add(self.model.lives[topic])
        return Planned(
            f"delete {topic}{' for good' if now else ''}",
            self.model.without_topic(topic, self.clock(), now=now),
            lambda: self.opened.delete_topic(topic, now=now),
        )

    def plan_undelete(self, topic: str, *, new_name: str | None = None) -> Planned:
        life, name = self.model.newest(topic), new_name or topic

        def act() -> object:
            given = self.opened.undelete_topic(topic, new_name=new_name)
            assert (given.name, given.id) == (name, self.ids[life])
            return given

        after = self.model.with_topic_again(life, name)
        return Planned(f"undelete {topic} as {name}", after, act)

    def plan_purge(self, topic: str) -> Planned:
        """Give up a deleted topic for good: nothing that anybody sees changes."""
        return Planned(
            f"purge {topic}",
            self.model.without_deleted(topic),
            lambda: self.opened.delete_topic(topic, now=True),
        )

    def plan_close(self) -> Planned:
        def act() -> None:
            self.opened.close()
            self.log = None

        return Planned("close", self.model.copy(), act)

    def plan_open(self) -> Planned:
        """Open the log; where it is open, another process does and works on from there."""

        def act() -> None:
            if self.log is not None:
                self.others.append(self.log)
                self.fs = self._successor()
            self.open()

        return Planned("open", self.model.copy(), act)

    def _successor(self) -> CrashFS:
        fs = self.fs.process()
        fs.on_call, self.fs.on_call = self.fs.on_call, None
        fs.calls = self.fs.calls
        return fs


def view_of(log: sparklog.Log) -> View:
    """Read everything, as a user would."""
    view: View = {}
    for name in log.topics():
        rows: dict[int, list[tuple[int, bytes]]] = {}
        for batch in log.read(name, columns=["partition", "offset", "value"]):
            columns = (batch.column(c).to_pylist() for c in ("partition", "offset", "value"))
            for partition, offset, value in zip(*columns, strict=True):
                rows.setdefault(partition, []).append((offset, value))
        for partition, (start, end) in log.offsets(name).items():
            found = sorted(rows.get(partition, []))
            offsets = [offset for offset, _ in found]
            is_once = len(set(offsets)) == len(offsets)
            assert is_once and set(offsets) <= set(range(start, end)), (
                f"{name}-{partition} is [{start}, {end}) but gave {offsets}"
            )
            there = dict(found)
            view[name, partition] = start, end, tuple(there.get(o) for o in range(start, end))
    return view


class Judgement(AssertionError):
    """The log holds what it must not, or lacks what it must hold."""


def judge(
    fs: CrashFS,
    world: World,
    planned: Planned | None,
    *,
    finished: bool = False,
    go_on: bool = True,
) -> Model:
    """Recover the log on `fs`, check it, close it if it went on; return what it held at last."""
    log = open_log(fs, world.clock, "rw", world.options, world.path)
    try:
        return check(log, world, planned, finished=finished, go_on=go_on)
    finally:
        if go_on:
            log.close()


def check(
    log: sparklog.Log,
    world: World,
    planned: Planned | None,
    *,
    finished: bool = False,
    go_on: bool = True,
) -> Model:
    """Check a recovered log against the world's model; return what it holds now.

    `planned` is the operation that was under way, `finished` whether its call had returned.
    With `go_on` it must also take more records.
    """
    before = world.model
    after = planned.after if planned is not None else before
    allowed = [after] if finished else [before, after]
    found = view_of(log)
    matches = [model for model in allowed if model.view() == found]
    if not matches and planned is not None and not finished:
        matches = _in_parts(before, planned, found)
    if not matches:
        raise Judgement(
            f"{describe(found, [m.view() for m in allowed])}\nhistory: {world.history[-30:]}, "
            f"then {planned.name if planned else 'nothing'}\n"
            f"calls:\n{format_trace(world.fs.calls)}"
        )
    model = matches[0]
    if planned is not None and planned.again is not None:
        model = planned.again(log, model)
    elif planned is not None and planned.values:
        model = _check_reset(log, planned, finished=finished)
    elif planned is not None and planned.identity is not None:
        model = _check_identity(log, before, planned, model)
    if planned is None or planned.again is None:
        midway = planned.midway if planned is not None and not finished else []
        model = whereabouts.check(log, world, model, [*allowed, *midway])
    if go_on:
        model = _check_writable(log, world, model)
    if model.view() != found:
        assert view_of(log) == model.view(), "what was added isn't what is there"
    return model


def _in_parts(before: Model, planned: Planned, found: View) -> list[Model]:
    """Return what is there, if each partition holds one of what the operation may have left."""
    model = (planned.midway or [before])[0].copy()
    for key, states in planned.parts.items():
        model.parts[key] = next((s for s in states if s.view() == found.get(key)), model.parts[key])
    return [model] if model.view() == found else []


def _check_identity(log: sparklog.Log, before: Model, planned: Planned, found: Model) -> Model:
    """A replay is recognised if the batch is in, and commits if it isn't. Either way: once."""
    identity = planned.identity
    assert identity is not None
    is_in = before.view() != planned.after.view() and found is planned.after
    was_in = before.writers.get(identity.writer) == (identity.batch, identity.fingerprint)
    known = log.committed(identity)
    assert (known is not None) == (is_in or was_in), (
        f"{identity}: committed() says {known}, the data say {is_in or was_in}"
    )
    result = log.commit(planned.chunks, identity=identity, app="test")
    assert result.replayed == (is_in or was_in)
    return found if was_in else planned.after


def _check_reset(log: sparklog.Log, planned: Planned, *, finished: bool) -> Model:
    """The batch that was taken back is new, once; before the reset it is another's number."""
    identity = planned.identity
    assert identity is not None
    try:
        result = log.commit(planned.chunks, identity=identity, app="test")
    except BatchConflictError:
        assert not finished, "the reset is gone"
        assert log.reset(identity.writer, identity.batch - 1) == [identity.writer]
        result = log.commit(planned.chunks, identity=identity, app="test")
    assert not result.replayed
    assert log.commit(planned.chunks, identity=identity, app="test").replayed
    after = planned.after.with_values(planned.values)
    after.writers[identity.writer] = (identity.batch, identity.fingerprint)
    return after


def _check_writable(log: sparklog.Log, world: World, model: Model) -> Model:
    """Every partition takes one more record, right behind the last."""
    for key in sorted(model.parts):
        if key[0] != PLACED:  # in it a record of another's would end the copy
            value = b"after-%d" % next(world._serial)
            log.append(key[0], world.table([value]), partition=key[1])
            model = model.with_values({key: [value]})
    return model


def look(fs: CrashFS, world: World, allowed: list[View]) -> View:
    """A reader without a lock, in a process of its own, sees one of the allowed views."""
    reader = fs.process()
    try:
        with open_log(reader, world.clock, "r", path=world.path) as log:
            found = view_of(log)
    except OffsetOutOfRangeError:
        raise Judgement("a reader was told of an offset that is out of range") from None
    calls = len(reader.calls)
    assert calls == 0, f"a reader changed the disk: {reader.calls}"
    if found not in allowed:
        raise Judgement(
            f"a reader saw what was never committed:\n{describe(found, allowed[-2:])}\n"
            f"history: {world.history[-30:]}\ncalls:\n{format_trace(world.fs.calls)}"
        )
    return found
