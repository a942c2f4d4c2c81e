"""Moves, erasures and deleted topics as operations on a `World`: see `tests.crash.harness`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.log.log import home_of
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import Service
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.moves import MovedPartition, MoveRequest
from sparklog.testing.crashfs import CrashFS
from tests.crash.harness import OPTIONS, Planned, World
from tests.crash.model import Model

Key = tuple[str, int]


def _wish(model: Model, key: Key) -> tuple[int, int]:
    return model.lives[key[0]], key[1]


def _moved(model: Model, wishes: Iterable[tuple[Key, str]]) -> Model:
    """The model once these are where they are to be, and not wanted any more."""
    after = model.copy()
    for key, to in wishes:
        after.parts[key].place = to
        after.wanted.pop(_wish(model, key), None)
    return after


def _asked(model: Model, wishes: Iterable[tuple[Key, str]]) -> Model:
    after = model.copy()
    for key, to in wishes:
        if after.parts[key].place == to:
            after.wanted.pop(_wish(model, key), None)
        else:
            after.wanted[_wish(model, key)] = to
    return after


def plan_move(world: World, key: Key, to: str) -> Planned:
    """Move a partition, to be there when it returns."""
    wishes, source = [(key, to)], world.model.parts[key].place

    def act() -> None:
        moved = world.opened.move_partition(*key, to)
        assert (moved.source, moved.target) == (source, to)

    # Who dies leaves the wish; who fails takes it back, and what was wanted before with it.
    without = world.model.copy()
    without.wanted.pop(_wish(without, key), None)
    midway = [_asked(world.model, wishes), without]
    return Planned(f"move {key} to {to}", _moved(world.model, wishes), act, midway=midway)


def plan_ask(world: World, wishes: dict[Key, str]) -> Planned:
    """Ask for moves, for whoever carries them out."""
    requests = [MoveRequest(*key, to) for key, to in wishes.items()]
    return Planned(
        f"ask for moves {wishes}",
        _asked(world.model, wishes.items()),
        lambda: home_of(world.opened).moves.ask(requests),
    )


def plan_cancel(world: World) -> Planned:
    after = world.model.copy()
    after.wanted.clear()
    return Planned("cancel moves", after, lambda: world.opened.cancel_moves())


def plan_carry_out(world: World) -> Planned:
    """Carry out what was asked for; what failed before waits, unless it is asked for again."""
    before = world.model
    wanted = {
        (topic, p): before.wanted[life, p]
        for topic, life in before.lives.items()
        for p in range(len(world.opened.topic(topic).dirs))
        if (life, p) in before.wanted
    }
    planned = Planned("carry out moves", before, lambda: None, in_steps=True)

    def act() -> None:
        errors: list[SparklogError] = []
        done: list[MovedPartition] = []
        home_of(world.opened).moves.carry_out(
            failed=lambda move_id, error: errors.append(error), done=done.append
        )
        for error in errors:
            raise StorageUnavailableError(str(error)) from error
        left = {(one.topic, one.partition) for one in world.opened.moves()}
        assert all(one.state == "failed" for one in world.opened.moves())
        moved = {(one.topic, one.partition): one.target for one in done}
        planned.after = _moved(before, moved.items())
        for key, to in wanted.items():
            if key not in left and key not in moved:  # gone while the topic was deleted
                assert before.lives[key[0]] in world.was_deleted, f"{key} isn't in {to}"
                del planned.after.wanted[_wish(before, key)]

    planned.after, planned.act = _moved(before, wanted.items()), act
    return planned


def plan_erase(world: World, topic: str, key: bytes) -> Planned:
    """Erase a key from a topic, by the service; it says itself whether nothing is left."""
    before = world.model
    life = before.lives[topic]
    after = before.with_erased(topic, key)
    planned = Planned(f"erase {key!r} from {topic}", after, lambda: None, in_steps=True)
    planned.midway = [before.copy(), after.copy()]
    for model in planned.midway:
        model.begun |= {(life, key)}
    for (name, partition), part in before.parts.items():
        if name == topic:
            place = world.opened.topic(topic).dirs[partition]
            bounds = [*segment_bases(world.fs, place), part.end]
            planned.parts[name, partition] = [part.without(key, bound) for bound in bounds]

    def act() -> None:
        options = OPTIONS | world.options
        service = Service(world.path, options=options, fs=world.fs, clock=world.clock)
        try:
            report = service.erase(topic, [key], wait_ms=0)
        finally:
            service.close()
        for error in [*report.errors, *(one.error for one in report.partitions if one.error)]:
            raise StorageUnavailableError(error)
        if report.complete:
            check_gone(world, topic, key)
        else:
            planned.after.begun |= {(life, key)}
        _check_counts(report, before, topic, after)

    planned.act = act
    return planned


def _check_counts(report: ErasureReport, before: Model, topic: str, after: Model) -> None:
    """The report tells the offsets that went, and no others, of those that readers see."""
    for part in report.partitions:
        was, now = before.parts[topic, part.partition], after.parts[topic, part.partition]
        pairs = zip(was.values, now.values, strict=True)
        gone = {o for o, (value, left) in enumerate(pairs, was.base) if value != left}
        told = {o for first, end in part.offsets.ranges for o in range(first, end)}
        assert {o for o in told ^ gone if o >= was.start} == set(), (
            f"{topic}-{part.partition}: {told} are said to be gone, not {gone}"
        )


def check_gone(world: World, topic: str, key: bytes) -> None:
    """No file of a topic's holds a record with that key, and no life of it can be given back."""
    lives = [one for one in world.opened.deleted_topics() if one.name == topic]
    assert not lives, f"{lives} are there, and {key!r} is said to be erased"
    of_topic = re.compile(rf"{topic}-\d+(\.[0-9a-f]{{32}}-\w+)?")
    raw = bytes([2 * len(key)]) + key  # a varint and the bytes
    found = []
    for directory in world.path.split(","):
        for name in world.fs.listdir(directory):
            path = f"{directory}/{name}"
            if of_topic.fullmatch(name) and world.fs.is_dir(path):
                found += [one for one in _files(world.fs, path) if raw in _bytes(world.fs, one)]
    assert not found, f"{key!r} is in {found}, and was erased"


def _files(fs: CrashFS, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in fs.listdir(directory)]


def _bytes(fs: CrashFS, path: str) -> bytes:
    with suppress(FileNotFoundError), fs.open(path) as file:
        return file.pread(1 << 20, 0)
    return b""
